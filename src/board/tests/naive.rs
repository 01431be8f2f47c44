//! A naive implementation of the rules, over cells and without tables. It is the oracle of the unit tests and of the
//! integration tests, which include this file.

use super::Move;

pub(super) type Exponents = [u8; 16];

/// Returns the cells of a line, from the wall that the tiles slide to.
fn line(direction: Move, index: usize) -> [usize; 4] {
    std::array::from_fn(|i| match direction {
        Move::Up => i * 4 + index,
        Move::Down => (3 - i) * 4 + index,
        Move::Left => index * 4 + i,
        Move::Right => index * 4 + 3 - i,
    })
}

pub(super) fn slide(cells: Exponents, direction: Move) -> (Exponents, u32) {
    slide_up_to(cells, direction, 15)
}

/// Slides a board whose largest exponent is `largest`. Two tiles of this exponent do not merge.
pub(super) fn slide_up_to(cells: Exponents, direction: Move, largest: u8) -> (Exponents, u32) {
    let mut out = [0; 16];
    let mut reward = 0;
    for index in 0..4 {
        let line = line(direction, index);
        let tiles: Vec<u8> = line.iter().map(|&cell| cells[cell]).filter(|&exp| exp > 0).collect();
        let mut merged = Vec::new();
        let mut i = 0;
        while i < tiles.len() {
            if i + 1 < tiles.len() && tiles[i] == tiles[i + 1] && tiles[i] < largest {
                merged.push(tiles[i] + 1);
                reward += 1 << (tiles[i] + 1);
                i += 2;
            } else {
                merged.push(tiles[i]);
                i += 1;
            }
        }
        for (&cell, exp) in line.iter().zip(merged) {
            out[cell] = exp;
        }
    }
    (out, reward)
}
