//! The fuzz targets for run files: A2T1 and a2run2.

use super::memory::Gauge;
use super::mutate::{Field, havoc};
use super::random::Random;
use super::well_formed::{check, same};
use super::{Tally, Target, seeds};
use a2store::format::{RunFormat, decode_run, encode_run};
use a2store::run::RunMeta;
use a2store::{Board, Move, Run};
use serde::{Deserialize, Serialize};

pub(super) struct A2t1 {
    seeds: Vec<Vec<u8>>,
    bytes: Vec<u8>,
    repaired: bool,
}

/// The numbers that precede the engine's name.
const A2T1_FIELDS: [Field; 10] = [(4, 1), (5, 1), (6, 4), (6, 2), (10, 8), (18, 4), (22, 8), (30, 4), (34, 2), (34, 1)];

/// Corrects the checksum at the end.
pub(super) fn repair(bytes: &mut [u8]) {
    if let Some((covered, stored)) = bytes.split_last_chunk_mut::<4>() {
        *stored = crc32c::crc32c(covered).to_le_bytes();
    }
}

fn fits(bytes: &[u8]) -> bool {
    bytes.split_last_chunk::<4>().is_some_and(|(covered, stored)| *stored == crc32c::crc32c(covered).to_le_bytes())
}

fn a2t1_field(bytes: &[u8], random: &mut Random) -> Option<Field> {
    // A third of the picks are moves. After the header, one byte in nine is a move.
    if random.one_in(3) {
        let num_moves = bytes.len().saturating_sub(48) / 9;
        return Some((bytes.len().checked_sub(5 + random.below(num_moves))?, 1));
    }
    Some(*random.pick(&A2T1_FIELDS))
}

impl Target for A2t1 {
    const NAME: &'static str = "a2t1";

    fn new() -> A2t1 {
        let seeds = seeds::games().iter().map(|run| encode_run(run, RunFormat::A2t1).unwrap()).collect();
        A2t1 { seeds, bytes: Vec::new(), repaired: false }
    }

    fn mutate(&mut self, random: &mut Random) {
        let (seed, other) = (random.pick(&self.seeds), random.pick(&self.seeds));
        self.bytes.clone_from(seed);
        havoc(&mut self.bytes, other, random, a2t1_field);
        self.repaired = !random.one_in(4);
        if self.repaired {
            repair(&mut self.bytes);
        }
    }

    fn input(&self) -> Vec<(&str, &[u8])> {
        vec![("run.bin", &self.bytes)]
    }

    fn execute(&mut self, gauge: &mut Gauge, tally: &mut Tally, _: &mut Random) -> Result<(), String> {
        tally.past_checksums += u64::from(fits(&self.bytes));
        let Some((run, format)) = decode(&self.bytes, gauge, tally)? else {
            return if self.seeds.contains(&self.bytes) { Err("good bytes".into()) } else { Ok(()) };
        };
        if format == RunFormat::A2t1 && !self.repaired && !self.seeds.contains(&self.bytes) {
            return Err("a run whose checksum fits by itself".into());
        }
        if format == RunFormat::A2t1 && encode_run(&run, format).ok().as_ref() != Some(&self.bytes) {
            return Err("a run that encodes to other bytes".into());
        }
        Ok(())
    }
}

pub(super) struct A2run2 {
    seeds: Vec<Vec<u8>>,
    bytes: Vec<u8>,
}

/// Sets both step counts, in the first field and before the steps, to the same value.
fn change_counts(bytes: &mut Vec<u8>, random: &mut Random) {
    let skip = |at: usize| Some(at + bytes.get(at..)?.iter().position(|&byte| byte < 0x80)? + 1);
    let places = || {
        let first = skip(0)?;
        // The fields are start, elapsed time, score, tile, and the optional engine name.
        let engine = skip(skip(skip(first)? + 4)?)?;
        let second = match bytes.get(engine)? {
            0 => engine + 1,
            _ => engine + 2 + usize::from(*bytes.get(engine + 1)?),
        };
        Some((first, second, skip(second)?))
    };
    let Some((first, second, end)) = places() else { return };
    let mut number = *random.pick(&[0, 1, 2, 4, 31, 127, 128, 1 << 14, 1 << 20, 1 << 25, u64::from(u32::MAX), 1 << 32]);
    let mut varint = Vec::new();
    while number >= 0x80 {
        varint.push(number as u8 | 0x80);
        number >>= 7;
    }
    varint.push(number as u8);
    bytes.splice(second..end, varint.iter().copied());
    bytes.splice(..first, varint);
}

impl Target for A2run2 {
    const NAME: &'static str = "a2run2";

    fn new() -> A2run2 {
        let mut runs = seeds::games();
        runs.push(with_magic());
        let seeds = runs.iter().map(|run| encode_run(run, RunFormat::A2run2).unwrap()).collect();
        A2run2 { seeds, bytes: Vec::new() }
    }

    fn mutate(&mut self, random: &mut Random) {
        let (seed, other) = (random.pick(&self.seeds), random.pick(&self.seeds));
        self.bytes.clone_from(seed);
        if random.one_in(16) {
            change_counts(&mut self.bytes, random);
            if random.one_in(2) {
                return;
            }
        }
        // Mostly the fields before the steps.
        havoc(&mut self.bytes, other, random, |_, random| Some((random.below(30), 1)));
    }

    fn input(&self) -> Vec<(&str, &[u8])> {
        vec![("run.a2run2", &self.bytes)]
    }

    fn execute(&mut self, gauge: &mut Gauge, tally: &mut Tally, _: &mut Random) -> Result<(), String> {
        tally.past_checksums += 1;
        let decoded = decode(&self.bytes, gauge, tally)?;
        let expected = postcard::take_from_bytes::<RunV2>(&self.bytes)
            .ok()
            .filter(|(run, rest)| rest.is_empty() && run.meta.steps as usize == run.steps.len());
        match (decoded, expected) {
            (Some((run, RunFormat::A2run2)), Some((expected, _))) => expected.compare(&run),
            (Some((_, RunFormat::A2run2)), None) => Err("a run that postcard does not read".into()),
            (None, Some(_)) => Err("no run, although postcard reads one".into()),
            _ => Ok(()),
        }
    }
}

/// Creates a run whose a2run2 file begins with the magic of A2T1: 0x41 steps, start 0x32, and an elapsed time with the
/// bytes `T1\0\0`.
pub(super) fn with_magic() -> Run {
    let mut steps = Run::builder(65);
    (0..65).for_each(|step| steps.push(Board(1 << (step % 60)), Move::Up, None));
    let elapsed_s = f32::from_le_bytes([b'T', b'1', 0, 0]);
    steps.finish(RunMeta { start_unix_s: 0x32, elapsed_s, ..RunMeta::default() }, Board(1)).unwrap()
}

/// Decodes a run file, checks that it encodes to an equal run, and counts the outcome.
fn decode(bytes: &[u8], gauge: &mut Gauge, tally: &mut Tally) -> Result<Option<(Run, RunFormat)>, String> {
    let (run, format) = match gauge.call(|| decode_run(bytes)) {
        Ok(decoded) => decoded,
        Err(error) => {
            tally.error(&error);
            return if error
                .location()
                .is_some_and(|location| location.offset.is_some_and(|at| at <= bytes.len() as u64))
            {
                Ok(None)
            } else {
                Err(format!("an error that is nowhere: {error:?}"))
            };
        }
    };
    tally.decoded += 1;
    check(&run)?;
    comes_back(&run, format)?;
    Ok(Some((run, format)))
}

/// Checks that a decoded run can be encoded, and decodes to the same run.
pub(super) fn comes_back(run: &Run, format: RunFormat) -> Result<(), String> {
    let bytes = encode_run(run, format).map_err(|error| format!("a run that does not encode: {error}"))?;
    match decode_run(&bytes) {
        Ok((again, found)) if found == format && same(&again, run) => Ok(()),
        Ok(_) => Err("a run that comes back as another".into()),
        Err(error) => Err(format!("a run that does not come back: {error}")),
    }
}

/// The format a2run2 as in its specification, for decoding by the crate `postcard`.
#[derive(Serialize, Deserialize)]
pub(super) struct RunV2 {
    meta: Meta,
    steps: Vec<StepV2>,
    final_board: u64,
}

#[derive(Serialize, Deserialize)]
struct Meta {
    steps: u32,
    start_unix_s: u64,
    elapsed_s: f32,
    max_score: u64,
    highest_tile: u32,
    engine_str: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct StepV2 {
    pre_board: u64,
    chosen: MoveV2,
    branches: Option<[BranchV2; 4]>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
enum MoveV2 {
    Up,
    Down,
    Left,
    Right,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
enum BranchV2 {
    Legal(f32),
    Illegal,
}

impl RunV2 {
    /// Compares a run with the one that `postcard` decoded.
    pub(super) fn compare(&self, run: &Run) -> Result<(), String> {
        let meta = run.meta();
        let step = |place: usize| {
            let (mine, step) = (&self.steps[place], run.step(place)?);
            let same_branches = match (&mine.branches, &step.branches) {
                (None, None) => true,
                (Some(mine), Some(branches)) => (0..4).all(|branch| match mine[branch] {
                    BranchV2::Legal(value) => {
                        branches.legal >> branch & 1 == 1 && value.to_bits() == branches.values[branch].to_bits()
                    }
                    BranchV2::Illegal => branches.legal >> branch & 1 == 0,
                }),
                _ => false,
            };
            Some(
                mine.pre_board == step.board.board().0
                    && Some(mine.chosen as u8) == step.chosen.map(|chosen| chosen as u8)
                    && same_branches,
            )
        };
        let same = self.steps.len() == run.num_steps()
            && run.final_board() == Some(Board(self.final_board).into())
            && (self.meta.start_unix_s, self.meta.max_score) == (meta.start_unix_s, meta.max_score)
            && self.meta.elapsed_s.to_bits() == meta.elapsed_s.to_bits()
            && (self.meta.highest_tile, &self.meta.engine_str) == (meta.highest_tile, &meta.engine)
            && (0..run.num_steps()).all(|place| step(place) == Some(true));
        if same { Ok(()) } else { Err("a run other than postcard's".into()) }
    }
}
