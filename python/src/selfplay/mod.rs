//! `a2store.selfplay`: environments, players, the recorder, and simulated games.

pub(crate) mod env;
pub(crate) mod play;
pub(crate) mod recorder;
pub(crate) mod simulate;
