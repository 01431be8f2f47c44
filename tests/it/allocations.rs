//! The counting allocator of the tests, and the test that the loader allocates nothing after its first batches.
//!
//! The count covers all threads, so the test runs in a separate process without other tests.

use crate::support::Games;
use a2store::loader::Sampling;
use a2store::query::no_params;
use a2store::table::{ElementType, HeldOut};
use a2store::{CancellationToken, LoaderOptions, MaterializeOptions};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

static COUNT: AtomicU64 = AtomicU64::new(0);

/// Whether the bytes of all threads are counted, too. Only for a separate process without other tests.
static MEASURING: AtomicBool = AtomicBool::new(false);
static LIVE: AtomicI64 = AtomicI64::new(0);
static PEAK: AtomicI64 = AtomicI64::new(0);
static LARGEST: AtomicI64 = AtomicI64::new(0);

/// The bytes that all threads allocated during [`measure`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allocated {
    /// The growth in live bytes from start to end.
    pub(crate) live: i64,
    /// The largest growth in live bytes at any time.
    pub(crate) peak: i64,
    /// The largest allocation.
    pub(crate) largest: i64,
}

/// Runs `work` and returns its result with the allocations of all threads during it.
pub(crate) fn measure<T>(work: impl FnOnce() -> T) -> (T, Allocated) {
    for counter in [&LIVE, &PEAK, &LARGEST] {
        counter.store(0, Ordering::SeqCst);
    }
    MEASURING.store(true, Ordering::SeqCst);
    let result = work();
    MEASURING.store(false, Ordering::SeqCst);
    let [live, peak, largest] = [&LIVE, &PEAK, &LARGEST].map(|counter| counter.load(Ordering::SeqCst));
    (result, Allocated { live, peak, largest })
}

/// The system's allocator with counters.
struct Counting;

impl Counting {
    fn grow(size: usize) {
        COUNT.fetch_add(1, Ordering::Relaxed);
        if MEASURING.load(Ordering::Relaxed) {
            let size = size as i64;
            let live = LIVE.fetch_add(size, Ordering::Relaxed) + size;
            if live > PEAK.load(Ordering::Relaxed) {
                PEAK.fetch_max(live, Ordering::Relaxed);
            }
            if size > LARGEST.load(Ordering::Relaxed) {
                LARGEST.fetch_max(size, Ordering::Relaxed);
            }
        }
    }

    fn shrink(size: usize) {
        if MEASURING.load(Ordering::Relaxed) {
            LIVE.fetch_sub(size as i64, Ordering::Relaxed);
        }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[allow(unsafe_code)]
// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Counting::grow(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Counting::grow(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // The old and the new block exist at the same time during the copy.
        Counting::grow(size);
        Counting::shrink(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        Counting::shrink(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

const CHILD: &str = "A2STORE_TEST_COUNTS_ALLOCATIONS";

#[test]
fn making_batches_allocates_nothing_after_the_first() {
    if std::env::var_os(CHILD).is_none() {
        let own = std::env::current_exe().unwrap();
        let name = "allocations::making_batches_allocates_nothing_after_the_first";
        let child = std::process::Command::new(own).args(["--exact", name, "--nocapture"]).env(CHILD, "1").output();
        let child = child.unwrap();
        let text = format!("{}{}", String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
        assert!(child.status.success() && text.contains("10 loaders counted"), "{text}");
        return;
    }
    let games = Games::new();
    let query = games.archive.sql("SELECT * FROM steps", no_params()).unwrap();
    let options = MaterializeOptions::default().with_extra(["engine", "max_score"]);
    let table = query.materialize(&options, &(), &CancellationToken::new()).unwrap();
    let (view, _) = table.split(&HeldOut::new("val", 0.3, 0).unwrap(), CancellationToken::never()).unwrap();
    let mut counted = 0;
    for table in [&table, &view] {
        for prefetch in [0, 1, 4] {
            for (tokens, symmetries) in [(ElementType::UInt8, false), (ElementType::Int64, true)] {
                if symmetries && prefetch == 4 {
                    continue;
                }
                // An epoch so long that the warm-up covers the start of the producer thread and a full prefetch queue.
                let options = LoaderOptions::default()
                    .with_batch_size(16)
                    .with_prefetch(prefetch)
                    .with_tokens(tokens)
                    .with_symmetries(symmetries)
                    .with_sampling(Sampling::Uniform)
                    .with_num_samples(1 << 40);
                let loader = table.loader(options).unwrap();
                let mut batches = loader.batches().unwrap();
                // A batch stays alive until the next one arrives, like in a loop that copies batches to a device.
                let mut held = std::collections::VecDeque::with_capacity(2);
                for _ in 0..50_000 {
                    held.push_back(batches.next().unwrap());
                    held.drain(..held.len() - 1);
                }
                // On a busy machine, the queue may be full for the first time only now.
                let is_quiet = (0..20).any(|_| {
                    let before = COUNT.load(Ordering::SeqCst);
                    for _ in 0..10_000 {
                        held.push_back(batches.next().unwrap());
                        held.drain(..held.len() - 1);
                    }
                    COUNT.load(Ordering::SeqCst) == before
                });
                assert!(is_quiet, "prefetch {prefetch}, {tokens:?}");
                counted += 1;
            }
        }
    }
    println!("{} loaders counted", counted);
}
