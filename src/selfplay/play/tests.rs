use super::*;
use crate::run::{Run, RunMeta};
use crate::selfplay::RecorderOptions;
use crate::selfplay::recorder::{FinishedGame, Sink, SinkFormat};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

fn never() -> &'static CancellationToken {
    CancellationToken::never()
}

fn options(num_games: u64, batch_size: usize) -> PlayOptions {
    PlayOptions { num_games, batch_size, seed: 11, ..Default::default() }
}

/// Returns logits that depend only on the board.
fn logits(positions: Positions<'_>) -> Result<Choices> {
    let of = |board: &Board| {
        let mixed = board.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        [0, 16, 32, 48].map(|shift| (mixed >> shift & 0xff) as f32 / 64.0)
    };
    Ok(Choices::Logits(positions.boards.iter().map(of).collect()))
}

fn first_legal(positions: Positions<'_>) -> Result<Choices> {
    Ok(Choices::Moves(positions.legal.iter().map(|legal| i64::from(legal.trailing_zeros())).collect()))
}

/// A sink that keeps the recorded runs.
#[derive(Clone, Debug, Default)]
struct CollectingSink(Arc<Mutex<Vec<Run>>>);

impl Sink for CollectingSink {
    fn write(&mut self, games: &Arc<Vec<FinishedGame>>) -> Result<Vec<PathBuf>> {
        let runs = games.iter().map(|game| game.to_run(&RunMeta::default())).collect::<Result<Vec<_>>>()?;
        self.0.lock().unwrap().extend(runs);
        Ok(Vec::new())
    }
    fn num_bytes(&self) -> u64 {
        0
    }
    fn format(&self) -> SinkFormat {
        SinkFormat { with_action: true, with_evs: true, bytes_per_game: 200_000, ..SinkFormat::default() }
    }
}

fn recorder(change: impl FnOnce(&mut RecorderOptions)) -> (Recorder, CollectingSink) {
    let written = CollectingSink::default();
    let mut options = RecorderOptions::new("test");
    change(&mut options);
    (Recorder::with_sink(options, Box::new(written.clone())).unwrap(), written)
}

fn max_games(max_games: u64) -> impl FnOnce(&mut RecorderOptions) {
    move |options| options.max_games = Some(max_games)
}

/// Checks the recorded runs against the rules. Returns the seed, score, steps and final board of each.
fn replayed(recorder: &Recorder, written: &CollectingSink) -> Vec<(u64, u32, u32, Board)> {
    recorder.close().unwrap();
    let of = |run: &Run| {
        run.verify().unwrap();
        let score = run.boards().iter().zip(run.moves()).map(|(board, &direction)| board.reward(direction)).sum();
        (run.meta().seed.unwrap(), score, run.num_steps() as u32, run.final_board().unwrap().board())
    };
    written.0.lock().unwrap().iter().map(of).collect()
}

fn of_report(report: &PlayReport) -> Vec<(u64, u32, u32, Board)> {
    let of = |game: &PlayedGame| (Spawner::seed_of(11, game.number), game.score, game.num_steps, game.final_board);
    report.games.iter().map(of).collect()
}

#[test]
fn games_are_the_same_at_any_batch_size() {
    let play = |batch_size| {
        let report = play(logits, &options(40, batch_size), None, &(), never()).unwrap();
        assert!(report.stopped.is_none() && report.games.iter().all(|game| game.final_board.is_terminal()));
        assert_eq!(report.num_steps, report.games.iter().map(|game| u64::from(game.num_steps)).sum::<u64>());
        report.games
    };
    let games = play(40);
    assert_eq!(games.iter().map(|game| game.number).collect::<Vec<_>>(), (0..40).collect::<Vec<_>>());
    for batch_size in [1, 7, 64] {
        assert_eq!(play(batch_size), games, "{batch_size}");
    }
}

#[test]
fn batches_contain_no_finished_games_and_shrink_at_the_end() {
    let mut sizes = Vec::new();
    let policy = |positions: Positions<'_>| {
        sizes.push(positions.boards.len());
        assert!(positions.legal.iter().all(|&legal| legal != 0));
        assert!(positions.boards.iter().zip(positions.legal).all(|(board, &legal)| board.legal_moves() == legal));
        first_legal(positions)
    };
    let report = play(policy, &options(30, 8), None, &(), never()).unwrap();
    assert_eq!((sizes[0], sizes.iter().sum::<usize>() as u64), (8, report.num_steps));
    assert!(sizes.is_sorted_by(|a, b| a >= b) && *sizes.last().unwrap() < 8);
    assert!(play(first_legal, &options(0, 8), None, &(), never()).unwrap().games.is_empty());
}

#[test]
fn recorded_games_equal_played_games() {
    let (recorder, written) = recorder(|_| {});
    let report = play(logits, &options(50, 9), Some(&recorder), &(), never()).unwrap();
    let mut recorded = replayed(&recorder, &written);
    recorded.sort_unstable();
    let mut played = of_report(&report);
    played.sort_unstable();
    assert_eq!(recorded, played);
    assert!(written.0.lock().unwrap().iter().all(|run| run.has_evs().iter().all(|has| !has)));
    assert_eq!(recorder.stats().abandoned, 0);
}

#[test]
fn a_full_recorder_stops_play() {
    // Games that have begun are played to their end.
    let (few, written) = recorder(max_games(10));
    let report = play(logits, &options(50, 4), Some(&few), &(), never()).unwrap();
    assert_eq!((report.games.len(), report.stopped), (10, Some("games")));
    assert!(report.games.iter().all(|game| game.final_board.is_terminal()));
    assert_eq!(few.stats().abandoned, 0);
    assert_eq!(replayed(&few, &written).len(), 10);
    // One recorder is full from the start, one has room for part of a batch, and one has just enough room.
    for (room, expected, stopped) in [(0, 0, true), (3, 3, true), (10, 10, false)] {
        let report = play(logits, &options(10, 4), Some(&recorder(max_games(room)).0), &(), never()).unwrap();
        assert_eq!((report.games.len(), report.stopped.is_some()), (expected, stopped));
        let alone = play(logits, &options(expected as u64, 4), None, &(), never()).unwrap();
        assert_eq!(report.games, alone.games);
    }
    // This recorder has room for five games, and rejects the next one at its end.
    let (small, _) = recorder(|options| options.max_disk_mb = Some(1));
    let report = play(logits, &options(50, 4), Some(&small), &(), never()).unwrap();
    assert_eq!((report.games.len(), report.stopped), (5, Some("disk")));
    assert_eq!(small.stats().live, 0);
}

#[test]
fn games_are_truncated_at_max_steps() {
    let (recorder, written) = recorder(|_| {});
    let cut = PlayOptions { max_steps: Some(60), ..options(50, 16) };
    let report = play(logits, &cut, Some(&recorder), &(), never()).unwrap();
    let whole = play(logits, &options(50, 16), None, &(), never()).unwrap();
    for (cut, whole) in report.games.iter().zip(&whole.games) {
        assert_eq!(cut.num_steps, whole.num_steps.min(60));
        assert_eq!(cut.final_board.is_terminal(), whole.num_steps <= 60);
    }
    assert!(report.games.iter().any(|game| game.num_steps < 60));
    assert_eq!(replayed(&recorder, &written).len(), 50);
}

#[test]
fn invalid_answers_are_rejected_and_running_games_abandoned() {
    type Answer = Box<dyn Fn(&mut Choices)>;
    fn of_moves(change: impl Fn(&mut Vec<i64>) + 'static) -> Answer {
        Box::new(move |choices| {
            if let Choices::Moves(moves) = choices {
                change(moves);
            }
        })
    }
    fn of_logits(change: impl Fn(&mut Vec<[f32; 4]>) + 'static) -> Answer {
        Box::new(move |choices| {
            if let Choices::Logits(logits) = choices {
                change(logits);
            }
        })
    }
    let bad: [(Answer, &str); 6] = [
        (of_moves(|moves| moves[2] = 4), "moves: expected 0..=3 in row 2, found 4"),
        (of_moves(|moves| moves[1] = -1), "moves: expected 0..=3 in row 1, found -1"),
        (of_moves(|moves| moves.truncate(4)), "moves: expected 5 rows, found 4"),
        (of_logits(|logits| logits[3][1] = f32::NAN), "logits: expected numbers or -inf in row 3, found"),
        (of_logits(|logits| logits[0] = [f32::NEG_INFINITY; 4]), "logits: expected a number for "),
        (of_logits(|logits| logits.push([0.0; 4])), "logits: expected 5 rows, found 6"),
    ];
    for (change, expected) in bad {
        for batch in [1, 10] {
            let (recorder, _) = recorder(|_| {});
            let mut asked = 0;
            let policy = |positions: Positions<'_>| {
                asked += 1;
                let is_of_moves = expected.starts_with("moves");
                let mut choices = if is_of_moves { first_legal(positions) } else { logits(positions) }?;
                if asked == batch {
                    change(&mut choices);
                }
                Ok(choices)
            };
            let error: Error = play(policy, &options(5, 5), Some(&recorder), &(), never()).unwrap_err();
            assert!(error.to_string().starts_with(expected), "{error}");
            assert_eq!(recorder.stats().abandoned, 5);
        }
    }
    // An error of the policy is returned unchanged.
    let error = play(|_| Err(Error::query("mine")), &options(5, 5), None, &(), never()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Query { message } if message == "mine"));
    for bad in
        [PlayOptions { batch_size: 0, ..Default::default() }, PlayOptions { max_steps: Some(0), ..Default::default() }]
    {
        assert!(matches!(play(logits, &bad, None, &(), never()).unwrap_err().kind(), ErrorKind::Argument { .. }));
    }
}

#[test]
fn play_can_be_cancelled() {
    let cancel = CancellationToken::new();
    cancel.cancel();
    let (recorder, _) = recorder(|_| {});
    let error = play(first_legal, &options(5, 5), Some(&recorder), &(), &cancel).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Cancelled));
    assert_eq!(recorder.stats().abandoned, 5);
}
