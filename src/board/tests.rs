use super::*;
use proptest::prelude::*;

mod naive;

/// Boards with few or many empty cells, small or large tiles, and rows that merge.
fn boards() -> impl Strategy<Value = Board> {
    prop_oneof![
        any::<u64>().prop_map(Board),
        prop::array::uniform16(0u8..4).prop_map(|exps| Board::from_exps(exps).unwrap()),
        prop::array::uniform16(prop_oneof![Just(0u8), Just(14), Just(15)])
            .prop_map(|exps| Board::from_exps(exps).unwrap()),
    ]
}

#[test]
fn tables_agree_with_the_naive_rules_on_every_row() {
    for row in 0..=u16::MAX {
        for board in [Board(u64::from(row) << 48), Board(u64::from(row)).transpose()] {
            for direction in Move::ALL {
                let (slid, reward) = naive::slide(board.exps(), direction);
                assert_eq!(board.slide(direction).exps(), slid, "{board:?} {direction:?}");
                assert_eq!(board.reward(direction), reward, "{board:?} {direction:?}");
            }
        }
    }
}

#[test]
fn numbers_and_text_of_a_known_board() {
    // The final board of a real game; engines wrote max_score 30672 for it.
    let board = Board(0x1223_2334_1247_04ab);
    assert_eq!(board.exps(), [1, 2, 2, 3, 2, 3, 3, 4, 1, 2, 4, 7, 0, 4, 10, 11]);
    assert_eq!((board.max_exp(), board.highest_tile(), board.num_empty()), (11, 2048, 1));
    assert_eq!(board.score(), 30672);
    assert_eq!(board.to_string(), "2 4 4 8 / 4 8 8 16 / 2 4 16 128 / . 16 1024 2048");
    assert_eq!(format!("{board:#}").lines().count(), 4);
    assert_eq!(Board::default().highest_tile(), 0);
}

#[test]
fn invalid_text_is_rejected() {
    for (text, what) in [
        ("2 2", "16 tiles"),
        ("3 . . . / . . . . / . . . . / . . . .", "power of two"),
        ("65536 . . . / . . . . / . . . . / . . . .", "power of two"),
        ("1 . . . / . . . . / . . . . / . . . .", "power of two"),
        (". . . . / . . . . / . . . . / . . . . / .", "16 tiles"),
    ] {
        let message = text.parse::<Board>().unwrap_err().to_string();
        assert!(message.contains(what), "{text}: {message}");
    }
    assert!(Board::from_exps([16; 16]).is_err());
}

/// Boards with tiles up to 65,536, many of them large.
fn wide_boards() -> impl Strategy<Value = WideBoard> {
    let cells = prop_oneof![Just(0u8), Just(1), Just(2), Just(14), Just(15), Just(16), 0..=16u8];
    prop::array::uniform16(cells).prop_map(|exps| WideBoard::from_exps(exps).unwrap())
}

#[test]
fn wide_boards_that_do_not_exist_are_rejected() {
    assert!(WideBoard::from_exps([17; 16]).is_err());
    let board: Board = "32768 . . . / . . . . / . . . . / . . . 16384".parse().unwrap();
    assert_eq!(WideBoard::new(board, 1).unwrap().exps()[0], 16);
    for mask in [2, 1 << 15, u16::MAX] {
        let message = WideBoard::new(board, mask).unwrap_err().to_string();
        assert!(message.contains("only cells with the exponent 15"), "{message}");
    }
    assert!("131072 . . . / . . . . / . . . . / . . . .".parse::<WideBoard>().is_err());
}

#[test]
fn two_32768_tiles_never_merge() {
    let board: Board = "32768 32768 . . / . . . . / . . . . / . . . .".parse().unwrap();
    assert_eq!(board.slide(Move::Left), board);
    assert_eq!(board.legal_moves(), Move::Down.bit() | Move::Right.bit());
}

#[test]
fn there_are_eight_symmetries_and_each_has_an_inverse() {
    let board = Board(0x0123_4567_89ab_cdef);
    let images: std::collections::HashSet<Board> = Symmetry::ALL.iter().map(|&s| board.transform(s)).collect();
    assert_eq!(images.len(), 8);
    for symmetry in Symmetry::ALL {
        assert!(Symmetry::ALL.iter().any(|inverse| board.transform(symmetry).transform(*inverse) == board));
        assert_eq!(Symmetry::ALL[symmetry as usize], symmetry);
    }
    // A clockwise rotation by 90° moves the left column, from bottom to top, into the top row.
    assert_eq!(board.transform(Symmetry::Turn90).exps()[..4], [12, 8, 4, 0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn slides_rewards_and_legality_agree_with_the_naive_rules(board in boards()) {
        let mut mask = 0;
        for direction in Move::ALL {
            let (slid, reward) = naive::slide(board.exps(), direction);
            prop_assert_eq!(board.slide(direction).exps(), slid);
            prop_assert_eq!(board.slides()[direction as usize].exps(), slid);
            prop_assert_eq!(board.reward(direction), reward);
            mask |= if slid == board.exps() { 0 } else { direction.bit() };
        }
        prop_assert_eq!(board.legal_moves(), mask);
        prop_assert_eq!(board.is_terminal(), mask == 0);
    }

    #[test]
    fn numbers_agree_with_their_definition(board in boards()) {
        let exps = board.exps();
        prop_assert_eq!(Board::from_exps(exps).unwrap(), board);
        prop_assert_eq!(board.max_exp(), *exps.iter().max().unwrap());
        prop_assert_eq!(board.num_empty() as usize, exps.iter().filter(|&&exp| exp == 0).count());
        prop_assert_eq!(board.tile_sum(), exps.iter().filter(|&&exp| exp > 0).map(|&exp| 1u32 << exp).sum::<u32>());
        prop_assert_eq!(board.to_string().parse::<Board>().unwrap(), board);
    }

    #[test]
    fn slides_and_symmetries_commute(board in boards()) {
        for symmetry in Symmetry::ALL {
            let turned = board.transform(symmetry);
            prop_assert_eq!(turned.canonical(), board.canonical());
            for direction in Move::ALL {
                let image = symmetry.apply_to_move(direction);
                prop_assert_eq!(board.slide(direction).transform(symmetry), turned.slide(image));
            }
        }
    }

    #[test]
    fn spawns_into_accepts_exactly_one_new_2_or_4(board in boards(), next in boards(), cell in 0usize..16) {
        let naive = |next: Board| {
            let changed: Vec<usize> = (0..16).filter(|&i| board.exps()[i] != next.exps()[i]).collect();
            matches!(changed[..], [i] if board.exps()[i] == 0 && matches!(next.exps()[i], 1 | 2))
        };
        let mut candidates = vec![next, board];
        for exp in 0..16 {
            let mut exps = board.exps();
            exps[cell] = exp;
            candidates.push(Board::from_exps(exps).unwrap());
        }
        for next in candidates {
            prop_assert_eq!(board.spawns_into(next), naive(next), "{:?} {:?}", board, next);
        }
    }

    #[test]
    fn wide_boards_agree_with_the_naive_rules(board in wide_boards()) {
        let exps = board.exps();
        let mut mask = 0;
        for direction in Move::ALL {
            let (slid, reward) = naive::slide_up_to(exps, direction, 16);
            prop_assert_eq!(board.slide(direction).exps(), slid);
            prop_assert_eq!(board.reward(direction), reward);
            mask |= if slid == exps { 0 } else { direction.bit() };
        }
        prop_assert_eq!((board.legal_moves(), board.is_terminal()), (mask, mask == 0));
        prop_assert_eq!(board.max_exp(), *exps.iter().max().unwrap());
        prop_assert_eq!(board.highest_tile(), board.to_string().split([' ', '/']).flat_map(str::parse).max().unwrap_or(0));
        prop_assert_eq!(board.num_empty() as usize, exps.iter().filter(|&&exp| exp == 0).count());
        let tiles = || exps.iter().filter(|&&exp| exp > 0);
        prop_assert_eq!(board.tile_sum(), tiles().map(|&exp| 1u32 << exp).sum::<u32>());
        prop_assert_eq!(board.score(), tiles().map(|&exp| (u64::from(exp) - 1) << exp).sum::<u64>());
        prop_assert_eq!(board.to_string().parse::<WideBoard>().unwrap(), board);
        prop_assert_eq!(WideBoard::new(board.board(), board.tile_65536_mask()).unwrap(), board);
        prop_assert_eq!(board.narrow().is_none(), exps.contains(&16));
    }

    #[test]
    fn slides_and_symmetries_of_wide_boards_commute(board in wide_boards()) {
        for symmetry in Symmetry::ALL {
            let turned = board.transform(symmetry);
            prop_assert_eq!(turned.canonical(), board.canonical());
            for direction in Move::ALL {
                let image = symmetry.apply_to_move(direction);
                prop_assert_eq!(board.slide(direction).transform(symmetry), turned.slide(image));
            }
        }
    }

    #[test]
    fn boards_without_large_tiles_are_as_before(board in boards()) {
        let wide = WideBoard::from(board);
        prop_assert_eq!((wide.narrow(), wide.exps(), wide.score()), (Some(board), board.exps(), board.score()));
        prop_assert_eq!(wide.canonical(), board.canonical());
        prop_assert_eq!(wide.to_string(), board.to_string());
        if !has_two_of_15(board) {
            prop_assert_eq!(wide.legal_moves(), board.legal_moves());
            for direction in Move::ALL {
                prop_assert_eq!(wide.slide(direction), board.slide(direction));
            }
        }
    }

    #[test]
    fn wide_boards_spawn_one_new_2_or_4(board in wide_boards(), cell in 0usize..16, exp in 0u8..=16) {
        let mut exps = board.exps();
        let is_spawn = exps[cell] == 0 && matches!(exp, 1 | 2);
        exps[cell] = exp;
        prop_assert_eq!(board.spawns_into(WideBoard::from_exps(exps).unwrap()), is_spawn);
    }
}
