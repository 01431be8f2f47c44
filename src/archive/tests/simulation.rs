//! Histories of an archive: several writers, readers, annotations, compactions, expiries and tags, one call at a time in
//! an order that a seed decides, with failures, crashes, power failures, and delays of days.

use super::storage::{Mistake, SimulatedStorage};
use super::world::{DAY, Digest, Shared};
use crate::archive::maintenance::restore;
use crate::archive::manifest::Manifest;
use crate::archive::manifest::tags::TAGS_FOLDER;
use crate::archive::manifest::versions::{VERSIONS_FOLDER, Versions, manifest_path, version_of};
use crate::archive::storage::Storage;
use crate::archive::{AnnotateOptions, AnnotationInput, Archive, CompactOptions, ExpireOptions, IngestOptions, Phases};
use crate::error::{Error, ErrorKind, Result};
use crate::format::tests::samples::game;
use crate::format::{RunFormat, encode_run};
use crate::system::cancellation::CancellationToken;
use crate::system::random;
use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// The number of seeds of `make test`, unless `A2STORE_SEEDS` is set.
const NUM_SEEDS: u64 = 500;
const NUM_ACTORS: usize = 5;

/// The run files that writers choose from, with their digests.
struct RunFiles {
    _folder: TempDir,
    files: Vec<(PathBuf, Digest)>,
}

impl RunFiles {
    fn new() -> RunFiles {
        let folder = tempfile::tempdir().unwrap();
        let file = |seed: u64| {
            let path = folder.path().join(format!("run-{seed}.a2run2"));
            let bytes = encode_run(&game(seed, 3), RunFormat::A2run2).unwrap();
            std::fs::write(&path, &bytes).unwrap();
            (path, *blake3::hash(&bytes).as_bytes())
        };
        let files = (0..40).map(file).collect();
        RunFiles { _folder: folder, files }
    }
}

/// An actor: a process that works on the archive, and that begins again after each crash.
struct Actor<'a> {
    number: usize,
    files: &'a [(PathBuf, Digest)],
    shared: Arc<Shared>,
    is_remote: bool,
    mistake: Option<Mistake>,
    random: Xoshiro256PlusPlus,
}

impl Actor<'_> {
    fn draw(&mut self, below: u64) -> u64 {
        self.random.next_u64() % below
    }

    fn open(&self) -> Result<Archive> {
        let storage = SimulatedStorage::new(self.number, &self.shared, self.is_remote, self.mistake);
        let storage = Storage::of(storage);
        let manifest = Versions::new(&storage).newest()?;
        Ok(Archive::new(storage, manifest))
    }

    /// Does tasks, and more of them if the newest versions are damaged meanwhile.
    fn work(&mut self, num_tasks: usize) {
        random::set_seed(self.random.next_u64());
        drop(self.shared.turn(self.number));
        let (mut archive, mut num_done) = (None, 0);
        while num_done < num_tasks {
            let was_damaged = self.shared.world().is_damaged;
            num_done += 1;
            let begun = match archive.take() {
                Some(archive) if self.draw(2) == 0 => Ok(archive),
                _ => self.open(),
            };
            let outcome = begun.and_then(|mut opened| {
                self.task(&mut opened)?;
                archive = Some(opened);
                Ok(())
            });
            let mut world = self.shared.world();
            if world.is_crashed(self.number) {
                world.restart(self.number);
                continue;
            }
            match outcome.map_err(Error::into_kind) {
                Ok(()) => {}
                Err(ErrorKind::Io { .. } | ErrorKind::Conflict { .. } | ErrorKind::Unconfirmed { .. }) => {}
                Err(ErrorKind::VersionNotFound { .. } | ErrorKind::Argument { .. }) => {}
                Err(ErrorKind::Damaged { .. }) if was_damaged => num_done -= usize::from(world.violation.is_none()),
                Err(kind) => {
                    let error = Error::from(kind);
                    world.record(self.number, &format!("ended: {error}"));
                    world.violation.get_or_insert(format!("actor {} ended: {error}", self.number));
                }
            }
        }
    }

    /// Does one task of any kind.
    fn task(&mut self, archive: &mut Archive) -> Result<()> {
        let cancel = CancellationToken::never();
        let kind = self.draw(12);
        self.shared.world().record(self.number, &format!("begins task {kind}"));
        match kind {
            0 => {
                archive.compact(&CompactOptions::default().with_workers(1), &(), cancel)?;
            }
            1 | 2 => {
                let older_than = [Duration::ZERO, Duration::from_secs(3600), DAY][self.draw(3) as usize];
                let grace = [DAY / 4, DAY, 3 * DAY][self.draw(3) as usize];
                let options = ExpireOptions::default().with_older_than(older_than).with_grace(grace);
                archive.expire(&options, cancel)?;
            }
            3 => {
                let name = format!("tag-{}", self.draw(4));
                let version = archive.version();
                archive.tag(&name, Some(version))?;
                let mut world = self.shared.world();
                // Another actor may have removed the tag meanwhile, and given the name to another version.
                let expected = format!("{{\"version\":{version}}}");
                let found = world.files.get(&format!("{TAGS_FOLDER}/{name}.json"));
                if found.is_some_and(|stored| stored.bytes == expected) {
                    world.tags.insert(name, version);
                }
            }
            4 => {
                let name = format!("tag-{}", self.draw(4));
                self.shared.world().tags.remove(&name);
                let removed = archive.untag(&name);
                // Another actor may have got an answer about the tag meanwhile.
                self.shared.world().tags.remove(&name);
                removed?;
            }
            5 => self.read(archive)?,
            6 | 7 => self.annotate(archive)?,
            _ => {
                let files = self.files;
                let chosen: Vec<usize> =
                    (0..1 + self.draw(4)).map(|_| self.draw(files.len() as u64) as usize).collect();
                let options = IngestOptions::default().with_workers(1);
                archive.ingest(chosen.iter().map(|&index| &files[index].0), &options, &(), cancel)?;
                let mut world = self.shared.world();
                world.acknowledged.extend(chosen.iter().map(|&index| files[index].1));
                world.check();
            }
        }
        Ok(())
    }

    /// Annotates some runs of the newest version, or drops a model. Each actor has a model of its own, and all share one.
    fn annotate(&mut self, archive: &mut Archive) -> Result<()> {
        let cancel = CancellationToken::never();
        let is_own = self.draw(2) == 0;
        let was_damaged = self.shared.world().is_damaged;
        let model = if is_own { format!("model-{}", self.number) } else { "shared".to_owned() };
        let chosen = self.random.next_u64();
        let mut world = self.shared.world();
        let before = world.annotated.remove(&model);
        let runs: Vec<(u32, u32)> = world.newest_runs.iter().map(|(&run_id, &num_steps)| (run_id, num_steps)).collect();
        drop(world);
        let runs: Vec<(u32, u32)> = runs.into_iter().filter(|(run_id, _)| chosen >> (run_id % 64) & 1 == 1).collect();
        let annotated = if self.draw(5) == 0 {
            archive.drop_annotations(&model, cancel)?;
            Some(BTreeSet::new())
        } else {
            let keys = runs.iter().flat_map(|&(run_id, num_steps)| (0..num_steps).map(move |step| (run_id, step)));
            let (run_ids, steps): (Vec<u32>, Vec<u32>) = keys.unzip();
            let columns: [(&str, ArrayRef); 2] =
                [("run_id", Arc::new(UInt32Array::from(run_ids))), ("step_index", Arc::new(UInt32Array::from(steps)))];
            let rows = RecordBatch::try_from_iter(columns).map_err(Error::other)?;
            let options = AnnotateOptions::default().with_replace(self.draw(2) == 0);
            archive.annotate(&model, AnnotationInput::Rows(&rows), &options, &(), cancel)?;
            let before = if options.replace { Some(BTreeSet::new()) } else { before };
            before.map(|before| before.into_iter().chain(runs.iter().map(|&(run_id, _)| run_id)).collect())
        };
        let mut world = self.shared.world();
        // A `restore` that goes on may adopt older annotations.
        if let Some(annotated) = annotated.filter(|_| is_own && !was_damaged) {
            world.annotated.insert(model, annotated);
        }
        world.check();
        Ok(())
    }

    /// Reads the files of a version that may be old. Only those of an expired version may be missing.
    fn read(&mut self, archive: &mut Archive) -> Result<()> {
        archive.refresh()?;
        let (first, last) = (archive.manifest.first_version, archive.version());
        let versions = Versions::new(&archive.storage);
        // There are gaps, and all may have expired.
        let known: Vec<u64> = versions.list()?.into_iter().filter(|version| (first..=last).contains(version)).collect();
        let chosen = self.draw(known.len().max(1) as u64) as usize;
        let Some(&version) = known.get(chosen) else { return Ok(()) };
        let found = versions.open(Some(version))?;
        for file in &found.files {
            let bytes = archive.storage.read(&file.path)?;
            let mut world = self.shared.world();
            if bytes.is_none_or(|bytes| bytes.len() as u64 != file.num_bytes) && !world.has_expired(version) {
                world.violation.get_or_insert(format!("a reader of version {version} found no file {}", file.path));
            }
        }
        Ok(())
    }
}

/// Runs one history. Returns its lines if something did not hold.
fn simulate(seed: u64, mistake: Option<Mistake>, files: &RunFiles) -> Result<(), String> {
    let is_remote = seed.is_multiple_of(2);
    let shared = Arc::new(Shared::new(seed, NUM_ACTORS));
    let actor = |number: usize| Actor {
        number,
        files: &files.files,
        shared: Arc::clone(&shared),
        is_remote,
        mistake,
        random: Xoshiro256PlusPlus::seed_from_u64(seed ^ (number as u64 + 1) << 32),
    };
    random::set_seed(seed);
    let mut first = Manifest::first(Phases::default());
    first.time = crate::system::clock::text(shared.now());
    shared.world().put(&manifest_path(1), first.seal().unwrap().into());
    shared.world().unsynced.clear();
    std::thread::scope(|scope| {
        for number in 0..NUM_ACTORS {
            let (mut actor, shared) = (actor(number), &shared);
            scope.spawn(move || {
                actor.work(5);
                shared.end(number);
            });
        }
    });
    restore(&shared, actor);
    let world = shared.world();
    match &world.violation {
        None => Ok(()),
        Some(violation) => Err(format!("seed {seed}: {violation}\n{}", world.history.join("\n"))),
    }
}

/// Damages the newest versions, and restores the archive, with crashes in between. In a folder, other actors begin new tasks
/// meanwhile.
fn restore<'a>(shared: &Arc<Shared>, new_actor: impl Fn(usize) -> Actor<'a>) {
    let mut actor = new_actor(0);
    let num_actors = if actor.is_remote { 1 } else { NUM_ACTORS };
    let mut world = shared.world();
    world.begin(0..num_actors);
    let mut versions: Vec<String> = world.in_folder(VERSIONS_FOLDER).map(|(name, _)| name.to_owned()).collect();
    versions.truncate(1 + actor.draw(2) as usize);
    if world.violation.is_some() || world.in_folder(VERSIONS_FOLDER).count() <= versions.len() {
        return;
    }
    world.is_damaged = true;
    // A restored version has the annotations that were found, which may be older or were never acknowledged.
    world.annotated.clear();
    for name in versions {
        world.tags.retain(|_, version| version_of(&name) != Some(*version));
        let path = format!("{VERSIONS_FOLDER}/{name}");
        world.put(&path, "torn".into());
        // The damage came after the manifest was durable.
        world.unsynced.remove(&path);
    }
    for number in 0..num_actors {
        world.restart(number);
    }
    drop(world);
    std::thread::scope(|scope| {
        for number in 1..num_actors {
            let random = Xoshiro256PlusPlus::seed_from_u64(actor.random.next_u64());
            let mut actor = Actor { random, ..new_actor(number) };
            scope.spawn(move || {
                actor.work(2);
                shared.end(number);
            });
        }
        restore_until_done(shared, &actor);
        shared.end(0);
    });
    let mut world = shared.world();
    if !actor.is_remote {
        // The restore has returned, so it must be durable.
        world.power_fails();
    }
    world.check();
}

fn restore_until_done(shared: &Arc<Shared>, actor: &Actor<'_>) {
    let storage = Storage::of(SimulatedStorage::new(0, shared, actor.is_remote, actor.mistake));
    for attempt in 0.. {
        shared.world().restart(0);
        shared.world().has_faults = attempt < 20;
        match restore::restore(&storage, None, false, CancellationToken::never()) {
            Ok(_) => return shared.world().damage_is_repaired(),
            // Another actor may have the lock for too long.
            Err(error) if attempt < 100 && !matches!(error.kind(), ErrorKind::Damaged { .. }) => {}
            Err(error) => {
                shared.world().violation.get_or_insert(format!("restore: {error}"));
                return;
            }
        }
    }
}

/// Runs many histories, on all cores. Returns the first one that fails.
fn run(seeds: impl Iterator<Item = u64> + Send, mistake: Option<Mistake>) -> Option<String> {
    let files = RunFiles::new();
    let seeds = std::sync::Mutex::new(seeds);
    let failed = std::sync::Mutex::new(BTreeMap::new());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let Some(seed) = seeds.lock().unwrap().next().filter(|_| failed.lock().unwrap().is_empty()) else {
                        break;
                    };
                    if let Err(history) = simulate(seed, mistake, &files) {
                        failed.lock().unwrap().insert(seed, history);
                    }
                }
            });
        }
    });
    failed.into_inner().unwrap().into_values().next()
}

#[test]
fn nothing_is_lost_in_any_history() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let first = number("A2STORE_SEED").unwrap_or(0);
    let count = number("A2STORE_SEEDS").unwrap_or(NUM_SEEDS);
    if let Some(history) = run(first..first + count, None) {
        panic!("{history}\nrepeat it with A2STORE_SEED=<seed> A2STORE_SEEDS=1");
    }
}

#[test]
fn mistakes_are_found() {
    for mistake in [
        Mistake::VersionsReplaced,
        Mistake::NoSecondList,
        Mistake::IdsReused,
        Mistake::TagsIgnored,
        Mistake::NoGrace,
        Mistake::NoCutoff,
        Mistake::NotSynced,
    ] {
        assert!(run(0..2000, Some(mistake)).is_some(), "{mistake:?} was not found");
    }
}

#[test]
fn a_tagged_version_survives_a_power_failure() {
    let shared = Arc::new(Shared::new(1, 1));
    let mut first = Manifest::first(Phases::default());
    first.time = crate::system::clock::text(shared.now());
    let mut world = shared.world();
    world.begin(0..1);
    world.has_faults = false;
    // The writer is interrupted before the version is durable.
    world.put(&manifest_path(1), first.seal().unwrap().into());
    drop(world);
    let storage = Storage::of(SimulatedStorage::new(0, &shared, false, None));
    let manifest = Versions::new(&storage).newest().unwrap();
    Archive::new(storage, manifest).tag("kept", None).unwrap();
    let mut world = shared.world();
    world.power_fails();
    assert!(world.files.contains_key(&manifest_path(1)));
}

#[test]
fn the_copy_of_a_run_that_was_in_a_version_is_adopted() {
    adopts_the_committed_copy(true);
    adopts_the_committed_copy(false);
}

/// Writers ingest the same run. One is interrupted before it commits, and leaves its copy under a higher id if the committed
/// copy is annotated, or else under a lower id.
fn adopts_the_committed_copy(is_annotated: bool) {
    let (files, folder, cancel) = (RunFiles::new(), tempfile::tempdir().unwrap(), CancellationToken::never());
    let open_copy = |name: &str| {
        let path = folder.path().join(name);
        (Archive::open(&path).or_else(|_| Archive::create(&path, Phases::default())).unwrap(), path)
    };
    let ingest = |archive: &mut Archive, range: std::ops::Range<usize>| {
        let paths = files.files[range].iter().map(|(path, _)| path);
        archive.ingest(paths, &IngestOptions::default().with_workers(1), &(), cancel).unwrap();
    };
    let copy = |from: &str, to: &str, folders: &[&str], prefix: &str| {
        for entry in folders.iter().flat_map(|name| std::fs::read_dir(folder.path().join(from).join(name)).unwrap()) {
            let path = entry.unwrap().path();
            if !path.file_name().unwrap().to_str().unwrap().starts_with(prefix) {
                continue;
            }
            let target = folder.path().join(to).join(path.strip_prefix(folder.path().join(from)).unwrap());
            std::fs::create_dir_all(target.parent().unwrap()).unwrap();
            std::fs::copy(&path, target).unwrap();
        }
    };
    let (mut archive, _) = open_copy("games.a2");
    ingest(&mut archive, 0..2);
    copy("games.a2", "interrupted.a2", &[VERSIONS_FOLDER, "runs", "steps"], "");
    let (mut interrupted, _) = open_copy("interrupted.a2");
    let (committed_id, interrupted_id) = if is_annotated { (2, 4) } else { (3, 2) };
    if is_annotated {
        ingest(&mut archive, 2..4);
        ingest(&mut interrupted, 4..6);
    }
    ingest(&mut interrupted, 2..3);
    copy("interrupted.a2", "games.a2", &["runs", "steps"], &format!("{interrupted_id:010}-"));
    if !is_annotated {
        ingest(&mut archive, 2..4);
    }
    let columns: [(&str, ArrayRef); 2] = [
        ("run_id", Arc::new(UInt32Array::from(vec![committed_id; 3]))),
        ("step_index", Arc::new(UInt32Array::from(vec![0, 1, 2]))),
    ];
    let rows = RecordBatch::try_from_iter(columns).unwrap();
    let first_lost = archive.version();
    if is_annotated {
        archive.annotate("model", AnnotationInput::Rows(&rows), &AnnotateOptions::default(), &(), cancel).unwrap();
    }
    let (_, path) = open_copy("games.a2");
    for version in first_lost..=archive.version() {
        std::fs::write(path.join(manifest_path(version)), "torn").unwrap();
    }
    restore::restore(&archive.storage, None, false, cancel).unwrap();
    let restored = Archive::open(&path).unwrap();
    let ranges = restored.manifest.files.iter().map(|file| (file.table.name(), file.first_run_id, file.last_run_id));
    let ranges: BTreeSet<_> = ranges.collect();
    let (first, last) = (committed_id, committed_id + 1);
    let expected =
        [("annotations", first, first), ("runs", 0, 1), ("runs", first, last), ("steps", 0, 1), ("steps", first, last)];
    assert_eq!(ranges, expected.into_iter().filter(|(table, ..)| is_annotated || *table != "annotations").collect());
}

#[test]
fn ids_of_dropped_versions_are_not_given_again() {
    let (files, folder, cancel) = (RunFiles::new(), tempfile::tempdir().unwrap(), CancellationToken::never());
    let path = folder.path().join("games.a2");
    let ingest = |range: std::ops::Range<usize>| {
        let mut archive = Archive::open(&path).unwrap();
        let paths = files.files[range].iter().map(|(path, _)| path);
        archive.ingest(paths, &IngestOptions::default().with_workers(1), &(), cancel).unwrap();
    };
    Archive::create(&path, Phases::default()).unwrap().tag("kept", None).unwrap();
    ingest(0..2);
    restore::restore(&Archive::open(&path).unwrap().storage, Some(1), false, cancel).unwrap();
    let mut archive = Archive::open(&path).unwrap();
    let options = ExpireOptions::default().with_older_than(Duration::ZERO).with_grace(Duration::ZERO);
    archive.expire(&options, cancel).unwrap();
    // Only these manifests say that the ids 0 and 1 were given.
    for version in 3..=archive.version() {
        std::fs::write(path.join(manifest_path(version)), "torn").unwrap();
    }
    let report = restore::restore(&archive.storage, None, false, cancel).unwrap();
    assert_eq!((report.version, report.adopted_runs), (1, 0));
    ingest(0..1);
    assert_eq!(Archive::open(&path).unwrap().manifest.files[0].first_run_id, 2);
}

#[test]
fn a_seed_gives_the_same_history_again() {
    let files = RunFiles::new();
    let history = |seed| simulate(seed, Some(Mistake::VersionsReplaced), &files).err();
    for seed in 0..20 {
        assert_eq!(history(seed), history(seed));
    }
}
