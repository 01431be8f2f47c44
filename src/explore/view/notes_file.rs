//! The notes file: one Parquet file beside the archive, which any SQL engine can join.

use crate::archive::{Archive, Lock};
use crate::cancellation::CancellationToken;
use crate::clock;
use crate::error::{Error, ErrorKind, Location, Result};
use crate::explore::rows::objects;
use crate::publish::Output;
use crate::query::UserTable;
use arrow::array::{
    Array, ArrayRef, AsArray, RecordBatch, RecordBatchReader, StringArray, TimestampMillisecondArray, UInt32Array,
};
use arrow::compute::{CastOptions, cast_with_options, concat_batches};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit, TimestampMillisecondType, UInt32Type};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The maximum number of notes.
const MAX_NOTES: usize = 100_000;

/// The maximum wait for another view that is writing.
const LOCK_TIME: Duration = Duration::from_secs(10);

/// The new note on a position. Two empty texts remove it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Change {
    pub(super) run_id: u32,
    pub(super) step_index: u32,
    pub(super) mark: String,
    pub(super) note: String,
}

/// The notes file. Several views may write it at once.
pub(super) struct Notes {
    path: PathBuf,
    schema: SchemaRef,
}

/// The note on a position.
struct Note {
    mark: String,
    note: String,
    /// In milliseconds since the Unix epoch.
    written: i64,
}

impl Notes {
    /// Returns the path beside an archive in a folder; `None` for an archive on an object store.
    pub(super) fn path_beside(archive: &Archive) -> Option<PathBuf> {
        let folder = archive.folder()?;
        let name = folder.file_name()?.to_str()?;
        Some(folder.with_file_name(format!("{name}.notes.parquet")))
    }

    /// Opens a notes file, which does not need to exist.
    ///
    /// # Errors
    /// The errors of reading the file, if it exists.
    pub(super) fn new(path: &Path) -> Result<Notes> {
        let time = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
        let schema = Arc::new(Schema::new(vec![
            Field::new("run_id", DataType::UInt32, false),
            Field::new("step_index", DataType::UInt32, false),
            Field::new("mark", DataType::Utf8, false),
            Field::new("note", DataType::Utf8, false),
            Field::new("written", time, false),
        ]));
        let path = std::path::absolute(path).map_err(|source| Error::io(path, source))?;
        let notes = Notes { path, schema };
        notes.rows()?;
        Ok(notes)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the file's time of modification and size, which show whether the file was replaced.
    pub(super) fn stamp(&self) -> Option<(SystemTime, u64)> {
        let metadata = self.path.metadata().ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    }

    /// Returns the notes as a table for statements.
    pub(super) fn table(&self) -> Result<UserTable> {
        UserTable::from_batches(Arc::clone(&self.schema), vec![self.rows()?])
    }

    fn rows(&self) -> Result<RecordBatch> {
        let io = |source| Error::io(&self.path, source);
        let file = match self.path.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(RecordBatch::new_empty(self.schema.clone()));
            }
            // Opening a pipe would wait for a writer.
            Ok(metadata) if !metadata.is_file() => return Err(Error::argument("notes", "a file", self.path.display())),
            _ => File::open(&self.path).map_err(io)?,
        };
        self.rows_of(file).map_err(|found| {
            let location = Location { path: Some(self.path.clone()), ..Default::default() };
            let names = self.schema.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>().join(", ");
            let expected = format!("a Parquet file of notes, with the columns {names}");
            ErrorKind::Decode { location, what: "notes", expected, found }.into()
        })
    }

    /// Returns the rows of a file, or the reason why it is not a file of notes.
    fn rows_of(&self, file: File) -> Result<RecordBatch, String> {
        let read = || {
            let reader = ParquetRecordBatchReaderBuilder::try_new(file)?.build()?;
            let schema = reader.schema();
            concat_batches(&schema, &reader.collect::<Result<Vec<_>, _>>()?)
        };
        let rows = read().map_err(|error| error.to_string())?;
        // Another tool may have rewritten the file with other string types and nullable columns.
        let columns = self.schema.fields().iter().map(|field| {
            let column = rows.column_by_name(field.name()).ok_or_else(|| format!("no column {}", field.name()))?;
            if column.null_count() > 0 {
                return Err(format!("null in {}", field.name()));
            }
            let strict = CastOptions { safe: false, ..Default::default() };
            cast_with_options(column, field.data_type(), &strict).map_err(|error| format!("{}: {error}", field.name()))
        });
        let columns = columns.collect::<Result<_, String>>()?;
        RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(|error| error.to_string())
    }

    /// Returns the notes by run and step.
    fn read(&self) -> Result<BTreeMap<(u32, u32), Note>> {
        let rows = self.rows()?;
        let numbers = |at: usize| rows.column(at).as_primitive::<UInt32Type>();
        let texts = |at: usize| rows.column(at).as_string::<i32>();
        let times = rows.column(4).as_primitive::<TimestampMillisecondType>();
        let note = |row: usize| {
            let (mark, note) = (texts(2).value(row).to_owned(), texts(3).value(row).to_owned());
            ((numbers(0).value(row), numbers(1).value(row)), Note { mark, note, written: times.value(row) })
        };
        Ok((0..rows.num_rows()).map(note).collect())
    }

    /// Changes the note on a position. Replaces the file atomically.
    pub(super) fn put(&self, change: Change, cancel: &CancellationToken) -> Result<()> {
        let Change { run_id, step_index, mark, note } = change;
        let mut lock_file = self.path.clone().into_os_string();
        lock_file.push(".lock");
        // Other views wait, so that no note is lost. The lock file is not removed: otherwise, two writers could lock
        // different files.
        let _lock = Lock::acquire(&self.path, Path::new(&lock_file), LOCK_TIME, cancel)?;
        let mut notes = self.read()?;
        notes.remove(&(run_id, step_index));
        if !mark.is_empty() || !note.is_empty() {
            if notes.len() >= MAX_NOTES {
                return Err(Error::argument("note", format!("at most {MAX_NOTES} notes"), "one more"));
            }
            notes.insert((run_id, step_index), Note { mark, note, written: clock::now().timestamp_millis() });
        }
        self.write(&notes)
    }

    fn write(&self, notes: &BTreeMap<(u32, u32), Note>) -> Result<()> {
        let (run_ids, steps): (Vec<u32>, Vec<u32>) = notes.keys().copied().unzip();
        let times = TimestampMillisecondArray::from_iter_values(notes.values().map(|note| note.written));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(UInt32Array::from(run_ids)),
            Arc::new(UInt32Array::from(steps)),
            Arc::new(StringArray::from_iter_values(notes.values().map(|note| &note.mark))),
            Arc::new(StringArray::from_iter_values(notes.values().map(|note| &note.note))),
            Arc::new(times.with_timezone("UTC")),
        ];
        let write = |output: &Output| {
            let rows = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
            let mut writer = ArrowWriter::try_new(output.file(), Arc::clone(&self.schema), None)?;
            writer.write(&rows)?;
            writer.close()
        };
        let output = Output::create(&self.path)?;
        write(&output).map_err(|error| Error::io(&self.path, io::Error::other(error)))?;
        output.publish()
    }

    pub(super) fn json(&self) -> Result<Value> {
        Ok(json!({ "path": self.path.to_string_lossy(), "notes": objects(&self.rows()?)? }))
    }
}
