//! Extraction of runs from a pack into run files.

use super::PackReader;
use crate::error::{Error, Result};
use crate::publish::{Published, Staged};
use crate::workers;
use rayon::prelude::*;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

impl PackReader {
    /// Writes runs to separate files, named `run-00005.a2run2` or `.bin` by their kind. The files have the same bytes
    /// as the packed ones. Creates the folder if it is missing. Returns the paths in the order of the indices.
    ///
    /// Overwrites no file. Writes nothing if a name is taken or a run cannot be read.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io), with `AlreadyExists` if a name is taken; those of
    /// [`PackReader::get_slice`].
    pub fn extract(&self, indices: impl IntoIterator<Item = usize>, folder: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
        let folder = folder.as_ref();
        let mut runs = Vec::new();
        for index in indices {
            let name = format!("run-{index:05}.{}", self.kind(index)?.format().extension());
            runs.push((index, folder.join(name)));
        }
        // A repeated index is written once.
        let mut distinct = runs.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let threads = workers::shared()?;
        let check = |(index, path): &(usize, PathBuf)| {
            // Detects dangling links too.
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
