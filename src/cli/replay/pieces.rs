//! Boards, moves and charts of a game as coloured text.

use super::super::print::count;
use crate::board::{Move, Palette, Rgb, Symmetry, WideBoard};
use crate::explore::{Game, Mark, Position, Thresholds};
use console::{Style, measure_text_width, truncate_str};
use ratatui::style::{Color, Modifier, Style as ScreenStyle};
use ratatui::text::{Line, Span};

/// The width of a cell of the board in columns, and its height in lines.
const CELL: (usize, usize) = (8, 3);

/// The width of a board in columns.
pub(super) const BOARD_WIDTH: usize = 4 * CELL.0;

/// The width of the moves with their bars, of a bar with its margin, and of a model.
const MOVES_WIDTH: usize = 38;
const BAR_WIDTH: usize = 12;
const MODEL_WIDTH: usize = 10;

/// The minimum width of a shortened engine name.
const MIN_ENGINE: usize = 12;

/// A line of coloured text.
#[derive(Clone, Debug, Default)]
pub(super) struct Coloured(Vec<Piece>);

/// Text in one style.
#[derive(Clone, Debug)]
struct Piece {
    text: String,
    look: Look,
}

/// The style of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Plain,
    Strong,
    Dim,
    Tile { text: Rgb, background: Rgb },
    Good,
    Bad,
}

impl Coloured {
    fn push(&mut self, look: Look, text: impl Into<String>) -> &mut Coloured {
        self.0.push(Piece { text: text.into(), look });
        self
    }

    fn width(&self) -> usize {
        self.0.iter().map(|piece| measure_text_width(&piece.text)).sum()
    }

    /// Returns the line with escape sequences for colours, unless this process prints no colours.
    pub(super) fn to_ansi(&self) -> String {
        let style = |look| match look {
            Look::Plain => Style::new(),
            Look::Strong => Style::new().bold(),
            Look::Dim => Style::new().dim(),
            Look::Good => Style::new().green(),
            Look::Bad => Style::new().red(),
            Look::Tile { text, background } => {
                Style::new().bold().color256(nearest(text)).on_color256(nearest(background))
            }
        };
        let text: String = self.0.iter().map(|piece| style(piece.look).apply_to(&piece.text).to_string()).collect();
        text.trim_end().to_owned()
    }

    /// Returns the line for the screen. `colors` = whether to use colours.
    pub(super) fn to_line(&self, colors: bool) -> Line<'static> {
        let style = |look| match look {
            Look::Plain => ScreenStyle::new(),
            Look::Strong => ScreenStyle::new().add_modifier(Modifier::BOLD),
            Look::Dim => ScreenStyle::new().add_modifier(Modifier::DIM),
            Look::Good if colors => ScreenStyle::new().fg(Color::Green),
            Look::Bad if colors => ScreenStyle::new().fg(Color::Red),
            Look::Tile { text, background } if colors => {
                ScreenStyle::new().fg(Color::Indexed(nearest(text))).bg(Color::Indexed(nearest(background)))
            }
            Look::Good | Look::Bad | Look::Tile { .. } => ScreenStyle::new().add_modifier(Modifier::BOLD),
        };
        Line::from_iter(self.0.iter().map(|piece| Span::styled(piece.text.clone(), style(piece.look))))
    }
}

/// Returns the lines of one position: the run, the board and the moves.
pub(super) fn position(
    game: &Game,
    place: usize,
    thresholds: Thresholds,
    palette: Palette,
    width: usize,
) -> Vec<Coloured> {
    let mut lines = vec![title(game, width)];
    lines.extend(status(game, place, &marks(game, place, thresholds), width));
    lines.push(Coloured::default());
    let Some(position) = game.positions.get(place) else { return lines };
    let board = board(position.board, palette);
    let beside = BOARD_WIDTH + 3;
    if width < beside + MOVES_WIDTH + game.models.len() * MODEL_WIDTH {
        lines.extend(board);
        lines.push(Coloured::default());
        lines.extend(moves(game, position, Symmetry::Identity, width));
        return lines;
    }
    let moves = moves(game, position, Symmetry::Identity, width - beside);
    let height = board.len().max(moves.len());
    for row in 0..height {
        let mut line = board.get(row).cloned().unwrap_or_default();
        if line.0.is_empty() {
            line.push(Look::Plain, " ".repeat(BOARD_WIDTH));
        }
        line.push(Look::Plain, "   ");
        line.0.extend(moves.get(row).cloned().unwrap_or_default().0);
        lines.push(line);
    }
    lines
}

fn marks(game: &Game, place: usize, thresholds: Thresholds) -> Vec<Mark> {
    game.marks(thresholds).swap_remove(place)
}

/// Returns the line about the run. A long name of the engine is shortened to fit `width`.
pub(super) fn title(game: &Game, width: usize) -> Coloured {
    let mut line = Coloured::default();
    let run = game.run_id.map_or_else(String::new, |run_id| format!("run {run_id}  "));
    let facts = format!("  score {}  {} steps", count(game.max_score), count(game.num_steps() as u64));
    let engine = game.engine.as_deref().unwrap_or("no engine");
    let rest = width.saturating_sub(run.len() + facts.len()).max(MIN_ENGINE);
    line.push(Look::Strong, run);
    line.push(Look::Plain, truncate_str(engine, rest, "…"));
    line.push(Look::Plain, facts);
    line
}

/// Returns the line about a position. Marks that do not fit into `width` go on a second line.
pub(super) fn status(game: &Game, place: usize, marks: &[Mark], width: usize) -> Vec<Coloured> {
    let mut line = Coloured::default();
    let Some(position) = game.positions.get(place) else { return vec![line] };
    match position.step {
        Some(step) => line.push(Look::Strong, format!("step {}", count(step.into()))),
        None => line.push(Look::Strong, "final board"),
    };
    if let Some(score) = position.score {
        line.push(Look::Plain, format!("  score {}", count(score)));
    }
    let (empty, largest) = (position.board.num_empty(), position.board.highest_tile());
    line.push(Look::Plain, format!("  {empty} empty  largest {largest}"));
    let mut lines = vec![line];
    for mark in marks {
        let look = if matches!(mark, Mark::Blunder) { Look::Bad } else { Look::Strong };
        let text = format!("  [{mark}]");
        let is_full = lines.len() == 1 && lines[0].width() + text.len() > width;
        if is_full {
            lines.push(Coloured::default());
        }
        if let Some(line) = lines.last_mut() {
            line.push(look, text);
        }
    }
    lines
}

/// Returns the lines of a board.
pub(super) fn board(board: WideBoard, palette: Palette) -> Vec<Coloured> {
    let exps = board.exps();
    let (width, height) = CELL;
    let mut lines = Vec::with_capacity(4 * height);
    for row in exps.chunks(4) {
        for line in 0..height {
            let mut coloured = Coloured::default();
            for &exp in row {
                let number = match exp {
                    _ if line != height / 2 => String::new(),
                    0 => "·".to_owned(),
                    exp => (1_u32 << exp).to_string(),
                };
                let look = Look::Tile { text: palette.text(exp), background: palette.background(exp) };
                coloured.push(look, format!("{number:^width$}"));
            }
            lines.push(coloured);
        }
    }
    lines
}

/// Returns the lines of the four moves: the engine's values, and the predictions of models. `symmetry`
/// transforms the directions. If the models do not fit into `width`, the bars are left out, then the last models.
pub(super) fn moves(game: &Game, position: &Position, symmetry: Symmetry, width: usize) -> Vec<Coloured> {
    let mut lines = Vec::new();
    let mut head = Coloured::default();
    let has_bars = width >= MOVES_WIDTH + game.models.len() * MODEL_WIDTH;
    let used = if has_bars { MOVES_WIDTH } else { MOVES_WIDTH - BAR_WIDTH };
    let num_models = game.models.len().min(width.saturating_sub(used) / MODEL_WIDTH);
    let bar_width = if has_bars { BAR_WIDTH } else { 0 };
    head.push(Look::Dim, format!("{:7}{:>9}{:>10}{:bar_width$}", "move", "value", "behind", ""));
    for model in &game.models[..num_models] {
        head.push(Look::Dim, format!(" {:>9}", model.chars().take(9).collect::<String>()));
    }
    lines.push(head);
    let best = position.best();
    let best_value = best.and_then(|best| position.values[best as usize]);
    let worst = position.values.into_iter().flatten().reduce(f32::min);
    let legal = position.board.legal_moves();
    for shown in Move::ALL {
        let stored = symmetry.inverse().apply_to_move(shown);
        let mut line = Coloured::default();
        let is_played = position.played == Some(stored);
        let is_legal = legal & stored.bit() != 0;
        let look = match (is_played, is_legal) {
            (true, _) => Look::Strong,
            (false, true) => Look::Plain,
            (false, false) => Look::Dim,
        };
        line.push(look, format!("{}{:6}", if is_played { '>' } else { ' ' }, shown.name()));
        match (position.values[stored as usize], best_value) {
            (Some(value), Some(best_value)) => {
                let behind = if Some(stored) == best { "best".to_owned() } else { number(best_value - value) };
                line.push(look, format!("{:>9}", number(value)));
                line.push(if Some(stored) == best { Look::Good } else { look }, format!("{behind:>10}"));
                if has_bars {
                    line.push(look, format!("  {}", bar(value, worst, best_value, game.has_raw_values)));
                }
            }
            _ => {
                let what = if is_legal { "unknown" } else { "illegal" };
                line.push(Look::Dim, format!("{what:>9}{:>10}{:bar_width$}", "", ""));
            }
        }
        for model in 0..num_models {
            let prediction = position.predictions.iter().find(|prediction| prediction.model == model);
            let is_preferred = prediction.is_some_and(|prediction| prediction.preferred == Some(stored));
            let text = prediction.map_or_else(String::new, |prediction| {
                let probability = prediction.moves[stored as usize].or(prediction.probability.filter(|_| is_preferred));
                let text = probability.map_or_else(String::new, |probability| format!("{:.1} %", probability * 100.0));
                if is_preferred { format!("*{text}") } else { text }
            });
            let look = if is_preferred && position.played != Some(stored) { Look::Bad } else { look };
            line.push(look, format!(" {text:>9}"));
        }
        lines.push(line);
    }
    lines
}

/// Returns a bar of ten columns. Values from 0 to 1 fill it in proportion. Raw values fill it by their place
/// between the worst and the best value.
fn bar(value: f32, worst: Option<f32>, best: f32, is_raw: bool) -> String {
    let (low, high) = if is_raw { (worst.unwrap_or(best), best) } else { (0.0, 1.0) };
    let share = if high > low { (value - low) / (high - low) } else { 1.0 };
    let eighths = (share.clamp(0.0, 1.0) * 80.0).round() as usize;
    let mut text = "█".repeat(eighths / 8);
    if let Some(part) = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"].get(eighths % 8) {
        text.push_str(part);
    }
    format!("{text:10}")
}

/// Returns a value with about five digits.
fn number(value: f32) -> String {
    match value.abs() {
        size if size >= 1e4 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// Returns a chart of the whole game as a line of blocks. Each column shows its largest value. `at` is the
/// column of the current position.
pub(super) fn blocks(label: &str, values: &[Option<f64>], width: usize, at: usize) -> Coloured {
    let mut line = Coloured::default();
    line.push(Look::Dim, format!("{label:8}"));
    let known = || values.iter().flatten().copied();
    let (low, high) = (known().reduce(f64::min).unwrap_or(0.0), known().reduce(f64::max).unwrap_or(0.0));
    for (column, places) in columns(values.len(), width).enumerate() {
        let value = values[places].iter().flatten().copied().reduce(f64::max);
        let block = value.map_or(' ', |value| {
            let share = if high > low { (value - low) / (high - low) } else { 0.0 };
            ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'][((share * 7.0).round() as usize).min(7)]
        });
        line.push(if column == at { Look::Bad } else { Look::Plain }, block);
    }
    line
}

/// Returns a line that has a letter in each column with a mark.
pub(super) fn strip(marks: &[Vec<Mark>], width: usize, at: usize) -> Coloured {
    let mut line = Coloured::default();
    line.push(Look::Dim, format!("{:8}", "marks"));
    for (column, places) in columns(marks.len(), width).enumerate() {
        let has = |mark| marks[places.clone()].iter().flatten().any(|&found| found == mark);
        let (look, letter) = match () {
            () if has(Mark::Blunder) => (Look::Bad, 'B'),
            () if has(Mark::Disagreement) => (Look::Good, 'd'),
            () if has(Mark::NewTile) => (Look::Strong, 'T'),
            () if has(Mark::Hard) => (Look::Dim, 'h'),
            () => (Look::Plain, if column == at { '│' } else { '·' }),
        };
        line.push(look, letter);
    }
    line
}

/// Returns a line with a pointer at a column.
pub(super) fn pointer(at: usize) -> Coloured {
    let mut line = Coloured::default();
    line.push(Look::Bad, format!("{:8}{:at$}▲", "", ""));
    line
}

/// Divides `len` positions among at most `width` columns.
pub(super) fn columns(len: usize, width: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let width = width.min(len).max(1);
    (0..width).map(move |column| column * len / width..(column + 1) * len / width)
}

/// Returns the column of a position.
pub(super) fn column_of(place: usize, len: usize, width: usize) -> usize {
    columns(len, width).position(|places| places.contains(&place)).unwrap_or(0)
}

/// Returns the nearest colour of the 256 colours of xterm: a cube of six levels, and 24 greys.
fn nearest(Rgb(red, green, blue): Rgb) -> u8 {
    const LEVELS: [i32; 6] = [0, 95, 135, 175, 215, 255];
    let parts = [red, green, blue].map(i32::from);
    let level = |part: i32| (0..6).min_by_key(|&level| (LEVELS[level] - part).abs()).unwrap_or(0);
    let [r, g, b] = parts.map(level);
    let grey = ((parts.iter().sum::<i32>() / 3 - 8) / 10).clamp(0, 23);
    let distance = |other: [i32; 3]| parts.iter().zip(other).map(|(a, b)| (a - b).pow(2)).sum::<i32>();
    let cube = distance([LEVELS[r], LEVELS[g], LEVELS[b]]);
    let number = if distance([8 + 10 * grey; 3]) < cube { 232 + grey as usize } else { 16 + 36 * r + 6 * g + b };
    u8::try_from(number).unwrap_or(u8::MAX)
}
