//! Tables that the user adds to a query.

use crate::error::{Error, Result};
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, StructArray};
use arrow::compute::{cast, nullif};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use arrow::error::ArrowError;
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// A table that a query can join with `runs` and `steps`; see
/// [`QueryOptions::tables`](crate::query::QueryOptions::tables).
///
/// ```
/// use a2store::query::UserTable;
/// use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
/// let run_ids: ArrayRef = std::sync::Arc::new(UInt32Array::from(vec![3, 5]));
/// let batch = RecordBatch::try_from_iter([("run_id", run_ids)])?;
/// let chosen = UserTable::from_batches(batch.schema(), vec![batch])?;
/// let options = a2store::query::QueryOptions::default().with_table("chosen", chosen);
/// assert_eq!(options.tables.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct UserTable(pub(in crate::query) UserTableSource);

#[derive(Clone, Debug)]
pub(in crate::query) enum UserTableSource {
    Batches { schema: SchemaRef, batches: Vec<RecordBatch> },
    Parquet(ParquetFile),
}

/// A Parquet file, with the length and modification time that it had when the table was made.
#[derive(Clone, Debug)]
pub(in crate::query) struct ParquetFile {
    pub(in crate::query) schema: SchemaRef,
    pub(in crate::query) path: PathBuf,
    pub(in crate::query) num_bytes: u64,
    modified: Option<SystemTime>,
}

impl UserTable {
    /// Makes a table from record batches in memory. Copies only structs and decimals: decimals of 32 and 64 bits get 128
    /// bits.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) if a batch has another schema, or maps or dictionaries of
    /// narrow decimals.
    pub fn from_batches(schema: SchemaRef, batches: Vec<RecordBatch>) -> Result<UserTable> {
        if let Some(other) = batches.iter().find(|batch| batch.schema().fields() != schema.fields()) {
            let fields = |schema: &SchemaRef| schema.fields().iter().map(ToString::to_string).collect::<Vec<_>>();
            let (expected, found) = (fields(&schema).join(", "), fields(&other.schema()).join(", "));
            return Err(Error::argument("batches", expected, found));
        }
        let fields: Fields = widened_fields(schema.fields())?.iter().map(with_nullable_fields).collect();
        if fields == *schema.fields() && !fields.iter().any(|field| matches!(field.data_type(), DataType::Struct(_))) {
            return Ok(UserTable(UserTableSource::Batches { schema, batches }));
        }
        let schema = Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()));
        let visible = |batch: RecordBatch| {
            let fields = schema.fields().iter().zip(batch.columns());
            let columns = fields.map(|(field, column)| without_hidden_values(field, &cast(column, field.data_type())?));
            let columns = columns.collect::<Result<_, ArrowError>>()?;
            RecordBatch::try_new(Arc::clone(&schema), columns)
        };
        let batches = batches.into_iter().map(visible).collect::<Result<_, ArrowError>>();
        let batches = batches.map_err(|error| Error::query(error.to_string()))?;
        Ok(UserTable(UserTableSource::Batches { schema, batches }))
    }

    /// Makes a table from a Parquet file. Each query reads only the columns that it needs.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io), and [`ErrorKind::Decode`](crate::ErrorKind::Decode) if the file is not
    /// Parquet.
    pub fn from_parquet(path: impl AsRef<Path>) -> Result<UserTable> {
        Ok(UserTable(UserTableSource::Parquet(ParquetFile::open(path.as_ref())?)))
    }
}

/// Returns a field whose decimals of 32 and 64 bits have 128 bits. DataFusion converts narrow decimals to integers beside
/// integers, and loses their fractions (apache/datafusion#17808).
fn widened(field: &FieldRef) -> FieldRef {
    let dtype = match field.data_type() {
        &(DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale)) => {
            DataType::Decimal128(precision, scale)
        }
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(widened).collect()),
        DataType::List(item) => DataType::List(widened(item)),
        DataType::LargeList(item) => DataType::LargeList(widened(item)),
        DataType::FixedSizeList(item, len) => DataType::FixedSizeList(widened(item), *len),
        _ => return Arc::clone(field),
    };
    Arc::new(Field::clone(field).with_data_type(dtype))
}

/// Returns whether a type has decimals of 32 or 64 bits.
pub(in crate::query) fn is_narrow(dtype: &DataType) -> bool {
    match dtype {
        DataType::Decimal32(..) | DataType::Decimal64(..) => true,
        DataType::Dictionary(_, values) => is_narrow(values),
        DataType::RunEndEncoded(_, item)
        | DataType::Map(item, _)
        | DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => is_narrow(item.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| is_narrow(field.data_type())),
        _ => false,
    }
}

/// Widens the decimals of a table.
fn widened_fields(fields: &Fields) -> Result<Fields> {
    let fields: Fields = fields.iter().map(widened).collect();
    match fields.iter().find(|field| is_narrow(field.data_type())) {
        Some(field) => Err(Error::argument("tables", "decimals of 128 or 256 bits", format!("the column {field}"))),
        None => Ok(fields),
    }
}

/// Returns a field whose structs have nullable fields, if they may be null.
fn with_nullable_fields(field: &FieldRef) -> FieldRef {
    let DataType::Struct(fields) = field.data_type() else { return Arc::clone(field) };
    let nullable = |inner: &FieldRef| {
        let inner = with_nullable_fields(inner);
        let is_nullable = field.is_nullable() || inner.is_nullable();
        Arc::new(Field::clone(&inner).with_nullable(is_nullable))
    };
    Arc::new(Field::clone(field).with_data_type(DataType::Struct(fields.iter().map(nullable).collect())))
}

/// Makes the fields of null structs null. DataFusion would return the values that Arrow may store there
/// (apache/datafusion#25120, fixed in a version after 55).
fn without_hidden_values(field: &FieldRef, column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let (DataType::Struct(fields), Some(structs)) = (field.data_type(), column.as_struct_opt()) else {
        return Ok(Arc::clone(column));
    };
    let is_null = structs.nulls().map(|nulls| BooleanArray::new(!nulls.inner(), None));
    let visible = |(field, column): (&FieldRef, &ArrayRef)| {
        let column = is_null.as_ref().map_or_else(|| Ok(Arc::clone(column)), |is_null| nullif(column, is_null))?;
        without_hidden_values(field, &column)
    };
    let columns = fields.iter().zip(structs.columns()).map(visible).collect::<Result<_, _>>()?;
    Ok(Arc::new(StructArray::try_new(fields.clone(), columns, structs.nulls().cloned())?))
}

impl ParquetFile {
    fn open(path: &Path) -> Result<ParquetFile> {
        if path.as_os_str().is_empty() {
            return Err(Error::argument("table", "the path of a Parquet file", "an empty path"));
        }
        let as_io = |source| Error::io(path, source);
        let path = std::path::absolute(path).map_err(as_io)?;
        let file = File::open(&path).map_err(as_io)?;
        let meta = file.metadata().map_err(as_io)?;
        if !meta.is_file() {
            return Err(Error::argument("table", "a Parquet file", path.display()));
        }
        let metadata = ArrowReaderMetadata::load(&file, Default::default())
            .map_err(|error| Error::decode(None, "footer", "a Parquet file", error).with_path(&path))?;
        let modified = meta.modified().ok();
        let schema = metadata.schema();
        let schema = Schema::new_with_metadata(widened_fields(schema.fields())?, schema.metadata().clone());
        let schema = Arc::new(schema);
        // The file may have null structs with fields that are not null.
        if let Some(field) = schema.fields().iter().find(|field| with_nullable_fields(field) != **field) {
            let found = format!("the column {}", field.name());
            return Err(Error::argument("tables", "nullable fields in nullable structs", found));
        }
        Ok(ParquetFile { schema, path, num_bytes: meta.len(), modified })
    }

    /// Checks that the file has not changed since the table was made.
    pub(in crate::query) fn check_unchanged(&self) -> Result<()> {
        let now = ParquetFile::open(&self.path)?;
        if (now.num_bytes, now.modified) == (self.num_bytes, self.modified) {
            return Ok(());
        }
        let expected = format!("the file of {} bytes that the query was planned with", self.num_bytes);
        Err(Error::damaged(&self.path, "table", expected, "a file that was changed since then"))
    }
}

/// Checks that every name is valid in SQL and unique.
pub(in crate::query) fn check_names(tables: &[(String, UserTable)]) -> Result<()> {
    for (i, (name, _)) in tables.iter().enumerate() {
        let taken = ["runs", "steps", "annotations"].contains(&name.as_str())
            || tables[..i].iter().any(|(other, _)| other == name);
        if name.is_empty() || name.contains('\0') || taken {
            let found = if taken { format!("{name:?}, which already exists") } else { format!("{name:?}") };
            return Err(Error::argument("tables", "unique names", found));
        }
    }
    Ok(())
}
