use super::*;
use crate::error::ErrorKind;

fn database(sql: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metadata.db");
    Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    (folder, path)
}

#[test]
fn interrupts_a_long_statement() {
    let (_folder, path) = database("CREATE TABLE runs(id INTEGER PRIMARY KEY)");
    let database = Database::open(&path).unwrap();
    let endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c";
    let error = database.each(endless, [], |_| Ok(())).unwrap_err();
    assert!(error.to_string().contains("interrupted"), "{error}");
}

#[test]
fn interrupts_a_long_schema_check() {
    let check = "x IS NULL OR length(replace(hex(zeroblob(200000)), '00', '0000')) > 0";
    let rows = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 20) SELECT x FROM c";
    let (_folder, path) = database(&format!("CREATE TABLE runs(x CHECK ({check})); INSERT INTO runs {rows};"));
    // The file may open or fail, but must do so soon.
    if let Err(error) = Database::open(&path) {
        assert!(matches!(error.kind(), ErrorKind::Header { .. }), "{error:?}");
    }
}

#[test]
fn statements_cannot_write_attach_or_load() {
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
fn opens_databases_only() {
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
fn detects_a_damaged_tree_before_reading_it() {
    let rows = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 5000) SELECT x, x FROM c";
    let (_folder, path) =
        database(&format!("CREATE TABLE runs(id INTEGER PRIMARY KEY, x INT); INSERT INTO runs {rows};"));
    assert!(Database::open(&path).is_ok());
    let mut bytes = std::fs::read(&path).unwrap();
    // Damages the type and the cell count of a page in the middle.
    bytes[5 * 4096..5 * 4096 + 8].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    let error = Database::open(&path).err().unwrap();
    assert!(matches!(error.kind(), ErrorKind::Header { .. }), "{error:?}");
}
