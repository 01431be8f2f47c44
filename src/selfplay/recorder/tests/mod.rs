mod limits;
mod recording;

use super::*;
use crate::board::{Board, Move};
use crate::error::{ErrorKind, Result};
use crate::format::{RunSource, Session};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Returns a step that depends only on the seed and the index.
fn step(seed: u64, index: u32) -> (Board, Move) {
    let mixed = (seed ^ u64::from(index) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let board = mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (Board(board), Move::ALL[(board >> 61) as usize % 4])
}

/// Plays and ends a game with `num_steps` steps. The final board is the board of the next step.
fn play(recorder: &Recorder, seed: u64, num_steps: u32) -> Result<u64> {
    let mut game = recorder.begin(Some(seed))?;
    for index in 0..num_steps {
        let (board, action) = step(seed, index);
        game.push(board, Some(action), None)?;
    }
    game.end(step(seed, num_steps).0)
}

fn play_all(recorder: &Recorder, seeds: std::ops::Range<u64>, num_steps: u32) {
    for seed in seeds {
        play(recorder, seed, num_steps).unwrap();
    }
}

fn recorder(root: &Path, change: impl FnOnce(&mut RecorderOptions)) -> Recorder {
    let mut options = RecorderOptions::new("v1");
    change(&mut options);
    Recorder::create(root, options).unwrap()
}

/// Checks the steps of all runs in the sessions of a recorder, and returns the seeds by id.
fn check(recorder: &Recorder, sample_rate: u32, len: impl Fn(u64) -> u32) -> BTreeMap<u64, u64> {
    let mut seeds = BTreeMap::new();
    for folder in recorder.sessions() {
        assert_eq!(names(&folder), ["metadata.db", "steps.npy"]);
        seeds.append(&mut check_session(&folder, sample_rate, &len));
    }
    seeds
}

fn check_session(folder: &Path, sample_rate: u32, len: impl Fn(u64) -> u32) -> BTreeMap<u64, u64> {
    let session = Session::open(folder).unwrap();
    let mut seeds = BTreeMap::new();
    for place in 0..session.num_runs() {
        let (run, id) = (session.decode(place).unwrap(), session.id(place).unwrap());
        let seed = run.meta().seed.unwrap();
        let num_steps = len(seed);
        let expected: Vec<_> = (0..num_steps).step_by(sample_rate as usize).collect();
        assert_eq!(run.num_steps(), expected.len());
        for (place, &index) in expected.iter().enumerate() {
            let found = run.step(place).unwrap();
            let (board, action) = step(seed, index);
            assert_eq!((found.index, found.board), (index, board.into()));
            assert!(!session.has_actions() || found.chosen == Some(action));
        }
        let last = step(seed, num_steps).0;
        assert_eq!((run.meta().max_score, run.meta().highest_tile), (last.score(), last.highest_tile()));
        assert_eq!(run.meta().engine.as_deref(), Some("v1"));
        seeds.insert(id, seed);
    }
    seeds
}

fn entry(folder: &Path, key: &str) -> Option<serde_json::Value> {
    let database = rusqlite::Connection::open(folder.join("metadata.db")).unwrap();
    let sql = "SELECT meta_value FROM session WHERE meta_key = ?1";
    let text = database.query_row(sql, [key], |row| row.get::<_, String>(0)).ok()?;
    Some(serde_json::from_str(&text).unwrap())
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Waits for an event, even for long on a busy machine.
fn until(is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(600), "the event never happened");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The games that a sink received.
#[derive(Debug, Default)]
struct ReceivedGames {
    games: BTreeMap<u64, crate::run::Run>,
    writes: Vec<usize>,
    failures: usize,
}

/// A sink that keeps games in memory and can be made to fail.
#[derive(Debug)]
struct MemorySink(Arc<Mutex<ReceivedGames>>);

impl Sink for MemorySink {
    fn write(&mut self, games: &Arc<Vec<FinishedGame>>) -> Result<Vec<PathBuf>> {
        let mut seen = self.0.lock().unwrap();
        if seen.failures > 0 {
            seen.failures -= 1;
            return Err(io::Error::from_raw_os_error(libc::ENOSPC).into());
        }
        seen.writes.push(games.len());
        for game in games.iter() {
            assert_eq!(game.id, seen.games.len() as u64);
            seen.games.insert(game.id, game.to_run(&Default::default())?);
        }
        Ok(Vec::new())
    }

    fn num_bytes(&self) -> u64 {
        0
    }

    fn format(&self) -> SinkFormat {
        SinkFormat { with_evs: true, ..SinkFormat::default() }
    }
}

fn memory_sink(change: impl FnOnce(&mut RecorderOptions)) -> (Recorder, Arc<Mutex<ReceivedGames>>) {
    let mut options = RecorderOptions::new("v1");
    change(&mut options);
    let seen = Arc::new(Mutex::new(ReceivedGames::default()));
    (Recorder::with_sink(options, Box::new(MemorySink(seen.clone()))).unwrap(), seen)
}
