//! Work that many threads do and whose results are taken in order, one window of it ahead.

use crate::error::{Error, Result};
use rayon::prelude::*;
use std::sync::mpsc::{Receiver, channel};

/// Does `work` on everything that `next_window` gives, until that is nothing, and hands the results to `take` in order.
///
/// While the results of one window are taken, on the calling thread, the next one is worked on. So no more than two windows
/// are in memory, and how large they are is up to `next_window`. The first error of `next_window` or `take` ends it all.
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
                    // Nobody takes results any more after an error.
                    let _ = sender.send(window.into_par_iter().map(work).collect());
                });
                receiver
            });
            if let Some(results) = ahead.take() {
                // A sender that went without sending has panicked, which the scope passes on.
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
    fn results_come_in_order_whatever_the_windows() {
        for (workers, len) in [(1, 1), (2, 7), (3, 64)] {
            let pool = crate::workers::pool("test", Some(workers)).unwrap();
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
    fn the_first_error_ends_it() {
        let pool = crate::workers::pool("test", Some(2)).unwrap();
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
