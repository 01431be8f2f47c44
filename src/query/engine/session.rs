//! The DataFusion session of a query: tables, object stores, settings and rules.
//!
//! A statement sees the tables `runs`, `steps` and `annotations` and the user's tables. The object stores reach only
//! their files.

use crate::archive::{Archive, Phases, TableName};
use crate::error::{Error, Result};
use crate::query::engine::errors::{external, query_error};
use crate::query::engine::udf::board_udfs;
use crate::query::guard::{BOUND_SIZES, Extreme, SignedSum};
use crate::query::options::QueryOptions;
use crate::query::rewrites::{self, KEEP_VALUES, TYPE_LITERALS, TypeOperands, logical_rules};
use crate::query::scan::annotation_view::annotations;
use crate::query::scan::archive_table::ArchiveTable;
use crate::query::scan::file_table::{FileTable, IGNORE_WRONG_BOUNDS};
use crate::query::scan::metadata_cache::{METADATA_BYTES, MetadataCache};
use crate::query::scan::parquet_scan::ARCHIVE_URL;
use crate::query::step_join::JOIN_BY_STEPS;
use crate::query::user_tables::{UserTable, UserTableSource};
use async_trait::async_trait;
use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, MemTable, MemoryCatalogProvider, MemoryCatalogProviderList, SchemaProvider,
    TableProvider,
};
use datafusion::common::Result as DataFusionResult;
use datafusion::execution::cache::cache_manager::CacheManagerConfig;
use datafusion::execution::object_store::{DefaultObjectStoreRegistry, ObjectStoreRegistry, ObjectStoreUrl};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::{SessionState, SessionStateBuilder, SessionStateDefaults};
use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion::logical_expr::planner::ExprPlanner;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF};
use datafusion::optimizer::{Analyzer, AnalyzerRule, Optimizer};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::prelude::SessionConfig;
use object_store::local::LocalFileSystem;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// DataFusion's scalar functions that statements cannot call. They reveal files or the host, or make values of
/// any size from a few words.
const EXCLUDED: [&str; 11] = [
    "array_repeat",
    "array_resize",
    "arrow_metadata",
    "cast_to_type",
    "file_row_index",
    "generate_series",
    "input_file_name",
    "range",
    "repeat",
    "try_cast_to_type",
    "version",
];
const CATALOG: &str = "a2store";
const SCHEMA: &str = "v";
const ANNOTATIONS: &str = "annotations";
/// The maximum number of partitions of a user's table in memory.
const TABLE_PARTITIONS: usize = 16;

/// Returns a session with the tables of the archive, and the tables and limits of the options.
pub(in crate::query) fn state(archive: &Archive, options: &QueryOptions) -> Result<Arc<SessionState>> {
    let stores = DefaultObjectStoreRegistry::new();
    // The session reads no files of the machine beyond the registered stores.
    stores.deregister_store(ObjectStoreUrl::local_filesystem().as_ref()).map_err(query_error)?;
    stores.register_store(ObjectStoreUrl::parse(ARCHIVE_URL).map_err(query_error)?.as_ref(), archive.store()?);
    let runs = ArchiveTable::new(archive, TableName::Runs, None);
    let steps = ArchiveTable::new(archive, TableName::Steps, Some(Arc::clone(&runs)));
    let mut tables: HashMap<String, Arc<dyn TableProvider>> =
        HashMap::from([("runs".to_owned(), runs as _), ("steps".to_owned(), steps as _)]);
    for (i, (name, table)) in options.tables.iter().enumerate() {
        tables.insert(name.clone(), provider(table, i, &stores)?);
    }
    let caches = CacheManagerConfig::default()
        .with_file_metadata_cache(Some(MetadataCache::of_archive(archive)?.footers()))
        .with_metadata_cache_limit(METADATA_BYTES);
    let runtime = RuntimeEnvBuilder::new()
        .with_object_store_registry(Arc::new(stores))
        .with_cache_manager(caches)
        .with_memory_pool(options.memory_pool()?)
        .with_disk_manager_builder(options.disk_manager())
        .build_arc()
        .map_err(|error| options.spill_error(error))?;
    let catalog = MemoryCatalogProvider::new();
    catalog.register_schema(SCHEMA, Arc::new(Tables { archive: archive.clone(), tables })).map_err(query_error)?;
    let catalogs = MemoryCatalogProviderList::new();
    catalogs.register_catalog(CATALOG.to_owned(), Arc::new(catalog));
    let config = config(options).with_create_default_catalog_and_schema(false);
    let state = SessionStateBuilder::new().with_config(config).with_runtime_env(runtime);
    let state = restricted(state, archive.phases()).with_catalog_list(Arc::new(catalogs));
    Ok(Arc::new(state.with_physical_optimizer_rules(physical_rules()).build()))
}

/// The tables that a statement can name. A bare reference always means one of them, for names in any case and with any
/// characters.
#[derive(Debug)]
struct Tables {
    archive: Archive,
    /// All tables but `annotations`: making the plan of that view would take longer than all else of a session.
    tables: HashMap<String, Arc<dyn TableProvider>>,
}

#[async_trait]
impl SchemaProvider for Tables {
    fn table_names(&self) -> Vec<String> {
        self.tables.keys().cloned().chain([ANNOTATIONS.to_owned()]).collect()
    }

    async fn table(&self, name: &str) -> DataFusionResult<Option<Arc<dyn TableProvider>>> {
        match name {
            ANNOTATIONS => Ok(Some(Arc::new(annotations(&self.archive).map_err(external)?))),
            name => Ok(self.tables.get(name).cloned()),
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        name == ANNOTATIONS || self.tables.contains_key(name)
    }
}

/// Restricts a session to what statements may use.
pub(in crate::query) fn restricted(state: SessionStateBuilder, phases: Phases) -> SessionStateBuilder {
    let is_excluded = |function: &Arc<ScalarUDF>| EXCLUDED.contains(&function.name());
    let scalars = SessionStateDefaults::default_scalar_functions().into_iter().filter(|known| !is_excluded(known));
    let scalars = scalars.chain(board_udfs(phases)).collect();
    let sum = AggregateUDF::new_from_impl(SignedSum::new());
    let extremes = [min_udaf(), max_udaf()].map(|extreme| AggregateUDF::new_from_impl(Extreme(extreme)));
    let own = extremes.into_iter().chain([sum]).map(Arc::new);
    let aggregates = SessionStateDefaults::default_aggregate_functions().into_iter().chain(own).collect();
    let planners = std::iter::once(Arc::new(TypeOperands) as Arc<dyn ExprPlanner>);
    let planners = planners.chain(SessionStateDefaults::default_expr_planners()).collect();
    let first = std::iter::once(Arc::new(TYPE_LITERALS) as Arc<dyn AnalyzerRule + Send + Sync>);
    state
        .with_analyzer_rules(first.chain(Analyzer::new().rules).collect())
        .with_optimizer_rules(logical_rules(Optimizer::new().rules))
        .with_scalar_functions(scalars)
        .with_aggregate_functions(aggregates)
        .with_window_functions(SessionStateDefaults::default_window_functions())
        .with_expr_planners(planners)
        .with_analyzer_rule(Arc::new(KEEP_VALUES))
        .with_analyzer_rule(Arc::new(BOUND_SIZES))
}

/// Returns DataFusion's physical rules, and the rules of this crate.
fn physical_rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules = rewrites::physical_rules(PhysicalOptimizer::default().rules);
    // Filters are in the scans by now, and rows are not yet distributed over partitions.
    let at = rules.iter().position(|rule| rule.name() == "EnsureRequirements").unwrap_or(rules.len());
    rules.insert(at, Arc::new(JOIN_BY_STEPS));
    rules.push(Arc::new(IGNORE_WRONG_BOUNDS));
    rules
}

/// Returns the settings of a session. A memory limit allows one partition per
/// [`MIN_MEMORY_BYTES`](QueryOptions::MIN_MEMORY_BYTES), because parallel sorts compete for merge memory, and a
/// sort with too little memory fails.
pub(in crate::query) fn config(options: &QueryOptions) -> SessionConfig {
    let mut config =
        SessionConfig::new().with_information_schema(false).with_default_catalog_and_schema(CATALOG, SCHEMA);
    if let Some(bytes) = options.memory_limit {
        let most = usize::try_from(bytes / QueryOptions::MIN_MEMORY_BYTES).unwrap_or(usize::MAX).max(1);
        config = config.with_target_partitions(SessionConfig::new().target_partitions().min(most));
    }
    let options = config.options_mut();
    options.execution.parquet.pushdown_filters = true;
    options.execution.parquet.reorder_filters = true;
    options.execution.collect_statistics = true;
    // DataFusion's check of the schema fails if a plan is less exact about nullability than the statement, as
    // in `DISTINCT (a > 1) IS TRUE` (apache/datafusion#24096).
    options.execution.skip_physical_aggregate_schema_check = true;
    options.execution.enable_recursive_ctes = false;
    // Some readers of the results do not support the string views that DataFusion prefers.
    options.sql_parser.map_string_types_to_utf8view = false;
    options.optimizer.expand_views_at_output = true;
    // Top-k filters cost more than they save: the reader evaluates the sort key again for every row, and prunes
    // few pages.
    options.optimizer.enable_topk_dynamic_filter_pushdown = false;
    // DataFusion follows the key of a sort below groups by its name alone, as in `SELECT -n AS n FROM (SELECT DISTINCT move
    // AS n FROM steps) ORDER BY n LIMIT 2`, and does not know which nodes need all groups (apache/datafusion#25066).
    options.optimizer.enable_topk_aggregation = false;
    // DataFusion makes this filter from each `min` and `max` of a plain column. It drops rows that other aggregates of
    // the same SELECT need, as in `SELECT max(move), max(step_index + 1)` (apache/datafusion#24816).
    options.optimizer.enable_aggregate_dynamic_filter_pushdown = false;
    config
}

fn provider(table: &UserTable, index: usize, stores: &dyn ObjectStoreRegistry) -> Result<Arc<dyn TableProvider>> {
    match &table.0 {
        UserTableSource::Batches { schema, batches } => {
            // A join with the table runs in parallel. All processes of a query have the same partitions.
            let count = TABLE_PARTITIONS.clamp(1, batches.len().max(1));
            let mut partitions = vec![Vec::new(); count];
            for (i, batch) in batches.iter().enumerate() {
                partitions[i * count / batches.len()].push(batch.clone());
            }
            Ok(Arc::new(MemTable::try_new(Arc::clone(schema), partitions).map_err(query_error)?))
        }
        UserTableSource::Parquet(file) => {
            let url = format!("a2store://table-{index}");
            let folder = file.path.parent().unwrap_or(Path::new("/"));
            let store = LocalFileSystem::new_with_prefix(folder)
                .map_err(|error| Error::io(folder, std::io::Error::other(error)))?;
            stores.register_store(ObjectStoreUrl::parse(&url).map_err(query_error)?.as_ref(), Arc::new(store));
            Ok(Arc::new(FileTable::new(file.clone(), url)?))
        }
    }
}
