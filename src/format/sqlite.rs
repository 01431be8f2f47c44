//! Opening a `metadata.db` of unknown origin: an SQLite file that may be damaged, hostile, or being written by another
//! process.
//!
//! SQLite's [advice for untrusted files][advice] is followed: nothing in the schema may run or be written, every limit
//! is low, `quick_check` comes before anything is read, a statement that runs away is ended, and only tables of the expected
//! shape are read. Values have any type, whatever their column says, so that each is checked.
//!
//! A file that is read is never changed, and no file appears beside it: one in WAL mode without a log is read as
//! immutable, and must not have changed afterwards; one whose writer died in mid-transaction is copied, with its journal, and
//! read as it was before.
//!
//! [advice]: https://www.sqlite.org/security.html

use super::shards::header_error;
use crate::error::{Error, Result};
use rusqlite::config::DbConfig;
use rusqlite::ffi;
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Row};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tempfile::TempDir;

/// An SQLite file that is open for reading or, as for an append, for writing.
pub(super) struct Database {
    connection: Connection,
    path: PathBuf,
    /// What the file was when it was opened as one that does not change.
    stamp: Option<Stamp>,
    /// Where the copy of a file with a hot journal is.
    _copy: Option<TempDir>,
}

/// What changes when a file does.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    len: u64,
    modified: Option<SystemTime>,
    has_log: bool,
}

const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// The header of the file, and of the root of the schema behind it.
const HEADER_LEN: usize = 108;
/// The kind of a page that holds rows rather than further pages.
const LEAF: u8 = 0x0d;

/// The most bytes of a value or a row.
const MAX_VALUE: i32 = 1 << 20;
const LIMITS: [(Limit, i32); 11] = [
    (Limit::SQLITE_LIMIT_LENGTH, MAX_VALUE),
    (Limit::SQLITE_LIMIT_SQL_LENGTH, 1 << 16),
    (Limit::SQLITE_LIMIT_COLUMN, 100),
    (Limit::SQLITE_LIMIT_EXPR_DEPTH, 20),
    (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 4),
    (Limit::SQLITE_LIMIT_VDBE_OP, 25_000),
    (Limit::SQLITE_LIMIT_FUNCTION_ARG, 8),
    (Limit::SQLITE_LIMIT_ATTACHED, 0),
    (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 50),
    (Limit::SQLITE_LIMIT_VARIABLE_NUMBER, 10),
    (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 1),
];

const SWITCHES: [(DbConfig, bool); 9] = [
    (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
    (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
    (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
    (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
    (DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, false),
    (DbConfig::SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER, false),
    (DbConfig::SQLITE_DBCONFIG_ENABLE_ATTACH_CREATE, false),
    (DbConfig::SQLITE_DBCONFIG_ENABLE_ATTACH_WRITE, false),
    (DbConfig::SQLITE_DBCONFIG_DQS_DML, false),
];

const PRAGMAS: &str = "PRAGMA cell_size_check = ON; PRAGMA mmap_size = 0; PRAGMA cache_size = -1024; \
                       PRAGMA temp_store = FILE; PRAGMA query_only = ON;";

/// SQLite tells every so many instructions that it is at work.
const TICK: i32 = 1000;
/// Ticks that any file may take, and the bytes of it that add one.
const BASE_TICKS: u64 = 10_000;
const BYTES_PER_TICK: u64 = 32;

impl Database {
    /// Opens a file for reading, and checks that it is sound.
    pub(super) fn open(path: &Path) -> Result<Database> {
        let path = std::path::absolute(path).map_err(|source| Error::io(path, source))?;
        let (stamp, is_wal) = examine(&path)?;
        let immutable = is_wal && !stamp.has_log;
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = match immutable {
            // The log's index would have to stand beside the file.
            true => Connection::open_with_flags(uri(&path), flags | OpenFlags::SQLITE_OPEN_URI),
            false => Connection::open_with_flags(&path, flags),
        };
        let connection = connection.map_err(|error| refused(&path, &error))?;
        match harden(&connection, stamp.len).and_then(|()| connection.execute_batch(PRAGMAS)).and_then(|()| {
            // The first to look into the file.
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))
        }) {
            Ok(()) => {}
            Err(error) if has_code(&error, ffi::SQLITE_READONLY_ROLLBACK) => return Database::open_copy(path),
            Err(error) => return Err(refused(&path, &error)),
        }
        let database = Database { connection, path, stamp: immutable.then_some(stamp), _copy: None };
        database.check_sound()?;
        Ok(database)
    }

    /// Opens a file for adding to it, and checks that it is sound. What a writer that died left behind is undone.
    pub(super) fn open_writing(path: &Path) -> Result<Database> {
        let path = std::path::absolute(path).map_err(|source| Error::io(path, source))?;
        let (stamp, _) = examine(&path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&path, flags).map_err(|error| refused(&path, &error))?;
        let open = harden(&connection, stamp.len).and_then(|()| connection.execute_batch(PRAGMAS));
        open.map_err(|error| refused(&path, &error))?;
        let database = Database { connection, path, stamp: None, _copy: None };
        database.check_sound()?;
        // The budget was for reading.
        database.connection.progress_handler(0, None::<fn() -> bool>);
        database.execute("PRAGMA query_only = OFF")?;
        Ok(database)
    }

    /// Begins a new file.
    pub(super) fn create(path: &Path) -> Result<Database> {
        let path = std::path::absolute(path).map_err(|source| Error::io(path, source))?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&path, flags).map_err(|error| refused(&path, &error))?;
        Ok(Database { connection, path, stamp: None, _copy: None })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn execute(&self, sql: &str) -> Result<()> {
        self.connection.execute_batch(sql).map_err(|error| refused(&self.path, &error))
    }

    /// Adds a row.
    pub(super) fn insert(&self, sql: &str, values: impl rusqlite::Params) -> Result<()> {
        let inserted = self.connection.prepare_cached(sql).and_then(|mut statement| statement.execute(values));
        inserted.map(|_| ()).map_err(|error| refused(&self.path, &error))
    }

    /// Refuses anything but a table with these columns. The first is its key, an INTEGER PRIMARY KEY if `by_id`.
    pub(super) fn check_table(&self, name: &'static str, columns: &[&str], by_id: bool) -> Result<()> {
        let refuse = |expected: &str, found: &str| {
            let found = format!("{found} {name}");
            Err(header_error("tables", expected, found, &self.path))
        };
        let mut kinds = Vec::new();
        let sql = "SELECT type, rootpage FROM sqlite_schema WHERE name = ?1 COLLATE NOCASE AND type <> 'index'";
        self.each(sql, [name], |row| {
            let root = matches!(row.get_ref(1), Ok(ValueRef::Integer(1..)));
            kinds.push(if root {
                text(row, 0).unwrap_or("unknown").to_owned()
            } else {
                "virtual table or view".into()
            });
            Ok(())
        })?;
        match &kinds[..] {
            [kind] if kind == "table" => {}
            [] => return refuse(&format!("a table {name}"), "none named"),
            [kind, ..] => return refuse(&format!("a table {name}"), kind),
        }
        let (mut missing, mut is_usual) = (columns.to_vec(), true);
        let mut has_key = !by_id;
        // The name is a literal of ours.
        self.each(&format!("PRAGMA table_xinfo({name})"), [], |row| {
            let column = text(row, 1).unwrap_or_default();
            missing.retain(|name| !name.eq_ignore_ascii_case(column));
            let is_integer = text(row, 2).is_some_and(|kind| kind.eq_ignore_ascii_case("INTEGER"));
            let is_key = matches!(row.get_ref(5), Ok(ValueRef::Integer(1)));
            has_key |= is_integer && is_key && columns.first().is_some_and(|key| key.eq_ignore_ascii_case(column));
            is_usual &= matches!(row.get_ref(6), Ok(ValueRef::Integer(0)));
            Ok(())
        })?;
        match missing.first() {
            Some(column) => refuse(&format!("a column {column}"), "none in table"),
            None if !is_usual => refuse("columns that are stored", "a generated or hidden column in table"),
            None if !has_key => refuse("an INTEGER PRIMARY KEY", "another key of table"),
            None => Ok(()),
        }
    }

    /// The number of a table's rows.
    pub(super) fn num_rows(&self, table: &'static str) -> Result<usize> {
        let mut count = 0;
        self.each(&format!("SELECT count(*) FROM {table}"), [], |row| {
            count = if let Ok(ValueRef::Integer(count)) = row.get_ref(0) { count } else { 0 };
            Ok(())
        })?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Hears the rows of a query.
    pub(super) fn each(
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

    /// Ends the reading; an error if the file was read as one that does not change, and did.
    pub(super) fn finish_reading(self) -> Result<()> {
        match &self.stamp {
            Some(before) if examine(&self.path)?.0 != *before => {
                let message = "another process changed the file while it was read";
                Err(Error::io(&self.path, io::Error::new(io::ErrorKind::ResourceBusy, message)))
            }
            _ => Ok(()),
        }
    }

    /// Closes a file that was written, so that nothing of it is left in a journal or in memory.
    pub(super) fn finish_writing(self) -> Result<()> {
        let Database { connection, path, .. } = self;
        connection.flush_prepared_statement_cache();
        connection.close().map_err(|(_, error)| refused(&path, &error))?;
        File::open(&path).and_then(|file| file.sync_all()).map_err(|source| Error::io(&path, source))
    }

    /// Opens a copy of a file and its journal, in which SQLite undoes what was not finished.
    fn open_copy(path: PathBuf) -> Result<Database> {
        let io = |source| Error::io(&path, source);
        let folder = tempfile::tempdir().map_err(io)?;
        let copy = folder.path().join("copy.db");
        std::fs::copy(&path, &copy).map_err(io)?;
        std::fs::copy(beside(&path, "-journal"), beside(&copy, "-journal")).map_err(io)?;
        let mut database = Database::open_writing(&copy)?;
        database.execute("PRAGMA query_only = ON")?;
        database.path = path;
        database._copy = Some(folder);
        Ok(database)
    }

    fn check_sound(&self) -> Result<()> {
        let mut problem = None;
        // What virtual tables check is theirs to say.
        let sql = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND rootpage IS NOT 0 OR type <> 'table'";
        let mut num_objects = 0;
        self.each(sql, [], |row| {
            num_objects = if let Ok(ValueRef::Integer(count)) = row.get_ref(0) { count } else { 0 };
            Ok(())
        })?;
        if usize::try_from(num_objects).unwrap_or(0) != self.num_rows("sqlite_schema")? {
            return Err(header_error("tables", "no virtual ones", "a virtual table".into(), &self.path));
        }
        self.each("PRAGMA quick_check(1)", [], |row| {
            problem = Some(text(row, 0).unwrap_or("nothing").to_owned()).filter(|said| said != "ok");
            Ok(())
        })?;
        match problem {
            None => Ok(()),
            Some(problem) => {
                let problem = problem.replace('\n', " ");
                Err(header_error("SQLite's check of the database", "ok", problem, &self.path))
            }
        }
    }
}

/// The text in a column, if it is text.
pub(super) fn text<'a>(row: &'a Row<'_>, column: usize) -> Option<&'a str> {
    match row.get_ref(column) {
        Ok(ValueRef::Text(text)) => std::str::from_utf8(text).ok(),
        _ => None,
    }
}

/// What the file is at the moment, and whether it is one whose changes go to a log.
fn examine(path: &Path) -> Result<(Stamp, bool)> {
    let io = |source| Error::io(path, source);
    let metadata = std::fs::metadata(path).map_err(io)?;
    if !metadata.is_file() {
        return Err(io(io::Error::new(io::ErrorKind::InvalidInput, "not a file")));
    }
    let mut header = Vec::with_capacity(HEADER_LEN);
    File::open(path).and_then(|file| file.take(HEADER_LEN as u64).read_to_end(&mut header)).map_err(io)?;
    let refuse = |what, expected: &str, found| Err(header_error(what, expected, found, path));
    if !header.starts_with(MAGIC) {
        let found = header.get(..16).unwrap_or(&header).escape_ascii().to_string();
        return refuse("magic", "SQLite format 3", found);
    }
    let has_log = std::fs::metadata(beside(path, "-wal")).is_ok_and(|log| log.len() > 0);
    match header.get(100) {
        // SQLite holds the whole schema in memory, at many times its size in the file.
        Some(&kind) if kind != LEAF && !has_log => {
            return refuse("schema", "one that fits in a page", format!("a page of kind {kind}"));
        }
        Some(_) => {}
        None => return refuse("length of the file", "a database", format!("{} bytes", header.len())),
    }
    let is_wal = header.get(18..20).is_some_and(|versions| versions.contains(&2));
    Ok((Stamp { len: metadata.len(), modified: metadata.modified().ok(), has_log }, is_wal))
}

fn harden(connection: &Connection, len: u64) -> rusqlite::Result<()> {
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
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

/// The path as a URI that says that the file does not change.
fn uri(path: &Path) -> String {
    let mut uri = String::from("file:");
    for &byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            uri += &format!("%{byte:02X}");
        }
    }
    uri + "?immutable=1"
}

/// The name of a file that SQLite keeps beside another.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

fn has_code(error: &rusqlite::Error, code: i32) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == code)
}

/// SQLite's error as ours: about access, or about content.
#[cold]
fn refused(path: &Path, error: &rusqlite::Error) -> Error {
    use rusqlite::ErrorCode as Code;
    // A file that ends too early is damaged rather than out of reach.
    let is_short = has_code(error, ffi::SQLITE_IOERR_SHORT_READ);
    match error.sqlite_error_code() {
        Some(
            Code::PermissionDenied
            | Code::DatabaseBusy
            | Code::DatabaseLocked
            | Code::OutOfMemory
            | Code::ReadOnly
            | Code::SystemIoFailure
            | Code::DiskFull
            | Code::CannotOpen
            | Code::FileLockingProtocolFailed
            | Code::NoLargeFileSupport,
        ) if !is_short => Error::io(path, io::Error::other(error.to_string())),
        _ => header_error("SQLite database", "a sound one", error.to_string(), path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn database(sql: &str) -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metadata.db");
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        (folder, path)
    }

    #[test]
    fn a_statement_that_runs_away_is_ended() {
        let (_folder, path) = database("CREATE TABLE runs(id INTEGER PRIMARY KEY)");
        let database = Database::open(&path).unwrap();
        let endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c";
        let error = database.each(endless, [], |_| Ok(())).unwrap_err();
        assert!(error.to_string().contains("interrupted"), "{error}");
    }

    #[test]
    fn a_schema_cannot_make_its_check_run_away() {
        let check = "x IS NULL OR length(replace(hex(zeroblob(200000)), '00', '0000')) > 0";
        let rows = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 20) SELECT x FROM c";
        let (_folder, path) = database(&format!("CREATE TABLE runs(x CHECK ({check})); INSERT INTO runs {rows};"));
        // Read or refused, but soon.
        if let Err(error) = Database::open(&path) {
            assert!(matches!(error.kind(), ErrorKind::Header { .. }), "{error:?}");
        }
        let (_folder, path) = database("CREATE TABLE runs(x CHECK (x IS NOT load_extension('nothing')));");
        assert!(Database::open(&path).is_ok(), "nothing is there to be checked");
    }

    #[test]
    fn nothing_is_written_attached_or_loaded() {
        let (folder, path) = database("CREATE TABLE runs(id INTEGER PRIMARY KEY)");
        let database = Database::open(&path).unwrap();
        let other = folder.path().join("other.db");
        for sql in [
            "INSERT INTO runs VALUES (1)".to_owned(),
            format!("ATTACH '{}' AS other", other.display()),
            "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = ''".to_owned(),
            "SELECT load_extension('nothing')".to_owned(),
        ] {
            assert!(database.execute(&sql).is_err(), "{sql}");
        }
        assert!(!other.exists());
    }

    #[test]
    fn only_databases_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metadata.db");
        let refused = |path: &Path| Database::open(path).err().unwrap();
        assert!(matches!(refused(&path).kind(), ErrorKind::Io { .. }));
        assert!(matches!(refused(folder.path()).kind(), ErrorKind::Io { .. }));
        for bytes in [&b""[..], b"SQLite format 3", b"SQLite format 3\0", &[0; 4096]] {
            std::fs::write(&path, bytes).unwrap();
            assert!(matches!(refused(&path).kind(), ErrorKind::Header { .. }), "{bytes:?}");
        }
    }

    #[test]
    fn a_damaged_tree_is_found_before_it_is_read() {
        let rows = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 5000) SELECT x, x FROM c";
        let (_folder, path) =
            database(&format!("CREATE TABLE runs(id INTEGER PRIMARY KEY, x INT); INSERT INTO runs {rows};"));
        assert_eq!(Database::open(&path).unwrap().num_rows("runs").unwrap(), 5000);
        let mut bytes = std::fs::read(&path).unwrap();
        // The kind and number of cells of a page in the middle.
        bytes[5 * 4096..5 * 4096 + 8].fill(0xff);
        std::fs::write(&path, bytes).unwrap();
        let error = Database::open(&path).err().unwrap();
        assert!(matches!(error.kind(), ErrorKind::Header { .. }), "{error:?}");
    }

    #[test]
    fn a_path_in_a_uri_means_itself() {
        assert_eq!(uri(Path::new("/a b/c?d#e%41/é.db")), "file:/a%20b/c%3Fd%23e%2541/%C3%A9.db?immutable=1");
    }
}
