//! A pipeline of parallel work whose results arrive in order.

use crate::error::{Error, Result};
use rayon::prelude::*;
use std::sync::mpsc::{Receiver, channel};

/// Takes items until the window holds `max_items` items or their sizes add up to `max_size`. Takes at least one
/// item, and returns an empty window after the last item. An error ends the window and is returned.
pub(crate) fn fill_window<T>(
    mut items: impl Iterator<Item = Result<T>>,
    max_items: usize,
    max_size: u64,
    size_of: impl Fn(&T) -> u64,
) -> Result<Vec<T>> {
    let mut window = Vec::new();
    let mut size: u64 = 0;
    while size < max_size
        && window.len() < max_items
        && let Some(item) = items.next().transpose()?
    {
        size = size.saturating_add(size_of(&item));
        window.push(item);
    }
    Ok(window)
}

/// Runs `work` in parallel on the items of each window, and passes the results to `take` in order. Ends at the
/// first empty window.
///
/// The pool works on the next window while the calling thread takes results of the current window. At most two windows
/// are in memory; `next_window` chooses their size. The first error of `next_window` or `take` ends the pipeline.
pub(crate) fn in_order<T: Send, R: Send>(
    pool: &rayon::ThreadPool,
    mut next_window: impl FnMut() -> Result<Vec<T>>,
    work: impl Fn(T) -> R + Sync,
    mut take: impl FnMut(R) -> Result<()>,
) -> Result<()> {
    let work = &work;
    pool.in_place_scope(|scope| {
        let mut ahead: Option<Receiver<Vec<R>>> = None;
        loop {
            let window = next_window()?;
            let begun = (!window.is_empty()).then(|| {
                let (sender, receiver) = channel();
                scope.spawn(move |_| {
                    // The receiver is gone after an error.
                    let _ = sender.send(window.into_par_iter().map(work).collect());
                });
                receiver
            });
            if let Some(results) = ahead.take() {
                // If the sender vanished without sending, its thread panicked. The scope propagates the panic.
                let results = results.recv().map_err(Error::other)?;
                results.into_iter().try_for_each(&mut take)?;
            }
            ahead = begun;
            if ahead.is_none() {
                return Ok(());
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn results_arrive_in_order_for_any_window_size() {
        for (workers, len) in [(1, 1), (2, 7), (3, 64)] {
            let pool = crate::system::workers::pool("test", Some(workers)).unwrap();
            let mut numbers = 0..1000u64;
            let mut taken = Vec::new();
            let next_window = || Ok(numbers.by_ref().take(len).collect());
            let take = |square| {
                taken.push(square);
                Ok(())
            };
            in_order(&pool, next_window, |number| number * number, take).unwrap();
            assert!(taken.into_iter().eq((0..1000).map(|number| number * number)));
        }
    }

    #[test]
    fn the_first_error_ends_the_pipeline() {
        let pool = crate::system::workers::pool("test", Some(2)).unwrap();
        let mut windows = 0;
        let next_window = || {
            windows += 1;
            Ok(vec![windows])
        };
        let take = |window| if window == 3 { Err(ErrorKind::Cancelled.into()) } else { Ok(()) };
        let error = in_order(&pool, next_window, |window| window, take).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Cancelled));
        assert_eq!(windows, 4);
    }
}
