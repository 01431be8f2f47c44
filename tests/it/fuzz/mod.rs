//! Fuzzing: damaged and hostile input for every parser of formats.
//!
//! A target takes valid input, changes it at random, and parses it. For most inputs it first repairs the checksums.
//! Each input must yield a typed error or a well-formed run, without a panic, in memory of at most four times its
//! length plus 8 MiB. An execution is determined by a seed and its number.
//!
//! A test runs each target `Target::EXECS` times, on any machine. For more executions, with statistics on standard
//! error:
//!
//! ```text
//! A2STORE_FUZZ_EXECS=5000000 [A2STORE_FUZZ_SEED=7] [A2STORE_FUZZ_FIRST=1234] cargo test --release --test it fuzz::a2t1
//! ```
//!
//! Each target runs in a separate process without other tests, because the memory of all threads counts. If the process
//! dies, a file holds the number of the last execution.

mod exhaustive;
mod folders;
mod macroxue;
mod macroxue_packs;
mod memory;
mod mutate;
mod packdat;
mod packs;
mod random;
mod run_files;
mod seeds;
mod tables;
mod unfinished;
mod well_formed;

use a2store::{Error, ErrorKind};
use memory::Gauge;
use random::Random;
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A parser under test.
trait Target {
    /// The name of the target and of its test.
    const NAME: &'static str;
    /// The default number of executions, equal on all machines.
    const EXECS: u64 = 20_000;

    /// Creates the target with valid seeds.
    fn new() -> Self;

    /// Creates the next input.
    fn mutate(&mut self, random: &mut Random);

    /// Returns the file names and contents of the input.
    fn input(&self) -> Vec<(&str, &[u8])>;

    /// Parses the input. Returns an error if the outcome is wrong.
    fn execute(&mut self, gauge: &mut Gauge, tally: &mut Tally, random: &mut Random) -> Result<(), String>;
}

/// Counts of outcomes.
#[derive(Debug, Default)]
struct Tally {
    executions: u64,
    /// Inputs with correct checksums; in a format without checksums, inputs whose file could be opened.
    past_checksums: u64,
    /// Inputs with at least one decoded run.
    decoded: u64,
    /// Numbers of errors by kind and subject.
    errors: BTreeMap<(&'static str, &'static str), u64>,
}

impl Tally {
    fn error(&mut self, error: &Error) {
        let what = match error.kind() {
            ErrorKind::Decode { what, .. } | ErrorKind::Header { what, .. } | ErrorKind::Checksum { what, .. } => what,
            ErrorKind::Argument { name, .. } => name,
            _ => "",
        };
        *self.errors.entry((error.kind_name(), what)).or_default() += 1;
    }
}

#[test]
fn a2t1() {
    fuzz::<run_files::A2t1>();
}

#[test]
fn a2run2() {
    fuzz::<run_files::A2run2>();
}

#[test]
fn a2pack() {
    fuzz::<packs::Pack>();
}

#[test]
fn packdat() {
    fuzz::<packdat::Dat>();
}

#[test]
fn dataset() {
    fuzz::<folders::OfDataset>();
}

#[test]
fn session() {
    fuzz::<folders::OfSession>();
}

#[test]
fn macroxue() {
    fuzz::<macroxue::Log>();
}

#[test]
fn macroxue_pack() {
    fuzz::<macroxue_packs::OfPack>();
}

const CHILD: &str = "A2STORE_TEST_FUZZES";
const EXECS: &str = "A2STORE_FUZZ_EXECS";
const SEED: &str = "A2STORE_FUZZ_SEED";
const FIRST: &str = "A2STORE_FUZZ_FIRST";

/// The smallest number of distinct errors of a working target.
const FEWEST_ERRORS: usize = 5;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name}: a number, not {value}")))
}

fn fuzz<T: Target>() {
    if std::env::var_os(CHILD).is_some() {
        return run::<T>();
    }
    let temp = tempfile::tempdir().unwrap();
    let place = temp.path().join("execution");
    let own = std::env::current_exe().unwrap();
    let name = format!("fuzz::{}", T::NAME);
    let mut child = Command::new(own);
    child.args(["--exact", &name, "--nocapture"]).env(CHILD, &place);
    let (succeeded, text) = if number(EXECS).is_some() {
        // Inherited, because the test harness captures the output of a test.
        (child.stdout(Stdio::null()).stderr(Stdio::inherit()).status().unwrap().success(), String::new())
    } else {
        let output = child.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout) + &text(&output.stderr))
    };
    let last = std::fs::read(&place).ok().and_then(|bytes| Some(u64::from_le_bytes(*bytes.first_chunk()?)));
    assert!(succeeded, "{}: ended at about execution {last:?}\n{text}", T::NAME);
    assert!(last.is_some(), "{}: nothing was executed\n{text}", T::NAME);
}

/// Runs a target in this process.
fn run<T: Target>() {
    let place = std::fs::File::create(std::env::var_os(CHILD).unwrap()).unwrap();
    let seed = number(SEED).unwrap_or(1);
    let first = number(FIRST).unwrap_or(0);
    let execs = number(EXECS).unwrap_or(T::EXECS);
    let mut target = T::new();
    let (mut gauge, mut tally) = (Gauge::default(), Tally::default());
    let start = Instant::now();
    for iteration in first..first.saturating_add(execs) {
        if iteration % 64 == 0 {
            place.write_all_at(&iteration.to_le_bytes(), 0).unwrap();
        }
        tally.executions += 1;
        let mut random = Random::new(seed, iteration);
        target.mutate(&mut random);
        gauge.begin(target.input().iter().map(|(_, bytes)| bytes.len()).sum());
        let executed = catch_unwind(AssertUnwindSafe(|| target.execute(&mut gauge, &mut tally, &mut random)));
        let problem = match executed {
            Ok(outcome) => outcome.and_then(|()| gauge.verdict()).err(),
            Err(_) => Some("a panic".to_owned()),
        };
        if let Some(problem) = problem {
            let folder = save(T::NAME, seed, iteration, &target.input());
            panic!("{}: {problem}\n{SEED}={seed} {FIRST}={iteration} {EXECS}=1, kept in {}", T::NAME, folder.display());
        }
    }
    place.write_all_at(&tally.executions.to_le_bytes(), 0).unwrap();
    report(T::NAME, &tally, &gauge, start.elapsed());
    if first == 0 {
        assert!(tally.decoded > 0, "{}: a fuzz target that cannot reach anything: no run was ever decoded", T::NAME);
        let num_errors = tally.errors.len();
        assert!(
            num_errors >= FEWEST_ERRORS,
            "{}: a fuzz target that cannot reach anything: {num_errors} errors",
            T::NAME
        );
    }
}

fn report(name: &str, tally: &Tally, gauge: &Gauge, elapsed: Duration) {
    let Tally { executions, past_checksums, decoded, errors } = tally;
    let share = |count: &u64| 100.0 * *count as f64 / (*executions).max(1) as f64;
    let mut text = format!(
        "{name}: {executions} executions, {:.0} per second, {:.1}% past checksums, {decoded} decoded ({:.1}%), {} errors, \
         at most {} KiB in use and {} KiB at once\n",
        *executions as f64 / elapsed.as_secs_f64(),
        share(past_checksums),
        share(decoded),
        errors.len(),
        gauge.peak >> 10,
        gauge.largest >> 10,
    );
    for ((kind, what), count) in errors {
        text += &format!("    {count:>10} {kind}: {what}\n");
    }
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Saves an input and returns its folder.
fn save(name: &str, seed: u64, iteration: u64, input: &[(&str, &[u8])]) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("a2store-fuzz-{name}-{seed}-{iteration}"));
    std::fs::create_dir_all(&folder).unwrap();
    for (file, bytes) in input {
        std::fs::write(folder.join(file), bytes).unwrap();
    }
    folder
}

/// Creates a temporary folder, in memory if possible, for files that are written a thousand times per second.
fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir()).unwrap()
}
