//! Access to an untrusted `metadata.db`: an SQLite file that may be damaged, malicious, or being written by
//! another process.
//!
//! The code follows SQLite's [advice for untrusted files][advice]. Nothing in the schema may run or write, and
//! every limit is low. `quick_check` runs before any read. A statement that runs too long is interrupted. SQLite does
//! not enforce column types, so each value is checked.
//!
//! Reading works on a temporary copy, so it never changes a file and creates no file beside it. The journal or log of a
//! writer is copied too, and SQLite applies it to the copy. A change of the file during the copy is an error.
//!
//! [advice]: https://www.sqlite.org/security.html

mod file;

#[cfg(test)]
mod tests;

use crate::error::{Error, Result};
use crate::format::files::mapped::{header_error, open_regular};
pub(in crate::format) use file::MAGIC;
use file::{beside, examine};
use rusqlite::config::DbConfig;
use rusqlite::ffi;
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Row};
use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// An SQLite file.
pub(in crate::format) struct Database {
    connection: Connection,
    path: PathBuf,
    /// The folder of the copy that is read.
    _copy: Option<TempDir>,
}

/// The maximum length of a value or a row in bytes.
const MAX_VALUE: i32 = 1 << 20;
const LIMITS: [(Limit, i32); 7] = [
    (Limit::SQLITE_LIMIT_LENGTH, MAX_VALUE),
    (Limit::SQLITE_LIMIT_SQL_LENGTH, 1 << 16),
    (Limit::SQLITE_LIMIT_COLUMN, 100),
    (Limit::SQLITE_LIMIT_EXPR_DEPTH, 20),
    (Limit::SQLITE_LIMIT_VDBE_OP, 25_000),
    (Limit::SQLITE_LIMIT_FUNCTION_ARG, 8),
    (Limit::SQLITE_LIMIT_ATTACHED, 0),
];

const SWITCHES: [(DbConfig, bool); 6] = [
    (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
    (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
    (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
    (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
    (DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, false),
    (DbConfig::SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER, false),
];

const PRAGMAS: &str = "PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0; PRAGMA cache_size = -1024; \
                       PRAGMA temp_store = FILE; PRAGMA query_only = ON;";

/// Instructions between two calls of SQLite's progress handler.
const TICK: i32 = 1000;
/// The number of ticks that every read may take, and the number of bytes of the file that allow one more tick.
const BASE_TICKS: u64 = 10_000;
const BYTES_PER_TICK: u64 = 32;

impl Database {
    /// Copies a file together with its journal or log, opens the copy for reading, and checks its integrity.
    pub(in crate::format) fn open(path: &Path) -> Result<Database> {
        let path = std::path::absolute(path).map_err(|source| Error::io(path, source))?;
        let io = |source| Error::io(&path, source);
        let before = examine(&path)?;
        let folder = tempfile::tempdir().map_err(io)?;
        let copy = folder.path().join("copy.db");
        for suffix in ["", "-wal", "-journal"] {
            match open_regular(&beside(&path, suffix)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && !suffix.is_empty() => {}
                from => {
                    let mut from = from.map_err(io)?;
                    let to = beside(&copy, suffix);
                    let mut copied = File::create(&to).map_err(|error| Error::io(&to, error))?;
                    io::copy(&mut from, &mut copied).map_err(io)?;
                }
            }
        }
        if examine(&path)? != before {
            let message = "another process changed the file while it was read";
            return Err(io(io::Error::new(io::ErrorKind::ResourceBusy, message)));
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&copy, flags).map_err(|error| refused(&path, &error))?;
        let open = harden(&connection, before.len).and_then(|()| connection.execute_batch(PRAGMAS));
        open.map_err(|error| refused(&path, &error))?;
        let database = Database { connection, path, _copy: Some(folder) };
        database.check_sound()?;
        Ok(database)
    }

    /// Creates a file with these tables in a folder that no reader sees yet, and begins a transaction.
    pub(in crate::format) fn create_tables(path: &Path, schema: &str) -> Result<Database> {
        let path = std::path::absolute(path).map_err(|source| Error::io(path, source))?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&path, flags).map_err(|error| refused(&path, &error))?;
        let database = Database { connection, path, _copy: None };
        database.execute("PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF; BEGIN IMMEDIATE")?;
        database.execute(schema)?;
        Ok(database)
    }

    pub(in crate::format) fn execute(&self, sql: &str) -> Result<()> {
        self.connection.execute_batch(sql).map_err(|error| refused(&self.path, &error))
    }

    /// Inserts a row.
    pub(in crate::format) fn insert(&self, sql: &str, values: impl rusqlite::Params) -> Result<()> {
        let inserted = self.connection.prepare_cached(sql).and_then(|mut statement| statement.execute(values));
        inserted.map(|_| ()).map_err(|error| refused(&self.path, &error))
    }

    /// Returns an error about the content of the file.
    pub(in crate::format) fn error(&self, what: &'static str, expected: &'static str, found: String) -> Error {
        header_error(what, expected, found, &self.path)
    }

    /// Calls `hear` with each row of a query.
    pub(in crate::format) fn each(
        &self,
        sql: &str,
        values: impl rusqlite::Params,
        mut hear: impl FnMut(&Row<'_>) -> Result<()>,
    ) -> Result<()> {
        let refused = |error| refused(&self.path, &error);
        let mut statement = self.connection.prepare(sql).map_err(refused)?;
        let mut rows = statement.query(values).map_err(refused)?;
        while let Some(row) = rows.next().map_err(refused)? {
            hear(row)?;
        }
        Ok(())
    }

    /// Closes a file that was written and makes it durable. No journal remains.
    pub(in crate::format) fn finish_writing(self) -> Result<()> {
        let Database { connection, path, .. } = self;
        connection.flush_prepared_statement_cache();
        connection.close().map_err(|(_, error)| refused(&path, &error))?;
        File::open(&path).and_then(|file| file.sync_all()).map_err(|source| Error::io(&path, source))
    }

    fn check_sound(&self) -> Result<()> {
        // `quick_check` would run the code of virtual tables, so they are rejected first.
        self.each("SELECT 1 FROM sqlite_schema WHERE type IS NULL OR type = 'table' AND rootpage IS 0", [], |_| {
            Err(self.error("tables", "no virtual tables", "a virtual table".into()))
        })?;
        self.each("PRAGMA quick_check(1)", [], |row| match text(row, 0).unwrap_or("nothing") {
            "ok" => Ok(()),
            problem => Err(self.error("SQLite's check of the database", "ok", problem.replace('\n', " "))),
        })
    }
}

/// The values of a row, and the first invalid one.
pub(in crate::format) struct Values<'a> {
    pub(in crate::format) row: &'a Row<'a>,
    pub(in crate::format) problem: Option<Box<InvalidValue>>,
}

/// A value that a column cannot have.
#[derive(Clone, Debug)]
pub(in crate::format) struct InvalidValue {
    /// The table and the column.
    pub(in crate::format) what: &'static str,
    pub(in crate::format) expected: &'static str,
    pub(in crate::format) found: String,
}

impl<'a> Values<'a> {
    /// Returns the value of a column as `valid` converts it. If `valid` returns `None`, notes the problem and returns
    /// the default.
    pub(in crate::format) fn get<T: Default>(
        &mut self,
        column: usize,
        (what, expected): (&'static str, &'static str),
        valid: impl FnOnce(ValueRef<'a>) -> Option<T>,
    ) -> T {
        let value = self.row.get_ref(column).unwrap_or(ValueRef::Null);
        valid(value).unwrap_or_else(|| {
            self.problem.get_or_insert_with(|| Box::new(InvalidValue { what, expected, found: shown(value) }));
            T::default()
        })
    }
}

/// Returns an integer in a range.
pub(in crate::format) fn integer(value: ValueRef<'_>, range: RangeInclusive<i64>) -> Option<i64> {
    match value {
        ValueRef::Integer(value) => Some(value).filter(|value| range.contains(value)),
        _ => None,
    }
}

/// Returns the valid values of a nullable column, with `None` for `NULL`.
pub(in crate::format) fn nullable<T>(
    value: ValueRef<'_>,
    valid: impl FnOnce(ValueRef<'_>) -> Option<T>,
) -> Option<Option<T>> {
    if matches!(value, ValueRef::Null) { Some(None) } else { valid(value).map(Some) }
}

/// Returns a value for a message.
pub(in crate::format) fn shown(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "NULL".into(),
        ValueRef::Integer(value) => format!("the INTEGER {value}"),
        ValueRef::Real(value) => format!("the REAL {value}"),
        ValueRef::Text(text) => format!("a TEXT of {} bytes", text.len()),
        ValueRef::Blob(bytes) => format!("a BLOB of {} bytes", bytes.len()),
    }
}

/// Returns the text in a column; `None` for another type or invalid UTF-8.
pub(in crate::format) fn text<'a>(row: &'a Row<'_>, column: usize) -> Option<&'a str> {
    match row.get_ref(column) {
        Ok(ValueRef::Text(text)) => std::str::from_utf8(text).ok(),
        _ => None,
    }
}

fn harden(connection: &Connection, len: u64) -> rusqlite::Result<()> {
    for (limit, most) in LIMITS {
        connection.set_limit(limit, most)?;
    }
    for (switch, on) in SWITCHES {
        connection.set_db_config(switch, on)?;
    }
    let mut ticks = BASE_TICKS.saturating_add(len / BYTES_PER_TICK);
    let run_away = move || {
        ticks = ticks.saturating_sub(1);
        ticks == 0
    };
    connection.progress_handler(TICK, Some(run_away));
    Ok(())
}

/// Converts an SQLite error into an error about access or about content.
#[cold]
fn refused(path: &Path, error: &rusqlite::Error) -> Error {
    use rusqlite::ErrorCode as Code;
    // A file that ends too early is damaged, not inaccessible.
    let is_short = error.sqlite_error().is_some_and(|error| error.extended_code == ffi::SQLITE_IOERR_SHORT_READ);
    match error.sqlite_error_code() {
        // Uses the system's error text, as for any other file.
        Some(Code::DiskFull) => Error::io(path, io::Error::from_raw_os_error(libc::ENOSPC)),
        Some(Code::ReadOnly) => Error::io(path, io::Error::other("SQLite could open it for reading only")),
        // SQLite's text does not say what the system reported last.
        Some(Code::SystemIoFailure) if !is_short => {
            Error::io(path, io::Error::other(format!("{error}: {}", io::Error::last_os_error())))
        }
        Some(Code::PermissionDenied | Code::DatabaseBusy | Code::OutOfMemory | Code::CannotOpen) => {
            Error::io(path, io::Error::other(error.to_string()))
        }
        // A statement of this crate does not fit the file.
        Some(Code::Unknown) => {
            header_error("SQLite database", "the tables and columns of the format", error.to_string(), path)
        }
        _ => header_error("SQLite database", "an undamaged file", error.to_string(), path),
    }
}
