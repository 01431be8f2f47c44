//! Valid seeds: short games that follow the rules.

use a2store::run::{Branches, RunMeta};
use a2store::{Board, Move, Run};

/// Plays a game of at most `num_steps` steps. With `values`, nine of ten steps have branch values.
pub(super) fn game(seed: u64, num_steps: usize, values: bool) -> Run {
    let mut random = super::random::Random::new(seed, 0);
    let mut steps = Run::builder(num_steps);
    let mut board = Board(0x1000_0000_0000_0100);
    for place in 0..num_steps {
        let legal = board.legal_moves();
        let moves: Vec<Move> = Move::ALL.into_iter().filter(|direction| legal & direction.bit() != 0).collect();
        if moves.is_empty() {
            break;
        }
        let chosen = *random.pick(&moves);
        let values = (values && place % 10 != 9).then(|| {
            let mut values = std::array::from_fn(|_| random.below(1 << 20) as f32 / (1 << 20) as f32);
            values[chosen as usize] = 1.0 - f32::EPSILON;
            Branches { values, legal }
        });
        steps.push(board, chosen, values);
        board = board.slide(chosen);
        let empty: Vec<u32> = (0..16).map(|cell| cell * 4).filter(|shift| board.0 >> shift & 15 == 0).collect();
        let spawned = 1 + u64::from(random.one_in(10));
        board = Board(board.0 | spawned << *random.pick(&empty));
    }
    let meta = RunMeta {
        start_unix_s: 1_700_000_000 + seed,
        elapsed_s: 1.5,
        max_score: board.score(),
        highest_tile: board.highest_tile(),
        engine: [None, Some("λ-2"), Some("alpha beta")][seed as usize % 3].map(str::to_owned),
        ..RunMeta::default()
    };
    steps.finish(meta, board).unwrap()
}

/// Returns games of 0 to 30 steps, with and without values.
pub(super) fn games() -> Vec<Run> {
    let lens = [0, 1, 3, 5, 8, 12, 20, 30];
    lens.iter().enumerate().map(|(seed, &len)| game(seed as u64, len, seed % 4 != 3)).collect()
}
