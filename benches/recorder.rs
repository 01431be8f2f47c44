//! Benchmarks of the recorder: recorded steps per second, the latency of a push during rotations, and memory.
//!
//! `cargo bench --bench recorder -- [rate|latency|memory] [FOLDER]`

#![allow(clippy::unwrap_used, missing_docs)]

use a2store::board::Symmetry;
use a2store::format::{RunSource, Session};
use a2store::selfplay::{GameRecording, Player, Recorder, RecorderOptions};
use a2store::{Board, ErrorKind, Move};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const THREADS: usize = 8;

/// Returns the boards and moves of a legal game.
fn game() -> Vec<(Board, Move)> {
    let mut board = Board(0x0000_0010_0000_0100);
    let mut steps = Vec::new();
    while let Some((chosen, _)) = Player::new(0).choose(board) {
        steps.push((board, chosen));
        let after = board.slide(chosen);
        let empty = (0..16).map(|cell| cell * 4).filter(|shift| after.0 >> shift & 15 == 0).nth(steps.len() % 3);
        let empty = empty.or_else(|| (0..16).map(|cell| cell * 4).find(|shift| after.0 >> shift & 15 == 0));
        board = Board(after.0 | 1 << empty.unwrap());
    }
    steps
}

fn rss(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|found| found.strip_prefix(line)).unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse::<u64>().unwrap() * 1024
}

/// Removes the sessions of a recorder.
fn remove(recorder: &Recorder) {
    recorder.sessions().iter().for_each(|folder| std::fs::remove_dir_all(folder).unwrap());
}

fn rate(root: &Path, steps: &[(Board, Move)], num_steps: usize) {
    let recorder = Recorder::create(root, RecorderOptions::new("rate")).unwrap();
    let start = Instant::now();
    let games = num_steps / steps.len() / THREADS;
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for seed in 0..games {
                    let mut game = recorder.begin(Some(seed as u64)).unwrap();
                    for &(board, chosen) in steps {
                        game.push(board, Some(chosen), None).unwrap();
                    }
                    game.end(None).unwrap();
                }
            });
        }
    });
    let pushed = start.elapsed().as_secs_f64();
    let stats = recorder.close().unwrap();
    let all = start.elapsed().as_secs_f64();
    let millions = stats.steps as f64 / 1e6;
    println!(
        "{millions:.1} M steps from {THREADS} threads: {:.2} M/s until pushed, {:.2} M/s until durable; {} rotations, {:.0} MB/s",
        millions / pushed,
        millions / all,
        stats.rotations,
        stats.disk_bytes as f64 / 1e6 / all
    );
    let start = Instant::now();
    let (mut num_runs, mut num_steps) = (0, 0);
    for folder in recorder.sessions() {
        let session = Session::open(&folder).unwrap();
        num_runs += session.num_runs() as u64;
        num_steps += session.num_steps();
    }
    assert_eq!((num_runs, num_steps), (stats.ended, stats.steps));
    println!("opens in {:.2} s", start.elapsed().as_secs_f64());
    remove(&recorder);
}

/// Measures the latency of each push while rotations are written.
fn latency(root: &Path, steps: &[(Board, Move)], pause: u64) {
    let options = RecorderOptions::new("latency").with_rotate_steps(5_000_000);
    let recorder = Recorder::create(root, options).unwrap();
    let stop = AtomicBool::new(false);
    let mut all: Vec<u32> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    let mut taken = Vec::with_capacity(40_000_000);
                    while !stop.load(Ordering::Relaxed) && taken.len() < 39_000_000 {
                        let mut game = recorder.begin(None).unwrap();
                        for &(board, chosen) in steps {
                            let start = Instant::now();
                            game.push(board, Some(chosen), None).unwrap();
                            taken.push(start.elapsed().as_nanos().min(u128::from(u32::MAX)) as u32);
                        }
                        game.end(None).unwrap();
                        if pause > 0 {
                            std::thread::sleep(Duration::from_micros(pause));
                        }
                    }
                    taken
                })
            })
            .collect();
        std::thread::sleep(Duration::from_secs(10));
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let stats = recorder.stats();
    all.sort_unstable();
    let at = |part: f64| all[((all.len() - 1) as f64 * part) as usize];
    println!(
        "{} M pushes in 10 s (pause of {pause} µs between games), {} rotations: p50 {} ns, p99 {} ns, p99.9 {} ns, p99.99 {} ns, max {} µs",
        all.len() / 1_000_000,
        stats.rotations,
        at(0.5),
        at(0.99),
        at(0.999),
        at(0.9999),
        at(1.0) / 1000
    );
    recorder.close().unwrap();
    remove(&recorder);
}

fn memory(root: &Path, steps: &[(Board, Move)], max_ram_mb: u64) {
    let options = RecorderOptions::new("memory").with_max_ram_mb(max_ram_mb);
    let before = rss("VmRSS:");
    let recorder = Recorder::create(root, options).unwrap();
    let start = Instant::now();
    let most = AtomicBool::new(false);
    let mut peak = 0;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    // Many concurrent games, which end at different times.
                    let mut games: Vec<GameRecording> = Vec::new();
                    let mut pushed = 0_u64;
                    while pushed < 5_000_000 {
                        if games.len() < 40 {
                            games.push(recorder.begin(None).unwrap());
                        }
                        let at = pushed as usize % games.len();
                        for &(board, chosen) in steps.iter().take(97) {
                            match games[at].push(board, Some(chosen), None) {
                                Ok(()) => pushed += 1,
                                Err(error) => panic!("{error} {:?}", matches!(error.kind(), ErrorKind::Io { .. })),
                            }
                        }
                        if games[at].num_steps() > 4000 {
                            games.swap_remove(at).end(None).unwrap();
                        }
                    }
                })
            })
            .collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            peak = peak.max(rss("VmRSS:"));
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    most.store(true, Ordering::Relaxed);
    let stats = recorder.close().unwrap();
    println!(
        "max_ram_mb {max_ram_mb}: {:.1} M steps in {:.1} s, {} rotations, at most {:.1} MB more than before",
        stats.steps as f64 / 1e6,
        start.elapsed().as_secs_f64(),
        stats.rotations,
        (peak.max(rss("VmHWM:")) - before) as f64 / 1e6
    );
    remove(&recorder);
}

fn main() {
    // `cargo bench` adds the option `--bench`.
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let what = args.next();
    let temporary = tempfile::tempdir().unwrap();
    let root = args.next().map_or_else(|| temporary.path().to_path_buf(), std::path::PathBuf::from);
    let steps = game();
    let steps: Vec<_> = Symmetry::ALL.iter().flat_map(|_| steps.iter().copied()).take(1000).collect();
    let wants = |part: &str| what.as_deref().is_none_or(|what| what == part);
    if wants("memory") {
        // This runs first, because freed memory stays with the process.
        [32, 64, 200].into_iter().for_each(|mb| memory(&root, &steps, mb));
    }
    if wants("latency") {
        latency(&root, &steps, 0);
        latency(&root, &steps, 2000);
    }
    if wants("rate") {
        rate(&root, &steps, 60_000_000);
    }
}
