//! The integration tests. They form one binary, because each binary links all of DataFusion.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod allocations;
mod archive;
mod command;
mod fixtures;
mod fuzz;
mod imports;
mod loader;
#[path = "../../src/board/naive.rs"]
mod naive;
mod permutation;
mod query;
mod sampling;
mod support;
mod table;

// `naive.rs` imports this as `super::Move`.
use a2store::Move;
