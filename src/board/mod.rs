//! The packed 4×4 board: rules, lookup tables, symmetries.
//!
//! ```text
//!   bit 63                                                             bit 0
//!    | c0 | c1 | c2 | c3 | c4 | c5 | … | c12 | c13 | c14 | c15 |     16 nibbles
//!
//!    c0  c1  c2  c3        a nibble is an exponent: 0 is empty, k is the tile 2^k,
//!    c4  c5  c6  c7        15 (32768) is the largest and never merges
//!    c8  c9  c10 c11
//!    c12 c13 c14 c15
//! ```
//!
//! A row of four nibbles has 65,536 values, so a table lookup slides a row, and four lookups slide a board. Moves
//! up and down transpose the board first. Tests check every operation against a naive implementation over cells.
//!
//! | file | owns |
//! | --- | --- |
//! | `packed` | [`Board`]: cells, tiles and score |
//! | `direction` | [`Move`] |
//! | `features` | monotonicity and smoothness |
//! | `rules` | slides, rewards, legality and spawns |
//! | `symmetry` | [`Symmetry`] |
//! | `tables` | the lookup tables of rows |
//! | `text` | boards as text |
//! | `picture` | boards as SVG |
//! | `tile_colors` | the colours of tiles |
//! | `wide` | [`WideBoard`]: boards with tiles up to 65,536 |

mod direction;
mod features;
mod packed;
mod picture;
mod rules;
mod symmetry;
mod tables;
mod text;
mod tile_colors;
mod wide;

#[cfg(test)]
mod tests;

pub use direction::Move;
pub use packed::Board;
pub use picture::board_svg;
pub use symmetry::Symmetry;
pub use tables::build as build_tables;
#[cfg(feature = "sql")]
pub(crate) use text::write as write_board;
pub use tile_colors::Palette;
pub use wide::WideBoard;
pub(crate) use wide::has_two_of_15;
