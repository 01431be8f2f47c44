//! Hostile databases: random SQL statements that change a valid `metadata.db`.

use super::random::Random;
use rusqlite::Connection;
use std::path::Path;

const VALUES: [&str; 22] = [
    "NULL",
    "-1",
    "0",
    "1",
    "5",
    "65536",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "2.5",
    "1e308",
    "9e999",
    "-9e999",
    "'x'",
    "''",
    "'12'",
    "x'00ff'",
    "zeroblob(20000)",
    "CAST(x'fffe' AS TEXT)",
    "CAST(zeroblob(3) AS TEXT)",
    "printf('%020000d', 1)",
];

const JSON: [&str; 9] = [
    "'{\"tag\": \"m\"}'",
    "'{\"tag\": 5}'",
    "'[1, [2, {}], null]'",
    "'{\"tag\": {\"tag\": \"m\"'",
    "printf('%.*c', 2000, '[')",
    "'[' || substr(hex(zeroblob(9000)), 1, 9000) || ']'",
    "replace(hex(zeroblob(4000)), '00', '[0],')",
    "'[' || replace(hex(zeroblob(3000)), '00', '{\"\":0},') || '0]'",
    "'\"\\ud800\"'",
];

/// Returns a random statement on the table `runs` with these columns.
fn statement(columns: &[&str], random: &mut Random) -> String {
    let column = *random.pick(columns);
    let value = *random.pick(&VALUES);
    let all = columns.join(", ");
    let id = random.below(5);
    match random.below(26) {
        0..=5 => format!("UPDATE OR REPLACE runs SET {column} = {value} WHERE id = {id}"),
        6 => format!("UPDATE OR REPLACE runs SET {column} = {value}"),
        7 => format!("UPDATE runs SET {column} = {column} + 1"),
        8 => format!("INSERT INTO runs ({all}) SELECT id + 100, {} FROM runs", columns[1..].join(", ")),
        9 => {
            let values: Vec<&str> = columns.iter().map(|_| *random.pick(&VALUES)).collect();
            format!("INSERT OR REPLACE INTO runs ({all}) VALUES ({})", values.join(", "))
        }
        10 => format!("DELETE FROM runs WHERE id >= {id}"),
        11 => format!("ALTER TABLE runs RENAME COLUMN {column} TO other"),
        12 => format!(
            "DROP INDEX IF EXISTS idx_runs_len; DROP INDEX IF EXISTS idx_runs_score; ALTER TABLE runs DROP COLUMN {column}"
        ),
        13 => format!("ALTER TABLE runs ADD COLUMN extra DEFAULT {value}"),
        14 => format!("ALTER TABLE runs ADD COLUMN more INTEGER GENERATED ALWAYS AS ({column} * 2) VIRTUAL"),
        15 => format!("ALTER TABLE runs RENAME TO old; CREATE VIEW runs AS SELECT {all} FROM old"),
        16 => format!("ALTER TABLE runs RENAME TO old; CREATE TABLE runs AS SELECT {all} FROM old"),
        17 => {
            let rest = columns[1..].join(", ");
            let key = *random.pick(&[
                "id INTEGER PRIMARY KEY",
                "id TEXT PRIMARY KEY",
                "ID integer primary key",
                "id INT PRIMARY KEY",
                "id INTEGER PRIMARY KEY DESC",
            ]);
            let end = *random.pick(&["", "WITHOUT ROWID", "STRICT"]);
            format!(
                "ALTER TABLE runs RENAME TO old; CREATE TABLE runs ({key}, {rest}) {end}; INSERT INTO runs SELECT {all} FROM old"
            )
        }
        18 => "CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM runs; END".into(),
        19 => format!("CREATE INDEX more ON runs ({column} * 3, abs({column})) WHERE {column} > 1"),
        20 => "CREATE VIRTUAL TABLE words USING fts5(word)".into(),
        21 => {
            let changes = [
                "sql = 'CREATE VIEW runs AS SELECT 1'",
                "sql = replace(sql, 'INTEGER', 'TEXT')",
                "sql = replace(sql, 'num_steps', 'num_steps CHECK (num_steps < 1)')",
                "sql = sql || ' -- ' || hex(zeroblob(5000))",
                "rootpage = 1",
                "rootpage = rootpage + 1",
                "rootpage = 0",
                "type = 'view'",
                "name = 'sqlite_runs'",
            ];
            format!(
                "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET {} WHERE type = 'table'",
                random.pick(&changes)
            )
        }
        22 => format!("PRAGMA user_version = {id}; PRAGMA application_id = {id}; PRAGMA journal_mode = WAL"),
        23 => format!("INSERT OR REPLACE INTO session VALUES ('k{id}', {})", random.pick(&JSON)),
        24 => format!("INSERT OR REPLACE INTO session VALUES ('model', {}), ({value}, {value})", random.pick(&JSON)),
        _ => format!("PRAGMA page_size = {}; VACUUM", random.pick(&[512, 1024, 1024, 2048, 4096, 16384])),
    }
}

/// Returns a database after one to three random statements. Failing statements are ignored.
pub(super) fn changed(bytes: &[u8], columns: &[&str], path: &Path, random: &mut Random) -> Vec<u8> {
    std::fs::write(path, bytes).unwrap();
    if let Ok(connection) = Connection::open(path) {
        let _ = connection.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF");
        for _ in 0..=random.below(3) {
            let _ = connection.execute_batch(&statement(columns, random));
        }
    }
    for suffix in ["-wal", "-shm", "-journal"] {
        let _ = std::fs::remove_file(path.with_file_name(format!("fuzzed.db{suffix}")));
    }
    std::fs::read(path).unwrap()
}
