//! Fuzz targets for formats of several files: NumPy datasets and sessions.

use super::memory::Gauge;
use super::mutate::{Field, MAX_LEN, havoc, havoc_text};
use super::random::Random;
use super::unfinished::{repair_log, with_small_pages, with_unfinished};
use super::well_formed::{check, same, same_steps};
use super::{Tally, Target, scratch, seeds, tables};
use a2store::format::{Dataset, DatasetWriter, RunSource, Session, SessionOptions, SessionWriter};
use a2store::{Error, Run};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// File names and contents.
pub(super) type Files = Vec<(String, Vec<u8>)>;

pub(super) const METADATA: &str = "metadata.db";
const MANIFEST: &str = "manifest.json";
/// The valuation types of a Macroxue pack.
const TYPES: &str = "valuation_types.json";
/// Number of databases that random SQL statements have changed. They are inputs for byte changes and for more
/// statements.
const CHANGED: u64 = 100;

/// The common part of both targets.
pub(super) struct Folder {
    seeds: Vec<Files>,
    files: Files,
    /// The files that are in the folder now.
    written: Files,
    temp: TempDir,
    columns: &'static [&'static str],
    row_fields: &'static [Field],
    databases: Vec<Vec<u8>>,
}

const NPY_TOKENS: [&str; 22] = [
    "'descr'",
    "'fortran_order'",
    "'shape'",
    "False",
    "True",
    "(7,)",
    "()",
    "'<u8'",
    "'|u1'",
    "'<f4'",
    "'<u2'",
    "'|O8'",
    "'board'",
    "'move'",
    "'run_id'",
    "'action'",
    "'exps'",
    "(16,)",
    "(4,)",
    "[",
    ")",
    "18446744073709551615",
];
const MANIFEST_TOKENS: [&str; 14] = [
    "\"version\"",
    "\"num_steps\"",
    "\"num_runs\"",
    "\"created\"",
    "\"crc32c\"",
    "\"steps.npy\"",
    "\"metadata.db\"",
    "null",
    "-1",
    "1e3",
    "{}",
    "\"../steps.npy\"",
    "\"/dev/zero\"",
    "\"0123456g\"",
];

impl Folder {
    pub(super) fn path(&self) -> PathBuf {
        self.temp.path().join("folder")
    }

    /// Returns a free path for a copy.
    pub(super) fn scratch_path(&self) -> PathBuf {
        self.temp.path().join("again")
    }

    pub(super) fn new(
        temp: TempDir,
        seeds: Vec<Files>,
        columns: &'static [&'static str],
        row_fields: &'static [Field],
    ) -> Folder {
        std::fs::create_dir(temp.path().join("folder")).unwrap();
        for files in &seeds {
            assert!(files.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() <= MAX_LEN);
        }
        let of_seeds = seeds.iter().flatten().filter(|(name, _)| name == METADATA).map(|(_, bytes)| bytes.clone());
        let mut databases: Vec<Vec<u8>> = of_seeds.collect();
        for iteration in 0..CHANGED {
            let mut random = Random::new(0, iteration);
            let from = random.pick(&databases).clone();
            let mut changed = tables::changed(&from, columns, &temp.path().join("fuzzed.db"), &mut random);
            changed.truncate(MAX_LEN);
            databases.push(changed);
        }
        Folder { seeds, files: Vec::new(), written: Vec::new(), temp, columns, row_fields, databases }
    }

    pub(super) fn mutate(&mut self, random: &mut Random) {
        let place = random.below(self.seeds.len());
        self.files.clone_from(&self.seeds[place]);
        let other = random.pick(&self.seeds).clone();
        match random.below(16) {
            0..=6 => self.change(|name| name.ends_with(".npy"), &other, random),
            7 | 8 => self.change(|name| name == MANIFEST || name == TYPES, &other, random),
            9 | 10 => {
                let database = random.pick(&self.databases).clone();
                self.set_database(database);
                self.change(|name| name.starts_with(METADATA), &other, random);
            }
            11 => {
                // Add, remove or rename a file.
                let (at, from) = (random.below(self.files.len()), random.below(other.len()));
                match random.below(3) {
                    0 => drop(self.files.remove(at)),
                    1 => {
                        let names =
                            ["steps.npy", "steps-00000.npy", "steps-00001.npy", "steps-000001.npy", "steps-7.npy"];
                        self.files[at].0 = (*random.pick(&names)).to_owned();
                    }
                    _ => self.files[at].1.clone_from(&other[from].1),
                }
                self.files.sort();
                self.files.dedup_by(|a, b| a.0 == b.0);
            }
            _ => {
                let database = match random.one_in(2) {
                    true => {
                        self.files.iter().find(|(name, _)| name == METADATA).map(|(_, bytes)| bytes.clone()).unwrap()
                    }
                    false => random.pick(&self.databases).clone(),
                };
                let path = self.temp.path().join("fuzzed.db");
                let mut changed = tables::changed(&database, self.columns, &path, random);
                changed.truncate(MAX_LEN);
                self.set_database(changed);
            }
        }
    }

    fn set_database(&mut self, database: Vec<u8>) {
        if let Some((_, bytes)) = self.files.iter_mut().find(|(name, _)| name == METADATA) {
            *bytes = database;
        }
    }

    /// Changes one file of a kind, if there is one.
    fn change(&mut self, of_kind: impl Fn(&str) -> bool, other: &Files, random: &mut Random) {
        let others = other.iter().filter(|(name, _)| of_kind(name)).map(|(_, bytes)| bytes).collect::<Vec<_>>();
        let chosen: Vec<usize> = (0..self.files.len()).filter(|&at| of_kind(&self.files[at].0)).collect();
        if chosen.is_empty() || others.is_empty() {
            return;
        }
        let (name, bytes) = &mut self.files[chosen[random.below(chosen.len())]];
        let other = *random.pick(&others);
        if name.starts_with(METADATA) {
            havoc(bytes, other, random, database_field);
            if name.ends_with("-wal") && !random.one_in(4) {
                repair_log(bytes);
            }
        } else if name == MANIFEST || name == TYPES {
            havoc_text(bytes, other, &MANIFEST_TOKENS, random);
        } else if random.one_in(3) {
            change_header(bytes, other, random);
        } else {
            let row_fields = self.row_fields;
            havoc(bytes, other, random, |bytes, random| {
                let &(at, width) = random.pick(row_fields);
                let stride = row_fields.iter().map(|(at, width)| at + width).max()?;
                let header = 10 + usize::from(u16::from_le_bytes(*bytes.get(8..)?.first_chunk()?));
                let num_rows = bytes.len().checked_sub(header)? / stride;
                Some((header + stride * random.below(num_rows) + at, width))
            });
        }
        // Half of the manifests get correct checksums.
        if random.one_in(2) {
            repair_manifest(&mut self.files);
        }
    }

    /// Writes the changed files to the folder, and removes those that are gone.
    pub(super) fn write(&mut self) {
        let folder = self.path();
        for (name, _) in &self.written {
            if !self.files.iter().any(|(other, _)| other == name) {
                std::fs::remove_file(folder.join(name)).unwrap();
            }
        }
        for file in &self.files {
            if !self.written.contains(file) {
                std::fs::write(folder.join(&file.0), &file.1).unwrap();
            }
        }
        self.written.clone_from(&self.files);
    }

    pub(super) fn input(&self) -> Vec<(&str, &[u8])> {
        self.files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect()
    }
}

/// Picks a number in an SQLite file: in its header, in a page header, or in a cell.
fn database_field(bytes: &[u8], random: &mut Random) -> Option<Field> {
    let page = usize::from(u16::from_be_bytes(*bytes.get(16..)?.first_chunk()?)).max(512);
    let start = page * random.below(bytes.len() / page);
    Some(match random.below(4) {
        0 => *random.pick(&[(16, 2), (18, 1), (20, 1), (28, 4), (32, 4), (44, 4), (52, 4), (56, 4), (92, 4)]),
        1 => (start + if start == 0 { 100 } else { 0 } + random.below(16), 1),
        // Cells fill a page from its end, and in a cell the values follow the types.
        _ => ((start + page).checked_sub(1 + random.below(page.min(300)))?, 1),
    })
}

/// Changes the text of NumPy's header and updates its length field.
fn change_header(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let Some(len) = bytes.get(8..10).map(|len| usize::from(u16::from_le_bytes([len[0], len[1]]))) else { return };
    let end = (10 + len).min(bytes.len());
    let mut text = bytes[10..end].trim_ascii_end().to_vec();
    havoc_text(&mut text, &other[10..other.len().min(200)], &NPY_TOKENS, random);
    let wide = random.one_in(8);
    let padded = (text.len() + 1).next_multiple_of(64);
    text.resize(padded, b' ');
    let version: &[u8] = if wide { &[2, 0] } else { &[1, 0] };
    let len = (text.len() as u32).to_le_bytes();
    let rows = bytes.split_off(end);
    bytes.truncate(6);
    bytes.extend_from_slice(version);
    bytes.extend_from_slice(if wide { &len } else { &len[..2] });
    bytes.extend(text);
    bytes.extend(rows);
    bytes.truncate(MAX_LEN);
}

/// Updates the checksums in the manifest.
pub(super) fn repair_manifest(files: &mut Files) {
    let sums: Vec<(String, String)> =
        files.iter().map(|(name, bytes)| (name.clone(), format!("{:08x}", crc32c::crc32c(bytes)))).collect();
    let Some((_, text)) = files.iter_mut().find(|(name, _)| name == MANIFEST) else { return };
    let Ok(mut manifest) = serde_json::from_slice::<serde_json::Value>(text) else { return };
    for (name, sum) in sums {
        if let Some(stored) = manifest.get_mut("crc32c").and_then(|sums| sums.get_mut(&name)) {
            *stored = sum.into();
        }
    }
    *text = manifest.to_string().into_bytes();
}

/// Removes a folder and returns its files.
pub(super) fn take(folder: &Path) -> Files {
    let mut files: Files = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read(&path).unwrap())
        })
        .collect();
    files.sort();
    std::fs::remove_dir_all(folder).unwrap();
    files
}

/// Writes decoded runs and reads them again, twice. The first copy must have the same steps. The second must equal
/// the first.
pub(super) fn come_back(
    runs: &[Run],
    write_and_read: impl Fn(&[Run]) -> Result<Vec<Run>, Error>,
) -> Result<(), String> {
    let again = |runs: &[Run]| write_and_read(runs).map_err(|error| format!("runs that do not come back: {error}"));
    let once = again(runs)?;
    let twice = again(&once)?;
    if once.len() != runs.len() || !once.iter().zip(runs).all(|(a, b)| same_steps(a, b)) {
        return Err("runs that come back as others".into());
    }
    if !twice.iter().zip(&once).all(|(a, b)| same(a, b)) {
        return Err("runs that come back as others the second time".into());
    }
    Ok(())
}

pub(super) struct OfDataset(Folder);

/// Writes a dataset.
pub(super) fn dataset(folder: &Path, runs: &[Run], shard_rows: Option<u64>) -> Result<(), Error> {
    let mut writer = DatasetWriter::create(folder, shard_rows)?;
    runs.iter().try_for_each(|run| writer.push(run).map(|_| ()))?;
    writer.finish()
}

impl Target for OfDataset {
    const NAME: &'static str = "dataset";
    const EXECS: u64 = 2_000;

    fn new() -> OfDataset {
        let (temp, games) = (scratch(), seeds::games());
        let folder = temp.path().join("seed");
        let mut seeds = Vec::new();
        for (runs, shard_rows) in
            [(&games[..0], None), (&games[1..4], None), (&games[3..6], None), (&games[1..6], Some(10))]
        {
            dataset(&folder, runs, shard_rows).unwrap();
            seeds.push(take(&folder));
        }
        seeds[2].retain(|(name, _)| name != "manifest.json");
        seeds.push(with_small_pages(&seeds[1], &temp));
        for journal_mode in ["WAL", "DELETE"] {
            seeds.push(with_unfinished(&seeds[4], journal_mode, &temp));
        }
        let columns =
            &["id", "first_step_idx", "num_steps", "max_score", "highest_tile", "engine", "start_time", "elapsed_s"];
        OfDataset(Folder::new(temp, seeds, columns, &[(0, 8), (8, 1), (9, 1), (10, 4), (26, 4), (30, 2)]))
    }

    fn mutate(&mut self, random: &mut Random) {
        self.0.mutate(random);
    }

    fn input(&self) -> Vec<(&str, &[u8])> {
        self.0.input()
    }

    fn execute(&mut self, gauge: &mut Gauge, tally: &mut Tally, random: &mut Random) -> Result<(), String> {
        self.0.write();
        let path = self.0.path();
        let dataset = match gauge.hold(|| Dataset::open(&path)) {
            Ok(dataset) => dataset,
            Err(error) => {
                tally.error(&error);
                return Ok(());
            }
        };
        tally.past_checksums += 1;
        let mut decoded = Vec::new();
        for index in 0..dataset.num_runs() {
            match gauge.call(|| dataset.decode(index)) {
                Ok(run) => {
                    check(&run)?;
                    decoded.push(run);
                }
                Err(error) => {
                    tally.error(&error);
                    if error.location().and_then(|location| location.run) != Some(index as u64) {
                        return Err(format!("an error of no run: {error:?}"));
                    }
                }
            }
        }
        tally.decoded += u64::from(!decoded.is_empty());
        if !random.one_in(64) {
            return Ok(());
        }
        let again = self.0.scratch_path();
        come_back(&decoded, |runs| {
            self::dataset(&again, runs, None)?;
            let dataset = Dataset::open(&again)?;
            let read = (0..dataset.num_runs()).map(|index| dataset.decode(index)).collect();
            take(&again);
            read
        })
    }
}

pub(super) struct OfSession(Folder);

/// Writes a session.
pub(super) fn session(folder: &Path, runs: &[Run], options: SessionOptions) -> Result<(), Error> {
    let entries =
        [("model".to_owned(), serde_json::json!({"tag": "m-1", "sha": "00"})), ("sample_rate".to_owned(), 1.into())];
    let mut writer = SessionWriter::create(folder, &entries, options)?;
    (1..).zip(runs).try_for_each(|(id, run)| writer.push(id, run))?;
    writer.finish()
}

impl Target for OfSession {
    const NAME: &'static str = "session";
    const EXECS: u64 = 2_000;

    fn new() -> OfSession {
        let (temp, games) = (scratch(), seeds::games());
        let options = SessionOptions::default();
        let folder = temp.path().join("seed");
        let mut seeds = Vec::new();
        for (runs, options) in [
            (&games[..0], options),
            (&games[1..4], options),
            (&games[3..6], options.with_action(true)),
            (&games[1..6], options.with_rotate_rows(10)),
        ] {
            session(&folder, runs, options).unwrap();
            seeds.push(take(&folder));
        }
        seeds.push(with_small_pages(&seeds[1], &temp));
        seeds.push(with_small_pages(&seeds[2], &temp));
        for journal_mode in ["WAL", "DELETE"] {
            seeds.push(with_unfinished(&seeds[4], journal_mode, &temp));
        }
        let columns = &["id", "seed", "steps", "max_score", "highest_tile"];
        OfSession(Folder::new(temp, seeds, columns, &[(0, 8), (8, 4), (8, 1), (12, 1), (20, 1), (27, 1)]))
    }

    fn mutate(&mut self, random: &mut Random) {
        self.0.mutate(random);
    }

    fn input(&self) -> Vec<(&str, &[u8])> {
        self.0.input()
    }

    fn execute(&mut self, gauge: &mut Gauge, tally: &mut Tally, random: &mut Random) -> Result<(), String> {
        self.0.write();
        let path = self.0.path();
        let session = match gauge.hold(|| Session::open(&path)) {
            Ok(session) => session,
            Err(error) => {
                tally.error(&error);
                return Ok(());
            }
        };
        tally.past_checksums += 1;
        let without = session.rows_without_run();
        let mut decoded = Vec::new();
        let mut num_steps: u64 = without.iter().map(|(_, len)| len).sum();
        for index in 0..session.num_runs() {
            match gauge.call(|| session.decode(index)) {
                Ok(run) if session.id(index).is_some() => {
                    check(&run)?;
                    num_steps += run.num_steps() as u64;
                    decoded.push(run);
                }
                Ok(_) => return Err("a run without its id".into()),
                Err(error) => {
                    tally.error(&error);
                    if error.location().and_then(|location| location.run) != Some(index as u64) {
                        return Err(format!("an error of no run: {error:?}"));
                    }
                }
            }
        }
        if num_steps > session.num_steps() {
            return Err(format!("{num_steps} steps of {}", session.num_steps()));
        }
        tally.decoded += u64::from(!decoded.is_empty());
        let options = SessionOptions::default().with_action(session.has_actions());
        // A session with actions cannot store unknown moves.
        decoded.retain(|run| !session.has_actions() || run.unknown_moves().is_empty());
        if !random.one_in(64) {
            return Ok(());
        }
        let again = self.0.scratch_path();
        come_back(&decoded, |runs| {
            self::session(&again, runs, options)?;
            let session = Session::open(&again)?;
            let read = (0..session.num_runs()).map(|index| session.decode(index)).collect();
            take(&again);
            read
        })
    }
}
