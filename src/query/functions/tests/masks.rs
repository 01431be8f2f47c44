//! Calls with masks of cells with 65,536, on boards that have many large tiles.

use super::*;
use crate::board::{Symmetry, WideBoard};

/// Returns boards with the exponents 0, 1, 14, 15 and 16, and some without any large tile.
fn wide_boards() -> Vec<WideBoard> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(65_536);
    let mut board = |kinds: &[u8]| {
        let exps = std::array::from_fn(|_| kinds[random.next_u64() as usize % kinds.len()]);
        WideBoard::from_exps(exps).unwrap()
    };
    let kinds: [&[u8]; 4] = [&[0, 1, 14, 15, 16], &[0, 0, 0, 15, 16], &[0, 1, 2, 3], &[1, 15, 16]];
    (0..20_000).map(|k| board(kinds[k % 4])).collect()
}

fn columns(boards: &[WideBoard]) -> (ArrayRef, ArrayRef) {
    let nibbles = uint64(boards.iter().map(|board| board.board().0));
    (nibbles, array_of::<UInt16Type>(boards.iter().map(|board| board.tile_65536_mask())))
}

/// Returns the results of a call for each board and number.
fn results(name: &str, boards: &[WideBoard], numbers: Option<&[u8]>) -> Vec<String> {
    let (nibbles, masks) = columns(boards);
    let mut arguments = vec![nibbles];
    arguments.extend(numbers.map(|numbers| uint8(numbers.iter().copied())));
    arguments.push(masks);
    let found = call(name, &arguments).unwrap();
    calls::text(&found)
}

fn check(name: &str, expected: impl Fn(Cells) -> String) {
    let boards = wide_boards();
    for (found, board) in results(name, &boards, None).iter().zip(&boards) {
        assert_eq!(*found, expected(board.exps()), "{name} {board:?}");
    }
}

fn check_with_number(name: &str, count: u8, expected: impl Fn(Cells, u8) -> String) {
    let boards = wide_boards();
    let numbers: Vec<u8> = (0..boards.len()).map(|k| (k * 7 / 3 % usize::from(count)) as u8).collect();
    for ((found, board), &number) in results(name, &boards, Some(&numbers)).iter().zip(&boards).zip(&numbers) {
        assert_eq!(*found, expected(board.exps(), number), "{name} {board:?} {number}");
    }
}

fn of_cells(cells: Cells) -> WideBoard {
    WideBoard::from_exps(cells).unwrap()
}

fn slid(cells: Cells, direction: u8) -> (Cells, u32) {
    rules::slide_up_to(cells, Move::from_index(direction).unwrap(), 16)
}

fn legal_moves(cells: Cells) -> u8 {
    (0..4).filter(|&direction| slid(cells, direction).0 != cells).map(|direction| 1 << direction).sum()
}

#[test]
fn functions_with_masks_agree_with_naive_ones() {
    let tiles = |cells: Cells| cells.into_iter().filter(|&exp| exp > 0).map(u32::from);
    check("exps", |cells| format!("{cells:?}"));
    check("max_tile", |cells| tiles(cells).map(|exp| 1 << exp).max().unwrap_or(0_u32).to_string());
    check("empty_cells", |cells| cells.iter().filter(|&&exp| exp == 0).count().to_string());
    check("tile_sum", |cells| tiles(cells).map(|exp| 1_u32 << exp).sum::<u32>().to_string());
    check("board_score", |cells| tiles(cells).map(|exp| u64::from(exp - 1) << exp).sum::<u64>().to_string());
    check("legal_moves", |cells| legal_moves(cells).to_string());
    check("num_legal", |cells| legal_moves(cells).count_ones().to_string());
    check("is_terminal", |cells| (legal_moves(cells) == 0).to_string());
    check("monotonicity", |cells| monotonicity(cells).to_string());
    check("smoothness", |cells| smoothness(cells).to_string());
    check("board_text", |cells| of_cells(cells).to_string());
    check_with_number("tile", 16, |cells, cell| tile_of(cells[usize::from(cell)]).to_string());
    check_with_number("reward", 4, |cells, direction| slid(cells, direction).1.to_string());
    check_with_number("afterstate", 4, |cells, m| of_cells(slid(cells, m).0).board().0.to_string());
    check_with_number("afterstate_mask", 4, |cells, m| of_cells(slid(cells, m).0).tile_65536_mask().to_string());
    check_with_number("transform", 8, |cells, s| of_cells(turned(cells, s)).board().0.to_string());
    check_with_number("transform_mask", 8, |cells, s| of_cells(turned(cells, s)).tile_65536_mask().to_string());
    let canonical = |cells| (0..8).map(|symmetry| of_cells(turned(cells, symmetry))).min().unwrap();
    check("canonical", move |cells| canonical(cells).board().0.to_string());
    check("canonical_mask", move |cells| canonical(cells).tile_65536_mask().to_string());
    let to_canonical = move |cells| (0..8).filter(move |&s| of_cells(turned(cells, s)) == canonical(cells));
    check("canonical_symmetry", move |cells| to_canonical(cells).next().unwrap().to_string());
    check_with_number("canonical_move", 4, move |cells, direction| {
        let image =
            |symmetry: u8| Symmetry::ALL[usize::from(symmetry)].apply_to_move(Move::ALL[usize::from(direction)]);
        to_canonical(cells).map(|symmetry| image(symmetry) as u8).min().unwrap().to_string()
    });
}

#[test]
fn every_function_of_boards_takes_masks() {
    for function in functions() {
        let takes_board = function.arguments.iter().any(|argument| argument.kind == ArgumentKind::Board);
        let masks = function.arguments.iter().chain(function.optional).filter(|a| a.kind == ArgumentKind::Mask).count();
        assert_eq!(masks, usize::from(takes_board) + usize::from(function.name == "spawn"), "{}", function.name);
    }
}

#[test]
fn spawns_beside_large_tiles() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(8);
    let (mut nexts, mut moves, mut expected) = (vec![], vec![], vec![]);
    let boards = wide_boards();
    for (k, board) in boards.iter().enumerate() {
        let direction = (random.next_u64() % 4) as u8;
        let (mut next, _) = slid(board.exps(), direction);
        let is_legal = next != board.exps();
        let empty: Vec<usize> = (0..16).filter(|&cell| next[cell] == 0).collect();
        let mut spawned = None;
        if let Some(&cell) = empty.get(random.next_u64() as usize % empty.len().max(1)) {
            next[cell] = if k % 3 == 0 { 2 } else { 1 };
            spawned = Some((cell, tile_of(next[cell])));
        }
        if k % 5 == 0
            && let Some(cell) = (0..16).find(|&cell| next[cell] >= 15)
        {
            // The tiles 32,768 and 65,536 have the same nibble.
            next[cell] ^= 15 ^ 16;
            spawned = None;
        }
        expected.push(spawned.filter(|_| is_legal));
        nexts.push(of_cells(next));
        moves.push(direction);
    }
    let ((nibbles, masks), (next_nibbles, next_masks)) = (columns(&boards), columns(&nexts));
    let found = call("spawn", &[nibbles, uint8(moves), next_nibbles, masks, next_masks]).unwrap();
    for (row, (found, expected)) in calls::text(&found).iter().zip(&expected).enumerate() {
        let expected = expected.map_or("NULL".to_owned(), |(cell, tile)| format!("{{cell: {cell}, tile: {tile}}}"));
        assert_eq!(*found, expected, "row {row}, {:?} to {:?}", boards[row], nexts[row]);
    }
    assert!(expected.iter().flatten().count() > 5_000);
}

#[test]
fn a_mask_that_does_not_fit_its_board_is_rejected() {
    let message = |name, arguments: &[ArrayRef]| call(name, arguments).unwrap_err().to_string();
    let (board, mask) = (uint64([0xf000_0000_0000_0000, 14]), array_of::<UInt16Type>([1, 1 << 15]));
    let expected = "max_tile: tile_65536_mask: expected only cells with the exponent 15, found the mask 32768";
    assert_eq!(message("max_tile", &[board.clone(), mask.clone()]), expected);
    // A null board has no cells.
    let nulls: ArrayRef = Arc::new(UInt64Array::from(vec![Some(0xf000_0000_0000_0000), None]));
    assert_eq!(calls::text(&call("max_tile", &[nulls, mask]).unwrap()), ["65536", "NULL"]);
}
