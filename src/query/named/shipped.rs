//! The queries that are compiled into the crate. A test checks that the list has every query of the folder
//! `queries/`.

macro_rules! shipped {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../../queries/", $name, ".sql")))),*]
    };
}

/// Names and texts.
pub(super) const FILES: &[(&str, &str)] = shipped! {
    "archive_summary"
    "blunder_rate"
    "blunders"
    "calibration"
    "corner_occupancy"
    "critic_labels"
    "disagreements"
    "engine_agreement"
    "engine_leaderboard"
    "ev_gap_histogram"
    "ev_loss_histogram"
    "first_moves"
    "first_reach"
    "first_reach_sample"
    "hard_moves"
    "high_score"
    "length_histogram"
    "move_mix"
    "opening_book"
    "phase_mix"
    "policy_agreement"
    "position_moves"
    "position_next"
    "position_places"
    "repeated_positions"
    "run_lengths"
    "score_ecdf"
    "score_histogram"
    "spawn_check"
    "survivorship"
    "tile_first_steps"
    "tile_presence"
    "tile_reach"
    "tile_survival"
    "unique_positions"
};
