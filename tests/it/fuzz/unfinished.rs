//! Databases with small pages, with a write-ahead log, or with a rollback journal.

use super::folders::{Files, METADATA, repair_manifest};
use tempfile::TempDir;

/// Rebuilds the database with pages of 1 KiB, so that it has more page headers to change.
pub(super) fn with_small_pages(files: &Files, temp: &TempDir) -> Files {
    let mut files = files.clone();
    let path = temp.path().join("small.db");
    for (_, bytes) in files.iter_mut().filter(|(name, _)| name == METADATA) {
        std::fs::write(&path, &bytes).unwrap();
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection.execute_batch("PRAGMA page_size = 1024; VACUUM").unwrap();
        drop(connection);
        *bytes = std::fs::read(&path).unwrap();
    }
    repair_manifest(&mut files);
    files
}

/// Adds a change to the database that is still in the write-ahead log, or that the journal would roll back.
pub(super) fn with_unfinished(files: &Files, journal_mode: &str, temp: &TempDir) -> Files {
    let path = temp.path().join("unfinished.db");
    let mut files = files.clone();
    let (_, database) = files.iter().find(|(name, _)| name == METADATA).unwrap();
    std::fs::write(&path, database).unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    let change =
        "UPDATE runs SET max_score = max_score + 1; CREATE TABLE more (x); INSERT INTO more VALUES (zeroblob(9000))";
    let settings = "PRAGMA synchronous = OFF; PRAGMA wal_autocheckpoint = 0; PRAGMA cache_size = 1";
    connection.execute_batch(&format!("PRAGMA journal_mode = {journal_mode}; {settings}; BEGIN; {change}")).unwrap();
    let is_log = journal_mode == "WAL";
    if is_log {
        connection.execute_batch("COMMIT").unwrap();
    }
    let suffix = if is_log { "-wal" } else { "-journal" };
    let beside = std::fs::read(temp.path().join(format!("unfinished.db{suffix}"))).unwrap();
    assert!(beside.len() > 512, "nothing is unfinished");
    let database = std::fs::read(&path).unwrap();
    drop(connection);
    files.iter_mut().filter(|(name, _)| name == METADATA).for_each(|(_, bytes)| bytes.clone_from(&database));
    files.push((format!("{METADATA}{suffix}"), beside));
    files.sort();
    repair_manifest(&mut files);
    files
}

/// Corrects the checksums of a write-ahead log in its header and every frame. Also copies the header's salt to each
/// frame.
pub(super) fn repair_log(log: &mut [u8]) {
    let mut sums = [0_u32; 2];
    let add = |sums: &mut [u32; 2], bytes: &[u8], is_big: bool| {
        for pair in bytes.as_chunks::<8>().0 {
            let [first, second] = [0, 4].map(|at| {
                let word = [pair[at], pair[at + 1], pair[at + 2], pair[at + 3]];
                if is_big { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
            });
            sums[0] = sums[0].wrapping_add(first).wrapping_add(sums[1]);
            sums[1] = sums[1].wrapping_add(second).wrapping_add(sums[0]);
        }
    };
    let put = |sums: &[u32; 2], bytes: &mut [u8]| {
        bytes[..4].copy_from_slice(&sums[0].to_be_bytes());
        bytes[4..8].copy_from_slice(&sums[1].to_be_bytes());
    };
    let Some((header, frames)) = log.split_at_mut_checked(32) else { return };
    let is_big = header[3] & 1 == 1;
    add(&mut sums, &header[..24], is_big);
    put(&sums, &mut header[24..]);
    let page = u32::from_be_bytes([header[8], header[9], header[10], header[11]]).clamp(512, 1 << 16) as usize;
    for frame in frames.chunks_exact_mut(24 + page) {
        frame[8..16].copy_from_slice(&header[16..24]);
        add(&mut sums, &frame[..8], is_big);
        add(&mut sums, &frame[24..], is_big);
        put(&sums, &mut frame[16..]);
    }
}
