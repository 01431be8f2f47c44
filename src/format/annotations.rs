//! Annotations: a folder with a model's predictions for the steps of a pool of games.
//!
//! ```text
//!  annotations.npy, or shards of it: annotations-00000.npy, annotations-00001.npy, …
//!  0        4            8              9            10                 11            12
//!  | run_id | step_index | teacher_move | legal_mask | policy_kind_mask | argmax_head | argmax_prob |
//!  | u32    | u32        | u8           | u8         | u8               | u8          | f32         |
//!  16          32            48
//!  | policy_p1 | policy_logp | policy_hard |      NumPy's header, then rows of 64 bytes
//!  | f32 × 4   | f32 × 4     | f32 × 4     |
//!
//!  annotations-student.npy, annotations-student-00000.npy, …   f32 of shape (rows, 4, bins), one beside each shard
//!  annotation_manifest.json   {"runs": [{"run_id", "policy_kind_mask"}], "student_bins": {"dtype", "num_bins"}}
//!  metadata.db                a copy of the pool's: runs(id, seed, steps, max_score, highest_tile)
//! ```
//!
//! The rows of a run are contiguous and in the order of their steps. Runs are numbered as in the pool. The bits of
//! `policy_kind_mask` say which predictions a row has: 1 `policy_p1`, 2 `policy_logp`, 4 `policy_hard`, 8 student
//! bins. In `teacher_move`, 255 stands for an unknown move.

use crate::error::{Error, Result};
use crate::format::files::mapped::{header_error, map_file, read_json};
use crate::format::files::mapped_rows::{METADATA, MappedRows, RowFields, numbered_files, part_of};
use crate::format::files::npy::NpyMatrix;
use crate::format::session::{SessionRun, runs_in};
use crate::system::cancellation::CancellationToken;
use memmap2::Mmap;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::{HashMap, HashSet};
use std::mem::offset_of;
use std::ops::Range;
use std::path::{Path, PathBuf};

pub(in crate::format) const MANIFEST: &str = "annotation_manifest.json";
/// The maximum size of a manifest in bytes.
const MAX_MANIFEST: u64 = 1 << 28;
/// The number of rows between two checks for a cancellation.
const CHECKED_ROWS: u64 = 1 << 16;
const UNKNOWN_MOVE: u8 = 255;
const STUDENT_BINS: u8 = 8;

/// A row in the layout of the file.
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, packed)]
pub(crate) struct AnnotationRow {
    pub(crate) run_id: u32,
    pub(crate) step_index: u32,
    teacher_move: u8,
    pub(crate) legal_mask: u8,
    pub(crate) policy_kind_mask: u8,
    pub(crate) argmax_head: u8,
    pub(crate) argmax_prob: f32,
    policies: [[f32; 4]; 3],
}

const _: () = assert!(size_of::<AnnotationRow>() == 64);

const FIELDS: [(&str, &str, usize); 10] = [
    ("run_id", "<u4", 1),
    ("step_index", "<u4", 1),
    ("teacher_move", "|u1", 1),
    ("legal_mask", "|u1", 1),
    ("policy_kind_mask", "|u1", 1),
    ("argmax_head", "|u1", 1),
    ("argmax_prob", "<f4", 1),
    ("policy_p1", "<f4", 4),
    ("policy_logp", "<f4", 4),
    ("policy_hard", "<f4", 4),
];

impl AnnotationRow {
    /// Returns the move of the pool; `None` = unknown.
    pub(crate) fn teacher_move(&self) -> Option<u8> {
        (self.teacher_move != UNKNOWN_MOVE).then_some(self.teacher_move)
    }

    /// Returns `policy_p1`, `policy_logp` or `policy_hard` (0, 1, 2) per move, if the row has it.
    pub(crate) fn policy(&self, policy: usize) -> Option<[f32; 4]> {
        (self.policy_kind_mask >> policy & 1 == 1).then_some(self.policies[policy])
    }
}

/// A folder of annotations, memory-mapped. The order of its rows and its manifest have been checked.
#[derive(Debug)]
pub(crate) struct AnnotationFolder {
    path: PathBuf,
    rows: MappedRows,
    /// The student bins in the order of their first rows.
    bins: Vec<StudentBins>,
    /// The run ids in the order of the rows, and the rows of each run.
    runs: Vec<(u32, Range<u64>)>,
}

/// The student bins of one file of rows.
#[derive(Debug)]
struct StudentBins {
    bytes: Mmap,
    start: usize,
    values_per_row: usize,
    rows: Range<u64>,
}

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    runs: Vec<ManifestRun>,
    student_bins: Option<ManifestBins>,
    value: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct ManifestRun {
    run_id: u32,
    policy_kind_mask: u8,
}

#[derive(Deserialize)]
struct ManifestBins {
    num_bins: u64,
}

impl AnnotationFolder {
    /// Opens a folder, and checks the order of the rows and the manifest, if there is one.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode), [`ErrorKind::Header`](crate::ErrorKind::Header),
    /// [`ErrorKind::Io`](crate::ErrorKind::Io), [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
    pub(crate) fn open(path: &Path, cancel: &CancellationToken) -> Result<AnnotationFolder> {
        let files = numbered_files(path, "annotations", "rows of the annotations")?;
        let rows = MappedRows::open(files, &[RowFields::packed(&FIELDS)])?;
        let bins =
            rows.parts().filter_map(|(path, first, len)| StudentBins::open(path, first..first + len).transpose());
        let bins = bins.collect::<Result<_>>()?;
        let mut folder = AnnotationFolder { path: path.to_owned(), rows, bins, runs: Vec::new() };
        folder.check_other_files()?;
        folder.runs = folder.find_runs(cancel)?;
        folder.check_manifest(cancel)?;
        Ok(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the runs in the order of the rows, and the rows of each.
    pub(crate) fn runs(&self) -> &[(u32, Range<u64>)] {
        &self.runs
    }

    /// Reads the pool's runs in the copy of its `metadata.db`.
    pub(crate) fn pool(&self) -> Result<Vec<SessionRun>> {
        runs_in(&self.path.join(METADATA))
    }

    /// Returns the rows of a range, each with its student bins, if it has any.
    pub(crate) fn rows(&self, range: Range<u64>) -> impl Iterator<Item = (AnnotationRow, Option<&[u8]>)> {
        range.filter_map(|row| Some((*part_of(self.rows.row(row)?, 0), self.bins_of(row))))
    }

    fn bins_of(&self, row: u64) -> Option<&[u8]> {
        let bins = self.bins.get(self.bins.partition_point(|bins| bins.rows.end <= row))?;
        let len = bins.values_per_row * size_of::<f32>();
        let start = bins.start + usize::try_from(row.checked_sub(bins.rows.start)?).ok()? * len;
        bins.bytes.get(start..start + len)
    }

    /// Rejects files that would be ignored: student bins without a shard of rows, and predictions of values.
    fn check_other_files(&self) -> Result<()> {
        let known: HashSet<PathBuf> = self.rows.parts().map(|(path, ..)| bins_path(path)).collect();
        let io = |source| Error::io(&self.path, source);
        for entry in std::fs::read_dir(&self.path).map_err(io)? {
            let name = entry.map_err(io)?.file_name();
            let Some(text) = name.to_str() else { continue };
            let is_array = text.ends_with(".npy");
            if is_array && (text.starts_with("annotations-value") || text.starts_with("values-")) {
                return Err(no_values(text.to_owned(), &self.path));
            }
            let is_bins = is_array && text.starts_with("annotations-student");
            if is_bins && !known.contains(&self.path.join(&name)) {
                return Err(header_error("student bins", "a file of rows for each", text.to_owned(), &self.path));
            }
        }
        Ok(())
    }

    /// Checks the order of the rows, and returns the rows of each run.
    fn find_runs(&self, cancel: &CancellationToken) -> Result<Vec<(u32, Range<u64>)>> {
        let mut runs: Vec<(u32, Range<u64>)> = Vec::new();
        let (mut seen, mut last_step) = (HashSet::new(), 0);
        for (row, number) in self.rows.iter().map(|row| part_of::<AnnotationRow>(row, 0)).zip(0_u64..) {
            if number.is_multiple_of(CHECKED_ROWS) {
                cancel.check()?;
            }
            let at = |field: usize, what, expected: &str, found: String| {
                let (path, offset) = self.rows.place(number).unwrap_or((&self.path, 0));
                Err(Error::decode(offset + field as u64, what, expected, found).with_path(path))
            };
            if row.policy_kind_mask & STUDENT_BINS != 0 && self.bins_of(number).is_none() {
                let path = self.rows.place(number).map_or(self.path.as_path(), |(path, _)| path);
                let found = format!("no {}", bins_name(path));
                return at(offset_of!(AnnotationRow, policy_kind_mask), "student bins", "a file of them", found);
            }
            let (run_id, step_index) = (row.run_id, row.step_index);
            match runs.last_mut() {
                Some((last, rows)) if *last == run_id => {
                    if step_index <= last_step {
                        let expected = format!("above {last_step}");
                        let field = offset_of!(AnnotationRow, step_index);
                        return at(field, "step_index", &expected, step_index.to_string());
                    }
                    rows.end += 1;
                }
                _ if !seen.insert(run_id) => {
                    let found = format!("run {run_id} again");
                    return at(0, "run_id", "the rows of each run in one place", found);
                }
                _ => runs.push((run_id, number..number + 1)),
            }
            last_step = step_index;
        }
        Ok(runs)
    }

    /// Compares the manifest with the rows.
    fn check_manifest(&self, cancel: &CancellationToken) -> Result<()> {
        let path = self.path.join(MANIFEST);
        let refuse = |what, expected: String, found: String| Err(header_error(what, expected, found, &path));
        let manifest: Option<Manifest> = read_json(&path, MAX_MANIFEST, "manifest", "JSON with its fields")?;
        let Some(manifest) = manifest else { return Ok(()) };
        if manifest.value.is_some() {
            return Err(no_values("a block named value".into(), &path));
        }
        if let Some(bins) = &manifest.student_bins
            && let Some(found) =
                self.bins.iter().find(|found| bins.num_bins.checked_mul(4) != Some(found.values_per_row as u64))
        {
            let found = format!("{} in the files of student bins", found.values_per_row / 4);
            return refuse("num_bins", bins.num_bins.to_string(), found);
        }
        let mut masks: HashMap<u32, u8> = HashMap::with_capacity(manifest.runs.len());
        for run in &manifest.runs {
            if masks.insert(run.run_id, run.policy_kind_mask).is_some() {
                return refuse("runs", "each run once".into(), format!("run {} again", run.run_id));
            }
        }
        for (run_id, rows) in &self.runs {
            cancel.check()?;
            let Some(mask) = masks.remove(run_id) else {
                return refuse("runs", format!("run {run_id}, which has rows"), "no such run".into());
            };
            // The bit of student bins is set in the manifest only, if the bins are in a file of their own.
            let differs = |row: &AnnotationRow| (row.policy_kind_mask ^ mask) & !STUDENT_BINS != 0;
            if let Some((row, _)) = self.rows(rows.clone()).find(|(row, _)| differs(row)) {
                let (found, step) = (row.policy_kind_mask, row.step_index);
                let found = format!("{found} at step {step} of run {run_id}");
                return refuse("policy_kind_mask", mask.to_string(), found);
            }
            let needs_bins = mask & STUDENT_BINS != 0;
            if self.rows(rows.clone()).any(|(_, bins)| bins.is_none() && needs_bins) {
                return refuse("student bins", format!("those of run {run_id}"), "no file of them".into());
            }
        }
        match masks.keys().min() {
            None => Ok(()),
            Some(run_id) => refuse("runs", "runs that have rows".into(), format!("run {run_id}, which has none")),
        }
    }
}

/// Returns the error for predictions of values, which an archive does not hold.
#[cold]
fn no_values(found: String, path: &Path) -> Error {
    header_error("kind of predictions", "policies and student bins only", found, path)
}

impl StudentBins {
    /// Opens the student bins of a file with these rows; `None` if there are none.
    fn open(rows_path: &Path, rows: Range<u64>) -> Result<Option<StudentBins>> {
        let path = &bins_path(rows_path);
        if let Err(error) = std::fs::metadata(path)
            && error.kind() == std::io::ErrorKind::NotFound
        {
            return Ok(None);
        }
        let bytes = map_file(path)?;
        let located = |error: Error| error.of_header().with_path(path);
        let header = NpyMatrix::parse(&bytes, true).map_err(located)?;
        if header.dtype != "<f4" {
            return Err(located(Error::decode(10, "type of the student bins", "<f4", header.dtype)));
        }
        let stride = header.values_per_row.saturating_mul(size_of::<f32>() as u64);
        header.check_file_len(stride, bytes.len() as u64).map_err(located)?;
        let num_rows = rows.end - rows.start;
        if header.num_rows != num_rows {
            let found = header.num_rows.to_string();
            return Err(header_error("rows of the student bins", num_rows.to_string(), found, path));
        }
        let values_per_row = header.values_per_row as usize;
        Ok(Some(StudentBins { bytes, start: header.len as usize, values_per_row, rows }))
    }
}

/// Returns the name of the student bins of a file of rows.
fn bins_name(rows: &Path) -> String {
    let name = rows.file_name().unwrap_or_default().to_string_lossy();
    name.replacen("annotations", "annotations-student", 1)
}

fn bins_path(rows: &Path) -> PathBuf {
    rows.with_file_name(bins_name(rows))
}
