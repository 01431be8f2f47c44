//! A storage in memory. Each call waits for its turn, and may fail, come late, or crash its actor.

use super::world::{Fault, Shared, Stored, World};
use crate::archive::ingest::run_ids::IDS_FOLDER;
use crate::archive::manifest::Manifest;
use crate::archive::manifest::tags::TAGS_FOLDER;
use crate::archive::manifest::versions::VERSIONS_FOLDER;
use crate::archive::storage::{Backend, Guard, ListedFile};
use crate::error::{Error, ErrorKind, Result};
use crate::system::cancellation::CancellationToken;
use crate::system::publish::{Published, Staged};
use bytes::Bytes;
use object_store::ObjectStore;
use std::fmt::{self, Debug, Formatter};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

/// A mistake of a storage. With it, the archive behaves as if its code had the mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    /// A version replaces another of its number.
    VersionsReplaced,
    /// No second list after a version is put.
    NoSecondList,
    /// Two writers get the same run ids.
    IdsReused,
    /// Expiry does not see tags.
    TagsIgnored,
    /// Expiry removes files that a writer is about to list.
    NoGrace,
    /// A writer lists its files although an expiry may have removed them.
    NoCutoff,
    /// A writer builds on a version that a power failure may remove.
    NotSynced,
}

/// The storage as one actor sees it.
pub(super) struct SimulatedStorage {
    pub(super) actor: usize,
    pub(super) shared: Arc<Shared>,
    pub(super) is_remote: bool,
    pub(super) mistake: Option<Mistake>,
    /// Whether the last call put a version or a reservation.
    has_put: AtomicBool,
    /// Whether a tag was put since the tags were listed.
    has_put_tag: AtomicBool,
}

impl Debug for SimulatedStorage {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedStorage").field("actor", &self.actor).finish_non_exhaustive()
    }
}

impl SimulatedStorage {
    pub(super) fn new(actor: usize, shared: &Arc<Shared>, is_remote: bool, mistake: Option<Mistake>) -> Self {
        let shared = Arc::clone(shared);
        let (has_put, has_put_tag) = (AtomicBool::new(false), AtomicBool::new(false));
        SimulatedStorage { actor, shared, is_remote, mistake, has_put, has_put_tag }
    }

    /// Runs a call when it is its turn.
    fn call<T>(&self, what: &str, path: &str, apply: impl FnOnce(&mut World) -> Result<T>) -> Result<T> {
        let failed = |why: &'static str| Err(Error::io(path, io::Error::other(why)));
        let (mut world, fault) = self.shared.turn(self.actor);
        if world.is_crashed(self.actor) {
            return failed("crashed");
        }
        let outcome = match fault {
            Fault::None => apply(&mut world),
            Fault::Fails => failed("the request failed"),
            Fault::AnswerLost => apply(&mut world).and_then(|_| failed("the answer was lost")),
            Fault::CrashBefore | Fault::PowerFails => failed("crashed"),
            Fault::CrashAfter => apply(&mut world).and_then(|_| failed("crashed")),
        };
        match fault {
            Fault::PowerFails if !self.is_remote => world.power_fails(),
            Fault::CrashBefore | Fault::CrashAfter | Fault::PowerFails => world.crash(self.actor),
            _ => {}
        }
        let end = match (&outcome, fault) {
            (Ok(_), _) => "done".to_owned(),
            (Err(error), Fault::None) => error.to_string(),
            (Err(_), fault) => format!("{fault:?}"),
        };
        world.record(self.actor, &format!("{what} {path}: {end}"));
        world.check();
        outcome
    }

    /// Makes the name of a file durable. A put does so at its end, so a put that failed may not have done it.
    fn make_durable(&self, path: &str, is_put: bool) {
        if is_put {
            self.shared.world().make_durable(path);
        }
    }

    fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }
}

impl Backend for SimulatedStorage {
    fn root(&self) -> &Path {
        Path::new("/simulated")
    }

    fn is_remote(&self) -> bool {
        self.is_remote
    }

    fn store(&self) -> Result<Arc<dyn ObjectStore>> {
        Err(Error::other("no queries"))
    }

    fn read(&self, path: &str) -> Result<Option<Bytes>> {
        let bytes = self.call("read", path, |world| Ok(world.files.get(path).map(|stored| stored.bytes.clone())))?;
        if !self.makes(Mistake::NoCutoff) || !path.starts_with(VERSIONS_FOLDER) {
            return Ok(bytes);
        }
        bytes.map(|bytes| without_cutoff(&bytes)).transpose()
    }

    fn open(&self, path: &str) -> Result<Option<File>> {
        let bytes = self.read(path)?;
        let file = bytes.map(|bytes| {
            let mut file = tempfile::tempfile()?;
            file.write_all(&bytes)?;
            file.rewind()?;
            Ok(file)
        });
        file.transpose().map_err(|source: io::Error| Error::io(path, source))
    }

    fn list(&self, folder: &str) -> Result<Vec<ListedFile>> {
        let is_old = self.makes(Mistake::NoGrace);
        self.call("list", folder, |world| {
            let file = |(name, stored): (&str, &Stored)| ListedFile {
                name: name.to_owned(),
                num_bytes: stored.bytes.len() as u64,
                modified: if is_old { SystemTime::UNIX_EPOCH } else { stored.modified },
            };
            Ok(world.in_folder(folder).map(file).collect())
        })
    }

    fn names(&self, folder: &str) -> Result<Vec<String>> {
        // A writer sees the tag that it has just put.
        let is_hidden = self.makes(Mistake::TagsIgnored)
            && folder == TAGS_FOLDER
            && !self.has_put_tag.swap(false, Ordering::Relaxed);
        self.call("names", folder, |world| {
            Ok(world.in_folder(folder).filter(|_| !is_hidden).map(|(name, _)| name.to_owned()).collect())
        })
    }

    fn first_names(&self, folder: &str, count: usize) -> Result<Vec<String>> {
        let is_second = self.has_put.swap(false, Ordering::Relaxed);
        let is_blind = is_second
            && (self.makes(Mistake::NoSecondList) && folder == VERSIONS_FOLDER
                || self.makes(Mistake::IdsReused) && folder == IDS_FOLDER);
        let actor = self.actor;
        // The last reservation of another writer is not seen.
        let is_hidden = self.makes(Mistake::IdsReused) && folder == IDS_FOLDER;
        self.call("first names", folder, |world| {
            let own = world.last_put[actor].clone().filter(|_| is_blind);
            let names = world.in_folder(folder).map(|(name, _)| name.to_owned());
            let is_own = world.in_folder(folder).next().map(|(name, _)| name) == world.last_put[actor].as_deref();
            let names = names.skip(usize::from(is_hidden && !is_own));
            Ok(own.into_iter().chain(names).take(count).collect())
        })
    }

    fn put_new(&self, path: &str, bytes: Bytes) -> Result<Published> {
        let replaces = self.makes(Mistake::VersionsReplaced) && path.starts_with(VERSIONS_FOLDER)
            || self.makes(Mistake::IdsReused) && path.starts_with(IDS_FOLDER);
        self.has_put_tag.fetch_or(path.starts_with(TAGS_FOLDER), Ordering::Relaxed);
        let (actor, is_remote) = (self.actor, self.is_remote);
        let published = self.call("put", path, |world| {
            let is_free = replaces || !world.files.contains_key(path);
            if is_free {
                world.put(path, bytes);
                world.last_put[actor] = path.rsplit('/').next().map(str::to_owned);
            }
            // If an answer is lost, the client of an object store repeats the request.
            let is_repeated = is_remote && world.draw(10) == 0;
            Ok(if is_free && !is_repeated { Published::New } else { Published::Taken })
        });
        self.make_durable(path, matches!(published, Ok(Published::New)));
        self.has_put.store(published.is_ok(), Ordering::Relaxed);
        published
    }

    fn put_file(&self, staged: Staged, path: &str, _: &CancellationToken) -> Result<()> {
        let mut bytes = Vec::new();
        let mut file = staged.file();
        file.rewind().and_then(|()| file.read_to_end(&mut bytes)).map_err(|source| Error::io(path, source))?;
        let outcome = self.call("put file", path, |world| {
            world.put(path, bytes.into());
            Ok(())
        });
        self.make_durable(path, outcome.is_ok());
        outcome
    }

    fn sync(&self, path: &str) -> Result<()> {
        if self.is_remote {
            return Ok(());
        }
        let is_skipped = self.makes(Mistake::NotSynced);
        self.call("sync", path, |world| {
            if !is_skipped {
                world.sync(path);
            }
            Ok(())
        })
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.call("remove", path, |world| {
            world.remove(path);
            Ok(())
        })
    }

    fn lock(&self, path: &str, wait: Duration, _: &CancellationToken) -> Result<Option<Guard>> {
        if self.is_remote {
            return Ok(None);
        }
        let begun = self.shared.now();
        loop {
            let locked = self.call("lock", path, |world| Ok(world.lock(self.actor)));
            if locked.inspect_err(|_| self.shared.unlock(self.actor))? {
                return Ok(Some(Box::new(SimulatedLock { actor: self.actor, shared: Arc::clone(&self.shared) })));
            }
            if self.shared.now().duration_since(begun).is_ok_and(|waited| waited >= wait) {
                let what = "another process is writing to it".to_owned();
                return Err(ErrorKind::Conflict { path: path.into(), what }.into());
            }
        }
    }

    fn now(&self) -> SystemTime {
        self.shared.now()
    }

    fn sleep(&self, _: Duration) {}
}

fn without_cutoff(bytes: &[u8]) -> Result<Bytes> {
    let mut manifest: Manifest = serde_json::from_slice(bytes).map_err(Error::other)?;
    manifest.unlisted_before = None;
    manifest.seal().map(Bytes::from)
}

struct SimulatedLock {
    actor: usize,
    shared: Arc<Shared>,
}

impl Drop for SimulatedLock {
    fn drop(&mut self) {
        self.shared.unlock(self.actor);
    }
}
