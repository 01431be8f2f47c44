//! Joins of `steps` and `annotations` by run and step, and with `runs` by run.
//!
//! The rows of `steps` and the annotations of one model are sorted by `(run_id, step_index)`, and no key occurs twice.
//! So a join on these two columns needs no hash table: it reads both sides once, in order, and compares keys. Where
//! both sides have the same keys, it copies no column. A join with `runs` also works so: each run is the pair of many
//! steps, whose columns it need not copy.
//!
//! The *probe* side is cut into partitions of whole row groups, by number of rows. Each partition of the *build* side
//! gets the row groups that may have the same runs. Row groups at a boundary are read by both partitions.
//!
//! | file | owns |
//! | --- | --- |
//! | `rule.rs` | the optimizer rule that replaces hash joins |
//! | `sorted_scan.rs` | scans of sorted row groups, and how they are cut |
//! | `exec.rs` | the plan node |
//! | `stream.rs` | reading two sorted inputs together |
//! | `joined_rows.rs` | rows of the result, from pairs of rows |
//! | `keys.rs` | keys of batches, and the pairs of equal keys |

mod exec;
mod joined_rows;
mod keys;
mod rule;
mod sorted_scan;
mod stream;

pub(super) use exec::StepJoinExec;
pub(super) use rule::JOIN_BY_STEPS;
