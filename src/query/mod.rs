//! SQL → a stream of record batches, over the tables `runs` and `steps` of an archive at one version.
//!
//! Entry point is [`Archive::sql`]. A query is planned when it is made, so that its mistakes show at once, and runs when
//! its result is asked for, as often as it is asked for.
//!
//! Invariant: a query whose rows are rows of `steps` (any filter, any expression, no grouping or join) delivers them in
//! the order of `(run_id, step_index)`, on any number of threads, without sorting.
//!
//! | file | owns |
//! | --- | --- |
//! | `catalog.rs` | what a statement can see: two tables, one object store |
//! | `order.rs` | which plans keep the natural order, and making the others' order definite |
//! | `stream.rs` | running a plan: partitions in order, bounded, cancelled by dropping |

mod catalog;
mod order;
mod stream;

pub use datafusion::common::ParamValues;
pub use datafusion::scalar::ScalarValue;
pub use stream::QueryStream;

pub(crate) use order::Execution;
#[cfg(feature = "python")]
pub(crate) use stream::ArrowReader;

use crate::archive::Archive;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Progress;
use crate::runtime::block_on;
use arrow::array::AsArray;
use arrow::datatypes::{DataType, Int64Type, Schema, SchemaRef};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result as DataFusionResult};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::prelude::{SQLOptions, SessionContext};
use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// A planned query over one version of an archive. Cheap to clone; nothing runs until its result is asked for.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let mut archive = a2store::Archive::create(folder.path().join("games.a2"), Default::default())?;
/// # let runs = folder.path().join("runs");
/// # a2store::simulate(&runs, &a2store::SimulateOptions { runs: 3, ..Default::default() }, &())?;
/// # archive.ingest([&runs], &Default::default(), &())?;
/// let query = archive.sql(
///     "SELECT board, move FROM steps WHERE max_score >= $min",
///     vec![("min", a2store::ScalarValue::from(1_000_u64))],
/// )?;
/// for batch in query.stream()? {
///     println!("{} steps", batch?.num_rows());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Query {
    archive: Archive,
    context: SessionContext,
    plan: LogicalPlan,
    /// `None` when equal data may give other rows, or another order, each time the query runs.
    fingerprint: Option<blake3::Hash>,
}

impl Archive {
    /// Plans a query over `runs` and `steps`.
    ///
    /// Parameters stand in the text as `$1, $2, …` or as `$name`, and are bound as values, never pasted.
    ///
    /// # Errors
    /// [`ErrorKind::Query`](crate::ErrorKind::Query) for text that is not one SELECT, WITH, VALUES or EXPLAIN over these
    /// tables, and for parameters that do not match it.
    pub fn sql(&self, text: &str, params: impl Into<ParamValues>) -> Result<Query> {
        if text.len() > MAX_SQL_BYTES {
            return Err(Error::query(format!("a statement of {} bytes, expected at most {MAX_SQL_BYTES}", text.len())));
        }
        let context = catalog::context(self)?;
        let (text_owned, session) = (text.to_owned(), context.state());
        let plan = block_on(async move {
            let plan = session.create_logical_plan(&text_owned).await.map_err(query_error)?;
            let read_only = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
            read_only.verify_plan(&plan).map_err(query_error)?;
            // Here, where the stack is deep: a plan that is refused is also dropped here.
            check_depth(&plan)?;
            Ok(plan)
        })?;
        let params = params.into();
        let fingerprint = fingerprint(text, &params);
        let plan = bind(plan, params)?;
        let fingerprint = order::is_definite(&plan).map_err(query_error)?.then_some(fingerprint);
        Ok(Query { archive: self.clone(), context, plan, fingerprint })
    }
}

impl Query {
    /// The columns of the result.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        let schema = self.plan.schema().inner();
        // The engine gives string views as strings, in the outermost columns.
        let plain = |dtype: &DataType| match dtype {
            DataType::Utf8View => Some(DataType::LargeUtf8),
            DataType::BinaryView => Some(DataType::LargeBinary),
            _ => None,
        };
        if schema.fields().iter().all(|field| plain(field.data_type()).is_none()) {
            return Arc::clone(schema);
        }
        let fields = schema.fields().iter().map(|field| match plain(field.data_type()) {
            Some(dtype) => Arc::new(field.as_ref().clone().with_data_type(dtype)),
            None => Arc::clone(field),
        });
        Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone()))
    }

    /// The archive that it reads, at the version that it reads.
    #[must_use]
    pub fn archive(&self) -> &Archive {
        &self.archive
    }

    /// Runs the query. Batches arrive as they are made; dropping the stream stops the work.
    ///
    /// # Errors
    /// [`ErrorKind::Query`](crate::ErrorKind::Query), here or from the stream.
    pub fn stream(&self) -> Result<QueryStream> {
        Ok(self.stream_of(self.execution(false)?))
    }

    /// The number of rows of the result, counted without making them where the plan allows it.
    ///
    /// # Errors
    /// As [`stream`](Query::stream).
    pub fn count(&self) -> Result<u64> {
        self.count_unless_cancelled(&())
    }

    pub(crate) fn count_unless_cancelled(&self, progress: &dyn Progress) -> Result<u64> {
        if let LogicalPlan::Explain(_) | LogicalPlan::Analyze(_) = self.plan {
            // A plan is no relation that could be counted in SQL.
            return self.stream()?.map(|batch| Ok(batch?.num_rows() as u64)).sum();
        }
        let count = datafusion::functions_aggregate::expr_fn::count(datafusion::logical_expr::lit(1_i64));
        let plan = LogicalPlanBuilder::from(self.plan.clone())
            .aggregate(Vec::<Expr>::new(), [count])
            .and_then(LogicalPlanBuilder::build)
            .map_err(query_error)?;
        let count = Query { plan, ..self.clone() };
        let mut total = 0;
        let mut stream = count.stream()?;
        while let Some(batch) = stream.next_unless_cancelled(progress)? {
            let counts = batch.column(0).as_primitive_opt::<Int64Type>();
            total += counts.map_or(0, |counts| counts.values().iter().sum::<i64>());
        }
        Ok(total.unsigned_abs())
    }

    /// The plan as text: which files and columns are read, and which filters run inside the Parquet reader
    /// (`predicate`) or skip row groups and pages by their statistics (`pruning_predicate`).
    ///
    /// With `analyze`, runs the query and adds what each part did and how long it took.
    ///
    /// # Errors
    /// As [`stream`](Query::stream).
    pub fn explain(&self, analyze: bool) -> Result<String> {
        self.explain_unless_cancelled(analyze, &())
    }

    pub(crate) fn explain_unless_cancelled(&self, analyze: bool, progress: &dyn Progress) -> Result<String> {
        let execution = self.execution(false)?;
        let plan = Arc::clone(execution.plan());
        if analyze {
            let mut stream = self.stream_of(execution);
            while stream.next_unless_cancelled(progress)?.is_some() {}
            return Ok(DisplayableExecutionPlan::with_metrics(plan.as_ref()).indent(false).to_string());
        }
        Ok(DisplayableExecutionPlan::new(plan.as_ref()).indent(false).to_string())
    }

    /// The same rows with these columns alone, so that no other is read.
    pub(crate) fn select(&self, columns: &[usize]) -> Result<Query> {
        // A limit stays on top, where the order of what it cuts is taken care of.
        fn project(plan: LogicalPlan, columns: &[usize]) -> DataFusionResult<LogicalPlan> {
            if let LogicalPlan::Limit(mut limit) = plan {
                limit.input = Arc::new(project(Arc::unwrap_or_clone(limit.input), columns)?);
                return Ok(LogicalPlan::Limit(limit));
            }
            let kept = plan.schema().columns();
            let kept: Vec<Expr> = columns.iter().filter_map(|&i| kept.get(i).cloned()).map(Expr::Column).collect();
            LogicalPlanBuilder::from(plan).project(kept)?.build()
        }
        let plan = project(self.plan.clone(), columns).map_err(query_error)?;
        Ok(Query { plan, ..self.clone() })
    }

    /// How to run the query; with `definite`, so that equal archives and queries give equal rows in equal order.
    pub(crate) fn execution(&self, definite: bool) -> Result<Execution> {
        let (plan, context) = (self.plan.clone(), self.context.clone());
        block_on(async move { order::plan(&context, plan, definite).await }).map_err(|error| self.archive.blame(error))
    }

    pub(crate) fn stream_of(&self, execution: Execution) -> QueryStream {
        QueryStream::new(self.archive.clone(), self.schema(), execution)
    }

    /// Names text and parameters, or, where these do not determine the rows, one run of them.
    pub(crate) fn fingerprint(&self) -> Result<blake3::Hash> {
        if let Some(fingerprint) = self.fingerprint {
            return Ok(fingerprint);
        }
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|error| Error::from(std::io::Error::other(error)))?;
        Ok(blake3::hash(&bytes))
    }
}

impl fmt::Debug for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Query").field("archive", &self.archive).field("schema", &self.plan.schema().inner()).finish()
    }
}

/// The parameters of a query that has none.
#[must_use]
pub fn no_params() -> ParamValues {
    ParamValues::List(Vec::new())
}

/// A longer statement is no query that a person wrote; lists of values belong in a table.
const MAX_SQL_BYTES: usize = 64 << 10;
/// Expressions that are nested deeper would overflow the stack of the thread that drops them.
const MAX_DEPTH: usize = 500;

fn check_depth(plan: &LogicalPlan) -> Result<()> {
    fn depth_of(expr: &Expr) -> DataFusionResult<usize> {
        let mut deepest = 0;
        expr.apply_children(|child| {
            deepest = deepest.max(depth_of(child)?);
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(deepest + 1)
    }
    let mut deepest = 0;
    let visited = plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            deepest = deepest.max(depth_of(expr)?);
            Ok(TreeNodeRecursion::Continue)
        })
    });
    visited.map_err(query_error)?;
    if deepest > MAX_DEPTH {
        return Err(Error::query(format!("expressions nested {deepest} deep, expected at most {MAX_DEPTH}")));
    }
    Ok(())
}

/// Puts the parameters in, all of them and no others.
fn bind(plan: LogicalPlan, params: ParamValues) -> Result<LogicalPlan> {
    let expected: BTreeSet<String> = plan.get_parameter_names().map_err(query_error)?.into_iter().collect();
    let given: BTreeSet<String> = match &params {
        ParamValues::List(values) => (1..=values.len()).map(|i| format!("${i}")).collect(),
        ParamValues::Map(values) => values.keys().map(|name| format!("${name}")).collect(),
    };
    let list = |names: Vec<&String>| names.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let missing: Vec<&String> = expected.difference(&given).collect();
    if !missing.is_empty() {
        return Err(Error::query(format!("no value for the parameters {}", list(missing))));
    }
    let unknown: Vec<&String> = given.difference(&expected).collect();
    if !unknown.is_empty() {
        return Err(Error::query(format!("the query has no parameters {}", list(unknown))));
    }
    if expected.is_empty() {
        return Ok(plan);
    }
    plan.with_param_values(params).map_err(query_error)
}

/// Names a query.
fn fingerprint(text: &str, params: &ParamValues) -> blake3::Hash {
    let mut values: Vec<String> = match params {
        ParamValues::List(values) => values.iter().map(|value| format!("{:?}", value.value)).collect(),
        ParamValues::Map(values) => values.iter().map(|(name, value)| format!("{name}={:?}", value.value)).collect(),
    };
    if let ParamValues::Map(_) = params {
        values.sort();
    }
    let mut hasher = blake3::Hasher::new();
    for part in std::iter::once(text).chain(values.iter().map(String::as_str)) {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize()
}

/// What DataFusion says, without the layers it wraps around it.
#[allow(clippy::needless_pass_by_value)] // It stands in `map_err`.
pub(crate) fn query_error(error: DataFusionError) -> Error {
    let message = match error.find_root() {
        // Planning reads no data, so this is about a file.
        DataFusionError::ParquetError(_) | DataFusionError::ObjectStore(_) => {
            let found = error.find_root().strip_backtrace();
            let found = found.lines().next().unwrap_or_default().to_owned();
            // Which file it is, the archive finds out: see `Archive::blame`.
            let (path, expected) = (PathBuf::new(), "one that can be read".to_owned());
            return ErrorKind::Damaged { path, what: "data file", expected, found }.into();
        }
        DataFusionError::SQL(error, _) => error.to_string(),
        DataFusionError::Plan(message)
        | DataFusionError::Execution(message)
        | DataFusionError::NotImplemented(message) => message.clone(),
        DataFusionError::SchemaError(error, _) => error.to_string(),
        other => other.strip_backtrace(),
    };
    // A backtrace and hints to DataFusion's own developers come after the first line.
    Error::query(message.lines().next().unwrap_or_default().trim().to_owned())
}
