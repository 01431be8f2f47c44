//! Runs of a pack back as files.

use super::PackReader;
use crate::error::{Error, Result};
use crate::publish::{Published, Staged};
use crate::workers;
use rayon::prelude::*;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

impl PackReader {
    /// Writes runs to files of their own, `run-00005.a2run2` or `.bin` by their kind, byte by byte as they were packed; the
    /// folder is made if there is none. Returns the paths in the order of the indices.
    ///
    /// No file is overwritten. Nothing is written when one of the names is taken or one of the runs cannot be read.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io), with `AlreadyExists` when a name is taken; as [`PackReader::get_slice`].
    pub fn extract(&self, indices: impl IntoIterator<Item = usize>, folder: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
        let folder = folder.as_ref();
        let mut runs = Vec::new();
        for index in indices {
            let name = format!("run-{index:05}.{}", self.kind(index)?.format().extension());
            runs.push((index, folder.join(name)));
        }
        // What is asked for twice is written once.
        let mut distinct = runs.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let threads = workers::shared()?;
        let check = |(index, path): &(usize, PathBuf)| {
            // A link that leads nowhere has the name too.
            if path.symlink_metadata().is_ok() {
                return Err(taken(path));
            }
            self.get_slice(*index).map(drop)
        };
        threads.install(|| distinct.par_iter().try_for_each(check))?;
        std::fs::create_dir_all(folder).map_err(|source| Error::io(folder, source))?;
        let write = |(index, path): &(usize, PathBuf)| {
            let mut staged = Staged::new(folder)?;
            staged.write_all(&self.get_slice(*index)?.bytes).map_err(|source| Error::io(path, source))?;
            match staged.publish(path)? {
                Published::New => Ok(()),
                Published::Taken => Err(taken(path)),
            }
        };
        threads.install(|| distinct.par_iter().try_for_each(write))?;
        Ok(runs.into_iter().map(|(_, path)| path).collect())
    }
}

fn taken(path: &Path) -> Error {
    Error::io(path, io::Error::new(io::ErrorKind::AlreadyExists, "this file exists and is not overwritten"))
}
