//! Compares every function with naive rules over cells, on boards of all densities.

mod calls;
mod masks;
#[allow(clippy::duplicate_mod, reason = "the tests of the board include it for themselves")]
#[path = "../../board/tests/naive.rs"]
mod rules;

use super::*;
use crate::archive::Phases;
use crate::board::{Board, Move};
use crate::error::Result;
use arrow::array::*;
use arrow::datatypes::*;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::sync::Arc;

type Cells = [u8; 16];

fn function(name: &str) -> &'static Function {
    functions().iter().find(|function| function.name == name).unwrap()
}

fn call(name: &str, arguments: &[ArrayRef]) -> Result<ArrayRef> {
    function(name).call(arguments, Phases::default())
}

fn cells_of(board: u64) -> Cells {
    std::array::from_fn(|cell| (board >> (60 - 4 * cell)) as u8 & 15)
}

fn board_of(cells: Cells) -> u64 {
    cells.iter().fold(0, |board, &exp| board << 4 | u64::from(exp))
}

/// Returns edge cases, then boards of every density with few and with many kinds of tiles.
fn boards() -> Vec<u64> {
    let mut boards = vec![0, u64::MAX, 1, 1 << 63, u64::MAX - 1, 0xf000_0000_0000_000f, 0x1234_5678_9abc_def0];
    boards.extend((0..16).map(|exp| exp * 0x1111_1111_1111_1111));
    boards.extend((0..16).flat_map(|cell| [1 << (4 * cell), 15 << (4 * cell)]));
    boards.extend((0..=u16::MAX).step_by(37).map(|row| u64::from(row) << 48));
    let mut random = Xoshiro256PlusPlus::seed_from_u64(2048);
    for k in 0..100_000 {
        let (density, kinds) = (k % 17, 1 + (k / 17) % 15);
        let lowest = random.next_u64() % (16 - kinds);
        let cells = std::array::from_fn(|_| {
            let is_filled = random.next_u64() % 16 < density;
            if is_filled { (1 + (lowest + random.next_u64() % kinds) % 15) as u8 } else { 0 }
        });
        boards.push(board_of(cells));
    }
    boards
}

fn array_of<T: ArrowPrimitiveType>(values: impl IntoIterator<Item = T::Native>) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::from_iter_values(values))
}

fn uint64(values: impl IntoIterator<Item = u64>) -> ArrayRef {
    array_of::<UInt64Type>(values)
}

fn uint8(values: impl IntoIterator<Item = u8>) -> ArrayRef {
    array_of::<UInt8Type>(values)
}

/// Compares row by row, so that a failure shows the board.
fn assert_rows<T: ArrowPrimitiveType>(found: &ArrayRef, boards: &[u64], expected: impl Fn(usize) -> T::Native) {
    assert_eq!((found.len(), found.null_count()), (boards.len(), 0));
    for (row, (found, &board)) in found.as_primitive::<T>().values().iter().zip(boards).enumerate() {
        assert_eq!(*found, expected(row), "row {row}, {:?}", Board(board));
    }
}

fn assert_of_boards<T: ArrowPrimitiveType>(name: &str, naive: impl Fn(Cells) -> T::Native) {
    let boards = boards();
    let found = call(name, &[uint64(boards.iter().copied())]).unwrap();
    assert_rows::<T>(&found, &boards, |row| naive(cells_of(boards[row])));
}

/// Checks a function with the same second argument in all rows, and with all its values mixed.
fn assert_with_number<T: ArrowPrimitiveType>(name: &str, count: u8, naive: impl Fn(Cells, u8) -> T::Native) {
    let boards = boards();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mixed: Vec<u8> = boards.iter().map(|_| (random.next_u64() % u64::from(count)) as u8).collect();
    for numbers in (0..count).map(|number| vec![number; boards.len()]).chain([mixed]) {
        let found = call(name, &[uint64(boards.iter().copied()), uint8(numbers.iter().copied())]).unwrap();
        assert_rows::<T>(&found, &boards, |row| naive(cells_of(boards[row]), numbers[row]));
    }
}

fn tile_of(exp: u8) -> u32 {
    if exp == 0 { 0 } else { 2_u32.pow(exp.into()) }
}

fn legal(cells: Cells) -> Vec<Move> {
    Move::ALL.into_iter().filter(|&direction| rules::slide(cells, direction).0 != cells).collect()
}

/// Returns the position of a tile after a symmetry.
fn moved((row, column): (usize, usize), symmetry: u8) -> (usize, usize) {
    match symmetry {
        0 => (row, column),
        1 => (column, 3 - row),
        2 => (3 - row, 3 - column),
        3 => (3 - column, row),
        4 => (row, 3 - column),
        5 => (3 - row, column),
        6 => (column, row),
        _ => (3 - column, 3 - row),
    }
}

fn turned(cells: Cells, symmetry: u8) -> Cells {
    let mut out = [0; 16];
    for (cell, &exp) in cells.iter().enumerate() {
        let (row, column) = moved((cell / 4, cell % 4), symmetry);
        out[row * 4 + column] = exp;
    }
    out
}

/// Returns the cells of each row, then of each column.
fn lines() -> impl Iterator<Item = [usize; 4]> {
    let row = |i: usize| std::array::from_fn(|k| i * 4 + k);
    let column = |i: usize| std::array::from_fn(|k| k * 4 + i);
    (0..4).map(row).chain((0..4).map(column))
}

/// Computes `monotonicity2` as its source does, cell after cell.
fn monotonicity(cells: Cells) -> i32 {
    let mut totals = [0_i32; 4];
    for (index, line) in lines().enumerate() {
        let exps = line.map(|cell| i32::from(cells[cell]));
        let (mut current, mut next) = (0, 1);
        while next < 4 {
            while next < 4 && exps[next] == 0 {
                next += 1;
            }
            next = next.min(3);
            let axis = index / 4 * 2;
            if exps[current] > exps[next] {
                totals[axis] -= exps[current] - exps[next];
            } else {
                totals[axis + 1] -= exps[next] - exps[current];
            }
            current = next;
            next += 1;
        }
    }
    totals[0].max(totals[1]) + totals[2].max(totals[3])
}

fn smoothness(cells: Cells) -> i32 {
    let differences = lines().map(|line| {
        let tiles: Vec<i32> = line.iter().map(|&cell| cells[cell].into()).filter(|&exp| exp > 0).collect();
        tiles.windows(2).map(|pair| (pair[0] - pair[1]).abs()).sum::<i32>()
    });
    -differences.sum::<i32>()
}

#[test]
fn numbers_of_a_board() {
    assert_of_boards::<UInt32Type>("max_tile", |cells| cells.into_iter().map(tile_of).max().unwrap());
    assert_of_boards::<UInt8Type>("empty_cells", |cells| cells.iter().filter(|&&exp| exp == 0).count() as u8);
    assert_of_boards::<UInt32Type>("tile_sum", |cells| cells.into_iter().map(tile_of).sum());
    assert_of_boards::<Int64Type>("board_score", |cells| {
        let tiles = cells.iter().filter(|&&exp| exp > 0);
        tiles.map(|&exp| (i64::from(exp) - 1) * i64::from(tile_of(exp))).sum()
    });
    assert_with_number::<UInt32Type>("tile", 16, |cells, cell| tile_of(cells[usize::from(cell)]));
}

#[test]
fn moves_of_a_board() {
    assert_of_boards::<UInt8Type>("legal_moves", |cells| legal(cells).iter().map(|direction| direction.bit()).sum());
    assert_of_boards::<UInt8Type>("num_legal", |cells| legal(cells).len() as u8);
    let direction = |index| Move::from_index(index).unwrap();
    assert_with_number::<UInt64Type>("afterstate", 4, |cells, m| board_of(rules::slide(cells, direction(m)).0));
    assert_with_number::<UInt32Type>("reward", 4, |cells, m| rules::slide(cells, direction(m)).1);

    let boards = boards();
    let found = call("is_terminal", &[uint64(boards.iter().copied())]).unwrap();
    for (&board, found) in boards.iter().zip(found.as_boolean()) {
        assert_eq!(found, Some(legal(cells_of(board)).is_empty()), "{:?}", Board(board));
    }
    assert!((1..boards.len()).contains(&found.as_boolean().true_count()));
}

#[test]
fn symmetries_of_boards_and_moves() {
    assert_with_number::<UInt64Type>("transform", 8, |cells, symmetry| board_of(turned(cells, symmetry)));
    assert_of_boards::<UInt64Type>("canonical", |cells| {
        (0..8).map(|symmetry| board_of(turned(cells, symmetry))).min().unwrap()
    });
    let image = |cells, symmetry| board_of(turned(cells, symmetry));
    let canonical = move |cells| (0..8).map(|symmetry| image(cells, symmetry)).min().unwrap();
    let that_give_it = move |cells| (0..8).filter(move |&symmetry| image(cells, symmetry) == canonical(cells));
    assert_of_boards::<UInt8Type>("canonical_symmetry", |cells| that_give_it(cells).next().unwrap());
    // The wall that a lone tile reaches after a move and a symmetry shows the direction of the transformed
    // move.
    let points = |direction: u8, symmetry: u8| {
        let lone = |cell: usize| std::array::from_fn(|other| u8::from(other == cell));
        let slid = turned(rules::slide(lone(6), Move::from_index(direction).unwrap()).0, symmetry);
        (0..4).find(|&m| rules::slide(turned(lone(6), symmetry), Move::from_index(m).unwrap()).0 == slid).unwrap()
    };
    assert_with_number::<UInt8Type>("canonical_move", 4, |cells, direction| {
        that_give_it(cells).map(|symmetry| points(direction, symmetry)).min().unwrap()
    });
    // For a lone tile away from the walls, sliding and symmetries commute.
    let board = board_of(std::array::from_fn(|cell| u8::from(cell == 6)));
    for (direction, symmetry) in (0..4).flat_map(|m| (0..8).map(move |symmetry| (m, symmetry))) {
        let of = |name, a, b| call(name, &[a, uint8([b])]).unwrap();
        let turned_move = of("transform_move", uint8([direction]), symmetry);
        let slid = of("transform", of("afterstate", uint64([board]), direction), symmetry);
        let turned = of("transform", uint64([board]), symmetry);
        assert_eq!(&slid, &call("afterstate", &[turned, turned_move]).unwrap(), "{direction} {symmetry}");
    }
}

#[test]
fn features_of_a_board() {
    assert_of_boards::<Int32Type>("monotonicity", monotonicity);
    assert_of_boards::<Int32Type>("smoothness", smoothness);
    for (name, symmetry) in ["monotonicity", "smoothness"].into_iter().flat_map(|name| (1..8).map(move |s| (name, s))) {
        let of = |boards: &[u64]| call(name, &[uint64(boards.iter().copied())]).unwrap();
        let turned: Vec<u64> = boards().iter().map(|&board| board_of(turned(cells_of(board), symmetry))).collect();
        assert_eq!(&of(&turned), &of(&boards()), "{name} {symmetry}");
    }
}

#[test]
fn cells_and_text_of_a_board() {
    let boards = boards();
    let arguments = [uint64(boards.iter().copied())];
    let (exps, texts) = (call("exps", &arguments).unwrap(), call("board_text", &arguments).unwrap());
    let all = exps.as_fixed_size_list().values().as_primitive::<UInt8Type>();
    for (row, &board) in boards.iter().enumerate() {
        let cells = cells_of(board);
        assert_eq!(all.values()[row * 16..][..16], cells);
        let tile = |&exp: &u8| if exp == 0 { ".".to_owned() } else { tile_of(exp).to_string() };
        let rows: Vec<String> = cells.chunks(4).map(|row| row.iter().map(tile).collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(texts.as_string::<i32>().value(row), rows.join(" / "));
    }
}

#[test]
fn only_spawns_are_found() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
    let (mut boards, mut moves, mut nexts, mut expected) = (vec![], vec![], vec![], vec![]);
    for board in self::boards() {
        let (cells, direction) = (cells_of(board), Move::ALL[random.next_u64() as usize % 4]);
        let (mut next, _) = rules::slide(cells, direction);
        let is_legal = next != cells;
        let empty: Vec<usize> = (0..16).filter(|&cell| next[cell] == 0).collect();
        let mut spawned = None;
        let mut put = |next: &mut Cells, exp| {
            let cell = *empty.get(random.next_u64() as usize % empty.len().max(1))?;
            next[cell] = exp;
            Some((cell as u8, tile_of(exp)))
        };
        match boards.len() % 7 {
            // No spawn, a tile too large, a spawn on a tile, and two spawns at once.
            0 => {}
            1 => drop(put(&mut next, 3)),
            2 => next[15] ^= 1 << (next[15] & 1),
            3 => {
                next =
                    std::array::from_fn(|cell| if empty.iter().take(2).any(|&e| e == cell) { 1 } else { next[cell] });
            }
            4 => spawned = put(&mut next, 2),
            _ => spawned = put(&mut next, 1),
        }
        // The cases above may produce a valid spawn by chance, so count the changed cells.
        let changed: Vec<usize> = {
            let (slid, _) = rules::slide(cells, direction);
            (0..16).filter(|&cell| slid[cell] != next[cell]).collect()
        };
        if let [cell] = changed[..]
            && empty.contains(&cell)
            && matches!(next[cell], 1 | 2)
        {
            spawned = Some((cell as u8, tile_of(next[cell])));
        }
        expected.push(spawned.filter(|_| is_legal));
        boards.push(board);
        moves.push(direction as u8);
        nexts.push(board_of(next));
    }
    let found = call("spawn", &[uint64(boards.clone()), uint8(moves), uint64(nexts)]).unwrap();
    let (cells, tiles) = (found.as_struct().column(0), found.as_struct().column(1));
    for (row, expected) in expected.iter().enumerate() {
        assert_eq!([&found, cells, tiles].map(|array| array.is_valid(row)), [expected.is_some(); 3], "row {row}");
        if let &Some((cell, tile)) = expected {
            let found = (cells.as_primitive::<UInt8Type>().value(row), tiles.as_primitive::<UInt32Type>().value(row));
            assert_eq!(found, (cell, tile), "row {row}, {:?}", Board(boards[row]));
        }
    }
    assert!(expected.iter().flatten().count() > 30_000 && expected.iter().filter(|row| row.is_none()).count() > 30_000);
}

#[test]
fn evs_with_and_without_branches() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(4);
    let special = [f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, 1.0, 1.0, 2.0, -7.5];
    let rows: Vec<[Option<f32>; 4]> = (0..100_000)
        .map(|_| {
            std::array::from_fn(|_| match random.next_u64() % 8 {
                0 | 1 => None,
                2 => Some(f32::NAN),
                3 => Some(special[random.next_u64() as usize % 8]),
                _ => Some((random.next_u64() % 1000) as f32 / 8.0),
            })
        })
        .collect();
    let moves: Vec<u8> = rows.iter().map(|_| (random.next_u64() % 4) as u8).collect();
    // Also start in the middle of a word of the null buffers.
    for start in [0, 3] {
        let (rows, moves) = (&rows[start..], &moves[start..]);
        let evs: Vec<ArrayRef> = (0..4)
            .map(|k| {
                Arc::new(rows.iter().map(|row| row[k]).collect::<Float32Array>().slice(start, rows.len() - start)) as _
            })
            .collect();
        let (rows, moves) = (&rows[start..], &moves[start..]);
        let mut with_move = vec![uint8(moves.iter().copied())];
        with_move.extend(evs.iter().cloned());
        let gaps = call("ev_gap", &evs).unwrap();
        let losses = call("ev_loss", &with_move).unwrap();
        let best = call("best_move", &evs).unwrap();
        let apart = |a: f32, b: f32| if a == b { 0.0 } else { a - b };
        for (row, evs) in rows.iter().enumerate() {
            let present: Vec<(usize, f32)> =
                (0..4).filter_map(|k| evs[k].filter(|ev| !ev.is_nan()).map(|ev| (k, ev))).collect();
            let mut sorted = present.clone();
            sorted.sort_by(|a, b| b.1.partial_cmp(&a.1).unwrap());
            let gap = (sorted.len() > 1).then(|| apart(sorted[0].1, sorted[1].1));
            let chosen = present.iter().find(|(k, _)| *k == usize::from(moves[row]));
            let loss = chosen.map(|(_, ev)| apart(sorted[0].1, *ev));
            let found = |array: &ArrayRef| array.is_valid(row).then(|| array.as_primitive::<Float32Type>().value(row));
            assert_eq!((found(&gaps), found(&losses)), (gap, loss), "{evs:?} {}", moves[row]);
            let found = best.is_valid(row).then(|| best.as_primitive::<UInt8Type>().value(row));
            assert_eq!(found, sorted.first().map(|(k, _)| *k as u8), "{evs:?}");
        }
    }
}

#[test]
fn phases_begin_where_the_archive_says() {
    let exps = uint8(0..17);
    for (mid, late) in [(1024, 4096), (2, 32768)] {
        let found = function("phase_of").call(std::slice::from_ref(&exps), Phases { mid, late }).unwrap();
        for (exp, found) in (0..17).zip(found.as_string::<i32>()) {
            let tile = tile_of(exp);
            let expected = if tile >= late {
                "late"
            } else if tile >= mid {
                "mid"
            } else {
                "early"
            };
            assert_eq!(found, Some(expected));
        }
    }
}
