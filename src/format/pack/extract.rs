//! Extraction of runs from a pack into run files.

use super::PackReader;
use crate::error::{Error, Result};
use crate::format::files::staged_folder::taken;
use crate::system::publish::{Published, Staged};
use crate::system::workers;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The result of extracting runs.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct ExtractReport {
    /// The files that were written, in the order of the indices. A repeated index repeats its path.
    pub paths: Vec<PathBuf>,
    /// Errors of runs that could not be read and were skipped, in ascending order of their indices.
    pub errors: Vec<Error>,
}

impl PackReader {
    /// Writes runs to separate files, named `run-000005.a2run2`. The files have the same bytes as the packed ones.
    /// The suffix does not depend on the kind, because other tools pack only files with this suffix.
    /// Creates the folder if it is missing.
    ///
    /// Skips and reports runs that cannot be read. Overwrites no file: writes nothing if a name is taken.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io), with `AlreadyExists` if a name is taken;
    /// [`ErrorKind::IndexOutOfBounds`](crate::ErrorKind::IndexOutOfBounds).
    pub fn extract(&self, indices: impl IntoIterator<Item = usize>, folder: impl AsRef<Path>) -> Result<ExtractReport> {
        let folder = folder.as_ref();
        let path_of = |index: usize| folder.join(format!("run-{index:06}.a2run2"));
        let indices: Vec<usize> = indices.into_iter().collect();
        // A repeated index is written once.
        let distinct: BTreeSet<usize> = indices.iter().copied().collect();
        for &index in &distinct {
            self.entry(index)?;
            let path = path_of(index);
            // Detects dangling links too.
            if path.symlink_metadata().is_ok() {
                return Err(taken(&path));
            }
        }
        std::fs::create_dir_all(folder).map_err(|source| Error::io(folder, source))?;
        // Returns the error of a run that cannot be read.
        let write = |index: usize| {
            let run = match self.get_slice(index) {
                Ok(run) => run,
                Err(error) => return Ok(Some((index, error))),
            };
            let path = path_of(index);
            let mut staged = Staged::new(folder)?;
            staged.write_all(&run.bytes).map_err(|source| Error::io(&path, source))?;
            match staged.publish(&path)? {
                Published::New => Ok(None),
                Published::Taken => Err(taken(&path)),
            }
        };
        let unreadable: Result<BTreeMap<usize, Error>> = workers::shared()?
            .install(|| distinct.into_par_iter().filter_map(|index| write(index).transpose()).collect());
        let unreadable = unreadable?;
        let paths = indices.into_iter().filter(|index| !unreadable.contains_key(index)).map(path_of).collect();
        Ok(ExtractReport { paths, errors: unreadable.into_values().collect() })
    }
}
