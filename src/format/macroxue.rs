//! Macroxue logs: one game in two files. Each file may be gzipped. Both are detected by their content.
//!
//! ```text
//!  NAME.meta.json[.gz]   {"seed", "depth", "game_index", "steps_file", "num_moves", "score", "max_tile", "max_rank",
//!                         "sum_tile", "seconds"}
//!  NAME.jsonl[.gz]       {"seed", "step_index", "max_rank", "move": "right", "valuation_type", "valuation",
//!                         "board": [16 exponents], "branch_evs": {"up", "left", "right", "down"}}    one per line
//! ```
//!
//! Keys may come in any order, and unknown keys are ignored. The keys `game_index`, `steps_file`, `valuation` and a
//! row's `max_rank` are not used. Offsets in errors count bytes of the decompressed text. A step in an error is the
//! position of its row.
//!
//! The search depth becomes part of the engine's name, such as `"macroxue-d6"`, because a run has no other field
//! for it. Without a depth the name is `"macroxue"`.

mod json;
mod lines;

use crate::board::WideBoard;
use crate::error::{Error, Result};
use crate::format::files::mapped::open_file;
use crate::format::source::{RunSource, SourceRun};
use crate::run::{Run, RunMeta, RunStep, final_board_after};
use crate::step_details::{StepDetail, StepDetails};
use json::{LogMeta, LogRow};
use lines::LineReader;
use std::io::Read;
use std::path::{Path, PathBuf};

/// A game that the Macroxue engine logged: `NAME.meta.json[.gz]` and `NAME.jsonl[.gz]`.
///
/// Values are raw ([`RunMeta::raw_evs`]) and rounded to the nearest `f32`. A log holds no final board. The board
/// can be restored if the last move leaves one empty cell, which is how most games end. The logged sum of tiles
/// then tells which tile spawned there.
///
/// # Examples
/// ```
/// use a2store::{Board, Move};
/// use a2store::format::Macroxue;
/// let meta = br#"{"seed": 7, "num_moves": 1, "score": 4, "max_tile": 4, "max_rank": 2, "sum_tile": 6, "seconds": 0.5}"#;
/// let rows = concat!(
///     r#"{"seed": 7, "step_index": 0, "move": "left", "board": [1,1,0,0, 0,0,0,0, 0,0,0,0, 0,0,0,0],"#,
///     r#" "branch_evs": {"up": null, "left": 2.5, "right": -1, "down": 2}}"#,
/// );
/// let run = Macroxue::from_bytes(meta, rows.into())?.decode()?;
/// assert_eq!(run.boards(), [Board(0x1100_0000_0000_0000)]);
/// assert_eq!(run.moves(), [Move::Left]);
/// assert_eq!(run.ev_values(), [[0.0, 2.0, 2.5, -1.0]]);
/// assert_eq!(run.meta().seed, Some(7));
/// # Ok::<(), a2store::Error>(())
/// ```
#[derive(Debug)]
pub struct Macroxue {
    meta: LogMeta,
    rows: StoredRows,
    /// The stored size of both files in bytes.
    num_bytes: u64,
}

impl Macroxue {
    /// Opens a log by its meta file. The rows lie in the same folder, in `NAME.jsonl.gz` or `NAME.jsonl`.
    /// [`decode`](Macroxue::decode) reads the rows.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) if the meta file is invalid or the file of rows is
    /// missing; [`ErrorKind::Io`](crate::ErrorKind::Io).
    pub fn open(meta_path: impl AsRef<Path>) -> Result<Macroxue> {
        let path = meta_path.as_ref();
        let metadata = std::fs::metadata(path).map_err(|source| Error::io(path, source))?;
        if !metadata.is_file() {
            let found = if metadata.is_dir() { "a folder" } else { "a pipe or a device" };
            return Err(Error::decode(None, "meta file", "a file", found).with_path(path));
        }
        let file = open_file(path)?;
        let meta = LogMeta::read(file).map_err(|error| error.with_path(path))?;

        let candidates = rows_names(path);
        let found = candidates.iter().find_map(|name| {
            let path = path.with_file_name(name);
            let metadata = std::fs::metadata(&path).ok().filter(|metadata| metadata.is_file())?;
            Some((path, metadata.len()))
        });
        let Some((rows, len)) = found else {
            let expected = format!("{} beside it", candidates.join(" or "));
            return Err(Error::decode(None, "file of rows", expected, "no such file").with_path(path));
        };
        Ok(Macroxue { meta, rows: StoredRows::File(rows), num_bytes: metadata.len().saturating_add(len) })
    }

    /// Opens a log in memory from the bytes of its two files.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) if the meta file is invalid.
    pub fn from_bytes(meta: &[u8], rows: Vec<u8>) -> Result<Macroxue> {
        let num_bytes = meta.len() as u64 + rows.len() as u64;
        Ok(Macroxue { meta: LogMeta::read(meta)?, rows: StoredRows::Bytes(rows), num_bytes })
    }

    /// Decodes the rows as a stream. Memory stays within 8 MiB plus 4 × the stored size of the two files,
    /// regardless of the decompressed size.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io), and [`ErrorKind::Decode`](crate::ErrorKind::Decode) with the step and
    /// the offset in the decompressed text:
    ///
    /// - for a row that is invalid, has another seed or is out of order,
    /// - for a tile above 65536, and for a value that is infinite as an `f32`,
    /// - for a damaged or truncated gzip stream,
    /// - for missing rows at the end.
    pub fn decode(&self) -> Result<Run> {
        match &self.rows {
            StoredRows::File(path) => {
                open_file(path).and_then(|file| self.decode_rows(file)).map_err(|error| error.with_path(path))
            }
            StoredRows::Bytes(bytes) => self.decode_rows(bytes.as_slice()),
        }
    }

    fn decode_rows(&self, bytes: impl Read) -> Result<Run> {
        let LogMeta { seed, num_moves, .. } = self.meta;
        let mut lines = LineReader::new(bytes)?;
        // A compressed row takes more than 16 bytes. A step takes 33 bytes in memory. Only the columns of
        // step indices and valuation types may reallocate.
        let most = usize::try_from(self.num_bytes / 16).unwrap_or(usize::MAX).saturating_add(FREE_STEPS);
        let mut steps = Run::builder(most.min(num_moves as usize));
        let mut details = StepDetails::default();
        let mut last: Option<RunStep> = None;
        let mut count = 0;
        while lines.advance(count)? {
            let mut row = LogRow::parse(&lines, count)?;
            if row.seed != seed {
                return Err(lines.error(0, count, "seed", format!("{seed} as in the meta file"), row.seed));
            }
            if row.index >= num_moves {
                let expected = format!("below {num_moves}, the number of moves");
                return Err(lines.error(0, count, "step index", expected, row.index));
            }
            if let Some(last) = last.filter(|last| row.index <= last.index) {
                return Err(lines.error(0, count, "step index", format!("above {}", last.index), row.index));
            }
            if count >= most as u64 {
                let expected = format!("at most {most} in files of {} bytes", self.num_bytes);
                return Err(lines.error(0, count, "number of steps", expected, "more"));
            }
            let valuation_type = row.valuation_type(&lines, count)?;
            let step = row.step(&lines, count)?;
            let detail = StepDetail { valuation_type: valuation_type.as_deref(), board_eval: None };
            if !details.push(detail) {
                let found = format!("{:?}", valuation_type.unwrap_or_default());
                return Err(lines.error(0, count, "valuation_type", "at most 256 different names", found));
            }
            steps.push_step(step)?;
            last = Some(step);
            count += 1;
        }
        if count != u64::from(num_moves) {
            let expected = format!("{num_moves} as in the meta file");
            return Err(lines.error(0, count, "number of steps", expected, count));
        }
        let run = steps.finish(self.run_meta(), last.and_then(|last| self.final_board(last)))?;
        Ok(run.with_details(details))
    }

    fn run_meta(&self) -> RunMeta {
        let meta = &self.meta;
        let engine = meta.depth.map_or_else(|| "macroxue".to_owned(), |depth| format!("macroxue-d{depth}"));
        RunMeta {
            start_unix_s: 0,
            elapsed_s: meta.elapsed_s,
            max_score: meta.score,
            highest_tile: meta.max_tile,
            engine: Some(engine),
            seed: Some(meta.seed),
            raw_evs: true,
        }
    }

    /// Returns the final board, if the tile that spawned last is the only unknown and the sum of tiles determines
    /// it.
    fn final_board(&self, last: RunStep) -> Option<WideBoard> {
        if last.index.checked_add(1)? != self.meta.num_moves {
            return None;
        }
        // Comparing the highest tile too excludes a board on which two tiles of 65536 merged.
        let expected = (self.meta.sum_tile?, self.meta.max_tile);
        final_board_after(last, |board| (u64::from(board.tile_sum()), board.highest_tile()) == expected)
    }
}

impl RunSource for Macroxue {
    fn num_runs(&self) -> usize {
        1
    }

    fn num_bytes(&self, index: usize) -> u64 {
        if index == 0 { self.num_bytes } else { 0 }
    }

    fn read(&self, index: usize) -> Result<SourceRun<'_>> {
        if index > 0 {
            return Err(Error::argument("run", "0, the only run", index));
        }
        self.decode().map(SourceRun::Run)
    }
}

/// Returns whether a file with this prefix is a meta file. Looks at 4 KiB.
pub(in crate::format) fn is_meta(prefix: &[u8]) -> bool {
    let text = lines::inflate_prefix(prefix, SNIFFED);
    is_object(&text)
        && has_key(&text, "num_moves")
        && (has_key(&text, "steps_file") || has_key(&text, "game_index"))
        && !has_key(&text, "branch_evs")
}

/// Returns whether a file with this prefix holds the rows of a log. Looks at 4 KiB.
pub(in crate::format) fn is_rows(prefix: &[u8]) -> bool {
    let text = lines::inflate_prefix(prefix, SNIFFED);
    text.split(|&byte| byte == b'\n')
        .any(|line| is_object(line) && has_key(line, "branch_evs") && has_key(line, "board"))
}

/// Returns the path of the meta file beside these rows.
pub(in crate::format) fn meta_of(rows_path: &Path) -> PathBuf {
    let name = rows_path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    let name = name.strip_suffix(".jsonl").unwrap_or(name);
    let beside = |end| rows_path.with_file_name(format!("{name}{end}"));
    let existing =
        [".meta.json", ".meta.json.gz", ".json", ".json.gz"].map(beside).into_iter().find(|meta| meta.is_file());
    existing.unwrap_or_else(|| beside(".meta.json"))
}

/// The number of steps that any log may have, regardless of the size of its files.
const FREE_STEPS: usize = 1 << 17;

/// The number of bytes that detection reads.
const SNIFFED: usize = 4096;

fn is_object(text: &[u8]) -> bool {
    text.trim_ascii_start().starts_with(b"{")
}

fn has_key(text: &[u8], key: &str) -> bool {
    let quoted = [b"\"", key.as_bytes(), b"\""].concat();
    text.windows(quoted.len()).enumerate().any(|(at, window)| {
        window == quoted && text.get(at + quoted.len()..).is_some_and(|rest| rest.trim_ascii_start().starts_with(b":"))
    })
}

/// Returns the possible names of the file of rows.
fn rows_names(meta_path: &Path) -> [String; 2] {
    let name = meta_path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    let name = name.strip_suffix(".json").unwrap_or(name);
    let name = name.strip_suffix(".meta").unwrap_or(name);
    [format!("{name}.jsonl.gz"), format!("{name}.jsonl")]
}

#[derive(Debug)]
enum StoredRows {
    File(PathBuf),
    Bytes(Vec<u8>),
}

#[cfg(test)]
mod tests;
