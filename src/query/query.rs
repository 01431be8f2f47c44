//! A planned query: planning, parameters, and running it.

use crate::archive::Archive;
use crate::error::{Error, Result};
use crate::query::engine::errors::query_error;
use crate::query::engine::execution::{self, Execution};
use crate::query::engine::limits::QueryLimits;
use crate::query::engine::session;
use crate::query::guard;
use crate::query::options::QueryOptions;
use crate::query::output::stream::QueryStream;
use crate::query::refused;
use crate::query::tasks::{Change, Cluster, Division};
use crate::query::user_tables;
use crate::system::cancellation::CancellationToken;
use crate::system::process::ProcessId;
use crate::system::runtime::block_on_unless;
use arrow::array::{AsArray, RecordBatch};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Int64Type, Schema, SchemaRef};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{ParamValues, Result as DataFusionResult};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, FetchType, LogicalPlan, LogicalPlanBuilder, SkipType, Volatility};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use tracing::debug;

/// A planned query over one version of an archive. It is cheap to clone, and runs only when its result is
/// requested.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let mut archive = a2store::Archive::create(folder.path().join("games.a2"), Default::default())?;
/// # let runs = folder.path().join("runs");
/// # let cancel = a2store::CancellationToken::new();
/// # a2store::simulate(&runs, &a2store::SimulateOptions::default().with_runs(3), &(), &cancel)?;
/// # archive.ingest([&runs], &Default::default(), &(), &cancel)?;
/// let query = archive.sql(
///     "SELECT board, move FROM steps WHERE max_score >= $min",
///     vec![("min", a2store::ScalarValue::from(1_000_u64))],
/// )?;
/// for batch in query.stream(&cancel)? {
///     println!("{} steps", batch?.num_rows());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Query {
    archive: Archive,
    options: QueryOptions,
    /// The process that planned the query, and its session.
    session: (ProcessId, Arc<SessionState>),
    /// The analyzed plan. It has the types of the result.
    plan: LogicalPlan,
    /// A hash of the text, the parameters and the limits that were added.
    hash: blake3::Hash,
    /// Where the query is divided; `None` = it runs here.
    pub(super) cluster: Option<Cluster>,
}

impl Archive {
    /// Plans a query over `runs`, `steps` and `annotations`.
    ///
    /// Parameters are written `$1, $2, …` or `$name`. They are bound as values, never inserted as text. In
    /// addition to SQL's own functions there are [`functions`](crate::query::functions()) over boards; docs/sql.md
    /// describes them.
    ///
    /// # Errors
    /// [`ErrorKind::QueryRefused`](crate::ErrorKind::QueryRefused) unless the text is one SELECT, WITH or VALUES
    /// that only reads these tables. [`ErrorKind::Query`](crate::ErrorKind::Query) for text that
    /// does not parse or plan, and for parameters that do not match it.
    pub fn sql(&self, text: &str, params: impl Into<ParamValues>) -> Result<Query> {
        self.sql_with(text, params, &QueryOptions::default(), CancellationToken::never())
    }

    /// Plans a query as [`sql`](Archive::sql) does, with the user's tables and limits.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let mut archive = a2store::Archive::create(folder.path().join("games.a2"), Default::default())?;
    /// # let runs = folder.path().join("runs");
    /// # let cancel = a2store::CancellationToken::new();
    /// # a2store::simulate(&runs, &a2store::SimulateOptions::default().with_runs(3), &(), &cancel)?;
    /// # archive.ingest([&runs], &Default::default(), &(), &cancel)?;
    /// use a2store::query::{QueryOptions, UserTable, no_params};
    /// use arrow::array::{ArrayRef, RecordBatch, StringArray, UInt32Array};
    /// use std::sync::Arc;
    /// let run_ids: ArrayRef = Arc::new(UInt32Array::from(vec![0, 2]));
    /// let labels: ArrayRef = Arc::new(StringArray::from(vec!["good", "bad"]));
    /// let labels = RecordBatch::try_from_iter([("run_id", run_ids), ("label", labels)])?;
    /// let labels = UserTable::from_batches(labels.schema(), vec![labels])?;
    /// let options = QueryOptions::default().with_table("labels", labels).with_row_limit(10);
    /// let text = "SELECT label, num_steps FROM runs JOIN labels USING (run_id) ORDER BY run_id";
    /// assert_eq!(archive.sql_with(text, no_params(), &options, &cancel)?.count(&cancel)?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`sql`](Archive::sql), and [`ErrorKind::Argument`](crate::ErrorKind::Argument) for invalid table
    /// names and limits. When the query runs, [`ErrorKind::QueryLimit`](crate::ErrorKind::QueryLimit) if it
    /// exceeds a limit.
    pub fn sql_with(
        &self,
        text: &str,
        params: impl Into<ParamValues>,
        options: &QueryOptions,
        cancel: &CancellationToken,
    ) -> Result<Query> {
        let params = params.into();
        let limits = QueryLimits::new(options);
        guard::check_length(text)?;
        user_tables::check_names(&options.tables)?;
        let session = (ProcessId::current(), session::state(self, options)?);
        let hash = hash_of(text, &params);
        debug!(target: "a2store::query", archive = %self.path().display(), version = self.version(), sql = text, "plan a query");
        let (text, own, state) = (text.to_owned(), options.tables.clone(), Arc::clone(&session.1));
        let planning = async move {
            let own = own.iter().map(|(name, _)| name.as_str());
            let tables: Vec<&str> = ["steps", "runs", "annotations"].into_iter().chain(own).collect();
            // This runs on the runtime's large stack, so that a rejected plan is dropped there too.
            let plan = guard::planned(&text, &tables, &state).await?;
            let plan = analyzed(bind(plan, params)?, &state).map_err(query_error)?;
            refused::check_types(&plan).and_then(|()| guard::check_filters(&plan)).map_err(query_error)?;
            Ok(plan)
        };
        let plan = block_on_unless(planning, || limits.check(cancel))?;
        Ok(Query { archive: self.clone(), options: options.clone(), session, plan, hash, cluster: None })
    }
}

impl Query {
    /// Returns the columns of the result.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        let schema = self.plan.schema().inner();
        // DataFusion converts string views in the outermost columns to strings.
        let fields = schema.fields().iter().map(|field| match field.data_type() {
            DataType::Utf8View => Arc::new(field.as_ref().clone().with_data_type(DataType::LargeUtf8)),
            DataType::BinaryView => Arc::new(field.as_ref().clone().with_data_type(DataType::LargeBinary)),
            _ => Arc::clone(field),
        });
        Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone()))
    }

    /// Returns whether two results may differ, because the query uses random numbers or the time.
    ///
    /// # Errors
    /// [`ErrorKind::Query`](crate::ErrorKind::Query) for a plan that cannot be read.
    pub fn is_volatile(&self) -> Result<bool> {
        let mut is_volatile = false;
        let visited = self.plan.apply_with_subqueries(|node| {
            node.apply_expressions(|expr| {
                is_volatile |= expr.exists(|expr| match expr {
                    Expr::ScalarFunction(call) => Ok(call.func.signature().volatility != Volatility::Immutable),
                    _ => Ok(false),
                })?;
                Ok(TreeNodeRecursion::Continue)
            })
        });
        visited.map(|_| is_volatile).map_err(query_error)
    }

    /// Returns the archive, at the version that the query reads.
    #[must_use]
    pub fn archive(&self) -> &Archive {
        &self.archive
    }

    /// Runs the query. Batches arrive as they are made, and dropping the stream stops the work. `cancel` stops the
    /// planning.
    ///
    /// # Errors
    /// [`ErrorKind::Query`](crate::ErrorKind::Query), here or from the stream.
    pub fn stream(&self, cancel: &CancellationToken) -> Result<QueryStream> {
        let limits = self.limits();
        Ok(self.stream_of(self.execution(&limits, cancel)?, limits))
    }

    /// Makes the execution plan, with tasks if the query is on an engine and that pays.
    pub(crate) fn execution(&self, limits: &Arc<QueryLimits>, cancel: &CancellationToken) -> Result<Execution> {
        Ok(self.execution_or_why(limits, cancel)?.0)
    }

    /// Returns the result as one batch.
    ///
    /// # Errors
    /// The errors of [`stream`](Query::stream).
    pub fn rows(&self, cancel: &CancellationToken) -> Result<RecordBatch> {
        let mut stream = self.stream(cancel)?;
        let mut batches = Vec::new();
        while let Some(batch) = stream.next_batch(cancel)? {
            batches.push(batch);
        }
        concat_batches(&stream.schema(), &batches).map_err(|error| query_error(error.into()))
    }

    /// Returns the number of rows of the result. Limits of rows and bytes do not apply. Counts without making the rows if
    /// the plan allows it.
    ///
    /// # Errors
    /// The errors of [`stream`](Query::stream).
    pub fn count(&self, cancel: &CancellationToken) -> Result<u64> {
        let mut counted = self.counted()?;
        (counted.options.row_limit, counted.options.byte_limit) = (None, None);
        let row = counted.rows(cancel)?;
        let counts = row.column(0).as_primitive_opt::<Int64Type>();
        Ok(counts.map_or(0, |counts| counts.values().iter().sum::<i64>().unsigned_abs()))
    }

    /// Returns a query for the number of rows.
    pub(in crate::query) fn counted(&self) -> Result<Query> {
        let count = datafusion::functions_aggregate::expr_fn::count(datafusion::logical_expr::lit(1_i64));
        let plan = LogicalPlanBuilder::from(self.plan.clone())
            .aggregate(Vec::<Expr>::new(), [count])
            .and_then(LogicalPlanBuilder::build)
            .map_err(query_error)?;
        Ok(self.with(plan, Change::Count))
    }

    /// Returns a query for the same rows with only these columns, so that no other column is read.
    ///
    /// # Errors
    /// [`ErrorKind::Query`](crate::ErrorKind::Query) for a plan that cannot be built.
    pub fn select(&self, columns: &[usize]) -> Result<Query> {
        // A limit stays on top, because only there it takes the first rows in order.
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
        Ok(self.with(plan, Change::Columns(columns.to_vec())))
    }

    /// Returns some of the different values of a column of strings, ascending, without null: all, or more than
    /// `most`.
    pub(crate) fn distinct_texts(&self, column: usize, most: usize, cancel: &CancellationToken) -> Result<Vec<String>> {
        let chosen = self.select(&[column])?;
        let plan = match chosen.plan {
            // Below a DISTINCT, a limit would take any rows instead of the first ones.
            plan @ LogicalPlan::Limit(_) => plan,
            plan => {
                let distinct = LogicalPlanBuilder::from(plan).distinct();
                distinct.and_then(LogicalPlanBuilder::build).map_err(query_error)?
            }
        };
        // These rows are not the user's result, so its limits do not count them.
        let options = QueryOptions { row_limit: None, byte_limit: None, ..self.options.clone() };
        let query = Query { plan, options, cluster: None, ..self.clone() };
        let mut stream = query.stream(cancel)?;
        let mut texts = BTreeSet::new();
        while texts.len() <= most
            && let Some(batch) = stream.next_batch(cancel)?
        {
            let strings = cast(batch.column(0), &DataType::Utf8).map_err(|error| query_error(error.into()))?;
            texts.extend(strings.as_string::<i32>().iter().flatten().map(str::to_owned));
        }
        Ok(texts.into_iter().collect())
    }

    /// Returns a query for the first `num_rows` rows of the result, like a LIMIT at the end of its text.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let archive = a2store::Archive::create(folder.path().join("games.a2"), Default::default())?;
    /// let query = archive.sql("VALUES (1), (2), (3)", a2store::query::no_params())?;
    /// assert_eq!(query.limit(2)?.count(&a2store::CancellationToken::new())?, 2);
    /// # Ok::<(), a2store::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Query`](crate::ErrorKind::Query) if the plan with the limit is invalid.
    pub fn limit(&self, num_rows: u64) -> Result<Query> {
        // A LIMIT counts in int64.
        let num_rows = i64::try_from(num_rows).unwrap_or(i64::MAX);
        let plan = limited(self.plan.clone(), num_rows as usize).map_err(query_error)?;
        let hash = blake3::hash(format!("{} limit {num_rows}", self.hash).as_bytes());
        Ok(Query { hash, ..self.with(plan, Change::Limit(num_rows.unsigned_abs())) })
    }

    /// Returns a query for the rows that meet a condition in SQL on columns of the result, in the same order. `None` if
    /// the plan has a LIMIT, or a sort by columns that are not in the result: a filter above them is no part of the
    /// scan.
    ///
    /// # Errors
    /// [`ErrorKind::Query`](crate::ErrorKind::Query) for a condition that is not valid on the result.
    pub fn filter(&self, condition: &str) -> Result<Option<Query>> {
        fn filtered(plan: LogicalPlan, expr: Expr) -> DataFusionResult<Option<LogicalPlan>> {
            Ok(match plan {
                LogicalPlan::Limit(_) => None,
                // The sort stays on top, because only there its order is the order of the result.
                LogicalPlan::Sort(mut sort) => match filtered(Arc::unwrap_or_clone(sort.input), expr)? {
                    Some(input) if sort.fetch.is_none() => {
                        sort.input = input.into();
                        Some(LogicalPlan::Sort(sort))
                    }
                    _ => None,
                },
                LogicalPlan::Projection(ref projection) if matches!(*projection.input, LogicalPlan::Sort(_)) => None,
                plan => Some(LogicalPlanBuilder::from(plan).filter(expr)?.build()?),
            })
        }
        let state = self.state()?;
        let expr = state.create_logical_expr(condition, self.plan.schema()).map_err(query_error)?;
        let Some(plan) = filtered(self.plan.clone(), expr).map_err(query_error)? else { return Ok(None) };
        let plan = analyzed(plan, &state).map_err(query_error)?;
        let fits = guard::check_filters(&plan).is_ok();
        Ok(fits.then(|| self.with(plan, Change::Condition(condition.to_owned()))))
    }

    /// Returns the same query, run by the tasks of an engine where that pays. [`explain`](Query::explain) shows the tasks,
    /// or the reason why the query runs in this process. docs/cluster.md describes how a query is divided.
    ///
    /// If a task fails, the query fails with [`ErrorKind::Task`](crate::ErrorKind::Task).
    #[must_use]
    pub fn on(&self, cluster: Cluster) -> Query {
        Query { cluster: Some(cluster), ..self.clone() }
    }

    /// Returns the same query, run by this process only.
    pub(crate) fn here(&self) -> Query {
        Query { cluster: None, ..self.clone() }
    }

    /// Returns a query with another plan. A worker makes the same change.
    fn with(&self, plan: LogicalPlan, change: Change) -> Query {
        let mut query = Query { plan, ..self.clone() };
        if let Some(cluster) = &mut query.cluster {
            cluster.changes.push(change);
        }
        query
    }

    /// Returns the query with these changes.
    pub(in crate::query) fn changed(&self, changes: &[Change]) -> Result<Query> {
        changes.iter().try_fold(self.clone(), |query, change| match change {
            Change::Count => query.counted(),
            Change::Columns(columns) => query.select(columns),
            Change::Limit(num_rows) => query.limit(*num_rows),
            Change::Condition(condition) => {
                let filtered = query.filter(condition)?;
                filtered.ok_or_else(|| Error::query(format!("the condition {condition} does not fit the query")))
            }
        })
    }

    /// Starts the limits of one execution.
    pub(crate) fn limits(&self) -> Arc<QueryLimits> {
        Arc::new(QueryLimits::new(&self.options))
    }

    /// Makes the execution plan in this process, for tasks if there is a division.
    pub(in crate::query) fn planned(
        &self,
        division: Option<Division>,
        limits: &QueryLimits,
        cancel: &CancellationToken,
    ) -> Result<Execution> {
        let (plan, state) = (self.plan.clone(), self.state()?);
        let planning = async move { execution::plan(&state, &plan, division).await };
        block_on_unless(planning, || limits.check(cancel)).map_err(|error| limits.explain(self.archive.blame(error)))
    }

    /// Returns the optimized logical plan.
    pub(in crate::query) fn optimized(&self, limits: &QueryLimits, cancel: &CancellationToken) -> Result<LogicalPlan> {
        let (plan, state) = (self.plan.clone(), self.state()?);
        let planning = async move { execution::optimized(&execution::begun(&state), &plan).map_err(query_error) };
        block_on_unless(planning, || limits.check(cancel))
    }

    pub(crate) fn stream_of(&self, execution: Execution, limits: Arc<QueryLimits>) -> QueryStream {
        QueryStream::new(self.archive.clone(), self.schema(), execution, limits)
    }

    /// Returns the session for planning. A forked child makes its own, because threads that do not exist in the
    /// child may have held the locks of the parent's session.
    pub(in crate::query) fn state(&self) -> Result<Arc<SessionState>> {
        let (process, state) = &self.session;
        if process.is_current() { Ok(Arc::clone(state)) } else { session::state(&self.archive, &self.options) }
    }

    /// Returns a hash of the archive's newest commit, the text, the parameters and the limits that were added, as 16
    /// hexadecimal digits.
    #[must_use]
    pub fn hash(&self) -> String {
        let commit = &self.archive.manifest().txn;
        blake3::hash(format!("{commit} {}", self.hash).as_bytes()).to_hex()[..16].to_owned()
    }

    /// Returns a hash of the text, the parameters and the limits that were added, as 16 hexadecimal digits.
    pub(crate) fn text_hash(&self) -> String {
        self.hash.to_hex()[..16].to_owned()
    }
}

impl fmt::Debug for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Query").field("archive", &self.archive).field("schema", &self.plan.schema().inner()).finish()
    }
}

/// Returns the parameters of a query without parameters.
#[must_use]
pub fn no_params() -> ParamValues {
    ParamValues::List(Vec::new())
}

/// Binds the parameters. Each must have a value, and each value must have a parameter.
fn bind(plan: LogicalPlan, params: ParamValues) -> Result<LogicalPlan> {
    let expected: BTreeSet<String> = plan.get_parameter_names().map_err(query_error)?.into_iter().collect();
    let given: BTreeSet<String> = match &params {
        ParamValues::List(values) => (1..=values.len()).map(|i| format!("${i}")).collect(),
        ParamValues::Map(values) => values.keys().map(|name| format!("${name}")).collect(),
    };
    let (missing, unknown) = (expected.difference(&given), given.difference(&expected));
    for (names, problem) in [(missing, "no value for the parameters"), (unknown, "the query has no parameters")] {
        let shown = |name: &String| match name.as_str() {
            "?" => "? (write $1, $2, …)".to_owned(),
            name => name.escape_debug().to_string(),
        };
        let names: Vec<String> = names.map(shown).collect();
        if !names.is_empty() {
            return Err(Error::query(format!("{problem} {}", names.join(", "))));
        }
    }
    if expected.is_empty() {
        return Ok(plan);
    }
    plan.with_param_values(params).map_err(query_error)
}

/// Hashes a query's text and parameters.
fn hash_of(text: &str, params: &ParamValues) -> blake3::Hash {
    let mut values: Vec<String> = match params {
        ParamValues::List(values) => values.iter().map(|value| format!("{:?}", value.value)).collect(),
        ParamValues::Map(values) => values.iter().map(|(name, value)| format!("{name}={:?}", value.value)).collect(),
    };
    if let ParamValues::Map(_) = params {
        values.sort();
    }
    blake3::hash(format!("{text:?} {values:?}").as_bytes())
}

/// Limits the rows of a plan. An existing LIMIT is changed, because only one LIMIT keeps the natural order of rows.
fn limited(plan: LogicalPlan, num_rows: usize) -> DataFusionResult<LogicalPlan> {
    if let LogicalPlan::Limit(limit) = &plan
        && let (SkipType::Literal(skip), FetchType::Literal(fetch)) = (limit.get_skip_type()?, limit.get_fetch_type()?)
    {
        let fetch = fetch.map_or(num_rows, |fetch| fetch.min(num_rows));
        return LogicalPlanBuilder::from(limit.input.as_ref().clone()).limit(skip, Some(fetch))?.build();
    }
    LogicalPlanBuilder::from(plan).limit(0, Some(num_rows))?.build()
}

/// Resolves the types of a plan. Before that, a CASE has the type of its first branch, and a UNION has the type
/// of its first input.
fn analyzed(plan: LogicalPlan, session: &SessionState) -> DataFusionResult<LogicalPlan> {
    session.analyzer().execute_and_check(plan, session.config_options(), |_, _| {})
}
