//! The fuzz target for logs of Macroxue's player: JSON, gzipped or plain.

use super::memory::Gauge;
use super::mutate::{MAX_LEN, havoc, havoc_text};
use super::random::Random;
use super::well_formed::{check, same};
use super::{Tally, Target, seeds};
use a2store::format::Macroxue;
use a2store::{Move, Run};
use flate2::Compression;
use flate2::bufread::MultiGzDecoder;
use flate2::read::GzEncoder;
use serde_json::{Map, Value, json};
use std::io::Read;

pub(super) struct Log {
    /// The meta file and the rows of each log.
    seeds: Vec<[Vec<u8>; 2]>,
    meta: Vec<u8>,
    rows: Vec<u8>,
}

const TOKENS: [&str; 34] = [
    "null",
    "true",
    "\"up\"",
    "\"left\"",
    "\"right\"",
    "\"down\"",
    "\"move\"",
    "\"board\"",
    "\"seed\"",
    "\"step_index\"",
    "\"branch_evs\"",
    "\"num_moves\"",
    "\"score\"",
    "\"max_tile\"",
    "\"max_rank\"",
    "\"sum_tile\"",
    "\"seconds\"",
    "\"depth\"",
    "\"steps_file\"",
    "\\u0000",
    "\\ud800",
    "\\\"",
    "{}",
    "[]",
    "1e39",
    "-1e-400",
    "1e999",
    "16",
    "17",
    "\n",
    "\r\n",
    "\u{feff}",
    "0.1",
    "\u{0}",
];

/// Formats a game as its meta file and its rows.
pub(super) fn texts(run: &Run, seed: u64) -> [Vec<u8>; 2] {
    let meta = json!({
        "seed": seed, "depth": 6, "game_index": 3, "steps_file": "a.jsonl.gz", "num_moves": run.num_steps(),
        "score": run.meta().max_score, "max_tile": run.meta().highest_tile, "seconds": 1.5,
        "max_rank": run.meta().highest_tile.checked_ilog2().unwrap_or(0), "sum_tile": 40,
    });
    [meta.to_string().into_bytes(), rows(run, seed).into_bytes()]
}

fn rows(run: &Run, seed: u64) -> String {
    let mut out = String::new();
    for place in 0..run.num_steps() {
        let step = run.step(place).unwrap();
        let mut row = json!({
            "seed": seed, "step_index": step.index, "move": step.chosen.unwrap().name(), "valuation_type": "search",
            "valuation": 0.25, "board": step.board.exps(),
        });
        if let Some(branches) = step.branches {
            let mut evs = Map::new();
            for direction in [Move::Up, Move::Left, Move::Right, Move::Down] {
                let legal = branches.legal & direction.bit() != 0;
                let value = legal.then(|| f64::from(branches.values[direction as usize]));
                evs.insert(direction.name().into(), value.map_or(Value::Null, Value::from));
            }
            row["branch_evs"] = Value::Object(evs);
        }
        out += &row.to_string();
        out += "\n";
    }
    out
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    GzEncoder::new(text, Compression::fast()).read_to_end(&mut out).unwrap();
    out
}

/// Compares a run with its rows, as `serde_json` parses them.
fn compare(run: &Run, bytes: &[u8]) -> Result<(), String> {
    let mut text = Vec::new();
    match bytes.starts_with(&[0x1f, 0x8b]) {
        true => drop(MultiGzDecoder::new(bytes).read_to_end(&mut text).map_err(|error| error.to_string())?),
        false => text.extend_from_slice(bytes),
    }
    let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    let mut num_rows = 0;
    for (place, line) in lines.enumerate() {
        num_rows += 1;
        // The decoder skips unknown keys, whose numbers may be out of the range of `serde_json`.
        let Ok(row) = serde_json::from_slice::<Value>(line) else { continue };
        let step = run.step(place).ok_or("a row without a step")?;
        let value = |name: &str| match &row["branch_evs"][name] {
            Value::Null => None,
            value => value.as_f64().map(|value| (value as f32).to_bits()),
        };
        let branches = Move::ALL.map(|direction| {
            let branches = step.branches?;
            let is_legal = branches.legal & direction.bit() != 0;
            is_legal.then(|| branches.values[direction as usize].to_bits())
        });
        if row["board"] != json!(step.board.exps())
            || row["move"] != json!(step.chosen.map(Move::name))
            || row["step_index"] != json!(step.index)
            || row["seed"] != json!(run.meta().seed)
            || branches != Move::ALL.map(|direction| value(direction.name()))
        {
            return Err(format!("step {place} is {step:?}, row {row}"));
        }
    }
    if num_rows == run.num_steps() { Ok(()) } else { Err(format!("{num_rows} rows")) }
}

impl Target for Log {
    const NAME: &'static str = "macroxue";
    const EXECS: u64 = 2_000;

    fn new() -> Log {
        let seeds = seeds::games().iter().take(6).map(|run| texts(run, 7)).collect();
        Log { seeds, meta: Vec::new(), rows: Vec::new() }
    }

    fn mutate(&mut self, random: &mut Random) {
        let ([meta, rows], other) = (random.pick(&self.seeds), random.pick(&self.seeds));
        (self.meta, self.rows) = (meta.clone(), rows.clone());
        let of_meta = random.one_in(3);
        let (file, other) = if of_meta { (&mut self.meta, &other[0]) } else { (&mut self.rows, &other[1]) };
        let zipped = random.one_in(2);
        if zipped && random.one_in(4) {
            // The checksum of gzip detects this change.
            *file = gzip(file);
            havoc(file, &gzip(other), random, |_, random| Some((random.below(18), 1)));
        } else {
            havoc_text(file, other, &TOKENS, random);
            if zipped {
                *file = gzip(file);
                if random.one_in(8) {
                    // A second gzip member.
                    file.extend(gzip(other));
                }
            }
        }
        file.truncate(MAX_LEN);
    }

    fn input(&self) -> Vec<(&str, &[u8])> {
        vec![("a.meta.json", &self.meta), ("a.jsonl.gz", &self.rows)]
    }

    fn execute(&mut self, gauge: &mut Gauge, tally: &mut Tally, random: &mut Random) -> Result<(), String> {
        let bytes = self.rows.clone();
        let pair = match gauge.hold(|| Macroxue::from_bytes(&self.meta, bytes)) {
            Ok(pair) => pair,
            Err(error) => {
                tally.error(&error);
                return Ok(());
            }
        };
        let run = match gauge.call(|| pair.decode()) {
            Ok(run) => run,
            Err(error) => {
                tally.error(&error);
                let is_gzip = matches!(error.kind(), a2store::ErrorKind::Decode { what: "gzip stream", .. });
                tally.past_checksums += u64::from(!is_gzip);
                return match error.location().is_some_and(|location| location.step.is_some()) {
                    true => Ok(()),
                    false => Err(format!("an error of no step: {error:?}")),
                };
            }
        };
        tally.past_checksums += 1;
        tally.decoded += 1;
        check(&run)?;
        check(&run.normalized())?;
        if random.one_in(4) {
            compare(&run, &self.rows)?;
        }
        if random.one_in(8) {
            let text = rows(&run, run.meta().seed.unwrap());
            let again = Macroxue::from_bytes(&self.meta, text.into()).and_then(|pair| pair.decode());
            let again = again.map_err(|error| format!("a run that does not come back: {error}"))?;
            if !same(&again, &run) {
                return Err("a run that comes back as another".into());
            }
        }
        Ok(())
    }
}
