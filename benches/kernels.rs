//! Benchmarks of the kernels on the path of training (materialize, permutation, gather, an epoch) and of boards.
//!
//! Each kernel's answer is checked before it is timed. The table of the gather is larger than the caches:
//! `A2STORE_BENCH_STEPS` rows, 20 million by default.

#![allow(clippy::unwrap_used, missing_docs)]

use a2store::archive::TableName;
use a2store::format::{RunFormat, decode_run, encode_run, read_run};
use a2store::loader::Permutation;
use a2store::query::no_params;
use a2store::selfplay::{Choices, IllegalMoves, PlayOptions, Positions, VectorEnv, play};
use a2store::table::ElementType;
use a2store::{
    Archive, Board, CancellationToken, IngestOptions, LoaderOptions, MaterializeOptions, Move, Run, SimulateOptions,
    StepTable, simulate,
};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use parquet::file::reader::{FileReader, SerializedFileReader};
use std::fs::File;
use std::hint::black_box;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const BATCH: usize = 4096;

fn table() -> StepTable {
    let steps: u64 = std::env::var("A2STORE_BENCH_STEPS").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000_000);
    let folder = tempfile::tempdir().unwrap();
    // Games without look-ahead are about 350 steps long.
    let options = SimulateOptions::default().with_runs((steps / 350) as u32).with_seed(1).with_depth(0);
    simulate(folder.path().join("runs"), &options, &(), &CancellationToken::new()).unwrap();
    let mut archive = Archive::create(folder.path().join("games.a2"), Default::default()).unwrap();
    archive.ingest([folder.path().join("runs")], &IngestOptions::default(), &(), &CancellationToken::new()).unwrap();
    let query = archive.sql("SELECT * FROM steps", no_params()).unwrap();
    query.materialize(&MaterializeOptions::default(), &(), &CancellationToken::new()).unwrap()
}

fn boards(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("board");
    let permutation = Permutation::new(1 << 62, 1, 0).unwrap();
    let boards: Vec<Board> = (0..BATCH as u64).map(|i| Board(permutation.get(i).unwrap() << 2)).collect();
    group.throughput(Throughput::Elements(BATCH as u64));
    for board in &boards {
        let mask = Move::ALL.into_iter().filter(|&m| board.slide(m) != *board).fold(0, |mask, m| mask | m.bit());
        assert_eq!(board.legal_moves(), mask);
        assert_eq!(board.max_exp(), *board.exps().iter().max().unwrap());
    }
    group.bench_function("slides", |b| b.iter(|| boards.iter().map(|board| board.slides()[0].0).sum::<u64>()));
    group.bench_function("legal_moves", |b| {
        b.iter(|| boards.iter().map(|board| u32::from(board.legal_moves())).sum::<u32>())
    });
    group.bench_function("max_exp", |b| b.iter(|| boards.iter().map(|board| u32::from(board.max_exp())).sum::<u32>()));
    group.finish();
}

/// Run files: decoding and encoding on one core.
fn formats(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs");
    simulate(&runs, &SimulateOptions::default().with_runs(200).with_seed(1), &(), &CancellationToken::new()).unwrap();
    let mut files: Vec<_> = std::fs::read_dir(&runs).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort_unstable();
    let runs: Vec<Run> = files.iter().map(|path| read_run(path).unwrap().0).collect();
    let num_steps: u64 = runs.iter().map(|run| run.num_steps() as u64).sum();
    let mut group = criterion.benchmark_group(format!("{} runs of {num_steps} steps", runs.len()));
    group.throughput(Throughput::Elements(num_steps));
    for format in RunFormat::ALL {
        let encoded: Vec<Vec<u8>> = runs.iter().map(|run| encode_run(run, format).unwrap()).collect();
        for (run, bytes) in runs.iter().zip(&encoded) {
            let (decoded, found) = decode_run(bytes).unwrap();
            assert_eq!((decoded.boards(), decoded.moves(), found), (run.boards(), run.moves(), format));
        }
        let decode = || encoded.iter().map(|bytes| decode_run(bytes).unwrap().0.num_steps()).sum::<usize>();
        group.bench_function(format!("decode {format}"), |b| b.iter(decode));
        let encode = || runs.iter().map(|run| encode_run(run, format).unwrap().len()).sum::<usize>();
        group.bench_function(format!("encode {format}"), |b| b.iter(encode));
    }
    group.finish();
}

fn permutations(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("permutation");
    group.throughput(Throughput::Elements(BATCH as u64));
    for n in [1_000_000, 100_000_000, 10_000_000_000] {
        let permutation = Permutation::new(n, 1, 0).unwrap();
        let mut out = [0; BATCH];
        permutation.fill(500, &mut out);
        assert!(out.iter().enumerate().all(|(i, &x)| permutation.get(500 + i as u64) == Some(x)));
        group.bench_function(format!("fill of 0..{n}"), |b| b.iter(|| permutation.fill(black_box(500), &mut out)));
    }
    group.finish();
}

/// A query into a table, and its floor: the same pages, decompressed by the same number of threads, not decoded, not
/// compared with a checksum, and not written anywhere.
fn materialize(criterion: &mut Criterion) {
    let (folder, cancel) = (tempfile::tempdir().unwrap(), CancellationToken::new());
    simulate(folder.path().join("runs"), &SimulateOptions::default().with_runs(4000).with_seed(1), &(), &cancel)
        .unwrap();
    let mut archive = Archive::create(folder.path().join("games.a2"), Default::default()).unwrap();
    archive.ingest([folder.path().join("runs")], &IngestOptions::default(), &(), &cancel).unwrap();
    let mut group = criterion.benchmark_group(format!("materialize {} rows", archive.num_steps()));
    group.sample_size(20);
    group.throughput(Throughput::Elements(archive.num_steps()));
    let columns = ["run_id", "step_index", "board", "move", "ev_up", "ev_down", "ev_left", "ev_right", "ev_legal"];
    let open = |path: &PathBuf| SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let num_groups = |path: &PathBuf| (path.clone(), open(path).num_row_groups());
    let files: Vec<(PathBuf, usize)> = archive.files(TableName::Steps).iter().map(num_groups).collect();
    let groups: Vec<(&PathBuf, usize)> =
        files.iter().flat_map(|(path, count)| (0..*count).map(move |number| (path, number))).collect();
    let decompress = || {
        let (next, num_values) = (AtomicUsize::new(0), AtomicU64::new(0));
        let work = || {
            while let Some(&(path, number)) = groups.get(next.fetch_add(1, Ordering::Relaxed)) {
                let reader = open(path);
                let row_group = reader.get_row_group(number).unwrap();
                for (column, descriptor) in
                    reader.metadata().file_metadata().schema_descr().columns().iter().enumerate()
                {
                    if columns.contains(&descriptor.name()) {
                        for page in row_group.get_column_page_reader(column).unwrap() {
                            let page = page.unwrap();
                            if page.is_data_page() {
                                num_values.fetch_add(page.num_values().into(), Ordering::Relaxed);
                            }
                        }
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(1, NonZero::get) {
                scope.spawn(work);
            }
        });
        num_values.into_inner()
    };
    assert_eq!(decompress(), columns.len() as u64 * archive.num_steps());
    group.bench_function("only decompress the pages", |b| b.iter(decompress));
    let query = archive.sql("SELECT * FROM steps", no_params()).unwrap();
    let table = || query.materialize(&MaterializeOptions::default(), &(), &cancel).unwrap();
    assert_eq!(table().num_rows(), archive.num_steps());
    group.bench_function("materialize", |b| b.iter_with_large_drop(table));
    group.finish();
}

fn gather(criterion: &mut Criterion) {
    let table = table();
    let mut group = criterion.benchmark_group(format!("gather of {BATCH} from {} rows", table.num_rows()));
    group.throughput(Throughput::Elements(BATCH as u64));
    let permutation = Permutation::new(table.num_rows(), 1, 0).unwrap();
    let mut position = 0;
    let mut next = || {
        let mut indices = vec![0; BATCH];
        position = (position + BATCH as u64) % (table.num_rows() - BATCH as u64);
        permutation.fill(position, &mut indices);
        indices
    };
    let indices = next();
    let batch = table.take(&indices).unwrap();
    let tokens = batch.column("tokens").unwrap().bytes;
    for (row, &index) in indices.iter().enumerate() {
        assert_eq!(tokens[16 * row..][..16], table.step(index).unwrap().board.exps());
    }
    group.bench_function("rows one by one, no prefetch", |b| {
        b.iter_batched(
            &mut next,
            |indices| indices.iter().map(|&i| table.step(i).map_or(0, |step| step.board.0)).fold(0, u64::wrapping_add),
            BatchSize::SmallInput,
        );
    });
    group.bench_function("take", |b| b.iter_batched(&mut next, |indices| table.take(&indices), BatchSize::SmallInput));
    group.finish();

    let mut group = criterion.benchmark_group("loader");
    group.sample_size(10);
    group.throughput(Throughput::Elements(table.num_rows()));
    for (name, prefetch, tokens) in [
        ("inline", 0, ElementType::UInt8),
        ("ahead", 2, ElementType::UInt8),
        ("ahead, int64 tokens", 2, ElementType::Int64),
    ] {
        let loader = table.loader(LoaderOptions::default().with_prefetch(prefetch).with_tokens(tokens)).unwrap();
        let epoch = || loader.batches().unwrap().map(|batch| batch.num_rows() as u64).sum::<u64>();
        assert_eq!(epoch(), table.num_rows());
        group.bench_function(format!("an epoch, {name}"), |b| b.iter(epoch));
    }
    group.finish();
}

/// Parallel games on one core: the cost of a step, and whole games with a trivial policy.
fn selfplay(criterion: &mut Criterion) {
    const GAMES: usize = 1024;
    let mut group = criterion.benchmark_group("selfplay");
    group.throughput(Throughput::Elements(GAMES as u64));
    let mut env = VectorEnv::new(GAMES, 1).unwrap();
    let (mut tokens, mut legal) = (vec![[0; 16]; GAMES], vec![[0; 4]; GAMES]);
    let mut moves = vec![Move::Up; GAMES];
    group.bench_function("step, tokens and masks", |b| {
        b.iter(|| {
            // A pseudorandom legal move.
            for (chosen, (&mask, board)) in moves.iter_mut().zip(env.legal_moves().iter().zip(env.boards())) {
                let from = (board.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62) as u32;
                let turned = (u32::from(mask) | u32::from(mask) << 4) >> from;
                *chosen = Move::ALL[((turned.trailing_zeros() + from) & 3) as usize];
            }
            env.step(&moves, IllegalMoves::Refused).unwrap();
            for slot in 0..GAMES {
                if env.legal_moves()[slot] == 0 {
                    env.restart(slot);
                }
            }
            for (slot, (board, mask)) in env.boards().iter().zip(env.legal_moves()).enumerate() {
                tokens[slot] = board.exps();
                legal[slot] = std::array::from_fn(|direction| mask >> direction & 1);
            }
            black_box((&tokens, &legal));
        })
    });
    let first = |positions: Positions<'_>| {
        let moves = positions.legal.iter().map(|legal| i64::from(legal.trailing_zeros())).collect();
        Ok::<_, a2store::Error>(Choices::Moves(moves))
    };
    let options = PlayOptions::default().with_num_games(4 * GAMES as u64);
    let num_steps = play(first, &options, None, &(), &CancellationToken::new()).unwrap().num_steps;
    group.throughput(Throughput::Elements(num_steps));
    group.bench_function("games", |b| {
        b.iter(|| play(first, &options, None, &(), &CancellationToken::new()).unwrap().num_steps)
    });
    group.finish();
}

criterion_group!(benches, boards, formats, permutations, materialize, gather, selfplay);
criterion_main!(benches);
