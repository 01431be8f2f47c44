//! Pictures of boards.

use super::tile_colors::Palette;
use super::wide::WideBoard;
use std::fmt::Write;

/// The width of a cell, and of the gap between two cells.
const CELL: u32 = 100;
const GAP: u32 = 8;

/// Returns a board as SVG of this width and height in pixels. Screen readers read its tiles.
#[must_use]
pub fn board_svg(board: WideBoard, palette: Palette, size: u32) -> String {
    let (side, cells) = (4 * CELL + 5 * GAP, cells(board, palette));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{size}\" height=\"{size}\" viewBox=\"0 0 {side} {side}\" \
         role=\"img\" aria-label=\"board: {board}\" font-family=\"sans-serif\" font-weight=\"bold\" text-anchor=\"middle\">\
         <rect width=\"{side}\" height=\"{side}\" rx=\"12\" fill=\"#a59a8e\"/>{cells}</svg>"
    )
}

fn cells(board: WideBoard, palette: Palette) -> String {
    let mut svg = String::new();
    for (cell, exp) in (0_u32..).zip(board.exps()) {
        let (x, y) = (GAP + cell % 4 * (CELL + GAP), GAP + cell / 4 * (CELL + GAP));
        let fill = palette.background(exp);
        let _ = write!(svg, "<rect x=\"{x}\" y=\"{y}\" width=\"{CELL}\" height=\"{CELL}\" rx=\"6\" fill=\"{fill}\"/>");
        if exp > 0 {
            let number = (1_u32 << exp).to_string();
            let font = [46, 46, 46, 40, 33, 28][number.len().min(5)];
            let (x, y, color) = (x + CELL / 2, y + CELL / 2 + font * 36 / 100, Palette::text(exp));
            let _ = write!(svg, "<text x=\"{x}\" y=\"{y}\" font-size=\"{font}\" fill=\"{color}\">{number}</text>");
        }
    }
    svg
}
