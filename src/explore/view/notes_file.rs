//! The notes file: one Parquet file beside the archive, which any SQL engine can join.

use crate::archive::Archive;
use crate::cancellation::CancellationToken;
use crate::error::{Error, ErrorKind, Location, Result};
use crate::publish::Output;
use crate::query::{UserTable, json_rows};
use arrow::array::{
    Array, ArrayRef, AsArray, RecordBatch, RecordBatchReader, StringArray, TimestampMillisecondArray, UInt32Array,
};
use arrow::compute::{CastOptions, cast_with_options, concat_batches};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit, TimestampMillisecondType, UInt32Type};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Map, Value, json};
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// The maximum wait for another view that is writing.
const LOCK_TIME: Duration = Duration::from_secs(10);

/// The maximum number of notes.
const MAX_NOTES: usize = 100_000;

/// The notes file. Several views may write it at once.
pub(super) struct Notes {
    path: PathBuf,
    schema: SchemaRef,
}

/// A note on a position. Each position has at most one.
#[derive(Clone, Debug)]
pub(super) struct Note {
    pub(super) run_id: u32,
    pub(super) step_index: u32,
    pub(super) mark: String,
    pub(super) note: String,
    /// In milliseconds since the Unix epoch.
    pub(super) written: i64,
}

impl Notes {
    /// Returns the path beside an archive in a folder; `None` for an archive on an object store.
    pub(super) fn path_beside(archive: &Archive) -> Option<PathBuf> {
        let path = archive.path();
        if path.to_str().is_some_and(|path| path.contains("://")) {
            return None;
        }
        let path = std::path::absolute(path).ok()?;
        let name = path.file_name()?.to_str()?;
        Some(path.with_file_name(format!("{name}.notes.parquet")))
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
        let not_notes = |found: String| {
            let location = Location { path: Some(self.path.clone()), ..Default::default() };
            let names = self.schema.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>().join(", ");
            let expected = format!("a Parquet file of notes, with the columns {names}");
            Error::from(ErrorKind::Decode { location, what: "notes", expected, found })
        };
        let read = || {
            let reader = ParquetRecordBatchReaderBuilder::try_new(file)?.build()?;
            let schema = reader.schema();
            Ok((schema, reader.collect::<Result<Vec<_>, _>>()?))
        };
        let (schema, batches) = read().map_err(|error: arrow::error::ArrowError| not_notes(error.to_string()))?;
        let rows = concat_batches(&schema, &batches).map_err(|error| not_notes(error.to_string()))?;
        // Another tool may have rewritten the file with other string types and nullable columns.
        let columns = self.schema.fields().iter().map(|field| {
            let column = rows.column_by_name(field.name()).ok_or_else(|| format!("no column {}", field.name()))?;
            if column.null_count() > 0 {
                return Err(format!("null in {}", field.name()));
            }
            let strict = CastOptions { safe: false, ..Default::default() };
            cast_with_options(column, field.data_type(), &strict).map_err(|error| format!("{}: {error}", field.name()))
        });
        let columns: Vec<ArrayRef> = columns.collect::<Result<_, String>>().map_err(not_notes)?;
        RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(|error| not_notes(error.to_string()))
    }

    fn read(&self) -> Result<Vec<Note>> {
        let rows = self.rows()?;
        let numbers = |at: usize| rows.column(at).as_primitive::<UInt32Type>();
        let texts = |at: usize| rows.column(at).as_string::<i32>();
        let times = rows.column(4).as_primitive::<TimestampMillisecondType>();
        let note = |row: usize| Note {
            run_id: numbers(0).value(row),
            step_index: numbers(1).value(row),
            mark: texts(2).value(row).to_owned(),
            note: texts(3).value(row).to_owned(),
            written: times.value(row),
        };
        Ok((0..rows.num_rows()).map(note).collect())
    }

    /// Replaces the note on a position, or removes it if both texts are empty. Replaces the file atomically.
    pub(super) fn put(&self, note: Note, cancel: &CancellationToken) -> Result<()> {
        // Other views wait, so that no note is lost.
        let _lock = self.lock(cancel)?;
        let mut notes = self.read()?;
        notes.retain(|other| (other.run_id, other.step_index) != (note.run_id, note.step_index));
        if !note.mark.is_empty() || !note.note.is_empty() {
            if notes.len() >= MAX_NOTES {
                return Err(Error::argument("note", format!("at most {MAX_NOTES} notes"), "one more"));
            }
            notes.push(note);
        }
        notes.sort_by_key(|note| (note.run_id, note.step_index));
        self.write(&notes)
        // Closing the lock file unlocks it. The file is not removed: otherwise, two writers could lock
        // different files.
    }

    /// Locks the notes against all other views, until the returned file is closed.
    fn lock(&self, cancel: &CancellationToken) -> Result<File> {
        let mut path = self.path.clone().into_os_string();
        path.push(".lock");
        let io = |source| Error::io(&path, source);
        let file = File::options().create(true).append(true).open(&path).map_err(io)?;
        let started = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(source)) => return Err(io(source)),
                Err(TryLockError::WouldBlock) if started.elapsed() < LOCK_TIME => {
                    cancel.check()?;
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(TryLockError::WouldBlock) => {
                    let what = format!("another view is writing the notes, after {} s of waiting", LOCK_TIME.as_secs());
                    return Err(ErrorKind::Conflict { path: self.path.clone(), what }.into());
                }
            }
        }
    }

    fn write(&self, notes: &[Note]) -> Result<()> {
        let numbers = |value: fn(&Note) -> u32| Arc::new(notes.iter().map(value).collect::<UInt32Array>()) as ArrayRef;
        let texts = |value: fn(&Note) -> &str| {
            Arc::new(notes.iter().map(|note| Some(value(note))).collect::<StringArray>()) as ArrayRef
        };
        let times =
            TimestampMillisecondArray::from_iter_values(notes.iter().map(|note| note.written)).with_timezone("UTC");
        let columns = vec![
            numbers(|note| note.run_id),
            numbers(|note| note.step_index),
            texts(|note| &note.mark),
            texts(|note| &note.note),
            Arc::new(times),
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
        let names = self.schema.fields().iter().map(|field| field.name().clone());
        let rows = json_rows(&self.rows()?)?;
        let notes: Vec<Map<String, Value>> = rows.into_iter().map(|row| names.clone().zip(row).collect()).collect();
        Ok(json!({ "path": self.path.to_string_lossy(), "notes": notes }))
    }
}
