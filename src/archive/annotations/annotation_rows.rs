//! The rows of annotations as columns of the table `annotations`, from a folder or from an Arrow table.

use crate::archive::schema::{MOVE_NAMES, POLICIES, table_schema};
use crate::archive::table_name::TableName;
use crate::error::{Error, Result};
use crate::format::{AnnotationFolder, header_error};
use crate::system::casts::checked_cast;
use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, DictionaryArray, FixedSizeListArray, Float32Builder, Int32Array,
    ListBuilder, RecordBatch, StringArray, UInt8Builder, UInt32Array, make_array, new_null_array,
};
use arrow::compute::{SortColumn, lexsort_to_indices, nullif, take_record_batch};
use arrow::datatypes::{DataType, FieldRef, Float32Type, Schema, UInt8Type, UInt32Type};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// The rows of annotations, each run in one place and its steps in order.
pub(in crate::archive) enum AnnotationRows {
    Folder(AnnotationFolder),
    Table(AnnotationTable),
}

/// An Arrow table of annotations: the columns of the table `annotations` except `model`, sorted by run and step.
pub(in crate::archive) struct AnnotationTable(RecordBatch);

impl AnnotationRows {
    /// Returns the runs, each with its rows.
    pub(in crate::archive) fn runs(&self) -> Vec<(u32, Range<u64>)> {
        match self {
            AnnotationRows::Folder(folder) => folder.runs().to_vec(),
            AnnotationRows::Table(table) => {
                let (mut runs, mut start) = (Vec::new(), 0);
                for run in keys(&table.0)[0].chunk_by(|a, b| a == b) {
                    runs.push((run[0], start..start + run.len() as u64));
                    start += run.len() as u64;
                }
                runs
            }
        }
    }

    /// Returns the rows of a run as rows of the table `annotations`, with this model and run id.
    pub(in crate::archive) fn batch(&self, rows: &Range<u64>, run_id: u32, model: &str) -> Result<RecordBatch> {
        let len = (rows.end - rows.start) as usize;
        let mut columns = match self {
            AnnotationRows::Folder(folder) => columns_of(folder, rows),
            AnnotationRows::Table(table) => table.0.slice(rows.start as usize, len).columns().to_vec(),
        };
        columns[0] = Arc::new(UInt32Array::from_value(run_id, len));
        let names = Arc::new(StringArray::from(vec![model]));
        let models = DictionaryArray::try_new(Int32Array::from_value(0, len), names).map_err(Error::other)?;
        columns.insert(2, Arc::new(models));
        let batch = RecordBatch::try_new(table_schema(TableName::Annotations), columns).map_err(Error::other)?;
        self.check_ranges(&batch, run_id)?;
        Ok(batch)
    }

    /// Checks the ranges of the values of a run.
    fn check_ranges(&self, rows: &RecordBatch, run_id: u32) -> Result<()> {
        let steps = rows.column(1).as_primitive::<UInt32Type>().values();
        let refuse = |name: &'static str, expected: String, row: usize, value: &dyn fmt::Display| {
            let found = format!("{value} at step {} of archive run {run_id}", steps[row]);
            match self {
                AnnotationRows::Folder(_) => Err(self.refuse(name, expected, found)),
                AnnotationRows::Table(_) => Err(Error::column(name, None, expected, found)),
            }
        };
        for (name, most) in [("teacher_move", 3), ("legal_mask", 15), ("policy_kind_mask", 15), ("argmax_head", 3)] {
            let values = rows.column_by_name(name).and_then(|column| column.as_primitive_opt::<UInt8Type>());
            for (row, value) in values.into_iter().flatten().enumerate() {
                if let Some(value) = value.filter(|&value| value > most) {
                    return refuse(name, format!("0..={most} or null"), row, &value);
                }
            }
        }
        let probs = rows.column_by_name("argmax_prob").and_then(|column| column.as_primitive_opt::<Float32Type>());
        for (row, prob) in probs.into_iter().flatten().enumerate() {
            if let Some(prob) = prob.filter(|prob| !(0.0..=1.0).contains(prob)) {
                return refuse("argmax_prob", "0..=1 or null".into(), row, &prob);
            }
        }
        Ok(())
    }

    /// Returns an error unless two runs of the pool, which are one run of the archive, have equal annotations. Each run
    /// has its id in the pool and its rows.
    pub(in crate::archive) fn check_equal(&self, first: &(u32, Range<u64>), second: &(u32, Range<u64>)) -> Result<()> {
        if self.batch(&first.1, 0, "")? == self.batch(&second.1, 0, "")? {
            return Ok(());
        }
        let expected = format!("the annotations of run {}, which is the same run of the archive", first.0);
        Err(self.refuse("run", expected, format!("other annotations of run {}", second.0)))
    }

    /// Returns an error about annotations that contradict the archive.
    pub(in crate::archive) fn refuse(&self, what: &'static str, expected: impl Into<String>, found: String) -> Error {
        match self {
            AnnotationRows::Folder(folder) => header_error(what, expected, found, folder.path()),
            AnnotationRows::Table(_) => Error::argument(what, expected, found),
        }
    }
}

/// Returns the columns of the table `annotations` except `model`.
fn columns_of(folder: &AnnotationFolder, rows: &Range<u64>) -> Vec<ArrayRef> {
    let len = (rows.end - rows.start) as usize;
    let (mut run_ids, mut steps) = (Vec::with_capacity(len), Vec::with_capacity(len));
    let mut bytes: [UInt8Builder; 4] = std::array::from_fn(|_| UInt8Builder::with_capacity(len));
    let mut probabilities = Float32Builder::with_capacity(len);
    let mut policies: [Float32Builder; 12] = std::array::from_fn(|_| Float32Builder::with_capacity(len));
    let item = arrow::datatypes::Field::new_list_field(DataType::Float32, false);
    let mut bins = ListBuilder::new(Float32Builder::new()).with_field(item);
    for (row, row_bins) in folder.rows(rows.clone()) {
        run_ids.push(row.run_id);
        steps.push(row.step_index);
        let values = [row.teacher_move(), Some(row.legal_mask), Some(row.policy_kind_mask), Some(row.argmax_head)];
        bytes.iter_mut().zip(values).for_each(|(column, value)| column.append_option(value));
        probabilities.append_value(row.argmax_prob);
        for policy in 0..POLICIES.len() {
            let values = row.policy(policy);
            for direction in 0..MOVE_NAMES.len() {
                policies[policy * MOVE_NAMES.len() + direction].append_option(values.map(|values| values[direction]));
            }
        }
        match row_bins {
            Some(values) => {
                let (values, _) = values.as_chunks::<4>();
                values.iter().for_each(|&value| bins.values().append_value(f32::from_le_bytes(value)));
                bins.append(true);
            }
            None => bins.append(false),
        }
    }
    let mut columns: Vec<ArrayRef> = vec![Arc::new(UInt32Array::from(run_ids)), Arc::new(UInt32Array::from(steps))];
    columns.extend(bytes.map(|mut column| Arc::new(column.finish()) as ArrayRef));
    columns.push(Arc::new(probabilities.finish()));
    columns.extend(policies.map(|mut column| Arc::new(column.finish()) as ArrayRef));
    columns.push(Arc::new(bins.finish()));
    columns
}

impl AnnotationTable {
    /// Checks an Arrow table. It needs the columns `run_id` and `step_index`. Its other columns are those of
    /// `annotations`, where `policy_p1` and the like may also be a fixed-size list of four.
    pub(in crate::archive) fn new(rows: &RecordBatch) -> Result<AnnotationTable> {
        check_names(rows)?;
        let (mut fields, mut columns): (Vec<FieldRef>, Vec<ArrayRef>) = (Vec::new(), Vec::new());
        for field in table_schema(TableName::Annotations).fields().iter().filter(|field| field.name() != "model") {
            let (policy, direction) = field.name().rsplit_once('_').unwrap_or_default();
            let found = match (rows.column_by_name(field.name()), rows.column_by_name(policy)) {
                (Some(column), _) => converted(field.name(), column, field.data_type())?,
                (None, Some(lists)) if POLICIES.contains(&policy) => {
                    let direction = MOVE_NAMES.iter().position(|name| *name == direction).unwrap_or_default();
                    of_direction(policy, lists, direction)?
                }
                (None, _) if field.is_nullable() => new_null_array(field.data_type(), rows.num_rows()),
                (None, _) => return Err(Error::argument("annotations", format!("a column {}", field.name()), "none")),
            };
            if !field.is_nullable() && found.null_count() > 0 {
                return Err(Error::column(field.name(), None, "no nulls", format!("{}", found.null_count())));
            }
            fields.push(Arc::clone(field));
            columns.push(found);
        }
        let all = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(Error::other)?;
        let sorted = sorted(without_absent(all, &rows.schema())?)?;
        let [ids, steps] = keys(&sorted);
        if let Some(row) = (1..ids.len()).find(|&row| (ids[row - 1], steps[row - 1]) == (ids[row], steps[row])) {
            let found = format!("step {} of run {} twice", steps[row], ids[row]);
            return Err(Error::argument("annotations", "each step once", found));
        }
        Ok(AnnotationTable(sorted))
    }
}

/// Returns the run and the step of each row.
fn keys(rows: &RecordBatch) -> [&[u32]; 2] {
    [0, 1].map(|column| &rows.column(column).as_primitive::<UInt32Type>().values()[..])
}

/// Rejects unknown columns and columns of one name: they would be lost.
fn check_names(rows: &RecordBatch) -> Result<()> {
    let schema = table_schema(TableName::Annotations);
    let fields = rows.schema_ref().fields();
    for (i, field) in fields.iter().enumerate() {
        let name = field.name();
        let is_second = fields[..i].iter().any(|other| other.name() == name);
        let is_known = schema.field_with_name(name).is_ok() || POLICIES.contains(&name.as_str());
        if name == "model" || is_second || !is_known {
            let expected = "columns of the table `annotations` except `model`, each once";
            return Err(Error::argument("annotations", expected, format!("a column {name}")));
        }
    }
    Ok(())
}

/// Replaces predictions that a row does not have, according to `policy_kind_mask`, with nulls, in columns that cannot
/// have nulls in the source, such as those of a structured array.
fn without_absent(rows: RecordBatch, source: &Schema) -> Result<RecordBatch> {
    let masks = rows.column_by_name("policy_kind_mask").and_then(|column| column.as_primitive_opt::<UInt8Type>());
    let Some(masks) = masks.filter(|masks| masks.null_count() < masks.len()) else { return Ok(rows) };
    let mut columns = rows.columns().to_vec();
    for (bit, policy) in POLICIES.iter().enumerate() {
        let is_absent: BooleanArray = masks.iter().map(|mask| mask.map(|mask| mask >> bit & 1 == 0)).collect();
        for direction in MOVE_NAMES {
            let name = format!("{policy}_{direction}");
            let field = source.field_with_name(&name).or_else(|_| source.field_with_name(policy));
            let (Ok(false), Ok(place)) = (field.map(|field| field.is_nullable()), rows.schema().index_of(&name)) else {
                continue;
            };
            columns[place] = nullif(&columns[place], &is_absent).map_err(Error::other)?;
        }
    }
    RecordBatch::try_new(rows.schema(), columns).map_err(Error::other)
}

/// Converts a column. A value that does not fit is an error. In `teacher_move`, 255 becomes null.
fn converted(name: &str, column: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let refuse = |found: &dyn fmt::Display| Error::column(name, None, to.to_string(), found);
    let compatible = match to {
        DataType::Float32 => column.data_type().is_floating(),
        DataType::List(_) => matches!(column.data_type(), DataType::List(_) | DataType::FixedSizeList(..)),
        _ => column.data_type().is_integer(),
    };
    if !compatible && !column.data_type().is_null() {
        return Err(refuse(column.data_type()));
    }
    let strict = |values: &ArrayRef, to: &DataType| checked_cast(values, to, false).map_err(|error| refuse(&error));
    if let (DataType::List(item), [values]) = (to, column.to_data().child_data()) {
        strict(&make_array(values.clone()), item.data_type())?;
    }
    let cast = strict(column, to)?;
    if name == "teacher_move" {
        let moves = cast.as_primitive::<UInt8Type>().iter().map(|value| value.filter(|&value| value != 255));
        return Ok(Arc::new(arrow::array::UInt8Array::from_iter(moves)));
    }
    Ok(cast)
}

/// Returns the values of one direction of a column of lists of four.
fn of_direction(name: &str, lists: &ArrayRef, direction: usize) -> Result<ArrayRef> {
    let refuse = || Error::column(name, None, "fixed-size lists of 4 numbers", lists.data_type().to_string());
    let lists: &FixedSizeListArray = lists.as_fixed_size_list_opt().ok_or_else(refuse)?;
    if lists.value_length() != 4 || !lists.value_type().is_floating() {
        return Err(refuse());
    }
    let values = checked_cast(lists.values(), &DataType::Float32, false);
    let values = values.map_err(|error| Error::column(name, None, "values of Float32", error))?;
    let values = values.as_primitive::<Float32Type>();
    let of_row = |row: usize| {
        let at = lists.value_offset(row) as usize + direction;
        (lists.is_valid(row) && values.is_valid(at)).then(|| values.value(at))
    };
    Ok(Arc::new(arrow::array::Float32Array::from_iter((0..lists.len()).map(of_row))))
}

/// Sorts rows by run and step, unless they are in order.
fn sorted(rows: RecordBatch) -> Result<RecordBatch> {
    let [ids, steps] = keys(&rows);
    if (1..ids.len()).all(|row| (ids[row - 1], steps[row - 1]) <= (ids[row], steps[row])) {
        return Ok(rows);
    }
    let keys = [0, 1].map(|key| SortColumn { values: Arc::clone(rows.column(key)), options: None });
    let order = lexsort_to_indices(&keys, None).map_err(Error::other)?;
    take_record_batch(&rows, &order).map_err(Error::other)
}
