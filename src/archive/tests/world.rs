//! The files of a simulated storage, the turns of its actors, and what must hold after each call.

use crate::archive::maintenance::sound_file::{SoundFile, parse_sound};
use crate::archive::manifest::Manifest;
use crate::archive::manifest::versions::{VERSIONS_FOLDER, version_of};
use crate::archive::table_name::TableName;
use bytes::Bytes;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

pub(super) const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The digest of a run.
pub(super) type Digest = [u8; 32];

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// It fails without effect.
    Fails,
    /// It has its effect, but the caller gets an error.
    AnswerLost,
    /// The actor crashes before or after the effect.
    CrashBefore,
    CrashAfter,
    /// All actors of a folder crash. Files whose folder was not synced vanish, and removed files may come back.
    PowerFails,
}

/// A file.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) bytes: Bytes,
    pub(super) modified: SystemTime,
}

pub(super) struct World {
    pub(super) files: BTreeMap<String, Stored>,
    /// The files of a folder that a power failure would remove.
    pub(super) unsynced: BTreeSet<String>,
    /// The files that were removed from a folder, and that a power failure may bring back.
    removed: BTreeMap<String, Stored>,
    pub(super) now: SystemTime,
    /// The names that the actors put last.
    pub(super) last_put: Vec<Option<String>>,
    /// The runs that an actor was told to be in the archive.
    pub(super) acknowledged: BTreeSet<Digest>,
    /// The tags that an actor was told to be there.
    pub(super) tags: BTreeMap<String, u64>,
    /// The runs that a model has annotations of, as an actor was told.
    pub(super) annotated: BTreeMap<String, BTreeSet<u32>>,
    /// The runs of the newest version, each with the number of its steps.
    pub(super) newest_runs: BTreeMap<u32, u32>,
    pub(super) history: Vec<String>,
    /// What did not hold.
    pub(super) violation: Option<String>,
    /// Whether calls fail at random.
    pub(super) has_faults: bool,
    random: Xoshiro256PlusPlus,
    crashed: Vec<bool>,
    lock_holder: Option<usize>,
    /// Whether the newest versions may be damaged.
    pub(super) is_damaged: bool,
    /// The newest version so far.
    newest: u64,
    /// The runs of all versions so far, by their ids.
    runs: HashMap<u32, Digest>,
    parsed: HashMap<String, Arc<SoundFile>>,
    manifests: HashMap<String, Arc<Manifest>>,
    turns: Turns,
}

/// The actors that wait for their turn, each with the time from which on it may have it, and what happens then. Both are
/// `None` until all actors wait: the order in which they come must not matter.
#[derive(Debug, Default)]
struct Turns {
    waiting: BTreeMap<usize, Option<(SystemTime, Fault)>>,
    /// The actors that have not ended.
    running: BTreeSet<usize>,
    current: Option<usize>,
}

/// A world that the threads of the actors share.
pub(super) struct Shared {
    world: Mutex<World>,
    /// Each actor waits for its own turn.
    turns: Vec<Condvar>,
}

impl Shared {
    pub(super) fn new(seed: u64, num_actors: usize) -> Shared {
        let world = World {
            files: BTreeMap::new(),
            unsynced: BTreeSet::new(),
            removed: BTreeMap::new(),
            now: SystemTime::UNIX_EPOCH + 20_000 * DAY,
            last_put: vec![None; num_actors],
            acknowledged: BTreeSet::new(),
            tags: BTreeMap::new(),
            annotated: BTreeMap::new(),
            newest_runs: BTreeMap::new(),
            history: Vec::new(),
            violation: None,
            has_faults: true,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            crashed: vec![false; num_actors],
            lock_holder: None,
            is_damaged: false,
            newest: 0,
            runs: HashMap::new(),
            parsed: HashMap::new(),
            manifests: HashMap::new(),
            turns: Turns { running: (0..num_actors).collect(), ..Turns::default() },
        };
        Shared { world: Mutex::new(world), turns: (0..num_actors).map(|_| Condvar::new()).collect() }
    }

    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    pub(super) fn now(&self) -> SystemTime {
        self.world().now
    }

    /// Waits until the actor may make its next call. All other actors wait meanwhile.
    pub(super) fn turn(&self, actor: usize) -> (MutexGuard<'_, World>, Fault) {
        let mut world = self.world();
        world.turns.waiting.insert(actor, None);
        if world.turns.current == Some(actor) {
            world.turns.current = None;
        }
        self.begin_next(&mut world);
        let mut world = self.turns[actor].wait_while(world, |world| world.turns.current != Some(actor)).unwrap();
        let (_, fault) = world.turns.waiting.remove(&actor).flatten().unwrap();
        (world, fault)
    }

    /// Ends an actor.
    pub(super) fn end(&self, actor: usize) {
        let mut world = self.world();
        world.turns.running.remove(&actor);
        if world.turns.current == Some(actor) {
            world.turns.current = None;
        }
        self.begin_next(&mut world);
    }

    fn begin_next(&self, world: &mut World) {
        world.choose_next();
        if let Some(actor) = world.turns.current {
            self.turns[actor].notify_one();
        }
    }

    pub(super) fn unlock(&self, actor: usize) {
        let mut world = self.world();
        if world.lock_holder == Some(actor) {
            world.lock_holder = None;
        }
    }
}

impl World {
    /// Returns a random number below `below`.
    pub(super) fn draw(&mut self, below: u64) -> u64 {
        self.random.next_u64() % below
    }

    /// Chooses the actor with the next turn, once all that run wait.
    fn choose_next(&mut self) {
        let is_ready = self.turns.running.iter().all(|actor| self.turns.waiting.contains_key(actor));
        if self.turns.current.is_some() || !is_ready || self.turns.running.is_empty() {
            return;
        }
        let pause = Duration::from_millis(1 + self.draw(500));
        self.now += pause;
        let undecided: Vec<usize> =
            self.turns.waiting.iter().filter(|(_, turn)| turn.is_none()).map(|(&actor, _)| actor).collect();
        for actor in undecided {
            let (fault, delay) = self.next_fault(actor);
            self.turns.waiting.insert(actor, Some((self.now + delay, fault)));
        }
        let times: BTreeMap<usize, SystemTime> =
            self.turns.waiting.iter().filter_map(|(&actor, turn)| Some((actor, turn.as_ref()?.0))).collect();
        let earliest = times.values().min().copied().unwrap_or(self.now);
        self.now = self.now.max(earliest);
        let ready: Vec<usize> = times
            .into_iter()
            .filter(|(_, from)| *from <= self.now || !self.has_faults)
            .map(|(actor, _)| actor)
            .collect();
        let chosen = self.draw(ready.len() as u64) as usize;
        self.turns.current = Some(ready[chosen]);
    }

    /// Returns what happens to the next call of an actor, and how late it comes.
    fn next_fault(&mut self, actor: usize) -> (Fault, Duration) {
        if !self.has_faults || self.crashed[actor] {
            return (Fault::None, Duration::ZERO);
        }
        let delay = match self.draw(60) {
            0 => DAY * self.draw(5) as u32,
            1..6 => Duration::from_secs(self.draw(3600)),
            _ => Duration::ZERO,
        };
        let fault = match self.draw(150) {
            0 | 1 => Fault::Fails,
            2 | 3 => Fault::AnswerLost,
            4 => Fault::CrashBefore,
            5 => Fault::CrashAfter,
            6 => Fault::PowerFails,
            _ => Fault::None,
        };
        (fault, delay)
    }

    pub(super) fn crash(&mut self, actor: usize) {
        self.crashed[actor] = true;
    }

    pub(super) fn is_crashed(&self, actor: usize) -> bool {
        self.crashed[actor]
    }

    pub(super) fn power_fails(&mut self) {
        self.crashed.fill(true);
        self.lock_holder = None;
        self.newest = 0;
        for path in std::mem::take(&mut self.unsynced) {
            self.files.remove(&path);
        }
        for (path, stored) in std::mem::take(&mut self.removed) {
            if self.draw(2) == 0 {
                self.files.entry(path).or_insert(stored);
            }
        }
    }

    pub(super) fn remove(&mut self, path: &str) {
        // A file that was never durable does not come back.
        if let Some(stored) = self.files.remove(path)
            && !self.unsynced.remove(path)
        {
            self.removed.insert(path.to_owned(), stored);
        }
    }

    /// Makes the name of a new file durable, and what was removed from its folder. Other new names stay at risk, so that
    /// [`Mistake::NotSynced`](super::storage::Mistake) is found.
    pub(super) fn make_durable(&mut self, path: &str) {
        self.unsynced.remove(path);
        self.removed.retain(|removed, _| folder_of(removed) != folder_of(path));
    }

    /// Makes all names in a folder durable.
    pub(super) fn sync(&mut self, folder: &str) {
        self.unsynced.retain(|path| folder_of(path) != folder);
        self.removed.retain(|path, _| folder_of(path) != folder);
    }

    /// Lets an actor begin again after a crash.
    pub(super) fn restart(&mut self, actor: usize) {
        self.crashed[actor] = false;
    }

    pub(super) fn lock(&mut self, actor: usize) -> bool {
        let is_free = self.lock_holder.is_none();
        if is_free {
            self.lock_holder = Some(actor);
        }
        is_free
    }

    pub(super) fn put(&mut self, path: &str, bytes: Bytes) {
        self.manifests.remove(path);
        self.parsed.remove(path);
        self.files.insert(path.to_owned(), Stored { bytes, modified: self.now });
        self.unsynced.insert(path.to_owned());
    }

    /// Returns whether a version may have no files: it is not tagged, and a later version has dropped it, or may have
    /// dropped it, because the newest versions are damaged.
    pub(super) fn has_expired(&self, version: u64) -> bool {
        if self.is_damaged {
            return true;
        }
        let newest = self.in_folder(VERSIONS_FOLDER).next().map(|(name, _)| format!("{VERSIONS_FOLDER}/{name}"));
        let first_version = newest.and_then(|path| self.manifests.get(&path)).map(|newest| newest.first_version);
        !self.tags.values().any(|&tagged| tagged == version) && first_version.is_some_and(|first| version < first)
    }

    pub(super) fn in_folder(&self, folder: &str) -> impl Iterator<Item = (&str, &Stored)> {
        let prefix = format!("{folder}/");
        let first = prefix.clone();
        let len = prefix.len();
        self.files
            .range(first..)
            .take_while(move |(path, _)| path.starts_with(&prefix))
            .map(move |(path, stored)| (&path[len..], stored))
    }

    pub(super) fn record(&mut self, actor: usize, event: &str) {
        let time = self.now.duration_since(SystemTime::UNIX_EPOCH + 20_000 * DAY).unwrap_or_default();
        self.history.push(format!("{:>9.1} s  actor {actor}  {event}", time.as_secs_f64()));
    }

    /// Lets only some actors run from now on.
    pub(super) fn begin(&mut self, actors: Range<usize>) {
        self.turns = Turns { running: actors.collect(), ..Turns::default() };
        self.lock_holder = None;
    }

    pub(super) fn damage_is_repaired(&mut self) {
        self.is_damaged = false;
        self.newest = 0;
    }

    /// Checks what must always hold.
    pub(super) fn check(&mut self) {
        if self.violation.is_none() && !self.is_damaged {
            self.violation = self.find_violation().err();
        }
    }

    fn find_violation(&mut self) -> Result<(), String> {
        let paths: Vec<String> = self.in_folder(VERSIONS_FOLDER).map(|(name, _)| name.to_owned()).collect();
        let mut manifests: BTreeMap<u64, Arc<Manifest>> = BTreeMap::new();
        let tagged: BTreeSet<u64> = self.tags.values().copied().collect();
        for name in paths {
            let Some(version) = version_of(&name) else { continue };
            let path = format!("{VERSIONS_FOLDER}/{name}");
            let parsed = match self.manifests.get(&path) {
                Some(parsed) => Arc::clone(parsed),
                None => {
                    let bytes = &self.files[&path].bytes;
                    let parsed = match Manifest::from_bytes(bytes, version, path.as_ref()) {
                        Ok(parsed) => Arc::new(parsed),
                        Err(error) => {
                            // The newest version comes first.
                            let newest = manifests.last_key_value();
                            if newest.is_some_and(|(_, newest)| version < newest.first_version)
                                && !tagged.contains(&version)
                            {
                                continue;
                            }
                            return Err(error.to_string());
                        }
                    };
                    Arc::clone(self.manifests.entry(path).or_insert(parsed))
                }
            };
            manifests.insert(version, parsed);
        }
        let Some((&last, newest)) = manifests.last_key_value() else { return Ok(()) };
        if last < self.newest {
            return Err(format!("the newest version is {last}, and was {}", self.newest));
        }
        self.newest = last;
        let newest = Arc::clone(newest);
        for version in &tagged {
            if !manifests.contains_key(version) {
                return Err(format!("version {version} is tagged and has no manifest"));
            }
        }
        for (version, manifest) in &manifests {
            if *version < newest.first_version && !tagged.contains(version) {
                continue;
            }
            for file in &manifest.files {
                match self.files.get(&file.path) {
                    Some(stored) if stored.bytes.len() as u64 == file.num_bytes => {}
                    _ => return Err(format!("version {version} has no file {}", file.path)),
                }
            }
            if *version == last {
                self.check_rows(manifest)?;
            }
        }
        Ok(())
    }

    /// Checks the runs, steps and annotations of the newest version.
    fn check_rows(&mut self, manifest: &Manifest) -> Result<(), String> {
        let (mut runs, mut digests, mut steps) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        let mut models: BTreeMap<String, BTreeMap<u32, u32>> = BTreeMap::new();
        for file in &manifest.files {
            let parsed = match self.parsed.get(&file.path) {
                Some(parsed) => Arc::clone(parsed),
                None => {
                    let parsed = parse_sound(file.table, &file.path, &self.files[&file.path].bytes);
                    let parsed = Arc::new(parsed.ok_or(format!("{} is damaged", file.path))?);
                    Arc::clone(self.parsed.entry(file.path.clone()).or_insert(parsed))
                }
            };
            if file.table != TableName::Runs {
                let rows = match &file.model {
                    Some(model) => models.entry(model.clone()).or_default(),
                    None => &mut steps,
                };
                for (&run_id, &count) in &parsed.num_steps {
                    if rows.insert(run_id, count).is_some() {
                        return Err(format!("the {} of run {run_id} are there twice", file.table.name()));
                    }
                }
                continue;
            }
            for ((&run_id, &count), &digest) in parsed.num_steps.iter().zip(&parsed.digests) {
                if runs.insert(run_id, count).is_some() || *self.runs.entry(run_id).or_insert(digest) != digest {
                    return Err(format!("the id {run_id} is given twice"));
                }
                if !digests.insert(digest) {
                    return Err(format!("a run is there twice, the second time with id {run_id}"));
                }
            }
        }
        if runs != steps {
            return Err("the runs have not their steps".into());
        }
        for (model, rows) in &models {
            if let Some((run_id, _)) = rows.iter().find(|(run_id, count)| runs.get(run_id) != Some(count)) {
                return Err(format!("the annotations of {model} are not those of run {run_id}"));
            }
        }
        for (model, annotated) in &self.annotated {
            let found: BTreeSet<u32> = models.remove(model).unwrap_or_default().into_keys().collect();
            if *annotated != found {
                return Err(format!("{model} has annotations of runs {found:?} instead of {annotated:?}"));
            }
        }
        self.newest_runs = runs;
        match self.acknowledged.difference(&digests).count() {
            0 => Ok(()),
            lost => Err(format!("{lost} acknowledged runs are lost")),
        }
    }
}

fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}
