//! A trial of SQL over several processes, which docs/cluster.md describes: a scan of parts of Parquet row groups, split over workers by
//! `datafusion-distributed`.
//!
//! | file | owns |
//! | --- | --- |
//! | `scan.rs` | the plan node around a scan, and the rule that inserts it |
//! | `codec.rs` | the node's bytes; whole stages in an envelope, so that functions reach our codec too |
//! | `split.rs` | how many tasks a scan gets, and which row groups each task reads |
//! | `fragment.rs` | parts of a plan whose partitions must stay together |
//! | `client.rs` | sessions that plan; connections to workers |
//! | `worker.rs` | the server: its session, stores and limits |
//! | `tasks.rs` | the end of tasks on workers |
//! | `functions.rs` | functions for the experiments |
//! | `games.rs` | test data: tables `steps`, `chosen` and `runs` |

pub mod client;
pub mod codec;
pub mod fragment;
pub mod functions;
pub mod games;
pub mod scan;
pub mod split;
pub mod tasks;
pub mod worker;
