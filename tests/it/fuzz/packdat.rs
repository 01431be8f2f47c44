//! The fuzz target for `pack.dat` files.

use super::memory::Gauge;
use super::mutate::{Field, havoc};
use super::random::Random;
use super::well_formed::{check, same, same_steps};
use super::{Tally, Target, run_files, scratch, seeds};
use a2store::Run;
use a2store::format::{PackDat, PackDatWriter, RunSource};
use tempfile::TempDir;

pub(super) struct Dat {
    seeds: Vec<Vec<u8>>,
    bytes: Vec<u8>,
    repaired: bool,
    folder: TempDir,
}

fn build(folder: &TempDir, runs: &[Run]) -> Vec<u8> {
    let path = folder.path().join("pack.dat");
    let _ = std::fs::remove_file(&path);
    let mut writer = PackDatWriter::create(&path).unwrap();
    runs.iter().for_each(|run| writer.push(run).unwrap());
    writer.finish().unwrap();
    std::fs::read(&path).unwrap()
}

fn field(bytes: &[u8], random: &mut Random) -> Option<Field> {
    let num_steps = u64::from_le_bytes(*bytes.get(12..)?.first_chunk()?);
    let rows_end =
        usize::try_from(num_steps).ok()?.checked_mul(32)?.checked_add(28).filter(|&end| end <= bytes.len())?;
    Some(match random.below(4) {
        0 => *random.pick(&[(4, 4), (8, 4), (8, 1), (12, 8), (12, 1), (20, 8)]),
        1 => {
            let (at, width) = *random.pick(&[(0, 8), (8, 4), (12, 4), (16, 1), (17, 1), (18, 2), (26, 4)]);
            (28 + 32 * random.below(num_steps as usize) + at, width)
        }
        2 => {
            // In the first run only, because the offsets of the others depend on the length of its engine's name.
            let (at, width) = *random.pick(&[(0, 4), (4, 4), (8, 4), (8, 1), (12, 8), (20, 4), (24, 2), (26, 1)]);
            (rows_end + at, width)
        }
        _ => (rows_end + random.below(bytes.len() - rows_end), *random.pick(&[1, 4])),
    })
}

impl Target for Dat {
    const NAME: &'static str = "packdat";
    const EXECS: u64 = 2_000;

    fn new() -> Dat {
        let (folder, games) = (scratch(), seeds::games());
        let chosen: [&[Run]; 5] = [&[], &games[1..2], &games[1..4], &games[3..6], &games[5..8]];
        let seeds = chosen.iter().map(|runs| build(&folder, runs)).collect();
        Dat { seeds, bytes: Vec::new(), repaired: false, folder }
    }

    fn mutate(&mut self, random: &mut Random) {
        let (seed, other) = (random.pick(&self.seeds), random.pick(&self.seeds));
        self.bytes.clone_from(seed);
        havoc(&mut self.bytes, other, random, field);
        self.repaired = !random.one_in(4);
        if self.repaired {
            run_files::repair(&mut self.bytes);
        }
    }

    fn input(&self) -> Vec<(&str, &[u8])> {
        vec![("pack.dat", &self.bytes)]
    }

    fn execute(&mut self, gauge: &mut Gauge, tally: &mut Tally, random: &mut Random) -> Result<(), String> {
        let bytes = self.bytes.clone();
        let pack = match gauge.hold(|| PackDat::from_bytes(bytes)) {
            Ok(pack) => pack,
            Err(error) => {
                tally.error(&error);
                return Ok(());
            }
        };
        tally.past_checksums += 1;
        if !self.repaired && !self.seeds.contains(&self.bytes) {
            return Err("a file whose checksum fits by itself".into());
        }
        let (mut decoded, mut num_steps) = (Vec::new(), 0);
        for index in 0..pack.num_runs() {
            match gauge.call(|| pack.decode(index)) {
                Ok(run) => {
                    check(&run)?;
                    compare(&run, &self.bytes, index)?;
                    num_steps += run.num_steps() as u64;
                    decoded.push(run);
                }
                Err(error) => {
                    tally.error(&error);
                    if error.location().and_then(|location| location.run) != Some(index as u64) {
                        return Err(format!("an error of no run: {error:?}"));
                    }
                }
            }
        }
        if decoded.len() < pack.num_runs() && self.seeds.contains(&self.bytes) {
            return Err("good bytes".into());
        }
        if num_steps > pack.num_steps() {
            return Err(format!("{num_steps} steps of {}", pack.num_steps()));
        }
        tally.decoded += u64::from(!decoded.is_empty());
        if random.one_in(64) { come_back(&self.folder, &decoded) } else { Ok(()) }
    }
}

/// Compares a run with the bytes.
fn compare(run: &Run, bytes: &[u8], index: usize) -> Result<(), String> {
    let number = |at: usize, width: usize| {
        let mut number = [0; 8];
        number[..width].copy_from_slice(&bytes[at..at + width]);
        u64::from_le_bytes(number)
    };
    let mut at = 28 + 32 * number(12, 8) as usize;
    for _ in 0..index {
        at += 38 + number(at + 24, 2) as usize;
    }
    let meta = run.meta();
    let mut same = (number(at + 8, 4), number(at + 12, 8), number(at + 20, 4))
        == (run.num_steps() as u64, meta.max_score, u64::from(meta.highest_tile));
    // If the stated place is wrong, the rows are somewhere else, with the run's id.
    let num_rows = number(12, 8) as usize;
    let is_at = |first: usize| {
        run.boards().iter().zip(run.moves()).enumerate().all(|(step, (board, chosen))| {
            let row = 28 + 32 * (first + step);
            first + step < num_rows
                && (number(row, 8), number(row + 16, 1)) == (board.0, *chosen as u64)
                && (number(row + 8, 4), number(row + 12, 4)) == (index as u64, step as u64)
        })
    };
    same &= is_at(number(at + 4, 4) as usize) || (0..num_rows).any(is_at);
    if same { Ok(()) } else { Err(format!("run {index} is another than the bytes say")) }
}

/// Writes decoded runs and reads them again, twice. Writing replaces the value of the chosen move by 1, so the first
/// copy may differ in these values. The second copy must equal the first.
fn come_back(folder: &TempDir, runs: &[Run]) -> Result<(), String> {
    let read = |runs: &[Run]| -> Result<Vec<Run>, String> {
        let pack = PackDat::from_bytes(build(folder, runs)).map_err(|error| error.to_string())?;
        (0..pack.num_runs()).map(|index| pack.decode(index).map_err(|error| error.to_string())).collect()
    };
    let once = read(runs)?;
    let twice = read(&once)?;
    if once.len() != runs.len() || !once.iter().zip(runs).all(|(a, b)| same_steps(a, b)) {
        return Err("runs that come back as others".into());
    }
    if !twice.iter().zip(&once).all(|(a, b)| same(a, b)) {
        return Err("runs that come back as others the second time".into());
    }
    Ok(())
}
