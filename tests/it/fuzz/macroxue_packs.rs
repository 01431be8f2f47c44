//! The fuzz target for Macroxue packs: folders of NumPy rows, `metadata.db` and `valuation_types.json`.

use super::folders::{Folder, come_back, take};
use super::memory::Gauge;
use super::random::Random;
use super::well_formed::check;
use super::{Tally, Target, scratch, seeds};
use a2store::format::{MacroxuePack, MacroxuePackWriter, RunSource};
use a2store::step_details::{StepDetail, StepDetails};
use a2store::{Error, Run};
use std::path::Path;

pub(super) struct OfPack(Folder);

/// Returns a run with details of every kind.
fn detailed(run: &Run) -> Run {
    let mut details = StepDetails::default();
    for step in 0..run.num_steps() {
        let names = ["search", "tuple11", "a name"];
        details.push(StepDetail { valuation_type: Some(names[step % 3]), board_eval: Some(step as i32 - 3) });
    }
    run.clone().with_details(details)
}

fn write(folder: &Path, runs: &[Run], shard_rows: Option<u64>) -> Result<(), Error> {
    let mut writer = MacroxuePackWriter::create(folder, shard_rows)?;
    runs.iter().try_for_each(|run| writer.push(run))?;
    writer.finish()
}

/// Rewrites packed rows as aligned rows.
fn align(files: &mut [(String, Vec<u8>)]) {
    for (_, bytes) in files.iter_mut().filter(|(name, _)| name.ends_with(".npy")) {
        let len = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
        let (header, rows) = bytes.split_at(10 + len);
        let text = std::str::from_utf8(&header[10..]).unwrap().trim_end();
        let text = text.replace("('seed'", "('', '|V2'), ('seed'");
        let width = len - 1;
        let mut aligned = [&header[..10], format!("{text:<width$}\n").as_bytes()].concat();
        for row in rows.chunks(46) {
            aligned.extend([&row[..26], &[0, 7], &row[26..]].concat());
        }
        *bytes = aligned;
    }
}

impl Target for OfPack {
    const NAME: &'static str = "macroxue_pack";
    const EXECS: u64 = 2_000;

    fn new() -> OfPack {
        let (temp, games) = (scratch(), seeds::games());
        let games: Vec<Run> = games.iter().map(detailed).collect();
        let folder = temp.path().join("seed");
        let mut seeds = Vec::new();
        for (runs, shard_rows) in [(&games[..0], None), (&games[1..4], None), (&games[1..6], Some(10))] {
            write(&folder, runs, shard_rows).unwrap();
            seeds.push(take(&folder));
        }
        for place in [1, 2] {
            let mut aligned = seeds[place].clone();
            align(&mut aligned);
            seeds.push(aligned);
        }
        let columns = &["id", "seed", "steps", "max_score", "highest_tile"];
        let fields =
            &[(0, 4), (4, 4), (8, 8), (16, 4), (20, 2), (22, 1), (23, 1), (24, 1), (25, 1), (26, 4), (30, 4), (42, 4)];
        OfPack(Folder::new(temp, seeds, columns, fields))
    }

    fn mutate(&mut self, random: &mut Random) {
        self.0.mutate(random);
    }

    fn input(&self) -> Vec<(&str, &[u8])> {
        self.0.input()
    }

    fn execute(&mut self, gauge: &mut Gauge, tally: &mut Tally, random: &mut Random) -> Result<(), String> {
        self.0.write();
        let path = self.0.path();
        let pack = match gauge.hold(|| MacroxuePack::open(&path)) {
            Ok(pack) => pack,
            Err(error) => {
                tally.error(&error);
                return Ok(());
            }
        };
        tally.past_checksums += 1;
        let mut decoded = Vec::new();
        for index in 0..pack.num_runs() {
            match gauge.call(|| pack.decode(index)) {
                Ok(run) => {
                    check(&run)?;
                    if run.num_steps() > 0 && run.details().is_none() {
                        return Err("a run without its details".into());
                    }
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
        tally.decoded += u64::from(!decoded.is_empty());
        if !random.one_in(64) {
            return Ok(());
        }
        let again = self.0.scratch_path();
        come_back(&decoded, |runs| {
            write(&again, runs, None)?;
            let pack = MacroxuePack::open(&again)?;
            let read = (0..pack.num_runs()).map(|index| pack.decode(index)).collect();
            take(&again);
            read
        })
    }
}
