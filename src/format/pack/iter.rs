//! Going through a pack, some runs ahead of whoever takes them.

use super::PackReader;
use crate::error::Result;
use crate::process::ProcessId;
use crate::run::Run;
use crate::workers;
use std::fmt;
use std::sync::mpsc::{Receiver, channel};
use std::vec;

/// How many bytes of run files are decoded at a time. A decoded step takes up to nine times as much as an encoded one.
const WINDOW_BYTES: u64 = 4 << 20;
/// And how many runs, however short they are.
const WINDOW_RUNS: usize = 256;

/// Runs of a pack in the order that was asked for, each with its own result; from [`PackReader::iter`] and
/// [`PackReader::iter_indices`].
///
/// While the runs of one window are taken, those of the next are decoded by other threads. A window is 4 MiB of run files,
/// at least one.
pub struct PackIter<'a> {
    reader: PackReader,
    indices: Box<dyn Iterator<Item = usize> + Send + 'a>,
    ready: vec::IntoIter<Result<Run>>,
    ahead: Option<Ahead>,
}

/// Runs that others decode.
struct Ahead {
    window: Vec<usize>,
    decoded: Receiver<Vec<Result<Run>>>,
    /// Whose threads do. A process that was forked has none of its parent's.
    process: ProcessId,
}

impl PackReader {
    /// All runs in order, of either kind, decoded ahead in parallel.
    #[must_use]
    pub fn iter(&self) -> PackIter<'static> {
        self.iter_indices(0..self.len())
    }

    /// These runs in this order, of either kind, decoded ahead in parallel. An index may come more than once.
    #[must_use]
    pub fn iter_indices<'a>(&self, indices: impl IntoIterator<Item = usize, IntoIter: Send + 'a>) -> PackIter<'a> {
        PackIter {
            reader: self.clone(),
            indices: Box::new(indices.into_iter()),
            ready: Vec::new().into_iter(),
            ahead: None,
        }
    }

    /// The next indices whose runs are read together: of so many bytes of run files, at least one.
    pub(super) fn window(
        &self,
        indices: &mut dyn Iterator<Item = usize>,
        num_bytes: u64,
        num_runs: usize,
    ) -> Vec<usize> {
        let mut window = Vec::new();
        let mut sum: u64 = 0;
        while sum < num_bytes
            && window.len() < num_runs
            && let Some(index) = indices.next()
        {
            // A step may be compressed to next to nothing, and takes ten times what it does when it is not.
            let weight = if self.is_compressed(index) { 10 } else { 1 };
            sum = sum.saturating_add(weight * self.payload_len(index));
            window.push(index);
        }
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

    /// Has the next window decoded by others.
    fn begin(&mut self) -> Option<Ahead> {
        let window = self.next_window();
        if window.is_empty() {
            return None;
        }
        let (sender, decoded) = channel();
        // Without threads the window is decoded when it is asked for.
        if let Ok(threads) = workers::shared() {
            let (reader, window) = (self.reader.clone(), window.clone());
            // Nobody takes them once the iterator is gone.
            threads.spawn(move || drop(sender.send(reader.decode_batch_auto_v2(&window))));
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
            // A thread that others wait for must not wait itself: it may be the only one.
            let window = self.ahead.take().map_or_else(|| self.next_window(), |ahead| ahead.window);
            self.reader.decode_batch_auto_v2(&window).into_iter()
        } else {
            let begun = match self.ahead.take() {
                Some(ahead) => Some(ahead),
                None => self.begin(),
            }?;
            self.ahead = self.begin();
            let decoded = if begun.process.is_current() { begun.decoded.recv().ok() } else { None };
            decoded.unwrap_or_else(|| self.reader.decode_batch_auto_v2(&begun.window)).into_iter()
        };
        self.ready.next()
    }
}

impl fmt::Debug for PackIter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackIter").field("reader", &self.reader).finish_non_exhaustive()
    }
}
