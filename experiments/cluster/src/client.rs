//! Sessions that plan queries, and connections to workers.

use crate::codec::{Envelope, ScanCodec};
use crate::games;
use crate::scan::WrapScans;
use crate::split::{RowsPerTask, split};
use crate::tasks;
use crate::worker::Archives;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::{SessionState, SessionStateBuilder, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_distributed::{
    ChannelResolver, CoordinatorToWorkerMsg, DistributedExt, ExecuteTaskRequest, GetWorkerInfoRequest,
    GetWorkerInfoResponse, MaybeEncoded, SessionStateBuilderExt, SetPlanRequest, WorkerChannel, WorkerResolver,
    WorkerToCoordinatorMsg, grpc,
};
use futures::stream::BoxStream;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use url::Url;

/// A certificate and its key, and the authority that signs the other side's certificates. All are PEM.
#[derive(Clone, Debug)]
pub struct Tls {
    pub authority: Vec<u8>,
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
}

/// How long a connection waits.
#[derive(Clone, Debug)]
pub struct Limits {
    pub connect: Duration,
    /// The time until a worker begins to answer.
    pub answer: Duration,
    /// The time between pings, and the time for their answers.
    pub ping: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { connect: Duration::from_secs(3), answer: Duration::from_secs(30), ping: Duration::from_secs(2) }
    }
}

/// The workers of a query.
#[derive(Clone)]
pub struct Cluster(pub Vec<Url>);

impl WorkerResolver for Cluster {
    fn get_urls(&self) -> Result<Vec<Url>> {
        Ok(self.0.clone())
    }
}

/// Connections with time limits, pings and certificates. They send each stage in an [`Envelope`].
#[derive(Clone)]
pub struct Channels {
    limits: Limits,
    tls: Option<Tls>,
    envelopes: bool,
    /// The runtime of connections; `None` = that of the caller.
    io: Option<Handle>,
    open: Arc<Mutex<HashMap<Url, Channel>>>,
}

impl Channels {
    #[must_use]
    pub fn new(limits: Limits, tls: Option<Tls>) -> Channels {
        Channels { limits, tls, envelopes: true, io: None, open: Arc::default() }
    }

    /// Keeps connections on this runtime.
    #[must_use]
    pub fn on(self, io: Option<Handle>) -> Channels {
        Channels { io, ..self }
    }

    /// Sends stages as `datafusion-distributed` encodes them.
    #[must_use]
    pub fn without_envelopes(self) -> Channels {
        Channels { envelopes: false, ..self }
    }

    fn channel(&self, url: &Url) -> Result<Channel> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = open.get(url) {
            return Ok(channel.clone());
        }
        let mut endpoint = Endpoint::from_shared(url.to_string())
            .map_err(external)?
            .connect_timeout(self.limits.connect)
            .timeout(self.limits.answer)
            .http2_keep_alive_interval(self.limits.ping)
            .keep_alive_timeout(self.limits.ping)
            .keep_alive_while_idle(true);
        if let Some(tls) = &self.tls {
            let config = ClientTlsConfig::new()
                .domain_name("localhost")
                .ca_certificate(Certificate::from_pem(&tls.authority))
                .identity(Identity::from_pem(&tls.certificate, &tls.key));
            endpoint = endpoint.tls_config(config).map_err(external)?;
        }
        let _entered = self.io.as_ref().map(Handle::enter);
        // A lazy channel connects again after a failure.
        let channel = endpoint.connect_lazy();
        open.insert(url.clone(), channel.clone());
        Ok(channel)
    }
}

#[async_trait]
impl ChannelResolver for Channels {
    async fn get_worker_client_for_url(&self, url: &Url) -> Result<Box<dyn WorkerChannel>> {
        let client = grpc::create_worker_client(grpc::BoxCloneSyncChannel::new(self.channel(url)?));
        Ok(if self.envelopes { Box::new(InEnvelopes(client)) } else { client })
    }
}

/// A connection that puts each stage into an envelope, and names its task.
struct InEnvelopes(Box<dyn WorkerChannel>);

#[async_trait]
impl WorkerChannel for InEnvelopes {
    async fn coordinator_channel(
        &mut self,
        mut headers: http::HeaderMap,
        mut request: SetPlanRequest,
        messages: BoxStream<'static, CoordinatorToWorkerMsg>,
        metrics: ExecutionPlanMetricsSet,
        context: &Arc<TaskContext>,
    ) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>> {
        headers.insert(tasks::HEADER, tasks::name(&request.task_key)?);
        request.plan = match request.plan {
            MaybeEncoded::Decoded(stage) => MaybeEncoded::Decoded(Arc::new(Envelope(stage))),
            encoded => encoded,
        };
        self.0.coordinator_channel(headers, request, messages, metrics, context).await
    }

    async fn execute_task(
        &mut self,
        headers: http::HeaderMap,
        request: ExecuteTaskRequest,
        metrics: ExecutionPlanMetricsSet,
        context: &Arc<TaskContext>,
    ) -> Result<Vec<BoxStream<'static, Result<arrow::array::RecordBatch>>>> {
        self.0.execute_task(headers, request, metrics, context).await
    }

    async fn get_worker_info(&mut self, request: GetWorkerInfoRequest) -> Result<GetWorkerInfoResponse> {
        self.0.get_worker_info(request).await
    }
}

fn settings() -> SessionConfig {
    let mut config = SessionConfig::new().with_target_partitions(2);
    config.options_mut().execution.parquet.pushdown_filters = true;
    config
}

fn builder(folder: &Path) -> Result<SessionStateBuilder> {
    let archives = Archives::one(games::URL, games::open(folder)?);
    let runtime = RuntimeEnvBuilder::new().with_object_store_registry(Arc::new(archives)).build_arc()?;
    Ok(SessionStateBuilder::new().with_default_features().with_config(settings()).with_runtime_env(runtime))
}

fn context(state: SessionState, folder: &Path) -> Result<SessionContext> {
    let context = SessionContext::new_with_state(state);
    games::register(&context, folder)?;
    Ok(context)
}

/// Returns a session that runs queries in this process.
pub fn local(folder: &Path) -> Result<SessionContext> {
    context(builder(folder)?.build(), folder)
}

/// Returns a session that runs queries on workers. Its scans are split by our node.
pub fn distributed(folder: &Path, cluster: Cluster, channels: Channels) -> Result<SessionContext> {
    let state = builder(folder)?
        .with_physical_optimizer_rule(Arc::new(WrapScans))
        .with_distributed_planner()
        .with_distributed_worker_resolver(cluster)
        .with_distributed_channel_resolver(channels)
        .with_distributed_user_codec(ScanCodec)
        .with_distributed_desired_task_count_handler(RowsPerTask(20_000))
        .with_distributed_scale_up_leaf_node_handler(split);
    context(state.build(), folder)
}

/// Returns a session that runs queries on workers, with everything as `datafusion-distributed` does it.
pub fn as_is(folder: &Path, cluster: Cluster, bytes_per_partition: usize) -> Result<SessionContext> {
    let state = builder(folder)?
        .with_distributed_planner()
        .with_distributed_worker_resolver(cluster)
        .with_distributed_file_scan_config_bytes_per_partition(bytes_per_partition)?;
    context(state.build(), folder)
}

/// Splits a finished plan into stages. The session's own planner does not run again.
pub async fn distribute(plan: Arc<dyn ExecutionPlan>, state: &SessionState) -> Result<Arc<dyn ExecutionPlan>> {
    #[derive(Debug)]
    struct Finished(Arc<dyn ExecutionPlan>);

    #[async_trait]
    impl QueryPlanner for Finished {
        async fn create_physical_plan(&self, _: &LogicalPlan, _: &dyn Session) -> Result<Arc<dyn ExecutionPlan>> {
            Ok(Arc::clone(&self.0))
        }
    }

    let state = SessionStateBuilder::new_from_existing(state.clone())
        .with_query_planner(Arc::new(Finished(plan)))
        .with_distributed_planner()
        .build();
    let nothing = LogicalPlan::default();
    state.query_planner().create_physical_plan(&nothing, &state).await
}

fn external(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
