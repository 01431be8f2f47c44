//! The JSON of both files. Numbers are parsed as `f64`, as in most JSON parsers, and then converted to `f32`.

use super::lines::{self, LineReader};
use crate::board::{Move, WideBoard};
use crate::error::{Error, Result};
use crate::run::{Branches, RunStep};
use serde::de::DeserializeOwned;
use std::io::Read;

/// The contents of a meta file.
#[derive(Debug, serde::Deserialize)]
pub(super) struct LogMeta {
    pub(super) seed: u64,
    pub(super) num_moves: u32,
    pub(super) score: u64,
    pub(super) max_tile: u32,
    pub(super) max_rank: Option<u32>,
    pub(super) sum_tile: Option<u64>,
    pub(super) depth: Option<u32>,
    seconds: Option<f64>,
    #[serde(skip)]
    pub(super) elapsed_s: f32,
}

impl LogMeta {
    pub(super) fn read(bytes: impl Read) -> Result<LogMeta> {
        let text = lines::read_all(bytes)?;
        let expected = "a JSON object with seed, num_moves, score and max_tile";
        let mut meta: LogMeta =
            parse(&text).map_err(|(at, found)| Error::decode(at as u64, "meta file", expected, found))?;
        let tile = |rank: u32| if rank == 0 { Some(0) } else { 1_u32.checked_shl(rank) };
        if let Some(rank) = meta.max_rank.filter(|&rank| tile(rank) != Some(meta.max_tile)) {
            let expected = format!("the tile of max_rank {rank}");
            return Err(Error::decode(0, "max_tile", expected, meta.max_tile));
        }
        meta.elapsed_s = meta.seconds.unwrap_or_default() as f32;
        if !meta.elapsed_s.is_finite() {
            let found = meta.seconds.unwrap_or_default();
            return Err(Error::decode(0, "seconds", "a number that is finite as f32", format_args!("{found:e}")));
        }
        Ok(meta)
    }
}

/// A line of the file of rows.
#[derive(serde::Deserialize)]
pub(super) struct LogRow {
    pub(super) seed: u64,
    #[serde(rename = "step_index")]
    pub(super) index: u32,
    #[serde(rename = "move", with = "MoveName")]
    chosen: Move,
    /// Exponents that may exceed the range of a board.
    board: [u64; 16],
    branch_evs: Option<BranchValues>,
    valuation_type: Option<String>,
}

/// The maximum length of a valuation type's name in bytes.
const MAX_NAME: usize = 64;

impl LogRow {
    pub(super) fn parse(lines: &LineReader<'_>, step: u64) -> Result<LogRow> {
        let expected = "a JSON object with seed, step_index, move and board";
        parse(lines.line()).map_err(|(at, found)| lines.error(at, step, "row", expected, found))
    }

    /// Takes the valuation type.
    pub(super) fn valuation_type(&mut self, lines: &LineReader<'_>, step: u64) -> Result<Option<String>> {
        match self.valuation_type.take() {
            Some(name) if name.len() > MAX_NAME => {
                let expected = format!("a name of at most {MAX_NAME} bytes");
                Err(lines.error(0, step, "valuation_type", expected, format_args!("{} bytes", name.len())))
            }
            name => Ok(name),
        }
    }

    pub(super) fn step(self, lines: &LineReader<'_>, step: u64) -> Result<RunStep> {
        let mut exps = [0; 16];
        for (cell, (exp, stored)) in self.board.into_iter().zip(&mut exps).enumerate() {
            if exp > 16 {
                let expected = "exponents of at most 16 (tile 65536)";
                return Err(lines.error(0, step, "board", expected, format_args!("{exp} in cell {cell}")));
            }
            *stored = exp as u8;
        }
        let board = WideBoard::from_exps(exps)?;
        let branches = match self.branch_evs {
            None => None,
            Some(BranchValues { up, down, left, right }) => {
                let mut branches = Branches { values: [0.0; 4], legal: 0 };
                for (direction, ev) in Move::ALL.into_iter().zip([up, down, left, right]) {
                    let Some(ev) = ev else { continue };
                    let value = ev as f32;
                    if !value.is_finite() {
                        let expected = "a number that is finite as f32";
                        return Err(lines.error(0, step, "value of a branch", expected, format_args!("{ev:e}")));
                    }
                    branches.values[direction as usize] = value;
                    branches.legal |= direction.bit();
                }
                Some(branches)
            }
        };
        Ok(RunStep { index: self.index, board, chosen: Some(self.chosen), branches })
    }
}

/// Parses a JSON object. An error is an offset in the text, and what was found there.
fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, (usize, String)> {
    let start = text.trim_ascii_start();
    if !start.starts_with(b"{") {
        let found = match start.get(..8).unwrap_or(start) {
            b"" => "nothing".to_owned(),
            bytes => bytes.escape_ascii().to_string(),
        };
        return Err((text.len() - start.len(), found));
    }
    serde_json::from_slice(text).map_err(|error| (offset(text, &error), message(&error)))
}

/// Returns the offset of a JSON error in a text.
fn offset(text: &[u8], error: &serde_json::Error) -> usize {
    let before = error.line().saturating_sub(1);
    let start: usize = text.split_inclusive(|&byte| byte == b'\n').take(before).map(<[u8]>::len).sum();
    start + error.column().saturating_sub(1)
}

/// Returns the message of a JSON error without its position.
fn message(error: &serde_json::Error) -> String {
    let message = error.to_string();
    match message.rsplit_once(" at line ") {
        Some((message, _)) => message.to_owned(),
        None => message,
    }
}

/// The names of the moves.
#[derive(serde::Deserialize)]
#[serde(remote = "Move", rename_all = "lowercase")]
enum MoveName {
    Up,
    Down,
    Left,
    Right,
}

/// The values of the four branches; `None` = illegal. No key may be missing.
#[derive(serde::Deserialize)]
struct BranchValues {
    #[serde(deserialize_with = "Option::deserialize")]
    up: Option<f64>,
    #[serde(deserialize_with = "Option::deserialize")]
    down: Option<f64>,
    #[serde(deserialize_with = "Option::deserialize")]
    left: Option<f64>,
    #[serde(deserialize_with = "Option::deserialize")]
    right: Option<f64>,
}
