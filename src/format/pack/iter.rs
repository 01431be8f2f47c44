//! Iteration over a pack with read-ahead.

use super::PackReader;
use crate::error::Result;
use crate::format::files::ordered::fill_window;
use crate::run::Run;
use crate::system::process::ProcessId;
use crate::system::workers;
use std::convert::Infallible;
use std::fmt;
use std::sync::mpsc::{Receiver, channel};
use std::vec;

/// Bytes of run files per window. A decoded step takes up to nine times as much memory as an encoded one.
const WINDOW_BYTES: u64 = 4 << 20;
/// The maximum runs per window.
const WINDOW_RUNS: usize = 256;

/// An iterator over runs of a pack in the requested order, one result per run. Created by [`PackReader::iter`]
/// and [`PackReader::iter_indices`].
///
/// Other threads decode the next window while the caller takes the runs of the current one. A window holds 4 MiB
/// of run files, and at least one run.
pub struct PackIter<'a> {
    reader: PackReader,
    indices: Box<dyn Iterator<Item = usize> + Send + 'a>,
    ready: vec::IntoIter<Result<Run>>,
    ahead: Option<Ahead>,
}

/// A window that other threads decode.
struct Ahead {
    window: Vec<usize>,
    decoded: Receiver<Vec<Result<Run>>>,
    /// The process that started the decoding. A forked child has none of its parent's threads.
    process: ProcessId,
}

impl PackReader {
    /// Iterates over all runs of either kind in order, decoding ahead in parallel.
    #[must_use]
    pub fn iter(&self) -> PackIter<'static> {
        self.iter_indices(0..self.len())
    }

    /// Iterates over these runs of either kind in this order, decoding ahead in parallel. An index may repeat.
    #[must_use]
    pub fn iter_indices<'a>(&self, indices: impl IntoIterator<Item = usize, IntoIter: Send + 'a>) -> PackIter<'a> {
        PackIter {
            reader: self.clone(),
            indices: Box::new(indices.into_iter()),
            ready: Vec::new().into_iter(),
            ahead: None,
        }
    }

    /// Takes the indices of the next window: at most `num_runs` runs and about `num_bytes` bytes of run files,
    /// but at least one run.
    pub(super) fn window(
        &self,
        indices: &mut dyn Iterator<Item = usize>,
        num_bytes: u64,
        num_runs: usize,
    ) -> Vec<usize> {
        // A small compressed entry can hold many steps, and a decoded step takes ten times the memory of an
        // encoded one.
        let size = |&index: &usize| self.payload_len(index) * if self.is_compressed(index) { 10 } else { 1 };
        let Ok(window) = fill_window(indices.map(Ok::<_, Infallible>), num_runs, num_bytes, size);
        window
    }
}

impl<'a> IntoIterator for &'a PackReader {
    type Item = Result<Run>;
    type IntoIter = PackIter<'a>;

    fn into_iter(self) -> PackIter<'a> {
        self.iter()
    }
}

impl PackIter<'_> {
    fn next_window(&mut self) -> Vec<usize> {
        self.reader.window(&mut self.indices, WINDOW_BYTES, WINDOW_RUNS)
    }

    /// Starts decoding the next window on other threads.
    fn begin(&mut self) -> Option<Ahead> {
        let window = self.next_window();
        if window.is_empty() {
            return None;
        }
        let (sender, decoded) = channel();
        // Without threads, `next` decodes the window.
        if let Ok(threads) = workers::shared() {
            let (reader, window) = (self.reader.clone(), window.clone());
            // The receiver is gone if the iterator was dropped.
            threads.spawn(move || drop(sender.send(reader.decode_batch(&window))));
        }
        Some(Ahead { window, decoded, process: ProcessId::current() })
    }
}

impl Iterator for PackIter<'_> {
    type Item = Result<Run>;

    fn next(&mut self) -> Option<Result<Run>> {
        if let Some(run) = self.ready.next() {
            return Some(run);
        }
        self.ready = if rayon::current_thread_index().is_some() {
            // A thread of a pool must not block here: it may be the only one that can decode.
            let window = self.ahead.take().map_or_else(|| self.next_window(), |ahead| ahead.window);
            self.reader.decode_batch(&window).into_iter()
        } else {
            let begun = self.ahead.take().or_else(|| self.begin())?;
            self.ahead = self.begin();
            let decoded = if begun.process.is_current() { begun.decoded.recv().ok() } else { None };
            decoded.unwrap_or_else(|| self.reader.decode_batch(&begun.window)).into_iter()
        };
        self.ready.next()
    }
}

impl fmt::Debug for PackIter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackIter").field("reader", &self.reader).finish_non_exhaustive()
    }
}
