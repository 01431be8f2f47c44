//! Tests of every sampling method: the rows of an epoch, independent of ranks, batch size and threads.

use crate::support::Games;
use a2store::loader::{LoaderState, Sampling};
use a2store::query::no_params;
use a2store::table::{HeldOut, RowFilter};
use a2store::{Archive, CancellationToken, ErrorKind, Loader, LoaderOptions, MaterializeOptions, StepTable};
use std::collections::{BTreeMap, HashMap};

fn table(archive: &Archive) -> StepTable {
    let sql = "SELECT *, CAST(step_index % 3 AS FLOAT) AS weight, CAST(move AS INT) AS direction FROM steps";
    let options = MaterializeOptions::default().with_extra(["weight", "direction", "engine", "phase"]);
    archive.sql(sql, no_params()).unwrap().materialize(&options, &(), &CancellationToken::new()).unwrap()
}

fn every_sampling() -> Vec<Sampling> {
    let quotas = Some(vec![("early".to_owned(), 1.0), ("mid".to_owned(), 2.5)]);
    vec![
        Sampling::Sequential,
        Sampling::Shuffled,
        Sampling::Windowed { window: 1024 },
        Sampling::Uniform,
        Sampling::Weighted { column: "weight".into() },
        Sampling::Stratified { column: "phase".into(), quotas },
        Sampling::Stratified { column: "direction".into(), quotas: None },
    ]
}

/// Returns the board, run id and step index of every row in all batches.
fn stream(table: &StepTable, options: &LoaderOptions, state: Option<&LoaderState>) -> Vec<(u64, u32, u16)> {
    let loaders: Vec<Loader> =
        (0..options.world_size).map(|rank| table.loader(options.clone().with_rank(rank)).unwrap()).collect();
    for loader in &loaders {
        if let Some(state) = state {
            loader.load_state(state).unwrap();
        }
    }
    let mut ranks: Vec<_> = loaders.iter().map(|loader| loader.batches().unwrap()).collect();
    let mut out = Vec::new();
    loop {
        let step: Vec<_> = ranks.iter_mut().map(Iterator::next).collect();
        assert!(step.iter().all(Option::is_some) || step.iter().all(Option::is_none));
        let Some(step) = step.into_iter().collect::<Option<Vec<_>>>() else {
            return out;
        };
        for batch in &step {
            let boards = batch.column("board").unwrap().values::<u64>().unwrap();
            let runs = batch.column("run_id").unwrap().values::<u32>().unwrap();
            let steps = batch.column("step_index").unwrap().values::<u16>().unwrap();
            out.extend(boards.iter().zip(runs).zip(steps).map(|((&board, &run), &step)| (board, run, step)));
        }
    }
}

#[test]
fn ranks_batches_and_threads_change_nothing() {
    let games = Games::new();
    let table = table(&games.archive);
    for sampling in every_sampling() {
        let options = LoaderOptions::default().with_sampling(sampling.clone()).with_seed(3).with_symmetries(true);
        let whole = stream(&table, &options.clone().with_batch_size(100), None);
        assert_eq!(whole.len() as u64, table.num_rows());
        let mut states = Vec::new();
        for (world_size, batch_size, prefetch) in [(1, 1000, 0), (2, 64, 1), (3, 7, 4), (17, 5, 2)] {
            let options =
                options.clone().with_world_size(world_size).with_batch_size(batch_size).with_prefetch(prefetch);
            assert!(stream(&table, &options, None) == whole, "{sampling}: {world_size} ranks of {batch_size}");
            let loader = table.loader(options.clone()).unwrap();
            loader.batches().unwrap().nth(2);
            states.push((loader.state(), 3 * world_size * batch_size));
        }
        // Each configuration resumes from the state of each other one.
        for (state, position) in &states {
            assert_eq!(state.position as usize, *position);
            for (world_size, batch_size, prefetch) in [(1, 300, 2), (5, 11, 0), (16, 3, 1)] {
                let options =
                    options.clone().with_world_size(world_size).with_batch_size(batch_size).with_prefetch(prefetch);
                assert!(stream(&table, &options, Some(state)) == whole[*position..], "{sampling}: {world_size} ranks");
            }
        }
    }
}

#[test]
fn other_epochs_and_seeds_have_other_orders() {
    let games = Games::new();
    let table = table(&games.archive);
    for sampling in every_sampling() {
        let options = LoaderOptions::default().with_sampling(sampling.clone());
        let first = stream(&table, &options, None);
        let epoch = stream(&table, &options.clone().with_epoch(1), None);
        let seed = stream(&table, &options.clone().with_seed(1), None);
        let same = sampling == Sampling::Sequential;
        assert_eq!((first == epoch, first == seed), (same, same), "{sampling}");
        assert!(first == stream(&table, &options, None));
    }
}

#[test]
fn only_drawing_with_replacement_repeats_rows() {
    let games = Games::new();
    let table = table(&games.archive);
    for sampling in [Sampling::Sequential, Sampling::Shuffled, Sampling::Windowed { window: 300 }] {
        let options = LoaderOptions::default().with_sampling(sampling);
        let mut rows = stream(&table, &options, None);
        rows.sort_unstable_by_key(|&(_, run, step)| (run, step));
        rows.dedup();
        assert_eq!(rows.len() as u64, table.num_rows());
        let error = table.loader(options.with_num_samples(5)).unwrap_err();
        assert!(error.to_string().starts_with("num_samples: expected None"), "{error}");
    }
}

/// Returns the χ² of the counts against their expected values, and its degrees of freedom.
fn chi2(
    counts: &HashMap<(u32, u16), u32>,
    expected: impl Fn((u32, u16)) -> f64,
    all: &[(u64, u32, u16)],
) -> (f64, f64) {
    let mut degrees = -1.0;
    let mut chi2 = 0.0;
    for &(_, run, step) in all {
        let expected = expected((run, step));
        let count = f64::from(counts.get(&(run, step)).copied().unwrap_or(0));
        if expected == 0.0 {
            assert_eq!(count, 0.0);
            continue;
        }
        degrees += 1.0;
        chi2 += (count - expected).powi(2) / expected;
    }
    (chi2, degrees)
}

#[test]
fn draws_have_the_requested_shares() {
    let games = Games::new();
    let table = table(&games.archive);
    let all = stream(&table, &LoaderOptions::default().with_sampling(Sampling::Sequential), None);
    let draws = 40 * table.num_rows();
    let weight = |step: u16| f64::from(step % 3);
    let sum: f64 = all.iter().map(|&(_, _, step)| weight(step)).sum();
    let num_rows = all.len() as f64;
    type Share<'a> = Box<dyn Fn((u32, u16)) -> f64 + 'a>;
    let shares: [(Sampling, Share); 2] = [
        (Sampling::Uniform, Box::new(move |_| 1.0 / num_rows)),
        (Sampling::Weighted { column: "weight".into() }, Box::new(move |(_, step)| weight(step) / sum)),
    ];
    for (sampling, share) in shares {
        let options = LoaderOptions::default().with_num_samples(draws).with_sampling(sampling);
        let mut counts = HashMap::new();
        let drawn = stream(&table, &options, None);
        assert_eq!(drawn.len() as u64, draws);
        drawn.iter().for_each(|&(_, run, step)| *counts.entry((run, step)).or_insert(0) += 1);
        let (chi2, degrees) = chi2(&counts, |row| share(row) * draws as f64, &all);
        // The standard deviation of χ² is √(2 × degrees).
        assert!((chi2 - degrees).abs() < 4.0 * (2.0 * degrees).sqrt(), "{}: {chi2} of {degrees}", options.sampling);
    }
}

#[test]
fn strata_have_their_quotas_in_every_batch_and_repeat_rows_evenly() {
    let games = Games::new();
    let table = table(&games.archive);
    let phase_of: HashMap<(u32, u16), String> = {
        let query = games.archive.sql("SELECT run_id, step_index, CAST(phase AS VARCHAR) FROM steps", no_params());
        let mut phases = HashMap::new();
        for batch in query.unwrap().stream(&CancellationToken::new()).unwrap() {
            use arrow::array::AsArray;
            use arrow::datatypes::UInt32Type;
            let batch = batch.unwrap();
            let text = arrow::compute::cast(batch.column(2), &arrow::datatypes::DataType::Utf8).unwrap();
            let (runs, steps) =
                (batch.column(0).as_primitive::<UInt32Type>(), batch.column(1).as_primitive::<UInt32Type>());
            for row in 0..batch.num_rows() {
                let name = text.as_string::<i32>().value(row).to_owned();
                phases.insert((runs.value(row), steps.value(row) as u16), name);
            }
        }
        phases
    };
    let quotas = vec![("late".to_owned(), 3.0), ("early".to_owned(), 1.0)];
    let sampling = Sampling::Stratified { column: "phase".into(), quotas: Some(quotas) };
    let options = LoaderOptions::default().with_sampling(sampling).with_batch_size(40).with_num_samples(20_000);
    let rows = stream(&table, &options, None);
    assert_eq!(rows.len(), 20_000);
    for stretch in rows.chunks(40) {
        let late = stretch.iter().filter(|&&(_, run, step)| phase_of[&(run, step)] == "late").count();
        assert_eq!(late, 30);
        assert!(stretch.iter().all(|&(_, run, step)| phase_of[&(run, step)] != "mid"));
    }
    // The counts of two rows of a stratum differ by at most one.
    let mut counts: BTreeMap<&str, HashMap<(u32, u16), u32>> = BTreeMap::new();
    for &(_, run, step) in &rows {
        *counts.entry(&phase_of[&(run, step)]).or_default().entry((run, step)).or_insert(0) += 1;
    }
    for (phase, counts) in counts {
        let in_all = phase_of.values().filter(|other| *other == phase).count();
        let (least, most) = (counts.values().min().unwrap(), counts.values().max().unwrap());
        let least = if counts.len() < in_all { 0 } else { *least };
        assert!(most - least <= 1, "{phase}: {least} to {most}");
    }
}

#[test]
fn invalid_weights_and_strata_are_rejected() {
    let games = Games::new();
    let sql = "SELECT *, step_index - 5 AS negative, 0e0 AS nothing, 1e39 AS large, engine IS NULL AS flag, CAST(NULL AS FLOAT) AS unknown \
               FROM steps";
    let options =
        MaterializeOptions::default().with_extra(["negative", "nothing", "large", "flag", "engine", "unknown"]);
    let table =
        games.archive.sql(sql, no_params()).unwrap().materialize(&options, &(), &CancellationToken::new()).unwrap();
    let weighted = |column: &str| Sampling::Weighted { column: column.into() };
    let strata = |column: &str, quotas: &[(&str, f64)]| Sampling::Stratified {
        column: column.into(),
        quotas: Some(quotas.iter().map(|&(name, quota)| (name.to_owned(), quota)).collect()),
    };
    for (sampling, message) in [
        (weighted("negative"), "column negative, row 0: expected a finite weight"),
        (weighted("nothing"), "column nothing: expected weights of a positive"),
        (weighted("engine"), "weights: expected a column of numbers"),
        (weighted("other"), "weights: expected an extra column of the table: negative, nothing"),
        (strata("other", &[]), "strata: expected an extra column"),
        (strata("engine", &[("delta", 1.0)]), "quotas: expected strata of engine: alpha, beta, gamma"),
        (strata("engine", &[("alpha", -1.0)]), "quotas: expected finite numbers"),
        (strata("engine", &[("alpha", 0.0)]), "quotas: expected at least one above 0"),
        (strata("engine", &[("alpha", 1e-9), ("beta", 0.5)]), "quotas: expected shares of at least 1 in 65536"),
        (Sampling::Windowed { window: 0 }, "window: expected at least 1"),
    ] {
        let error = table.loader(LoaderOptions::default().with_sampling(sampling)).unwrap_err();
        assert!(error.to_string().starts_with(message), "{error}");
        assert!(matches!(error.kind(), ErrorKind::Argument { .. } | ErrorKind::Column { .. }));
    }
    for (column, stratum) in [("flag", "false"), ("nothing", "-0.0"), ("unknown", "null"), ("unknown", "NaN")] {
        let sampling = strata(column, &[(stratum, 1.0)]);
        table.loader(LoaderOptions::default().with_sampling(sampling)).unwrap();
    }
    assert!(table.loader(LoaderOptions::default().with_sampling(weighted("large"))).is_ok());
}

#[test]
fn views_and_loaded_tables_serve_the_same_rows() {
    let games = Games::new();
    let table = table(&games.archive);
    let filter = RowFilter { engines: Some(vec!["beta".into()]), ..Default::default() };
    let view = table.filter(&filter, &CancellationToken::new()).unwrap();
    let path = games.folder.path().join("view.npy");
    view.save(&path, &(), &CancellationToken::new()).unwrap();
    let loaded = StepTable::load(&path, None, &(), &CancellationToken::new()).unwrap();
    for loaded in [loaded, StepTable::map(&path).unwrap()] {
        assert_eq!(loaded.fingerprint(), view.fingerprint());
        for sampling in every_sampling() {
            let options = LoaderOptions::default().with_sampling(sampling).with_symmetries(true).with_seed(9);
            let shown = stream(&view, &options, None);
            assert!(!shown.is_empty() && shown == stream(&loaded, &options, None), "{}", options.sampling);
        }
    }
}

#[test]
fn states_have_at_most_512_bytes() {
    let games = Games::new();
    let table = table(&games.archive);
    let (_, view) = table.split(&HeldOut::new("val", 0.5, 1).unwrap(), CancellationToken::never()).unwrap();
    let quotas = (0..500).map(|k| (format!("a stratum of the name {k}"), 1.0)).collect::<Vec<_>>();
    for sampling in every_sampling() {
        let options = LoaderOptions::default().with_sampling(sampling).with_seed(u64::MAX).with_epoch(u64::MAX);
        let mut state = view.loader(options).unwrap().state();
        state.position = u64::MAX;
        state.num_rows = u64::MAX;
        let bytes = serde_json::to_vec(&state).unwrap();
        assert!(bytes.len() <= 512, "{} bytes", bytes.len());
        assert_eq!(serde_json::from_slice::<LoaderState>(&bytes).unwrap(), state);
    }
    let long = Sampling::Stratified { column: "phase".into(), quotas: Some(quotas) };
    assert!(long.to_string().len() > 512);
}
