//! Boards as text: `Display`, `Debug` and `FromStr`.

use super::packed::Board;
use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

impl fmt::Display for Board {
    /// Writes rows separated by `/`, tiles by spaces, and an empty cell as `.`; `{:#}` writes one row per line, in
    /// columns.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        format(self.exps(), f)
    }
}

/// Formats the tiles of exponents, as `Display` of [`Board`].
pub(super) fn format(exps: [u8; 16], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if !f.alternate() {
        return write(exps, f);
    }
    for (cell, exp) in exps.into_iter().enumerate() {
        let divider = match cell {
            0 => "",
            4 | 8 | 12 => "\n",
            _ => " ",
        };
        write!(f, "{divider}{:>5}", TILES[usize::from(exp)])?;
    }
    Ok(())
}

/// Writes the tiles of exponents on one line.
pub(crate) fn write(exps: [u8; 16], out: &mut impl fmt::Write) -> fmt::Result {
    for (cell, exp) in exps.into_iter().enumerate() {
        if cell > 0 {
            out.write_str(if cell % 4 == 0 { " / " } else { " " })?;
        }
        out.write_str(TILES[usize::from(exp)])?;
    }
    Ok(())
}

/// The text of each exponent's tile.
const TILES: [&str; 17] = [
    ".", "2", "4", "8", "16", "32", "64", "128", "256", "512", "1024", "2048", "4096", "8192", "16384", "32768",
    "65536",
];

impl fmt::Debug for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Board({:#018x}: {self})", self.0)
    }
}

impl FromStr for Board {
    type Err = Error;

    /// Reads the format of `Display`: sixteen tiles, `0` or `.` for an empty cell, separated by `/` and white space.
    fn from_str(text: &str) -> Result<Board> {
        Board::from_exps(parse(text, 1 << 15)?)
    }
}

/// Reads exponents from tiles of at most `most`.
pub(super) fn parse(text: &str, most: u32) -> Result<[u8; 16]> {
    let exp = |word: &str| match word.parse::<u32>() {
        Ok(tile) if tile.is_power_of_two() && (2..=most).contains(&tile) => Ok(tile.trailing_zeros() as u8),
        _ if matches!(word, "." | "0") => Ok(0),
        _ => Err(Error::decode(None, "tile", format!("a power of two in 2..={most}, or ."), word)),
    };
    let words = text.split(|c: char| c.is_whitespace() || c == '/').filter(|word| !word.is_empty());
    let (mut exps, mut len) = ([0; 16], 0);
    for word in words {
        let exp = exp(word)?;
        // Tiles after the sixteenth are only checked and counted.
        if let Some(cell) = exps.get_mut(len) {
            *cell = exp;
        }
        len += 1;
    }
    if len == 16 { Ok(exps) } else { Err(Error::decode(None, "board", "16 tiles", len)) }
}
