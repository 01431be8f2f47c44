//! The drawing of a replay.

use super::pieces::{self, BOARD_WIDTH};
use super::state::Replay;
use crate::board::Symmetry;
use crate::explore::Position;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Clear, Paragraph};

/// The keys and their effects. `docs/explore.md` lists them together with the keys of the explorer.
const KEYS: [(&str, &str); 12] = [
    ("h l", "one step back, forward"),
    ("[ ]", "ten steps back, forward"),
    ("g G", "first, last position"),
    ("p n", "previous, next mark of the chosen kind"),
    ("1 2 3 4", "blunders, hard moves, disagreements, tiles"),
    (":", "go to a step: digits, Enter"),
    ("space", "play, pause"),
    ("- +", "slower, faster"),
    ("s", "next symmetry of the board"),
    ("c", "switch the colours"),
    ("?", "show these keys"),
    ("q", "quit"),
];

/// Draws the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, replay: &Replay) {
    let Some(position) = replay.game.positions.get(replay.at) else { return };
    let colors = console::colors_enabled();
    let [head, middle, lines, foot] =
        Layout::vertical([Constraint::Length(3), Constraint::Length(13), Constraint::Min(0), Constraint::Length(1)])
            .areas(frame.area());
    let width = usize::from(head.width);
    let mut lines_of_head = vec![pieces::title(&replay.game, width)];
    lines_of_head.extend(pieces::status(&replay.game, replay.at, &replay.marks[replay.at], width));
    frame.render_widget(text(&lines_of_head, colors), head);
    let [left, right] =
        Layout::horizontal([Constraint::Length(BOARD_WIDTH as u16 + 2), Constraint::Min(0)]).areas(middle);
    let board = pieces::board(position.board.transform(replay.symmetry), replay.palette);
    frame.render_widget(text(&board, colors), left);
    let moves = pieces::moves(&replay.game, position, replay.symmetry, usize::from(right.width));
    frame.render_widget(text(&moves, colors), right);
    frame.render_widget(text(&game_lines(replay, usize::from(lines.width)), colors), lines);
    frame.render_widget(Paragraph::new(foot_text(replay)), foot);
    if replay.shows_help {
        draw_help(frame);
    }
}

fn text(lines: &[pieces::Coloured], colors: bool) -> Paragraph<'static> {
    Paragraph::new(Text::from_iter(lines.iter().map(|line| line.to_line(colors))))
}

/// Returns the charts of the whole game.
fn game_lines(replay: &Replay, width: usize) -> Vec<pieces::Coloured> {
    let positions = &replay.game.positions;
    let width = width.saturating_sub(9);
    let at = pieces::column_of(replay.at, positions.len(), width);
    let values = |value: &dyn Fn(&Position) -> Option<f64>| positions.iter().map(value).collect::<Vec<_>>();
    let best = |position: &Position| Some(f64::from(position.values[position.best()? as usize]?));
    vec![
        pieces::blocks("score", &values(&|position| position.score.map(|score| score as f64)), width, at),
        pieces::blocks("value", &values(&best), width, at),
        pieces::blocks("empty", &values(&|position| Some(f64::from(position.board.num_empty()))), width, at),
        pieces::blocks("largest", &values(&|position| Some(f64::from(position.board.max_exp()))), width, at),
        pieces::strip(&replay.marks, width, at),
        pieces::pointer(at),
    ]
}

fn foot_text(replay: &Replay) -> String {
    if let Some(digits) = &replay.typed {
        return format!("go to step: {digits}_");
    }
    if !replay.message.is_empty() {
        return replay.message.clone();
    }
    let playing = match replay.is_playing() {
        true => format!("playing, {} ms a step", replay.pause().as_millis()),
        false => "paused".to_owned(),
    };
    let symmetry = match replay.symmetry {
        Symmetry::Identity => String::new(),
        symmetry => format!("  symmetry {}", symmetry as u8),
    };
    format!("{playing}{symmetry}  h l step  n p {}  1-4 marks  space play  ? keys  q quit", replay.kind)
}

fn draw_help(frame: &mut Frame<'_>) {
    let lines: Vec<Line<'_>> = KEYS.iter().map(|(keys, what)| Line::from(format!(" {keys:9}{what}"))).collect();
    let area = frame.area();
    let (width, height) = (55.min(area.width), (KEYS.len() as u16 + 2).min(area.height));
    let place = Rect { x: (area.width - width) / 2, y: (area.height - height) / 2, width, height };
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" keys ")), place);
}
