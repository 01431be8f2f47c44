//! A sandbox for queries: a child process with limits on memory, time and written bytes.
//!
//! The parent survives a crash of the child and reports the cause. The child runs the same program with the same
//! arguments and a hidden flag. With that flag it confines itself ([`confine`]) before it does anything else, so no
//! code of this crate runs between fork and exec. The parent enforces each limit, and the kernel enforces a second,
//! looser one:
//!
//! | limit | parent, every 10 ms | kernel, in the child |
//! | --- | --- | --- |
//! | memory | anonymous, shared and swapped pages | address space, plus room for untouched stacks and heaps |
//! | time | wall-clock time | processor time, the limit times the number of cores |
//! | disk | all files in the child's temporary folder | the size of each file |
//!
//! The child leads a process group. Ctrl-C in a terminal therefore reaches only the parent, and killing the group
//! also kills the child's descendants. A descendant could escape only by leaving the group, and SQL cannot start
//! processes.
//!
//! | file | owns |
//! | --- | --- |
//! | `limits.rs` | the limits, and the error when a query exceeds one or crashes |
//! | `supervise.rs` | the parent's loop: start, watch, kill |
//! | `child.rs` | the child as a process group, and the end of its standard error |
//! | `confine.rs` | the kernel's limits, which the child sets for itself |
//! | `file_access.rs` | access to files and the network, restricted by Landlock |

// The standard library has no safe call for waiting without reaping, for signals to a group, and for polling a pipe.
#![allow(unsafe_code)]

mod child;
mod confine;
mod file_access;
mod limits;
mod supervise;

pub(super) use confine::confine;
pub(super) use limits::SandboxLimits;
pub(super) use supervise::{SandboxJob, supervise};
