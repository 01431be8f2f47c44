//! Damaged packs.

use super::*;
use crate::format::JsonlOptions;
use crate::format::pack::layout::IndexEntry;

#[test]
fn every_truncation_is_an_error() {
    for compression in Compression::ALL {
        let bytes = build(&files(), 64, compression, Some(3));
        assert!(bytes.len() < 4096);
        for len in 0..bytes.len() {
            let error = PackReader::from_bytes(&bytes[..len]).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Header { .. } | ErrorKind::Checksum { .. }), "{len}: {error}");
        }
    }
}

#[test]
fn every_flipped_bit_under_a_checksum_is_detected() {
    for compression in Compression::ALL {
        let bytes = build(&files(), 64, compression, Some(3));
        let pack = PackReader::from_bytes(bytes.clone()).unwrap();
        let runs = decode_all(&pack);
        let index_end = entry_offset(3);
        let first = pack.get_slice(0).unwrap().offset as usize;
        let data_end = pack.pack.layout.data_end as usize;
        let footer = bytes.len() - 32;
        assert!(index_end < first && data_end < footer);
        let mut num_found = 0;
        for bit in 0..8 * bytes.len() {
            let at = bit / 8;
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (bit % 8);
            let opened = PackReader::from_bytes(flipped);
            let is_covered = !(index_end..first).contains(&at) && !(data_end..footer).contains(&at) && at < footer + 28;
            let found = match &opened {
                Ok(flipped) => {
                    for (index, run) in runs.iter().enumerate() {
                        if let Ok(decoded) = flipped.decode(index) {
                            assert_eq!(&decoded, run, "byte {at}");
                        }
                    }
                    !validate(flipped).is_sound()
                }
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::Header { .. } | ErrorKind::Checksum { .. }), "{error}");
                    true
                }
            };
            assert!(found || !is_covered, "byte {at}");
            num_found += usize::from(found && is_covered);
        }
        assert!(num_found > 8 * (index_end + data_end - first));
    }
}

#[test]
fn rejects_inconsistent_headers() {
    let files = files();
    let bytes = build(&files, 64, NONE, Some(3));
    let footer = bytes.len() - 32;
    let pack = PackReader::from_bytes(bytes.clone()).unwrap();
    let offset = |index| pack.get_slice(index).unwrap().offset;
    let cases: Vec<(usize, Vec<u8>, &str)> = vec![
        (0, b"A2PACK\0\x01".to_vec(), "magic"),
        (8, 3u32.to_le_bytes().to_vec(), "version"),
        (16, u64::MAX.to_le_bytes().to_vec(), "number of runs"),
        (16, (u64::MAX / 32 + 2).to_le_bytes().to_vec(), "number of runs"),
        (16, (bytes.len() as u64 / 32).to_le_bytes().to_vec(), "number of runs"),
        (footer, 100u64.to_le_bytes().to_vec(), "end of the data"),
        (footer, (footer as u64 + 1).to_le_bytes().to_vec(), "end of the data"),
        (footer, u64::MAX.to_le_bytes().to_vec(), "end of the data"),
        (footer + 16, 28u64.to_le_bytes().to_vec(), "offset of the stats"),
        (footer + 16, (footer as u64 - 3).to_le_bytes().to_vec(), "offset of the stats"),
        (footer + 16, u64::MAX.to_le_bytes().to_vec(), "offset of the stats"),
        (entry_offset(0), 27u64.to_le_bytes().to_vec(), "offset of the entry"),
        (entry_offset(0), u64::MAX.to_le_bytes().to_vec(), "offset of the entry"),
        (entry_offset(1), (offset(0) + 1).to_le_bytes().to_vec(), "offset of the entry"),
        (entry_offset(2), offset(1).to_le_bytes().to_vec(), "offset of the entry"),
        (entry_offset(2) + 8, u32::MAX.to_le_bytes().to_vec(), "length of the entry"),
        (entry_offset(0) + 8, 9999u32.to_le_bytes().to_vec(), "length of the entry"),
    ];
    for (at, number, field) in cases {
        let error = PackReader::from_bytes(changed(&bytes, at, &number)).unwrap_err();
        let ErrorKind::Header { location, what, .. } = error.kind() else { panic!("{error}") };
        assert_eq!(*what, field);
        assert!(location.offset.is_some());
    }
    // An entry that overlaps the next one.
    let length = (offset(1) - offset(0) + 1) as u32;
    let error = PackReader::from_bytes(changed(&bytes, entry_offset(0) + 8, &length.to_le_bytes())).unwrap_err();
    assert_eq!(error.location().unwrap().run, Some(1));
}

#[test]
fn a_damaged_entry_does_not_affect_the_others() {
    let bytes = build(&files(), 64, NONE, None);
    let runs = decode_all(&PackReader::from_bytes(bytes.clone()).unwrap());
    let entry = |at, number: &[u8]| PackReader::from_bytes(changed(&bytes, entry_offset(1) + at, number)).unwrap();
    let cases = [
        (entry(12, &[0]), "kind of the run"),
        (entry(12, &[3]), "kind of the run"),
        (entry(14, &[9]), "compression of the entry"),
        (entry(14, &[1]), "zstd frame"),
        (entry(14, &[2]), "lz4 frame"),
        (entry(8, &[0; 4]), "entry"),
        (entry(12, &[2]), "elapsed time"),
    ];
    let others = [runs[0].clone(), runs[2].clone()];
    for (pack, field) in cases {
        let error = pack.decode(1).unwrap_err();
        let ErrorKind::Decode { location, what, .. } = error.kind() else { panic!("{error}") };
        if field != "elapsed time" {
            assert_eq!(*what, field);
        }
        assert_eq!(location.run, Some(1));
        assert!(location.offset >= Some(pack.entry(1).unwrap().offset));
        assert!(pack.decode_batch(&[0, 2]).into_iter().map(Result::unwrap).eq(others.iter().cloned()));
        let (report, stats) = (validate(&pack), pack.stats(&(), never()).unwrap());
        if field == "entry" {
            assert_eq!((report.num_tombstones, stats.unreadable), (1, 0));
            assert!(pack.format(1).is_err());
        } else {
            assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
            assert!(stats.unreadable == 1 || field == "elapsed time");
        }
        let mut lines = Vec::new();
        let report = pack.write_jsonl(&mut lines, &JsonlOptions::default(), &(), never()).unwrap();
        assert_eq!((report.num_runs, report.errors.len()), (2, usize::from(field != "entry")));
        assert!(lines.starts_with(b"{\"run_idx\":0,"));
    }
}

#[test]
fn errors_in_compressed_runs_have_the_offset_of_the_entry() {
    for compression in Compression::ALL {
        let pack = PackReader::from_bytes(build(&files(), 64, compression, None)).unwrap();
        let mut num_compressed = 0;
        for index in 0..pack.len() {
            let entry = pack.entry(index).unwrap();
            // An entry that would grow is stored without compression.
            let inside = if entry.flags == 0 { 5000 } else { 0 };
            num_compressed += usize::from(entry.flags != 0);
            let error = RunSource::locate(&pack, index, Error::decode(5000, "move", "0..=3", 7));
            let location = error.location().unwrap();
            assert_eq!((location.run, location.offset), (Some(index as u64), Some(entry.offset + inside)));
        }
        assert_eq!(num_compressed > 0, compression != NONE, "{compression}");
    }
}

#[test]
fn checksums_can_be_omitted_or_disabled() {
    let bytes = build(&files(), 64, NONE, None);
    let wrong = PackReader::from_bytes(changed(&bytes, entry_offset(0) + 16, &[1, 2, 3, 4])).unwrap();
    let error = wrong.get_slice(0).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Checksum { what: "the entry", .. }));
    assert_eq!(error.location().unwrap().run, Some(0));
    assert_eq!(validate(&wrong).problems.len(), 1);
    assert!(wrong.with_checksums(false).decode(0).is_ok());

    let omitted = changed(&bytes, entry_offset(0) + 16, &[0; 4]);
    let omitted = PackReader::from_bytes(changed(&omitted, bytes.len() - 20, &[0; 4])).unwrap();
    assert_eq!(omitted.get_slice(0).unwrap().crc32c, None);
    let report = validate(&omitted);
    assert!(report.is_sound() && !report.data_checked);
}

#[test]
fn validate_reports_every_problem() {
    let mut bytes = build(&files(), 64, NONE, None);
    let entry = |index: usize| IndexEntry::from_bytes(bytes[entry_offset(index)..].first_chunk().unwrap());
    let (first, last) = (entry(0).offset as usize, entry(2).offset as usize);
    let data_end = number::<8>(&bytes, bytes.len() - 32) as usize;
    bytes[first] ^= 1;
    bytes[last] ^= 1;
    let pack = PackReader::from_bytes(bytes.clone()).unwrap();
    let report = validate(&pack);
    assert_eq!((report.num_checked, report.problems.len()), (3, 3));
    assert_eq!(
        pack.validate(&ValidateOptions { sample: Some(1), ..Default::default() }, &(), never()).unwrap().num_checked,
        1
    );

    bytes[first] ^= 1;
    bytes[last] ^= 1;
    // Stats of fewer runs, and a block that is too long.
    for (at, byte, what) in [(4, 2, "count of the stats"), (0, 16, "end of the stats")] {
        let mut bytes = bytes.clone();
        bytes[data_end + at] = byte;
        let pack = PackReader::from_bytes(bytes).unwrap();
        let report = validate(&pack);
        assert!(matches!(report.problems[0].kind(), ErrorKind::Decode { what: found, .. } if *found == what));
        // Stats that disagree with the runs are recomputed.
        let stats = pack.stats(&(), never()).unwrap();
        assert_eq!((stats.stored, stats.count), (false, 3));
    }
}
