//! Lookup tables for each of the 65,536 rows: 832 KiB, built once in about two milliseconds.

use super::packed::Board;
use std::sync::LazyLock;

#[derive(bytemuck::Zeroable)]
pub(super) struct RowTables {
    left: [u16; ROWS],
    right: [u16; ROWS],
    reward: [u32; ROWS],
    /// Bit 2 is set if sliding left changes the row, and bit 3 if sliding right does.
    legal: [u8; ROWS],
    /// The results of [`measure`].
    features: [u32; ROWS],
}

const ROWS: usize = 1 << 16;

static TABLES: LazyLock<Box<RowTables>> = LazyLock::new(RowTables::build);

/// Builds the tables unless they exist.
pub fn build() {
    LazyLock::force(&TABLES);
}

#[inline]
pub(super) fn get() -> &'static RowTables {
    &TABLES
}

impl RowTables {
    /// Slides the rows right or left.
    #[inline]
    pub(super) fn slide(&self, board: Board, to_right: bool) -> Board {
        let table = if to_right { &self.right } else { &self.left };
        let [a, b, c, d] = rows(board);
        let slid = |row: u16| u64::from(table[usize::from(row)]);
        Board(slid(a) << 48 | slid(b) << 32 | slid(c) << 16 | slid(d))
    }

    #[inline]
    pub(super) fn reward(&self, board: Board) -> u32 {
        sum_of_rows(board, &self.reward)
    }

    #[inline]
    pub(super) fn features(&self, board: Board) -> u32 {
        sum_of_rows(board, &self.features)
    }

    #[inline]
    pub(super) fn legal_rows(&self, board: Board) -> u8 {
        let [a, b, c, d] = rows(board);
        let legal = |row: u16| self.legal[usize::from(row)];
        legal(a) | legal(b) | legal(c) | legal(d)
    }

    fn build() -> Box<RowTables> {
        let mut tables: Box<RowTables> = bytemuck::allocation::zeroed_box();
        for row in 0..=u16::MAX {
            let (slid, reward) = slide_row(row);
            let is_legal = u8::from(slid != row);
            let (index, reversed) = (usize::from(row), usize::from(reverse(row)));
            tables.left[index] = slid;
            tables.right[reversed] = reverse(slid);
            tables.reward[index] = reward;
            tables.legal[index] |= is_legal << 2;
            tables.legal[reversed] |= is_legal << 3;
            tables.features[index] = measure([row >> 12, row >> 8 & 15, row >> 4 & 15, row & 15].map(|exp| exp as u8));
        }
        tables
    }
}

#[inline(always)]
fn rows(board: Board) -> [u16; 4] {
    [(board.0 >> 48) as u16, (board.0 >> 32) as u16, (board.0 >> 16) as u16, board.0 as u16]
}

#[inline(always)]
fn sum_of_rows(board: Board, table: &[u32; ROWS]) -> u32 {
    let [a, b, c, d] = rows(board);
    let value = |row: u16| table[usize::from(row)];
    value(a) + value(b) + value(c) + value(d)
}

/// Slides a row to the left: tiles move to the wall, and equal neighbours merge once. Pairs nearest the wall merge
/// first.
fn slide_row(row: u16) -> (u16, u32) {
    let mut slid = 0;
    let mut reward = 0;
    let mut free = 12;
    let mut waiting = 0;
    let mut put = |exp: u16| {
        slid |= exp << free;
        free -= 4;
    };
    for exp in [row >> 12, row >> 8 & 15, row >> 4 & 15, row & 15] {
        if exp == 0 {
            continue;
        }
        if waiting == exp && exp < 15 {
            put(exp + 1);
            reward += 2 << exp;
            waiting = 0;
        } else {
            if waiting != 0 {
                put(waiting);
            }
            waiting = exp;
        }
    }
    if waiting != 0 {
        put(waiting);
    }
    (slid, reward)
}

/// Returns the falls, rises and differences of a line in the lowest three bytes, each summed over consecutive tiles,
/// across empty cells. The sums of four lines fit in the same bytes. An empty cell at an end counts as 0 for falls and
/// rises, but not for differences.
pub(super) fn measure(line: [u8; 4]) -> u32 {
    let line = line.map(u32::from);
    let (mut falls, mut rises, mut differences) = (0, 0, 0);
    let mut last = line[0];
    for (cell, &next) in line.iter().enumerate().skip(1) {
        if next == 0 && cell < 3 {
            continue;
        }
        falls += last.saturating_sub(next);
        rises += next.saturating_sub(last);
        if last > 0 && next > 0 {
            differences += last.abs_diff(next);
        }
        last = next;
    }
    differences << 16 | rises << 8 | falls
}

fn reverse(row: u16) -> u16 {
    row >> 12 | row >> 4 & 0x00f0 | row << 4 & 0x0f00 | row << 12
}
