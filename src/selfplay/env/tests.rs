use super::*;
use crate::selfplay::player::Player;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Slides a line naively, over cells. It differs from the board's own naive implementation.
fn naive_slide(board: Board, direction: Move) -> (Board, u32) {
    let cells = board.exps();
    let mut slid = [0; 16];
    let mut earned = 0;
    for line in 0..4 {
        // The cells from the wall that the tiles slide to.
        let cell = |place: usize| match direction {
            Move::Up => 4 * place + line,
            Move::Down => 4 * (3 - place) + line,
            Move::Left => 4 * line + place,
            Move::Right => 4 * line + 3 - place,
        };
        let mut place = 0;
        let mut may_merge = false;
        for exp in (0..4).map(|place| cells[cell(place)]).filter(|&exp| exp > 0) {
            if may_merge && slid[cell(place - 1)] == exp && exp < 15 {
                slid[cell(place - 1)] += 1;
                earned += 2 << exp;
                may_merge = false;
            } else {
                slid[cell(place)] = exp;
                place += 1;
                may_merge = true;
            }
        }
    }
    (Board::from_exps(slid).unwrap(), earned)
}

fn naive_legal(board: Board) -> u8 {
    Move::ALL.into_iter().filter(|&direction| naive_slide(board, direction).0 != board).map(Move::bit).sum()
}

/// Draws a legal move for each slot; any move if the game is over.
fn drawn(env: &VectorEnv, random: &mut impl Rng) -> Vec<Move> {
    let mut of = |&legal: &u8| {
        let legal: Vec<Move> = Move::ALL.into_iter().filter(|direction| legal & direction.bit() != 0).collect();
        *legal.get((random.next_u32() as usize).checked_rem(legal.len()).unwrap_or(0)).unwrap_or(&Move::Down)
    };
    env.legal_moves().iter().map(&mut of).collect()
}

/// Returns the number of the game in a slot, its score and its number of steps.
fn facts(env: &VectorEnv, slot: usize) -> (u64, u32, u32) {
    let game = &env.games()[slot];
    (game.number, game.score, game.num_steps)
}

#[test]
fn steps_obey_the_rules() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(9);
    let mut env = VectorEnv::new(50, 1).unwrap();
    let mut scores = vec![0; 50];
    let mut num_over = 0;
    for step in 0..400 {
        let before = env.clone();
        let moves = drawn(&env, &mut random);
        let rewards = env.step(&moves, IllegalMoves::Refused).unwrap();
        for slot in 0..50 {
            let (old, new) = (before.boards()[slot], env.boards()[slot]);
            if before.legal_moves()[slot] == 0 {
                assert_eq!((old, rewards[slot]), (new, 0));
            } else {
                let (after, earned) = naive_slide(old, moves[slot]);
                assert!(after != old && after.spawns_into(new), "step {step}: {old} {:?} {new}", moves[slot]);
                assert_eq!(rewards[slot], earned);
                assert_eq!(env.games()[slot].num_steps, before.games()[slot].num_steps + 1);
            }
            scores[slot] += rewards[slot];
            assert_eq!(env.legal_moves()[slot], naive_legal(new));
        }
        assert_eq!(env.games().iter().map(|game| game.score).collect::<Vec<_>>(), scores);
        if step % 2 == 1 {
            for slot in (0..50).filter(|&slot| env.legal_moves()[slot] == 0).collect::<Vec<_>>() {
                env.restart(slot);
                assert_eq!(facts(&env, slot), (50 + num_over, 0, 0));
                assert_eq!(env.boards()[slot].num_empty(), 14);
                scores[slot] = 0;
                num_over += 1;
            }
        }
    }
    assert!(num_over > 50, "{num_over}");
    assert_eq!(env.num_games(), 50 + num_over);
}

#[test]
fn slides_and_rewards_agree_with_the_naive_rules() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
    for _ in 0..100_000 {
        let board = Board(random.next_u64() & random.next_u64());
        for direction in Move::ALL {
            assert_eq!(
                (board.slide(direction), board.reward(direction)),
                naive_slide(board, direction),
                "{board} {direction:?}"
            );
        }
    }
}

#[test]
fn a_game_depends_only_on_its_number_and_moves() {
    // The games of three slots must equal the same games in seven slots.
    let play = |num_envs, num_games: u64| {
        let mut env = VectorEnv::new(num_envs, 5).unwrap();
        let mut finals = vec![None; num_games as usize];
        while finals.iter().any(Option::is_none) {
            let of = |board: &Board| Player::new(0).choose(*board).map_or(Move::Up, |(chosen, _)| chosen);
            let moves: Vec<Move> = env.boards().iter().map(of).collect();
            env.step(&moves, IllegalMoves::Refused).unwrap();
            for slot in 0..num_envs {
                if env.legal_moves()[slot] == 0 {
                    let (number, score, num_steps) = facts(&env, slot);
                    if let Some(place) = finals.get_mut(number as usize) {
                        *place = Some((env.boards()[slot], score, num_steps));
                    }
                    env.restart(slot);
                }
            }
        }
        finals
    };
    let games = play(3, 12);
    assert_eq!(games, play(7, 12));
    assert!(games.windows(2).all(|pair| pair[0] != pair[1]));
}

#[test]
fn illegal_moves_are_rejected_before_any_step_or_ignored() {
    let mut env = VectorEnv::new(3, 0).unwrap();
    env.boards[1] = Board(0x1200_0000_0000_0000);
    env.legal[1] = env.boards[1].legal_moves();
    let before = env.clone();
    let moves = [0, 2].map(|slot| Move::ALL[env.legal_moves()[slot].trailing_zeros() as usize]);
    let moves = [moves[0], Move::Left, moves[1]];
    let message = env.step(&moves, IllegalMoves::Refused).unwrap_err().to_string();
    assert_eq!(
        message,
        "moves: expected down or right in row 1, found left, which does not change 2 4 . . / . . . . / . . . . / . . . ."
    );
    assert_eq!(env.boards(), before.boards());
    let rewards = env.step(&moves, IllegalMoves::Ignored).unwrap();
    assert_eq!((env.boards()[1], rewards[1], facts(&env, 1)), (before.boards()[1], 0, (1, 0, 0)));
    assert_ne!((env.boards()[0], env.boards()[2]), (before.boards()[0], before.boards()[2]));
    assert!(env.step(&moves[..2], IllegalMoves::Ignored).is_err());
    for num_envs in [0, MAX_ENVS + 1] {
        assert!(VectorEnv::new(num_envs, 0).unwrap_err().to_string().starts_with("num_envs: expected 1..="));
    }
}

#[test]
fn a_seed_determines_the_first_games() {
    let env = VectorEnv::new(4, 1).unwrap();
    assert_ne!(env.boards(), VectorEnv::new(4, 2).unwrap().boards());
    assert_eq!((env.boards(), env.num_games()), (VectorEnv::new(4, 1).unwrap().boards(), 4));
    assert_eq!(env.games().iter().map(|game| game.number).collect::<Vec<_>>(), [0, 1, 2, 3]);
    // A first board has two tiles, and a tenth of the tiles are 4s.
    let env = VectorEnv::new(20_000, 0).unwrap();
    let tiles: Vec<u8> = env.boards().iter().flat_map(|board| board.exps()).filter(|&exp| exp > 0).collect();
    assert_eq!(tiles.len(), 40_000);
    let fours = tiles.iter().filter(|&&exp| exp == 2).count();
    assert!(fours.abs_diff(4_000) < 240, "{fours}");
}
