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
//! | `options.rs`, `tables.rs` | what a query may use, and tables of the user's own |
//! | `guard/` | what a statement may do |
//! | `functions/`, `udf.rs` | functions over boards, moves and values; the same for the engine |
//! | `saved/` | named queries with parameters, shipped and of the user's own |
//! | `catalog.rs`, `scan.rs` | what a statement can see; reading Parquet as a plan |
//! | `run_index.rs`, `cache.rs` | which rows are whose, so that filters on runs read no steps; what is kept between queries |
//! | `barrier.rs`, `passing.rs` | which filters the reader takes; a node that only stands between others |
//! | `grouping/` | grouping by one number instead of by several columns, and by what groups are not unique |
//! | `fences.rs` | workarounds for optimizer rules that give wrong answers |
//! | `sort_keys.rs` | sorting by columns instead of by expressions |
//! | `rewriting.rs` | helpers for rewriting plans: input columns, names that stay, new names |
//! | `yielding.rs` | joins that can be stopped |
//! | `fallible.rs` | expressions that can fail see only the rows that need them |
//! | `membership.rs` | `IN` with SQL semantics |
//! | `nature.rs` | whether a query determines its rows |
//! | `order.rs` | which plans keep the natural order, and making the others' order definite |
//! | `stream.rs`, `limits.rs` | running a plan: partitions in order, bounded, cancelled by dropping; what may still be given |
//! | `explain.rs`, `preview.rs` | plans as text; the first rows |
//! | `errors.rs` | what the engine says, in plain words |

mod barrier;
mod cache;
mod catalog;
mod errors;
mod explain;
mod fallible;
mod fences;
mod functions;
mod grouping;
mod guard;
mod limits;
mod membership;
mod nature;
mod options;
mod order;
mod passing;
mod preview;
mod rewriting;
mod run_index;
mod saved;
mod scan;
mod sort_keys;
mod stream;
mod tables;
mod udf;
mod yielding;

pub use datafusion::common::ParamValues;
pub use datafusion::scalar::ScalarValue;
pub use functions::{Argument, ArgumentKind, Function, functions};
pub use options::QueryOptions;
pub use preview::Preview;
pub use saved::{SavedColumn, SavedParameter, SavedQuery};
pub use stream::QueryStream;
pub use tables::UserTable;

pub(crate) use errors::query_error;
#[cfg(feature = "python")]
pub(crate) use functions::build_tables;
pub(crate) use limits::Limits;
use nature::Nature;
pub(crate) use order::Execution;
use order::Rows;
#[cfg(feature = "python")]
pub(crate) use stream::ArrowReader;
pub(crate) use stream::Partition;

use crate::archive::Archive;
use crate::clock;
use crate::error::{Error, Result};
use crate::process::ProcessId;
use crate::progress::Progress;
use crate::runtime::block_on_unless;
use arrow::array::AsArray;
use arrow::datatypes::{DataType, Int64Type, Schema, SchemaRef};
use datafusion::common::Result as DataFusionResult;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::prelude::SessionContext;
use std::collections::BTreeSet;
use std::fmt;
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
    options: QueryOptions,
    engine: Engine,
    /// The analyzed plan, with the types of the result.
    plan: LogicalPlan,
    nature: Nature,
    /// The hash of the text and parameters.
    text: blake3::Hash,
}

/// What plans were made with.
#[derive(Clone)]
struct Engine {
    process: ProcessId,
    context: SessionContext,
    /// Whether filters stay where the statement has them.
    keeps_filters: bool,
}

impl Archive {
    /// Plans a query over `runs` and `steps`.
    ///
    /// Parameters stand in the text as `$1, $2, …` or as `$name`, and are bound as values, never pasted.
    ///
    /// Beside SQL there are the [`functions`](crate::functions()) over boards; docs/sql.md describes them.
    ///
    /// # Errors
    /// [`ErrorKind::QueryRefused`](crate::ErrorKind::QueryRefused) for text that is not one SELECT, WITH, VALUES or EXPLAIN
    /// over these tables, or that asks for more than reading; [`ErrorKind::Query`](crate::ErrorKind::Query) for text that
    /// does not parse or plan, and for parameters that do not match it.
    pub fn sql(&self, text: &str, params: impl Into<ParamValues>) -> Result<Query> {
        self.sql_with(text, params, &QueryOptions::default())
    }

    /// As [`sql`](Archive::sql), with tables of one's own and within limits.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let mut archive = a2store::Archive::create(folder.path().join("games.a2"), Default::default())?;
    /// # let runs = folder.path().join("runs");
    /// # a2store::simulate(&runs, &a2store::SimulateOptions { runs: 3, ..Default::default() }, &())?;
    /// # archive.ingest([&runs], &Default::default(), &())?;
    /// use a2store::{QueryOptions, UserTable, no_params};
    /// use arrow::array::{ArrayRef, RecordBatch, StringArray, UInt32Array};
    /// use std::sync::Arc;
    /// let run_ids: ArrayRef = Arc::new(UInt32Array::from(vec![0, 2]));
    /// let labels: ArrayRef = Arc::new(StringArray::from(vec!["good", "bad"]));
    /// let labels = RecordBatch::try_from_iter([("run_id", run_ids), ("label", labels)])?;
    /// let labels = UserTable::from_batches(labels.schema(), vec![labels])?;
    /// let options = QueryOptions::default().with_table("labels", labels).with_row_limit(10);
    /// let text = "SELECT label, num_steps FROM runs JOIN labels USING (run_id) ORDER BY run_id";
    /// assert_eq!(archive.sql_with(text, no_params(), &options)?.count()?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`sql`](Archive::sql); [`ErrorKind::Argument`](crate::ErrorKind::Argument) for names and limits that cannot be;
    /// from the result [`ErrorKind::QueryLimit`](crate::ErrorKind::QueryLimit) where a limit was come to.
    pub fn sql_with(&self, text: &str, params: impl Into<ParamValues>, options: &QueryOptions) -> Result<Query> {
        self.sql_unless_cancelled(text, params.into(), options, &())
    }

    pub(crate) fn sql_unless_cancelled(
        &self,
        text: &str,
        params: ParamValues,
        options: &QueryOptions,
        progress: &dyn Progress,
    ) -> Result<Query> {
        clock::check()?;
        let limits = Limits::new(options);
        guard::check_length(text)?;
        tables::check_names(&options.tables)?;
        let context = catalog::context(self, options)?;
        let fingerprint = fingerprint(text, &params);
        let (text, session) = (text.to_owned(), context.state());
        let tables: Vec<String> = ["steps", "runs"]
            .into_iter()
            .chain(options.tables.iter().map(|(name, _)| &**name))
            .map(Into::into)
            .collect();
        let planning = async move {
            let tables: Vec<&str> = tables.iter().map(String::as_str).collect();
            let statement = guard::parse(&text, &session.config_options().sql_parser)?;
            guard::check_statement(&statement, &tables)?;
            let plan = session.statement_to_plan(statement).await.map_err(query_error)?;
            // Here, where the stack is deep: a plan that is refused is also dropped here.
            guard::check_plan(&plan)?;
            let plan = analyzed(bind(plan, params)?, &session).map_err(query_error)?;
            let nature = Nature::of(&plan).map_err(query_error)?;
            let keeps_filters = guard::has_large_filter(&plan).map_err(query_error)?;
            Ok((plan, nature, keeps_filters))
        };
        let (plan, nature, keeps_filters) = block_on_unless(planning, || limits.check(progress))?;
        let context = if keeps_filters { guard::without_pushdown(&context) } else { context };
        let engine = Engine { process: ProcessId::current(), context, keeps_filters };
        Ok(Query { archive: self.clone(), options: options.clone(), engine, plan, nature, text: fingerprint })
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
        self.stream_unless_cancelled(&())
    }

    pub(crate) fn stream_unless_cancelled(&self, progress: &dyn Progress) -> Result<QueryStream> {
        let limits = self.limits();
        Ok(self.stream_of(self.execution(false, &limits, progress)?, limits))
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
            let mut stream = self.stream_unless_cancelled(progress)?;
            let mut total = 0;
            while let Some(batch) = stream.next_unless_cancelled(progress)? {
                total += batch.num_rows() as u64;
            }
            return Ok(total);
        }
        let count = datafusion::functions_aggregate::expr_fn::count(datafusion::logical_expr::lit(1_i64));
        let plan = LogicalPlanBuilder::from(self.plan.clone())
            .aggregate(Vec::<Expr>::new(), [count])
            .and_then(LogicalPlanBuilder::build)
            .map_err(query_error)?;
        let count = Query { plan, ..self.clone() };
        let mut total = 0;
        let mut stream = count.stream_unless_cancelled(progress)?;
        while let Some(batch) = stream.next_unless_cancelled(progress)? {
            let counts = batch.column(0).as_primitive_opt::<Int64Type>();
            total += counts.map_or(0, |counts| counts.values().iter().sum::<i64>());
        }
        Ok(total.unsigned_abs())
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

    /// What a result of the query may take from now on.
    pub(crate) fn limits(&self) -> Arc<Limits> {
        Arc::new(Limits::new(&self.options))
    }

    /// How to run the query; with `definite`, so that equal archives and queries give equal rows in equal order.
    pub(crate) fn execution(&self, definite: bool, limits: &Limits, progress: &dyn Progress) -> Result<Execution> {
        clock::check()?;
        let (plan, context) = (self.plan.clone(), self.context()?);
        let rows = if definite { Rows::Definite(self.nature) } else { Rows::Any };
        let planning = async move { order::plan(&context, plan, rows).await };
        block_on_unless(planning, || limits.check(progress)).map_err(|error| limits.explain(self.archive.blame(error)))
    }

    pub(crate) fn stream_of(&self, execution: Execution, limits: Arc<Limits>) -> QueryStream {
        let is_plan = matches!(self.plan, LogicalPlan::Explain(_) | LogicalPlan::Analyze(_));
        QueryStream::new(self.archive.clone(), self.schema(), execution, limits, is_plan)
    }

    /// What to plan with. A child of the process that made the query gets its own: the locks in this one may have been
    /// held by threads that the child does not have.
    fn context(&self) -> Result<SessionContext> {
        if self.engine.process.is_current() {
            return Ok(self.engine.context.clone());
        }
        let context = catalog::context(&self.archive, &self.options)?;
        Ok(if self.engine.keeps_filters { guard::without_pushdown(&context) } else { context })
    }

    /// The hash of the text, its parameters and its tables; `None` unless equal hashes imply equal rows in equal order.
    pub(crate) fn fingerprint(&self) -> Result<Option<blake3::Hash>> {
        match self.nature {
            Nature::Determined => fingerprint_with(self.text, &self.options.tables).map(Some),
            Nature::OrderDependent | Nature::Volatile => Ok(None),
        }
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

/// Resolves the types of a plan. Before that, a CASE has the type of its first branch, and a UNION has the type of its
/// first input.
///
/// An EXPLAIN stays unchanged: the engine analyzes the explained plan and records each step.
fn analyzed(plan: LogicalPlan, session: &SessionState) -> DataFusionResult<LogicalPlan> {
    match plan {
        LogicalPlan::Explain(_) => Ok(plan),
        plan => session.analyzer().execute_and_check(plan, session.config_options(), |_, _| {}),
    }
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

/// Names a query and what it reads beside the archive.
fn fingerprint_with(query: blake3::Hash, tables: &[(String, UserTable)]) -> Result<blake3::Hash> {
    if tables.is_empty() {
        return Ok(query);
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update(query.as_bytes());
    let mut tables: Vec<&(String, UserTable)> = tables.iter().collect();
    tables.sort_by_key(|(name, _)| name);
    for (name, table) in tables {
        hasher.update(&(name.len() as u64).to_le_bytes());
        hasher.update(name.as_bytes());
        table.identify(&mut hasher)?;
    }
    Ok(hasher.finalize())
}
