//! The infrastructure that every module may use.
//!
//! | module | owns |
//! | --- | --- |
//! | `cancellation` | cancellation of long work |
//! | `casts` | casts of Arrow arrays to types that may not hold every value |
//! | `clock` | the system clock |
//! | `machine` | the memory of this machine, allocations that can fail |
//! | `names` | the text form of enums whose variants have names |
//! | `progress` | progress reporting |
//! | `process` | per-process singletons, recreated after a fork |
//! | `publish` | atomic and durable creation of files |
//! | `random` | random ids; a hash of integers |
//! | `registers` | loops compiled for several widths of registers |
//! | `runtime` | the threads for asynchronous work |
//! | `workers` | the threads for parallel work |

pub mod cancellation;
pub(crate) mod casts;
pub mod clock;
pub mod machine;
pub mod names;
pub mod process;
pub mod progress;
pub mod publish;
pub mod random;
pub(crate) mod registers;
pub mod runtime;
pub mod workers;
