//! What a table knows of its runs: enough to filter rows by what SQL would have asked of `runs`.

use crate::archive::{Archive, Phases};
use crate::error::{Error, Result};
use crate::query::no_params;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, UInt32Type, UInt64Type};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use std::sync::{Arc, OnceLock};

/// The runs that a table's rows may belong to, and where the phases of a game begin.
#[derive(Default)]
pub(super) struct Runs {
    pub(super) phases: Option<Phases>,
    archive: Option<Archive>,
    index: OnceLock<Arc<RunIndex>>,
}

/// Score and engine of each run, in the order of their ids.
#[derive(Debug, Default)]
pub(super) struct RunIndex {
    run_id: Vec<u32>,
    max_score: Vec<u64>,
    engine: Vec<Option<String>>,
}

impl Runs {
    pub(super) fn of_archive(archive: &Archive) -> Runs {
        Runs { phases: Some(archive.phases()), archive: Some(archive.clone()), index: OnceLock::new() }
    }

    pub(super) fn of_index(phases: Option<Phases>, index: Option<RunIndex>) -> Runs {
        let slot = OnceLock::new();
        if let Some(index) = index {
            let _ = slot.set(Arc::new(index));
        }
        Runs { phases, archive: None, index: slot }
    }

    /// The runs, read from the archive when they are first asked for; `None` for rows that came from nowhere known.
    pub(super) fn index(&self) -> Result<Option<Arc<RunIndex>>> {
        match (self.index.get(), &self.archive) {
            (Some(index), _) => Ok(Some(Arc::clone(index))),
            (None, Some(archive)) => {
                let index = Arc::new(RunIndex::read(archive)?);
                Ok(Some(Arc::clone(self.index.get_or_init(|| index))))
            }
            (None, None) => Ok(None),
        }
    }
}

impl RunIndex {
    fn read(archive: &Archive) -> Result<RunIndex> {
        let query = archive.sql("SELECT run_id, max_score, engine FROM runs ORDER BY run_id", no_params())?;
        let mut index = RunIndex::default();
        for batch in query.stream()? {
            index.append(&batch?).ok_or_else(|| Error::query("runs has columns of other types"))?;
        }
        Ok(index)
    }

    fn append(&mut self, batch: &RecordBatch) -> Option<()> {
        let run_id = batch.column_by_name("run_id")?.as_primitive_opt::<UInt32Type>()?;
        let max_score = batch.column_by_name("max_score")?.as_primitive_opt::<UInt64Type>()?;
        let engine = cast(batch.column_by_name("engine")?, &DataType::Utf8).ok()?;
        let engine = engine.as_string_opt::<i32>()?;
        if run_id.null_count() > 0 || max_score.null_count() > 0 {
            return None;
        }
        let ids = self.run_id.last().into_iter().chain(run_id.values()).collect::<Vec<_>>();
        if !ids.is_sorted() {
            return None;
        }
        self.run_id.extend(run_id.values());
        self.max_score.extend(max_score.values());
        self.engine.extend(engine.iter().map(|name| name.map(str::to_owned)));
        Some(())
    }

    /// A run's score and engine.
    pub(super) fn get(&self, run_id: u32) -> Option<(u64, Option<&str>)> {
        let at = self.run_id.binary_search(&run_id).ok()?;
        Some((*self.max_score.get(at)?, self.engine.get(at)?.as_deref()))
    }

    /// As an Arrow IPC stream.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>> {
        let write = || -> Result<Vec<u8>, arrow::error::ArrowError> {
            let schema = Arc::new(Schema::new(vec![
                Field::new("run_id", DataType::UInt32, false),
                Field::new("max_score", DataType::UInt64, false),
                Field::new("engine", DataType::Utf8, true),
            ]));
            let columns: Vec<ArrayRef> = vec![
                Arc::new(UInt32Array::from(self.run_id.clone())),
                Arc::new(UInt64Array::from(self.max_score.clone())),
                Arc::new(StringArray::from_iter(self.engine.iter())),
            ];
            let mut writer = StreamWriter::try_new(Vec::new(), &schema)?;
            writer.write(&RecordBatch::try_new(schema, columns)?)?;
            writer.into_inner()
        };
        write().map_err(super::batch::arrow_error)
    }

    /// What [`to_bytes`](RunIndex::to_bytes) made; `None` for anything else.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<RunIndex> {
        let mut index = RunIndex::default();
        for batch in StreamReader::try_new(bytes, None).ok()? {
            index.append(&batch.ok()?)?;
        }
        Some(index)
    }
}
