//! The integration tests. They form one binary, because each binary links all of DataFusion.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod allocations;
mod archive;
mod export;
mod fuzz;
mod imports;
mod loader;
mod permutation;
mod query;
mod sampling;
mod support;
mod table;
mod user_tables;
