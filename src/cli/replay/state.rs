//! The state of a replay, and the effects of keys.

use crate::board::{Palette, Symmetry};
use crate::explore::{Game, Mark, Thresholds};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::time::{Duration, Instant};

/// The pauses between two steps of autoplay in milliseconds, from slow to fast.
const PAUSES: [u64; 7] = [2000, 1000, 500, 250, 100, 50, 20];

/// A replay of a game.
pub(super) struct Replay {
    pub(super) game: Game,
    pub(super) marks: Vec<Vec<Mark>>,
    pub(super) palette: Palette,
    pub(super) symmetry: Symmetry,
    /// The kind of mark to which `n` and `p` jump.
    pub(super) kind: Mark,
    /// The index of the current position.
    pub(super) at: usize,
    pub(super) shows_help: bool,
    /// The digits of a step that the user is typing.
    pub(super) typed: Option<String>,
    pub(super) message: String,
    /// The time of the next step of autoplay.
    due: Option<Instant>,
    /// The index of the pause of autoplay.
    speed: usize,
}

/// The next event of a replay.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// Autoplay shows the next position.
    Tick,
    /// The user pressed a key.
    Key(KeyEvent),
}

impl Replay {
    pub(super) fn new(game: Game, thresholds: Thresholds, palette: Palette, at: usize) -> Replay {
        let marks = game.marks(thresholds);
        Replay {
            game,
            marks,
            palette,
            symmetry: Symmetry::Identity,
            kind: Mark::Blunder,
            at,
            shows_help: false,
            typed: None,
            message: String::new(),
            due: None,
            speed: 3,
        }
    }

    /// Returns the time until the next step of autoplay; `None` = autoplay is off.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        self.due.map(|due| due.saturating_duration_since(now))
    }

    /// Returns whether autoplay is on.
    pub(super) fn is_playing(&self) -> bool {
        self.due.is_some()
    }

    /// Returns the pause between two steps of autoplay.
    pub(super) fn pause(&self) -> Duration {
        Duration::from_millis(PAUSES[self.speed])
    }

    /// Handles an event. Returns whether the user quits.
    pub(super) fn advance(&mut self, step: Step, now: Instant) -> bool {
        match step {
            Step::Tick => {
                self.go(1);
                let is_last = self.at + 1 == self.game.positions.len();
                self.due = (!is_last).then(|| now + self.pause());
                false
            }
            Step::Key(key) => self.key(key, now),
        }
    }

    fn key(&mut self, key: KeyEvent, now: Instant) -> bool {
        self.message.clear();
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return true;
        }
        if let Some(typed) = &mut self.typed {
            match key.code {
                KeyCode::Char(digit) if digit.is_ascii_digit() && typed.len() < 10 => typed.push(digit),
                KeyCode::Backspace => drop(typed.pop()),
                KeyCode::Enter => self.go_to_typed(),
                KeyCode::Esc => self.typed = None,
                _ => {}
            }
            return false;
        }
        if self.shows_help {
            self.shows_help = false;
            return false;
        }
        let last = self.game.positions.len() - 1;
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('l') | KeyCode::Right => self.go(1),
            KeyCode::Char('h') | KeyCode::Left => self.go(-1),
            KeyCode::Char(']') => self.go(10),
            KeyCode::Char('[') => self.go(-10),
            KeyCode::Char('g') | KeyCode::Home => self.at = 0,
            KeyCode::Char('G') | KeyCode::End => self.at = last,
            KeyCode::Char('n') => self.jump(true),
            KeyCode::Char('p') => self.jump(false),
            KeyCode::Char(digit @ '1'..='4') => self.kind = Mark::ALL[digit as usize - '1' as usize],
            KeyCode::Char('s') => {
                self.symmetry = Symmetry::from_index((self.symmetry as u8 + 1) % 8).unwrap_or(Symmetry::Identity);
            }
            KeyCode::Char('c') => {
                self.palette = match self.palette {
                    Palette::Classic => Palette::Viridis,
                    Palette::Viridis => Palette::Classic,
                };
            }
            KeyCode::Char(' ') => {
                self.due = if self.is_playing() || self.at == last { None } else { Some(now + self.pause()) };
            }
            KeyCode::Char('+' | '=') => self.speed = (self.speed + 1).min(PAUSES.len() - 1),
            KeyCode::Char('-') => self.speed = self.speed.saturating_sub(1),
            KeyCode::Char(':' | '/') => self.typed = Some(String::new()),
            KeyCode::Char('?') => self.shows_help = true,
            _ => {}
        }
        false
    }

    /// Moves by a number of positions, and stops at the ends.
    fn go(&mut self, by: isize) {
        self.at = self.at.saturating_add_signed(by).min(self.game.positions.len() - 1);
    }

    /// Goes to the next or the previous mark of the chosen kind.
    fn jump(&mut self, forward: bool) {
        let mark = self.kind;
        let has = |place: &usize| self.marks[*place].contains(&mark);
        let found = match forward {
            true => (self.at + 1..self.marks.len()).find(has),
            false => (0..self.at).rev().find(has),
        };
        match found {
            Some(place) => self.at = place,
            None => self.message = format!("no {} {mark}", if forward { "later" } else { "earlier" }),
        }
    }

    /// Goes to the typed step. If the game lacks it, goes to the last step before it.
    fn go_to_typed(&mut self) {
        let Some(step) = self.typed.take().and_then(|digits| digits.parse::<u64>().ok()) else { return };
        let place =
            self.game.positions.iter().rposition(|position| position.step.is_some_and(|at| u64::from(at) <= step));
        self.at = place.unwrap_or(0);
    }
}
