//! Writing Macroxue packs.

use super::row::{NUMBERING, PackedRow, layouts};
use super::valuation_types::{self, ValuationTypes};
use crate::error::{Error, Result};
use crate::format::files::mapped::write_json;
use crate::format::files::row_folder::RowFolder;
use crate::format::files::staged_folder::check_free;
use crate::format::rows::check_whole;
use crate::format::session::stored_seed;
use crate::run::Run;
use crate::step_details::StepDetail;
use crate::system::publish::parent;
use std::path::{Path, PathBuf};

/// The tables of the original packer.
const SCHEMA: &str = "CREATE TABLE runs (
            id INTEGER PRIMARY KEY,
            seed BIGINT NOT NULL,
            steps INT NOT NULL,
            max_score INT NOT NULL,
            highest_tile INT NOT NULL
        );
CREATE TABLE session (
            meta_key TEXT PRIMARY KEY,
            meta_value TEXT NOT NULL
        );";
const INSERT: &str = "INSERT INTO runs VALUES (?1, ?2, ?3, ?4, ?5)";
/// The valuation type of a step that names none.
const USUAL_TYPE: &str = "search";

/// A writer of a pack. [`finish`](MacroxuePackWriter::finish) makes the pack durable and publishes it under its name.
///
/// # Examples
/// ```
/// # let folder = tempfile::tempdir()?;
/// use a2store::{Board, Move, Run};
/// use a2store::format::{MacroxuePack, MacroxuePackWriter};
/// use a2store::run::RunMeta;
/// let mut steps = Run::builder(1);
/// steps.push(Board(0x1100_0000_0000_0000), Move::Left, None);
/// let run = steps.finish(RunMeta { seed: Some(7), ..RunMeta::default() }, None)?;
///
/// let folder = folder.path().join("pack");
/// let mut writer = MacroxuePackWriter::create(&folder, None)?;
/// writer.push(&run)?;
/// writer.finish()?;
///
/// let run = MacroxuePack::open(&folder)?.decode(0)?;
/// assert_eq!(run.meta().seed, Some(7));
/// assert_eq!(run.details().and_then(|details| details.get(0).valuation_type), Some("search"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MacroxuePackWriter {
    name: PathBuf,
    folder: RowFolder,
    rows: Vec<PackedRow>,
    types: ValuationTypes,
    /// The id of the next run; `None` after the last id.
    next_id: Option<u32>,
}

impl MacroxuePackWriter {
    /// Creates a pack with at most `shard_rows` rows per shard; `None` = one `steps.npy`. The folder must be missing or
    /// empty.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io), for example if the folder is not empty;
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) for shards of 0 rows.
    pub fn create(folder: impl AsRef<Path>, shard_rows: Option<u64>) -> Result<MacroxuePackWriter> {
        let name = folder.as_ref().to_owned();
        check_free(&name)?;
        let [layout, _] = layouts();
        let folder = RowFolder::new_in(parent(&name), layout, shard_rows, NUMBERING, SCHEMA)?;
        let (rows, types) = (Vec::new(), ValuationTypes::default());
        Ok(MacroxuePackWriter { name, folder, rows, types, next_id: Some(0) })
    }

    /// Adds a run under the next id. Omits the final board, the engine's name, start time and duration. A step without
    /// a valuation type is stored as `search`, and a step without an evaluation with 0.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) for missing steps or an unknown move, for values that are not
    /// finite, for more than 256 valuation types, for the seed 2^64 - 1, and for a score above 2^63 - 1. The pack is then
    /// unchanged.
    ///
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if a write fails. The pack must then not be finished.
    pub fn push(&mut self, run: &Run) -> Result<()> {
        let too_many = || Error::argument("runs", "at most 4294967296 in a pack", "one more");
        let id = self.next_id.ok_or_else(too_many)?;
        check_whole(run)?;
        let meta = run.meta();
        let max_score = i64::try_from(meta.max_score)
            .map_err(|_| Error::argument("max_score", "at most 9223372036854775807 in a pack", meta.max_score))?;
        let seed = stored_seed(meta.seed)?;
        self.rows.clear();
        // A rejected run adds no types.
        let mut types = self.types.clone();
        for (place, step) in run.steps().enumerate() {
            let detail = run.details().map_or(StepDetail::default(), |details| details.get(place));
            let valuation_type = types.id_or_add(detail.valuation_type.unwrap_or(USUAL_TYPE))?;
            let board_eval = detail.board_eval.unwrap_or(0);
            self.rows.push(PackedRow::new(id, &step, valuation_type, board_eval, seed as u32)?);
        }
        self.folder.push(bytemuck::cast_slice(&self.rows))?;
        self.types = types;
        self.folder.database.insert(INSERT, (id, seed, run.num_steps() as u32, max_score, meta.highest_tile))?;
        self.next_id = id.checked_add(1);
        Ok(())
    }

    /// Finishes the pack, makes it durable and publishes it.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io).
    pub fn finish(self) -> Result<()> {
        let (staging, _) = self.folder.finish()?;
        write_json(staging.path(), valuation_types::NAME, &self.types.ids)?;
        staging.publish(&self.name)
    }
}
