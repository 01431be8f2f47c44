//! Runs for tests: games by the rules, and arbitrary runs.

use crate::board::{Board, Move};
use crate::run::{Branches, Run, RunMeta};
use proptest::prelude::*;

/// Returns a game of at most `num_steps` steps. Every tenth step has no branches.
pub(crate) fn game(seed: u64, num_steps: usize) -> Run {
    let mut state = seed;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut steps = Run::builder(num_steps);
    let mut board = Board(0x1000_0000_0000_0100);
    for place in 0..num_steps {
        let legal = board.legal_moves();
        let moves: Vec<Move> = Move::ALL.into_iter().filter(|direction| legal & direction.bit() != 0).collect();
        if moves.is_empty() {
            break;
        }
        let chosen = moves[draw(moves.len() as u64) as usize];
        let values = std::array::from_fn(|_| draw(1 << 20) as f32 / (1 << 20) as f32);
        steps.push(board, chosen, (place % 10 != 9).then_some(Branches { values, legal }));
        board = board.slide(chosen);
        let empty: Vec<u32> = (0..16).map(|cell| cell * 4).filter(|shift| board.0 >> shift & 15 == 0).collect();
        let spawned = 1 + u64::from(draw(10) == 0);
        board = Board(board.0 | spawned << empty[draw(empty.len() as u64) as usize]);
    }
    let meta = RunMeta {
        start_unix_s: 1_700_000_000 + seed,
        elapsed_s: 1.5,
        max_score: board.score(),
        highest_tile: board.highest_tile(),
        engine: (seed % 2 == 1).then(|| "λ-2".into()),
        ..RunMeta::default()
    };
    steps.finish(meta, board).unwrap()
}

/// Generates whole runs that need not follow the rules.
pub(in crate::format) fn runs() -> impl Strategy<Value = Run> {
    let branches = (prop::array::uniform4(prop_oneof![0f32..1.0, any::<f32>()]), 0u8..16)
        .prop_map(|(values, legal)| Branches { values, legal });
    let step = (any::<u64>(), 0u8..4, prop::option::of(branches));
    let meta = (0u64..1 << 63, any::<f32>(), 0u64..1 << 63, any::<u32>(), prop::option::of(".{0,12}"));
    (meta, prop::collection::vec(step, 0..40), any::<u64>()).prop_map(|(meta, steps, final_board)| {
        let mut builder = Run::builder(steps.len());
        for (board, chosen, branches) in steps {
            builder.push(Board(board >> (chosen * 16)), Move::from_index(chosen).unwrap(), branches);
        }
        let (start_unix_s, elapsed_s, max_score, highest_tile, engine) = meta;
        let elapsed_s = if elapsed_s.is_nan() { 0.5 } else { elapsed_s };
        let meta = RunMeta { start_unix_s, elapsed_s, max_score, highest_tile, engine, ..RunMeta::default() };
        builder.finish(meta, Board(final_board)).unwrap()
    })
}

/// Returns a run as rows without a final board hold it. `value` maps the value of each legal branch that was not
/// chosen.
pub(in crate::format) fn as_rows_hold(run: &Run, value: impl Fn(f32) -> f32) -> Run {
    let mut steps = Run::builder(run.num_steps());
    for place in 0..run.num_steps() {
        let (board, chosen) = (run.boards()[place], run.moves()[place]);
        let branches = run.branches(place).and_then(|Branches { values, legal }| {
            let rules = board.legal_moves();
            let is_told = legal != 0 && !(legal == chosen.bit() && rules & !legal != 0);
            let values = std::array::from_fn(|k| if k == chosen as usize { 1.0 } else { value(values[k]) });
            is_told.then_some(Branches { values, legal })
        });
        steps.push(board, chosen, branches);
    }
    let meta = RunMeta { engine: run.meta().engine.clone().filter(|name| !name.is_empty()), ..run.meta().clone() };
    steps.finish(meta, None).unwrap()
}
