//! The queries that are compiled into the crate. A test checks that the list has every query of the folder
//! `queries/`.

macro_rules! shipped {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../../queries/", $name, ".sql")))),*]
    };
}

/// Names and texts.
pub(super) const FILES: &[(&str, &str)] = shipped! {
    "blunders"
    "calibration"
    "critic_labels"
    "disagreements"
    "engine_agreement"
    "engine_leaderboard"
    "hard_moves"
    "high_score"
    "length_histogram"
    "opening_book"
    "phase_mix"
    "policy_agreement"
    "run_lengths"
    "score_histogram"
    "survivorship"
    "tile_first_steps"
    "tile_presence"
    "tile_reach"
    "unique_positions"
};
