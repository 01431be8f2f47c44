//! The fuzz target for packs: index, compressed and plain entries, stats, validation and JSON Lines.

use super::memory::Gauge;
use super::mutate::{Field, havoc};
use super::random::Random;
use super::run_files::{self, comes_back};
use super::well_formed::{check, same};
use super::{Tally, Target, scratch, seeds};
use a2store::format::{
    Compression, JsonlOptions, PackBuilder, PackOptions, PackReader, RunFormat, ValidateOptions, encode_run,
};
use a2store::run::RunMeta;
use a2store::{Board, CancellationToken, Move, Run};
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
use std::io::Write;
use std::ops::Range;

pub(super) struct Pack {
    seeds: Vec<Vec<u8>>,
    /// Packs with a high compression ratio. Decoding them takes long.
    dense: Vec<Vec<u8>>,
    /// The runs of all packs.
    runs: Vec<Run>,
    bytes: Vec<u8>,
    repaired: bool,
}

const HEADER_LEN: usize = 28;
const ENTRY_LEN: usize = 32;
const FOOTER_LEN: usize = 32;

/// The largest number of steps to write as lines, and an upper bound for the bytes of these lines.
const LINES_STEPS: u64 = 4_000;
const LINES_BYTES: usize = 4 << 20;

/// Builds a pack of these runs, with every third run as A2T1.
pub(super) fn build(runs: &[Run], align: u32, compression: Compression) -> Vec<u8> {
    let folder = scratch();
    let path = folder.path().join("runs.a2pack");
    let mut builder =
        PackBuilder::create(&path, PackOptions::default().with_align(align).with_compression(compression)).unwrap();
    builder = builder.with_capacity(runs.len() as u64);
    for (place, run) in runs.iter().enumerate() {
        let format = if place % 3 == 0 { RunFormat::A2t1 } else { RunFormat::A2run2 };
        builder.add_run_bytes(&encode_run(run, format).unwrap()).unwrap();
    }
    builder.finish().unwrap();
    std::fs::read(&path).unwrap()
}

fn number(bytes: &[u8], offset: usize, width: usize) -> Option<usize> {
    let mut number = [0; 8];
    number[..width].copy_from_slice(bytes.get(offset..offset.checked_add(width)?)?);
    usize::try_from(u64::from_le_bytes(number)).ok()
}

/// Returns the number of entries in the header, but at most as many as the file has room for.
fn num_entries(bytes: &[u8]) -> usize {
    let room = bytes.len().saturating_sub(HEADER_LEN + FOOTER_LEN) / ENTRY_LEN;
    number(bytes, 16, 8).unwrap_or(0).min(room)
}

/// Returns the range of an entry's payload, or `None` if it is out of bounds.
fn payload(bytes: &[u8], entry: usize) -> Option<Range<usize>> {
    let (start, len) = (number(bytes, entry, 8)?, number(bytes, entry + 8, 4)?);
    let range = start..start.checked_add(len)?;
    bytes.get(range.clone()).map(|_| range)
}

fn put(bytes: &mut [u8], offset: usize, crc: u32) {
    bytes[offset..offset + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Corrects all checksums, at the places that the header names. Omitted checksums stay omitted.
fn repair(bytes: &mut [u8]) {
    if bytes.len() < HEADER_LEN + FOOTER_LEN {
        return;
    }
    let footer = bytes.len() - FOOTER_LEN;
    let entries: Vec<usize> = (0..num_entries(bytes)).map(|index| HEADER_LEN + ENTRY_LEN * index).collect();
    for &entry in &entries {
        let Some(range) = payload(bytes, entry) else { continue };
        // The payload's own checksum comes first, because the checksums below cover it.
        let index_end = HEADER_LEN + ENTRY_LEN * entries.len();
        if bytes[entry + 12..entry + 16] == [1, 0, 0, 0] && range.start >= index_end && range.end <= footer {
            run_files::repair(&mut bytes[range.clone()]);
        }
        if number(bytes, entry + 16, 4) != Some(0) {
            let crc = crc32c::crc32c(&bytes[range]);
            put(bytes, entry + 16, crc);
        }
    }
    let first = entries.iter().find_map(|&entry| payload(bytes, entry).filter(|range| !range.is_empty()));
    if let (Some(first), Some(end)) = (first, number(bytes, footer, 8))
        && number(bytes, footer + 12, 4) != Some(0)
        && let Some(data) = bytes.get(first.start..end)
    {
        let crc = crc32c::crc32c(data);
        put(bytes, footer + 12, crc);
    }
    let index = &bytes[HEADER_LEN..HEADER_LEN + ENTRY_LEN * entries.len()];
    let crc = crc32c::crc32c(index);
    put(bytes, footer + 8, crc);
    let crc = crc32c::crc32c(&bytes[footer..footer + 24]);
    put(bytes, footer + 24, crc);
    let crc = crc32c::crc32c(&bytes[..24]);
    put(bytes, 24, crc);
}

fn field(bytes: &[u8], random: &mut Random) -> Option<Field> {
    let footer = bytes.len().checked_sub(FOOTER_LEN)?;
    let entry = HEADER_LEN + ENTRY_LEN * random.below(num_entries(bytes));
    match random.below(8) {
        0 => Some(*random.pick(&[(8, 4), (12, 4), (16, 8), (16, 1)])),
        1 => Some((footer + *random.pick(&[0, 16]), 8)),
        2 => Some((footer + *random.pick(&[8, 12, 24]), 4)),
        // The length of the stats and the numbers after it.
        3 => Some((number(bytes, footer + 16, 8)?.checked_add(random.below(24))?.min(footer), 1)),
        4 | 5 => Some((entry + *random.pick(&[0, 8, 12, 14, 16]), *random.pick(&[2, 4]))),
        _ => {
            let payload = payload(bytes, entry)?;
            Some((payload.start + random.below(payload.len().min(48)), *random.pick(&[1, 1, 4])))
        }
    }
}

impl Target for Pack {
    const NAME: &'static str = "a2pack";
    const EXECS: u64 = 2_000;

    fn new() -> Pack {
        let games = seeds::games();
        let mut seeds = vec![build(&[], 8, Compression::None)];
        for compression in Compression::ALL {
            for chosen in [&games[1..4], &games[2..5], &games[6..8]] {
                seeds.push(build(chosen, 8, compression));
            }
        }
        seeds.push(build(&games[3..6], 64, Compression::None));
        seeds.push(without_checksums(&seeds[2]));
        // A2T1 cannot store branches.
        let as_a2t1 = |run: &Run| {
            let bytes = encode_run(run, RunFormat::A2t1).unwrap();
            a2store::format::decode_run(&bytes).unwrap().0
        };
        let dense = [(1_000, 3), (5_000, 4), (80_000, 1), (100_000, 1), (2_000_000, 1)];
        let alike = dense.map(|(num_steps, _)| alike(num_steps));
        let runs = games.iter().map(as_a2t1).chain(games.iter().cloned()).chain(alike).collect();
        let mut dense = dense.map(|(num_steps, num_runs)| self::dense(num_steps, num_runs)).to_vec();
        dense.push(with_large_blocks());
        Pack { seeds, dense, runs, bytes: Vec::new(), repaired: false }
    }

    fn mutate(&mut self, random: &mut Random) {
        let dense = random.one_in(512);
        let (seed, other) = (random.pick(if dense { &self.dense } else { &self.seeds }), random.pick(&self.seeds));
        self.bytes.clone_from(seed);
        havoc(&mut self.bytes, other, random, field);
        self.repaired = !random.one_in(4);
        if self.repaired {
            repair(&mut self.bytes);
        }
    }

    fn input(&self) -> Vec<(&str, &[u8])> {
        vec![("runs.a2pack", &self.bytes)]
    }

    fn execute(&mut self, gauge: &mut Gauge, tally: &mut Tally, random: &mut Random) -> Result<(), String> {
        let bytes = self.bytes.clone();
        let reader = match gauge.hold(|| PackReader::from_bytes(bytes)) {
            Ok(reader) => reader,
            Err(error) => {
                tally.error(&error);
                return Ok(());
            }
        };
        tally.past_checksums += 1;
        let mut num_decoded = 0;
        for index in 0..reader.len() {
            let format = gauge.call(|| reader.format(index));
            let is_sound = match gauge.call(|| reader.get_slice(index)) {
                Ok(slice) => format.as_ref().is_ok_and(|format| *format == slice.format),
                Err(_) => true,
            };
            match gauge.call(|| reader.decode(index)) {
                Ok(run) => {
                    num_decoded += 1;
                    check(&run)?;
                    let format = format.map_err(|error| format!("a run of no kind: {error}"))?;
                    if format == RunFormat::A2t1 || random.one_in(4) {
                        comes_back(&run, format)?;
                    }
                    // Without a checksum, the reader cannot detect the change.
                    let could_tell = reader.get_slice(index).is_ok_and(|slice| slice.crc32c.is_some());
                    if !self.repaired && could_tell && !self.runs.iter().any(|known| same(known, &run)) {
                        return Err(format!("another run at {index}"));
                    }
                }
                Err(error) => {
                    tally.error(&error);
                    if error.location().and_then(|location| location.run) != Some(index as u64) {
                        return Err(format!("an error of no run: {error:?}"));
                    }
                }
            }
            if !is_sound {
                return Err(format!("two kinds of run at {index}"));
            }
        }
        if num_decoded < reader.len() && self.seeds.contains(&self.bytes) {
            return Err("good bytes".into());
        }
        tally.decoded += u64::from(num_decoded > 0);
        // Seldom, because starting threads takes longer than everything else.
        if random.one_in(16) {
            let stats =
                gauge.call(|| reader.stats(&(), &CancellationToken::new())).map_err(|error| error.to_string())?;
            if stats.unreadable > reader.len() as u64 {
                return Err(format!("{stats:?}"));
            }
        }
        if random.one_in(64) { whole(&reader, num_decoded, gauge, tally) } else { Ok(()) }
    }
}

/// Checks the operations on the whole pack: validation, decoding in batches and JSON Lines.
fn whole(reader: &PackReader, num_decoded: usize, gauge: &mut Gauge, tally: &mut Tally) -> Result<(), String> {
    let options = ValidateOptions::default().with_workers(2);
    let report =
        gauge.call(|| reader.validate(&options, &(), &CancellationToken::new())).map_err(|error| error.to_string())?;
    report.problems.iter().for_each(|problem| tally.error(problem));
    let num_tombstones = report.num_tombstones as usize;
    if report.num_checked as usize + num_tombstones != reader.len() {
        return Err(format!("{report:?}"));
    }
    if report.is_sound() && num_decoded + num_tombstones != reader.len() {
        return Err(format!("sound, but of {} runs only {num_decoded} decode", reader.len()));
    }
    let indices: Vec<usize> = (0..reader.len()).collect();
    let batches = indices.chunks(8);
    let decoded = gauge.call(|| batches.flat_map(|batch| reader.decode_batch(batch)).filter(Result::is_ok).count());
    if decoded != num_decoded {
        return Err(format!("{decoded} runs at once, {num_decoded} one by one"));
    }
    if report.num_steps > LINES_STEPS {
        return Ok(());
    }
    for (by_step, compact) in [(false, false), (false, true), (true, false), (true, true)] {
        let options = JsonlOptions::default().with_by_step(by_step).with_compact(compact).with_workers(1);
        // Allocated in advance, so that the output does not count as memory of the writer.
        let mut lines = Vec::with_capacity(LINES_BYTES);
        let report = gauge
            .call(|| reader.write_jsonl(&mut lines, &options, &(), &CancellationToken::new()))
            .map_err(|error| error.to_string())?;
        let num_lines = lines.split_inclusive(|&byte| byte == b'\n').count() as u64;
        if report.num_runs as usize != num_decoded
            || num_lines != if by_step { report.num_steps } else { report.num_runs }
        {
            return Err(format!("{num_lines} lines of {num_decoded} runs: {report:?}"));
        }
        for line in lines.split_inclusive(|&byte| byte == b'\n') {
            serde_json::from_slice::<serde_json::Value>(line)
                .map_err(|error| format!("a line that is no JSON: {error}"))?;
        }
    }
    Ok(())
}

/// Removes the checksums of the entries and the data from a pack.
fn without_checksums(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for index in 0..num_entries(&bytes) {
        put(&mut bytes, HEADER_LEN + ENTRY_LEN * index + 16, 0);
    }
    let footer = bytes.len() - FOOTER_LEN;
    put(&mut bytes, footer + 12, 0);
    repair(&mut bytes);
    bytes
}

/// Creates a run of `num_steps` equal steps.
fn alike(num_steps: usize) -> Run {
    let mut steps = Run::builder(num_steps);
    (0..num_steps).for_each(|_| steps.push(Board(0), Move::Up, None));
    steps.finish(RunMeta::default(), Board(0)).unwrap()
}

/// Creates a pack of equal runs of `num_steps` equal steps. A step takes three bytes, which compress to almost nothing.
fn dense(num_steps: usize, num_runs: usize) -> Vec<u8> {
    let payload = encode_run(&alike(num_steps), RunFormat::A2run2).unwrap();
    of_payload(&zstd::bulk::compress(&payload, 3).unwrap(), 1, num_runs)
}

/// Creates a pack of one run in an LZ4 frame with linked blocks of the largest size.
fn with_large_blocks() -> Vec<u8> {
    let info = FrameInfo::new().block_size(BlockSize::Max4MB).block_mode(BlockMode::Linked);
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(&encode_run(&alike(1_000), RunFormat::A2run2).unwrap()).unwrap();
    of_payload(&encoder.finish().unwrap(), 2, 1)
}

/// Creates a pack that holds a payload of kind 2 `num_runs` times.
fn of_payload(payload: &[u8], compression: u8, num_runs: usize) -> Vec<u8> {
    let index_end = HEADER_LEN + ENTRY_LEN * num_runs;
    let mut bytes = build(&[], 8, Compression::None)[..HEADER_LEN].to_vec();
    bytes[16..24].copy_from_slice(&(num_runs as u64).to_le_bytes());
    for index in 0..num_runs {
        bytes.extend((index_end + index * payload.len()).to_le_bytes());
        bytes.extend((payload.len() as u32).to_le_bytes());
        // With a placeholder checksum that `repair` corrects.
        bytes.extend([2, 0, compression, 0, 1]);
        bytes.resize(HEADER_LEN + ENTRY_LEN * (index + 1), 0);
    }
    bytes.extend(payload.repeat(num_runs));
    let data_end = bytes.len();
    bytes.extend(data_end.to_le_bytes());
    bytes.extend([1, 0, 0, 0, 1]);
    bytes.resize(data_end + FOOTER_LEN, 0);
    repair(&mut bytes);
    bytes
}

#[test]
fn repair_leaves_valid_packs_unchanged() {
    let Pack { seeds, dense, .. } = Pack::new();
    for seed in seeds.into_iter().chain(dense) {
        let mut repaired = seed.clone();
        repair(&mut repaired);
        assert_eq!(repaired, seed);
        let wrong = |bytes: &mut [u8], at: usize| bytes[at] ^= 0xff;
        for at in [24, seed.len() - 24, seed.len() - 8] {
            wrong(&mut repaired, at);
        }
        repair(&mut repaired);
        assert_eq!(repaired, seed);
    }
}
