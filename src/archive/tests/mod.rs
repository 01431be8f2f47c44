//! A simulated storage, and tests with several writers, failures and days of time on it.

mod simulation;
mod storage;
mod world;
