mod damage;
mod files;

use super::layout::{ENTRY_LEN, FOOTER_LEN, HEADER_LEN};
use super::*;
use crate::board::{Board, Move};
use crate::error::{Error, ErrorKind, Result};
use crate::format::source::{RunSource, SourceRun};
use crate::format::{RunFormat, encode_run};
use crate::run::{Branches, Run, RunMeta};
use crate::system::cancellation::CancellationToken;
use proptest::prelude::*;

fn never() -> &'static CancellationToken {
    CancellationToken::never()
}

const NONE: Compression = Compression::None;

/// Returns a run with compressible boards.
fn sample_run(num_steps: u64, engine: Option<&str>) -> Run {
    let mut steps = Run::builder(num_steps as usize);
    for step in 0..num_steps {
        let branches = Branches { values: [0.25, 0.5, step as f32, 0.0], legal: 0b0111 };
        steps.push(Board(0x1234 << (step % 48)), Move::ALL[step as usize % 4], (step % 3 > 0).then_some(branches));
    }
    let meta = RunMeta {
        start_unix_s: 1_700_000_000 + num_steps,
        elapsed_s: 1.5,
        max_score: 100 * num_steps,
        highest_tile: 1 << (num_steps % 12),
        engine: engine.map(str::to_owned),
        ..RunMeta::default()
    };
    steps.finish(meta, Board(0x2100_0000_0000_0000 + num_steps)).unwrap()
}

fn files() -> Vec<Vec<u8>> {
    let encode = |len, engine, format| encode_run(&sample_run(len, engine), format).unwrap();
    vec![
        encode(20, Some("ai-2048"), RunFormat::A2run2),
        encode(3, None, RunFormat::A2t1),
        encode(40, Some("λ"), RunFormat::A2t1),
    ]
}

fn build(files: &[Vec<u8>], align: u32, compression: Compression, capacity: Option<u64>) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.a2pack");
    let mut builder = PackBuilder::create(&path, PackOptions { align, compression, workers: None }).unwrap();
    if let Some(capacity) = capacity {
        builder = builder.with_capacity(capacity);
    }
    for file in files {
        builder.add_run_bytes(file).unwrap();
    }
    let report = builder.finish().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!((report.packed, report.num_bytes), (files.len() as u64, bytes.len() as u64));
    bytes
}

fn decode_all(pack: &PackReader) -> Vec<Run> {
    (0..pack.len()).map(|index| pack.decode(index).unwrap()).collect()
}

fn validate(pack: &PackReader) -> ValidateReport {
    pack.validate(&ValidateOptions { sample: None, workers: Some(1) }, &(), never()).unwrap()
}

/// Reads a number from the bytes of a pack.
fn number<const N: usize>(bytes: &[u8], offset: usize) -> u64 {
    let mut number = [0; 8];
    number[..N].copy_from_slice(&bytes[offset..][..N]);
    u64::from_le_bytes(number)
}

/// Repairs the checksums of header, index and footer.
fn repair(bytes: &mut [u8]) {
    let footer = bytes.len() - FOOTER_LEN as usize;
    let index_len = number::<8>(bytes, 16).saturating_mul(ENTRY_LEN);
    let header_crc = crc32c::crc32c(&bytes[..24]);
    bytes[24..28].copy_from_slice(&header_crc.to_le_bytes());
    if let Some(index) = usize::try_from(index_len).ok().and_then(|len| bytes[HEADER_LEN as usize..footer].get(..len)) {
        let index_crc = crc32c::crc32c(index);
        bytes[footer + 8..footer + 12].copy_from_slice(&index_crc.to_le_bytes());
    }
    let footer_crc = crc32c::crc32c(&bytes[footer..footer + 24]);
    bytes[footer + 24..footer + 28].copy_from_slice(&footer_crc.to_le_bytes());
}

/// Returns the pack with a changed number and repaired checksums.
fn changed(bytes: &[u8], offset: usize, number: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[offset..][..number.len()].copy_from_slice(number);
    repair(&mut bytes);
    bytes
}

/// Returns the offset of an index entry.
fn entry_offset(index: usize) -> usize {
    (HEADER_LEN + index as u64 * ENTRY_LEN) as usize
}

fn arb_file() -> impl Strategy<Value = Vec<u8>> {
    let step = (any::<u64>(), 0..4u8, prop::option::of((any::<[f32; 4]>(), 0..16u8)));
    let engine = prop::option::of("[a-zλ]{1,9}");
    (prop::collection::vec(step, 0..60), engine, any::<(u64, u32, u64)>(), any::<bool>()).prop_map(
        |(steps, engine, (start_unix_s, highest_tile, max_score), is_v1)| {
            let mut run = Run::builder(steps.len());
            for (board, chosen, branches) in steps {
                let branches = branches.map(|(values, legal)| Branches { values, legal });
                run.push(Board(board), Move::ALL[usize::from(chosen)], branches);
            }
            let meta = RunMeta { start_unix_s, highest_tile, max_score, engine, ..RunMeta::default() };
            let run = run.finish(meta, Board(max_score)).unwrap();
            encode_run(&run, if is_v1 { RunFormat::A2t1 } else { RunFormat::A2run2 }).unwrap()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_runs_round_trip(
        files in prop::collection::vec(arb_file(), 0..12),
        align in 1..9000u32,
        compression in prop::sample::select(Compression::ALL.to_vec()),
        capacity in prop::option::of(0..20u64),
    ) {
        let bytes = build(&files, align, compression, capacity);
        let pack = PackReader::from_bytes(bytes.clone()).unwrap();
        prop_assert_eq!(pack.len(), files.len());
        for (index, file) in files.iter().enumerate() {
            let (run, format) = crate::format::decode_run(file).unwrap();
            let slice = pack.get_slice(index).unwrap();
            prop_assert_eq!(&*slice.bytes, file);
            prop_assert_eq!(slice.offset % u64::from(align), 0);
            prop_assert_eq!(slice.format, format);
            prop_assert_eq!(&pack.decode(index).unwrap(), &run);
        }
        let indices: Vec<usize> = (0..pack.len()).collect();
        let runs: Vec<Run> = pack.decode_batch(&indices).into_iter().map(Result::unwrap).collect();
        prop_assert_eq!(runs, decode_all(&pack));
        let report = validate(&pack);
        prop_assert!(report.is_sound(), "{:?}", report.problems);
        prop_assert!(report.stats_checked);
        // The stats are the same when they are computed from the runs.
        let computed = PackReader::from_bytes(changed(&bytes, bytes.len() - 16, &[0; 8])).unwrap().stats(&(), never()).unwrap();
        let stored = pack.stats(&(), never()).unwrap();
        prop_assert!(stored.stored && !computed.stored);
        prop_assert_eq!(PackStats { stored: true, ..computed }, stored);
    }

    #[test]
    fn any_bytes_never_panic(
        at in any::<prop::sample::Index>(),
        junk in prop::collection::vec(any::<u8>(), 1..40),
    ) {
        let mut bytes = build(&files(), 8, Compression::Zstd, Some(3));
        let at = at.index(bytes.len());
        for (byte, junk) in bytes[at..].iter_mut().zip(junk) {
            *byte = junk;
        }
        repair(&mut bytes);
        if let Ok(pack) = PackReader::from_bytes(bytes) {
            for index in 0..pack.len() {
                let _ = pack.clone().with_checksums(false).decode(index);
            }
            let _ = (validate(&pack), pack.stats(&(), never()).unwrap());
        }
    }
}

/// Reads a pack by its specification alone, without the code under test.
#[test]
fn the_layout_matches_the_specification() {
    let files = files();
    for align in [1, 8, 24, 512, 4096, 8192, 1 << 20] {
        let bytes = build(&files, align, NONE, Some(3));
        assert_eq!(&bytes[..16], b"A2PACK\0\0\x01\0\0\0\0\0\0\0");
        assert_eq!(number::<8>(&bytes, 16), 3);
        assert_eq!(number::<4>(&bytes, 24), u64::from(crc32c::crc32c(&bytes[..24])));
        let mut end = 28 + 3 * 32;
        for (index, (file, kind)) in files.iter().zip([2, 1, 1]).enumerate() {
            let entry = 28 + 32 * index;
            let offset = number::<8>(&bytes, entry) as usize;
            assert_eq!(offset, usize::next_multiple_of(end, align as usize));
            assert!(bytes[end..offset].iter().all(|&byte| byte == 0));
            end = offset + file.len();
            assert_eq!(&bytes[offset..end], file);
            assert_eq!(number::<4>(&bytes, entry + 8), file.len() as u64);
            assert_eq!((number::<2>(&bytes, entry + 12), number::<2>(&bytes, entry + 14)), (kind, 0));
            assert_eq!(number::<4>(&bytes, entry + 16), u64::from(crc32c::crc32c(file)));
            assert_eq!(bytes[entry + 20..entry + 32], [0; 12]);
        }
        let footer = bytes.len() - 32;
        let first = number::<8>(&bytes, 28) as usize;
        assert_eq!(number::<8>(&bytes, footer), end as u64);
        assert_eq!(number::<4>(&bytes, footer + 8), u64::from(crc32c::crc32c(&bytes[28..28 + 96])));
        assert_eq!(number::<4>(&bytes, footer + 12), u64::from(crc32c::crc32c(&bytes[first..end])));
        assert_eq!(number::<8>(&bytes, footer + 16), end as u64);
        assert_eq!(number::<4>(&bytes, footer + 24), u64::from(crc32c::crc32c(&bytes[footer..footer + 24])));
        assert_eq!(bytes[footer + 28..], [0; 4]);
        // The lengths are 3, 20 and 40.
        let stats = [&[17, 0, 0, 0, 3, 63, 3, 40], &21.0f64.to_le_bytes()[..], &[20, 40, 40]].concat();
        assert_eq!(number::<4>(&bytes, end), 15);
        assert_eq!(bytes[end + 4..footer], stats[4..]);
    }
}

/// Other tools read version 1 only, and they ignore the flags of entries.
#[test]
fn only_packs_with_compressed_runs_have_version_2() {
    let runs = files();
    let incompressible = vec![encode_run(&sample_run(0, None), RunFormat::A2run2).unwrap()];
    for compression in Compression::ALL {
        assert_eq!(number::<4>(&build(&incompressible, 8, compression, None), 8), 1);
        assert_eq!(number::<4>(&build(&[], 8, compression, None), 8), 1);
        let bytes = build(&runs, 8, compression, None);
        assert_eq!(number::<4>(&bytes, 8), if compression == NONE { 1 } else { 2 });
        // Earlier builds wrote version 1 for all packs.
        for version in [1u32, 2] {
            let pack = PackReader::from_bytes(changed(&bytes, 8, &version.to_le_bytes())).unwrap();
            assert_eq!(decode_all(&pack), decode_all(&PackReader::from_bytes(bytes.clone()).unwrap()));
        }
    }
}

/// Other tools require that the data of an empty pack ends at 0.
#[test]
fn an_empty_pack_ends_at_0() {
    for align in [1, 4096] {
        let bytes = build(&[], align, NONE, Some(0));
        let footer = bytes.len() - 32;
        assert_eq!(number::<8>(&bytes, footer), 0);
        assert_eq!(number::<8>(&bytes, footer + 16), u64::next_multiple_of(28, align.into()));
        for end in [0u64, 28, 28u64.next_multiple_of(align.into())] {
            let pack = PackReader::from_bytes(changed(&bytes, footer, &end.to_le_bytes())).unwrap();
            let report = validate(&pack);
            assert!(report.is_sound() && report.stats_checked && pack.is_empty(), "{:?}", report.problems);
        }
        for (at, wrong) in [(0, 1u64), (0, 27), (16, 27)] {
            let error = PackReader::from_bytes(changed(&bytes, footer + at, &wrong.to_le_bytes())).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Header { .. }), "{error}");
        }
    }
    // A pack with runs does not.
    let bytes = build(&files(), 8, NONE, None);
    let error = PackReader::from_bytes(changed(&bytes, bytes.len() - 32, &[0; 8])).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Header { what: "end of the data", .. }), "{error}");
}

#[test]
fn an_index_out_of_bounds_is_an_error() {
    let pack = PackReader::from_bytes(build(&files(), 8, NONE, None)).unwrap();
    for index in [3, usize::MAX] {
        for error in [pack.decode(index).unwrap_err(), pack.format(index).unwrap_err()] {
            assert!(matches!(error.kind(), ErrorKind::IndexOutOfBounds { len: 3, .. }));
        }
    }
    let batch = pack.decode_batch(&[2, 3, 0]);
    assert_eq!(batch.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(pack.num_runs(), 3);
    assert!(matches!(RunSource::read(&pack, 0).unwrap(), SourceRun::File(bytes) if *bytes == files()[0]));
}

#[test]
fn data_is_moved_for_a_long_index() {
    let file = &files()[1];
    for align in [8, 4096] {
        let files = vec![file.clone(); 700];
        let pack = PackReader::from_bytes(build(&files, align, NONE, None)).unwrap();
        assert!(validate(&pack).is_sound());
        assert_eq!(decode_all(&pack).iter().map(Run::num_steps).sum::<usize>(), 2100);
        // The bytes between the index and the data are zeros.
        let between = entry_offset(700)..pack.get_slice(0).unwrap().offset as usize;
        assert!(pack.pack.bytes[between].iter().all(|&byte| byte == 0));
    }
}

#[test]
fn batches_are_decoded_on_the_threads_of_the_caller() {
    let pack = PackReader::from_bytes(build(&vec![files()[1].clone(); 600], 8, NONE, None)).unwrap();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let indices: Vec<usize> = (0..600).collect();
    assert_eq!(pool.install(|| pack.decode_batch(&indices)).into_iter().map(Result::unwrap).count(), 600);
    let some = pool.install(|| pack.decode_batch(&[5, 5, 600]));
    assert_eq!(some.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false]);
}
