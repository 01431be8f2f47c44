//! The progress bar, and signals such as Ctrl-C. A signal cancels long work. If the process still runs some seconds
//! later, it ends. A second signal ends the process at once.

use a2store::error::Result;
use a2store::system::cancellation::CancellationToken;
use a2store::system::progress::{Progress, ProgressBar};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use signal_hook::{flag, low_level};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Returns progress on standard error, with warnings. `quiet` hides both.
pub(crate) fn progress(quiet: bool) -> Box<dyn Progress> {
    if quiet { Box::new(()) } else { Box::new(ProgressBar::for_stderr()) }
}

/// The time that cancelled work has to end. Afterwards the process ends, because a system call may never return, such
/// as a read from a file system that hangs.
const PATIENCE: Duration = Duration::from_secs(5);

/// The exit status: 128 plus the number of the last signal, as in shells. Before any signal, it is the status of
/// SIGINT.
static STATUS: LazyLock<Arc<AtomicUsize>> = LazyLock::new(|| Arc::new(AtomicUsize::new(128 + SIGINT as usize)));

/// Returns the exit status of a command whose work was cancelled.
pub(crate) fn interrupted_status() -> u8 {
    STATUS.load(Ordering::Relaxed) as u8
}

/// Returns a token that SIGINT and SIGTERM cancel. If the process still runs some seconds after a signal, it ends. It
/// then publishes nothing more, and may leave staged files, as after SIGKILL.
pub(crate) fn interrupt() -> Result<CancellationToken> {
    let flag = Arc::new(AtomicBool::new(false));
    let (mut woken, wake) = UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM] {
        let status = 128 + signal;
        // The order matters: the conditional handler must run before the first signal raises the flag.
        flag::register_conditional_shutdown(signal, status, Arc::clone(&flag))?;
        flag::register(signal, Arc::clone(&flag))?;
        flag::register_usize(signal, Arc::clone(&STATUS), status as usize)?;
        pipe::register(signal, wake.try_clone()?)?;
    }
    std::thread::Builder::new().name("a2store-signals".into()).spawn(move || {
        if woken.read_exact(&mut [0]).is_ok() {
            std::thread::sleep(PATIENCE);
            low_level::exit(i32::from(interrupted_status()));
        }
    })?;
    Ok(CancellationToken::polling(move || flag.load(Ordering::Relaxed)))
}
