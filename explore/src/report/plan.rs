//! The named queries of a report, and their parameters.

use a2store::query::ScalarValue;

/// The maximum number of groups that the report compares. In a chart, readers cannot distinguish more lines.
pub(super) const MAX_GROUPS: usize = 20;

/// The smallest tile in the report.
const MIN_TILE: u64 = 512;

/// The number of steps above which the report uses a sample, for the queries that support samples.
const MAX_STEPS: u64 = 2_000_000;

/// A named query with parameters.
#[derive(Clone, Debug)]
pub(super) struct PlannedTable {
    pub(super) query: &'static str,
    pub(super) parameters: Vec<(&'static str, ScalarValue)>,
    /// A remark that the result is an estimate.
    pub(super) note: Option<String>,
}

/// The facts that the other queries depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReportFacts {
    pub(super) num_steps: u64,
    pub(super) max_score: u64,
    pub(super) max_steps: u64,
    pub(super) num_groups: usize,
    pub(super) has_annotations: bool,
}

/// Returns a query with these parameters.
pub(super) fn table<const N: usize>(query: &'static str, parameters: [(&'static str, ScalarValue); N]) -> PlannedTable {
    PlannedTable { query, parameters: parameters.into(), note: None }
}

/// Returns the query for the facts that the other queries depend on, with a row for every group.
pub(super) fn summary() -> PlannedTable {
    table("archive_summary", [("limit", (1_i64 << 32).into())])
}

/// Returns the queries of a report, except the summary.
pub(super) fn tables(facts: &ReportFacts) -> Vec<PlannedTable> {
    let by = ("by_engine", ScalarValue::from(facts.num_groups <= MAX_GROUPS));
    let by = || by.clone();
    let tile = || ("min_tile", ScalarValue::from(MIN_TILE));
    let width = |range: u64, bins: u64| ("width", ScalarValue::from(bin_width(range, bins)));
    let one_in = facts.num_steps.div_ceil(MAX_STEPS).max(1).next_power_of_two();
    let mut tables = vec![
        table("engine_leaderboard", []),
        table("score_histogram", [width(facts.max_score, 60), by()]),
        table("score_ecdf", [("points", 200_u64.into()), by()]),
        table("run_lengths", []),
        table("length_histogram", [width(facts.max_steps, 60), by()]),
        table("first_reach", [tile(), by()]),
        table("first_reach_sample", [tile(), ("max_runs", 200_i64.into())]),
        table("tile_reach", [tile(), by()]),
        table("survivorship", [width(facts.max_steps, 100), by()]),
        table("tile_survival", [tile(), by()]),
        table("tile_presence", [width(facts.max_steps, 80)]),
        table("phase_mix", []),
        table("ev_gap_histogram", [("bins", 5_u64.into()), by()]),
        table("ev_loss_histogram", [("bins", 5_u64.into()), by()]),
        table("blunder_rate", [("min_loss", 0.1_f64.into()), by()]),
        table("blunders", [("limit", 20_i64.into())]),
        table("hard_moves", [("limit", 20_i64.into())]),
        table("move_mix", [by()]),
        table("corner_occupancy", [by()]),
        table("engine_agreement", [("first_steps", 50_u64.into())]),
        PlannedTable {
            note: (one_in > 1).then(|| {
                format!("An estimate from one of {one_in} positions: multiply the counts by {one_in}. The shares apply to all positions.")
            }),
            ..table("repeated_positions", [("one_in", one_in.into())])
        },
        table("opening_book", [("first_steps", 20_u64.into()), ("limit", 20_i64.into())]),
        table("first_moves", [("first_steps", 4_u64.into()), by()]),
        PlannedTable {
            note: (facts.num_steps > MAX_STEPS).then(|| format!("A sample of whole runs, of about {MAX_STEPS} steps.")),
            ..table("spawn_check", [("max_steps", MAX_STEPS.into()), by()])
        },
    ];
    if facts.has_annotations {
        tables.push(table("policy_agreement", []));
        tables.push(table("calibration", [("bins", 10_i64.into())]));
    }
    tables
}

/// Returns a width that divides `0..=range` into at most about `bins` bins: 1, 2 or 5 times a power of ten.
fn bin_width(range: u64, bins: u64) -> u64 {
    let least = range / bins + 1;
    let powers = std::iter::successors(Some(1_u64), |power| power.checked_mul(10));
    let mut widths = powers.flat_map(|power| [1, 2, 5].map(|factor| power.saturating_mul(factor)));
    widths.find(|&width| width >= least).unwrap_or(least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use a2store::query::SavedQuery;

    #[test]
    fn widths_are_round_and_the_bins_few() {
        for (range, width) in
            [(0, 1), (59, 1), (60, 2), (119, 2), (120, 5), (82_292, 2_000), (u64::MAX, 500_000_000_000_000_000)]
        {
            assert_eq!(bin_width(range, 60), width, "{range}");
            assert!(range / width <= 60);
        }
    }

    #[test]
    fn every_query_exists_and_has_the_parameters() {
        let facts = ReportFacts { num_steps: u64::MAX / 2, has_annotations: true, ..ReportFacts::default() };
        let planned: Vec<PlannedTable> = std::iter::once(summary()).chain(tables(&facts)).collect();
        assert!(planned.len() > 20);
        for table in planned {
            let query = SavedQuery::find(table.query).expect("a shipped query");
            let text = query.sql.lines().find(|line| !line.starts_with("--")).expect("a statement");
            assert!(text.starts_with("WITH ") || text.starts_with("SELECT"), "{}: {text}", table.query);
            for (name, _) in table.parameters {
                assert!(query.parameters.iter().any(|parameter| parameter.name == name), "{} {name}", table.query);
            }
        }
    }
}
