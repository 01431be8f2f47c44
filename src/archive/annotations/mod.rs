//! Annotations: adding, replacing, dropping and listing the predictions of models.
//!
//! A folder of annotations numbers its runs as its pool does. Each run is found in the archive by its seed, steps,
//! score and highest tile in the pool's `metadata.db`, and by its id in the source if several runs have these.

pub(in crate::archive) mod annotated_steps;
pub(in crate::archive) mod annotation_rows;

use self::annotated_steps::compare;
use self::annotation_rows::{AnnotationRows, AnnotationTable};
use crate::archive::archive::Archive;
use crate::archive::manifest::transaction::{Patience, transact};
use crate::archive::manifest::{Manifest, Operation};
use crate::archive::parquet::reader::{OpenDataFile, each_group, row_groups};
use crate::archive::parquet::row_views::StepRows;
use crate::archive::parquet::run_rows::{RunRow, run_rows};
use crate::archive::parquet::writer::{FILE_STEPS, ROW_GROUP_STEPS, RowGroupEncoder};
use crate::archive::parquet::writer_thread::{RowGroupSender, TransactionFiles};
use crate::archive::schema::table_schema;
use crate::archive::storage::Storage;
use crate::archive::table_name::TableName;
use crate::error::{Error, Result};
use crate::format::{AnnotationFolder, SessionRun};
use crate::system::cancellation::CancellationToken;
use crate::system::progress::{Progress, ReportedWork, Unit};
use arrow::array::RecordBatch;
use derive_setters::Setters;
use std::collections::btree_map::{BTreeMap, Entry};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::Path;
use tracing::info;

/// Options of [`Archive::annotate`].
///
/// Set fields with the `with_*` methods: `AnnotateOptions::default().with_replace(true)`.
#[derive(Clone, Debug, Default, Setters)]
#[setters(prefix = "with_", strip_option)]
#[non_exhaustive]
pub struct AnnotateOptions {
    /// Whether to replace the model's annotations. Otherwise new annotations must be of later runs.
    pub replace: bool,
    /// Whether runs may have steps without annotations.
    pub partial: bool,
}

/// The annotations to add.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum AnnotationInput<'a> {
    /// A folder of annotations, which numbers the runs as its pool does.
    Folder(&'a Path),
    /// Rows with the columns `run_id` and `step_index` of the archive and any other columns of `annotations` but
    /// `model`.
    Rows(&'a RecordBatch),
}

/// The result of [`Archive::annotate`].
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct AnnotateReport {
    /// The model.
    pub model: String,
    /// The number of annotated runs.
    pub num_runs: u64,
    /// The number of annotated steps.
    pub num_rows: u64,
    /// The number of steps of these runs without annotations.
    pub missing_steps: u64,
    /// The number of rows that were replaced.
    pub replaced_rows: u64,
}

/// The annotations of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct ModelInfo {
    /// The model.
    pub model: String,
    /// The number of annotated steps.
    pub num_rows: u64,
    /// The number of files.
    pub num_files: u64,
    /// The size of the files.
    pub num_bytes: u64,
    /// The first annotated run.
    pub first_run_id: u32,
    /// The last annotated run.
    pub last_run_id: u32,
}

/// The maximum length of a model's name in bytes.
const MAX_NAME: usize = 60;

impl Archive {
    /// Adds a model's predictions for steps of the archive, and commits them as one version.
    ///
    /// Every step must exist in the archive. Moves and legal moves must equal those of `steps`. The table `annotations`
    /// then has a row per step and model. A call with [`AnnotateOptions::replace`] replaces the model's rows.
    ///
    /// # Errors
    /// The kinds `Decode`, `Header` and `Argument` of [`ErrorKind`](crate::ErrorKind) if the annotations are damaged or
    /// contradict the archive. `Conflict`, `Cancelled`, `Io`, `Unconfirmed`. After each of these errors but the last, the
    /// archive is unchanged.
    pub fn annotate(
        &mut self,
        model: &str,
        input: AnnotationInput<'_>,
        options: &AnnotateOptions,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<AnnotateReport> {
        check_name(model)?;
        let storage = &self.storage;
        let source = match input {
            AnnotationInput::Folder(path) => AnnotationRows::Folder(AnnotationFolder::open(path, cancel)?),
            AnnotationInput::Rows(rows) => AnnotationRows::Table(AnnotationTable::new(rows)?),
        };
        if source.runs().is_empty() {
            return Err(source.refuse("rows", "at least one annotated step", "none".into()));
        }
        let prepare = |newest: &Manifest| {
            let runs = archive_runs(storage, newest, &source)?;
            let mut next = newest.next(Operation::Annotate);
            let mut removed = HashSet::new();
            let mut report = AnnotateReport { model: model.to_owned(), ..AnnotateReport::default() };
            match models(newest).into_iter().find(|known| known.model == model) {
                Some(known) if options.replace => {
                    report.replaced_rows = known.num_rows;
                    removed = paths_of(newest, model);
                }
                Some(known) if runs.keys().next().is_some_and(|&first| first <= known.last_run_id) => {
                    let found = format!("annotations of runs {}..={}", known.first_run_id, known.last_run_id);
                    let expected = "a new model, runs after its annotated ones, or `replace`";
                    return Err(Error::argument("model", expected, found));
                }
                _ => {}
            }
            let total = runs.values().map(|rows| rows.end - rows.start).sum();
            let _work = ReportedWork::begin(progress, "annotate", Unit::Rows, total);
            let (manifest, source, runs) = (newest, &source, &runs);
            let work = Annotating { storage, manifest, source, runs, model, options, progress, cancel };
            storage.create_folders(&[TableName::Annotations.name()])?;
            let output = TransactionFiles { storage, version: &next, model: Some(model), file_rows: FILE_STEPS };
            let (_, files) = output.write(cancel, |sender| work.run(sender, &mut report))?;
            next.replace(&removed, files);
            Ok((Some(next), report))
        };
        // The steps of a run never change, and after a `restore`, which may drop runs, a change is prepared again.
        let holds = |base: &Manifest, newest: &Manifest, _: &mut AnnotateReport| {
            Ok(paths_of(base, model) == paths_of(newest, model))
        };
        let outcome = transact(storage, &self.manifest, Patience::default(), cancel, prepare, holds)?;
        let report = outcome.value;
        info!(
            target: "a2store::ingest",
            archive = %self.path().display(),
            model,
            runs = report.num_runs,
            rows = report.num_rows,
            replaced_rows = report.replaced_rows,
            "annotate ended"
        );
        self.manifest = outcome.manifest.into();
        Ok(report)
    }

    /// Drops a model's annotations, and commits this as one version. Earlier versions still have them.
    ///
    /// # Errors
    /// The kind `Argument` of [`ErrorKind`](crate::ErrorKind) if the archive has no annotations of the model. `Conflict`,
    /// `Cancelled`, `Io`, `Unconfirmed`.
    pub fn drop_annotations(&mut self, model: &str, cancel: &CancellationToken) -> Result<ModelInfo> {
        let prepare = |newest: &Manifest| {
            let known = models(newest);
            let Some(dropped) = known.iter().find(|known| known.model == model) else {
                let names: Vec<&str> = known.iter().map(|known| &*known.model).collect();
                let expected = if names.is_empty() { "an annotated model".into() } else { names.join(", ") };
                return Err(Error::argument("model", expected, model));
            };
            let mut next = newest.next(Operation::Annotate);
            next.replace(&paths_of(newest, model), Vec::new());
            Ok((Some(next), dropped.clone()))
        };
        let (storage, seen) = (&self.storage, &self.manifest);
        let outcome = transact(storage, seen, Patience::default(), cancel, prepare, |_, _, _| Ok(true))?;
        self.manifest = outcome.manifest.into();
        Ok(outcome.value)
    }

    /// Returns the models with annotations, in the order of their names.
    #[must_use]
    pub fn annotations(&self) -> Vec<ModelInfo> {
        models(&self.manifest)
    }
}

fn models(manifest: &Manifest) -> Vec<ModelInfo> {
    let mut models: BTreeMap<&str, ModelInfo> = BTreeMap::new();
    for file in manifest.files(TableName::Annotations) {
        let name = file.model.as_deref().unwrap_or_default();
        let info = models.entry(name).or_insert_with(|| ModelInfo {
            model: name.to_owned(),
            first_run_id: file.first_run_id,
            ..ModelInfo::default()
        });
        info.num_rows += file.num_rows;
        info.num_files += 1;
        info.num_bytes += file.num_bytes;
        info.first_run_id = info.first_run_id.min(file.first_run_id);
        info.last_run_id = info.last_run_id.max(file.last_run_id);
    }
    models.into_values().collect()
}

fn paths_of(manifest: &Manifest, model: &str) -> HashSet<String> {
    let files = manifest.files(TableName::Annotations);
    files.filter(|file| file.model.as_deref() == Some(model)).map(|file| file.path.clone()).collect()
}

fn check_name(model: &str) -> Result<()> {
    if model.is_empty() || model.len() > MAX_NAME || model.chars().any(char::is_control) {
        let expected = format!("a name of 1 to {MAX_NAME} bytes without control characters");
        return Err(Error::argument("model", expected, format!("{model:?}")));
    }
    Ok(())
}

/// Returns the annotated runs by their ids in the archive, each with its rows in the source. Runs of the pool that are
/// one run of the archive must have equal annotations; the rows of the first are returned.
fn archive_runs(storage: &Storage, manifest: &Manifest, source: &AnnotationRows) -> Result<BTreeMap<u32, Range<u64>>> {
    type RunKey = (Option<u64>, u64, u32);
    let AnnotationRows::Folder(folder) = source else { return Ok(source.runs().into_iter().collect()) };
    let pool: HashMap<i64, SessionRun> = folder.pool()?.into_iter().map(|run| (run.id, run)).collect();
    let keys: HashSet<RunKey> = pool.values().map(|run| (run.seed, run.max_score, run.highest_tile)).collect();
    let mut known: HashMap<RunKey, Vec<RunRow>> = HashMap::new();
    for batch in row_groups(storage, manifest.files(TableName::Runs), &table_schema(TableName::Runs)) {
        for run in run_rows(&batch?)? {
            let run = RunRow { original: None, source: String::new(), ..run? };
            let key = (run.meta.seed, run.meta.max_score, run.meta.highest_tile);
            if keys.contains(&key) {
                known.entry(key).or_default().push(run);
            }
        }
    }
    let mut runs: BTreeMap<u32, (u32, Range<u64>)> = BTreeMap::new();
    for (id, rows) in source.runs() {
        let Some(run) = pool.get(&i64::from(id)) else {
            return Err(source.refuse("metadata.db", format!("run {id}, which has annotations"), "no such run".into()));
        };
        let steps = run.num_steps;
        let (seed, num_steps) = (text(run.seed), text(steps.map(u64::from)));
        let facts = format!("run {id} with seed {seed}, {num_steps} steps and score {}", run.max_score);
        let key = (run.seed, run.max_score, run.highest_tile);
        let is_same =
            |known: &&RunRow| steps.is_none_or(|steps| known.num_steps == steps || known.game_steps == Some(steps));
        let same: Vec<&RunRow> = known.get(&key).into_iter().flatten().filter(is_same).collect();
        let found = match same[..] {
            [only] => only,
            [] => return Err(source.refuse("run", format!("{facts} in the archive"), "no such run".into())),
            _ => {
                let mut own = same.iter().filter(|known| known.source_id == Some(u64::from(id)));
                match (own.next(), own.next()) {
                    (Some(only), None) => only,
                    _ => {
                        let found = format!("{} of them; annotate rows with run ids", same.len());
                        return Err(source.refuse("run", format!("one {facts} in the archive"), found));
                    }
                }
            }
        };
        match runs.entry(found.run_id) {
            Entry::Vacant(entry) => {
                entry.insert((id, rows));
            }
            // A pool may hold one game twice, and the archive holds it once.
            Entry::Occupied(entry) => source.check_equal(entry.get(), &(id, rows))?,
        }
    }
    Ok(runs.into_iter().map(|(run_id, (_, rows))| (run_id, rows)).collect())
}

fn text(number: Option<u64>) -> String {
    number.map_or("unknown".into(), |number| number.to_string())
}

/// The comparison of annotations with the steps of the archive, and their encoding.
struct Annotating<'a> {
    storage: &'a Storage,
    manifest: &'a Manifest,
    source: &'a AnnotationRows,
    runs: &'a BTreeMap<u32, Range<u64>>,
    model: &'a str,
    options: &'a AnnotateOptions,
    progress: &'a dyn Progress,
    cancel: &'a CancellationToken,
}

impl Annotating<'_> {
    /// Compares all runs with the archive, and sends their rows.
    fn run(&self, sender: &RowGroupSender, report: &mut AnnotateReport) -> Result<()> {
        let encoder = RowGroupEncoder::new(TableName::Annotations)?;
        let (mut parts, mut num_rows, mut seen) = (Vec::new(), 0, None);
        let send = |parts: Vec<RecordBatch>| match parts.is_empty() {
            true => Ok(()),
            false => {
                let group = encoder.encode(parts.into_iter().map(Ok), self.cancel)?;
                sender.send(TableName::Annotations, group)
            }
        };
        let run_ids: Vec<u32> = self.runs.keys().copied().collect();
        let open = |file| OpenDataFile::sound(self.storage, file);
        each_group(self.manifest.files(TableName::Steps), &run_ids, open, &mut |file, index| {
            let group = file.read(index)?;
            let steps = StepRows::new(&group)?;
            for range in steps.runs() {
                let run_id = steps.run_id[range.start];
                let Some(rows) = self.runs.get(&run_id) else { continue };
                self.cancel.check()?;
                let batch = self.source.batch(rows, run_id, self.model)?;
                report.missing_steps += compare(self.source, &steps, &range, &batch, self.options.partial)?;
                report.num_runs += 1;
                report.num_rows += batch.num_rows() as u64;
                self.progress.advance(batch.num_rows() as u64);
                num_rows += batch.num_rows();
                seen = Some(run_id);
                parts.push(batch);
                if num_rows >= ROW_GROUP_STEPS {
                    num_rows = 0;
                    send(std::mem::take(&mut parts))?;
                }
            }
            Ok(())
        })?;
        if report.num_runs < self.runs.len() as u64 {
            let next = seen.map_or(0, |seen: u32| seen.saturating_add(1));
            let found = match self.runs.range(next..).next() {
                Some((run_id, _)) => format!("run {run_id}"),
                None => format!("{} others", self.runs.len() as u64 - report.num_runs),
            };
            return Err(self.source.refuse("run_id", "runs of the archive with steps", found));
        }
        send(parts)
    }
}
