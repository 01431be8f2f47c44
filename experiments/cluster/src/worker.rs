//! The server of a worker.

use crate::client::{Channels, Limits, Tls};
use crate::codec::ScanCodec;
use crate::tasks::Tasks;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, Result, exec_err};
use datafusion::execution::SessionState;
use datafusion::execution::cache::cache_manager::FileMetadataCache;
use datafusion::execution::memory_pool::{FairSpillPool, TrackConsumersPool};
use datafusion::execution::object_store::ObjectStoreRegistry;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::logical_expr::{AggregateUDF, ScalarUDF};
use datafusion_distributed::{DistributedExt, Worker, WorkerQueryContext};
use futures::future::BoxFuture;
use futures::{FutureExt, TryFutureExt};
use http::{Request, Response};
use object_store::ObjectStore;
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tonic::body::Body;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tower_layer::Layer;
use tower_service::Service;
use url::Url;

/// The store of an archive and its cache of footers.
///
/// DataFusion's cache of footers knows files by their path inside a store. Two archives have equal paths, so each has a
/// cache of its own.
#[derive(Clone, Debug)]
pub struct Archive {
    pub store: Arc<dyn ObjectStore>,
    pub footers: Arc<FileMetadataCache>,
}

impl Archive {
    #[must_use]
    pub fn new(store: Arc<dyn ObjectStore>) -> Archive {
        Archive { store, footers: RuntimeEnv::default().cache_manager.get_file_metadata_cache() }
    }
}

/// The archives that a process may read, by URL.
#[derive(Clone, Debug, Default)]
pub struct Archives(HashMap<String, Archive>);

impl Archives {
    #[must_use]
    pub fn one(url: &str, archive: Archive) -> Archives {
        Archives(HashMap::from([(url.to_owned(), archive)]))
    }

    #[must_use]
    pub fn get(&self, url: &str) -> Option<&Archive> {
        self.0.get(url)
    }
}

impl ObjectStoreRegistry for Archives {
    fn register_store(&self, _: &Url, store: Arc<dyn ObjectStore>) -> Option<Arc<dyn ObjectStore>> {
        Some(store)
    }

    fn get_store(&self, url: &Url) -> Result<Arc<dyn ObjectStore>> {
        let mut root = url.clone();
        root.set_path("/");
        match self.get(root.as_str()) {
            Some(archive) => Ok(Arc::clone(&archive.store)),
            None => exec_err!("this process may not read {root}"),
        }
    }
}

/// What a worker has and what it allows.
#[derive(Clone, Default)]
pub struct WorkerOptions {
    pub archives: Archives,
    pub scalars: Vec<Arc<ScalarUDF>>,
    pub aggregates: Vec<Arc<AggregateUDF>>,
    /// The bytes of all queries together.
    pub memory: Option<usize>,
    /// The largest message that a worker receives.
    pub message_bytes: Option<usize>,
    pub tls: Option<Tls>,
    /// The runtime of connections; `None` = that of the caller.
    pub io: Option<Handle>,
    /// The runtime of queries; `None` = that of the server. Queries on the server's own runtime starve its connections: a
    /// busy thread of tokio looks for network events only once in 61 polls, and a poll lasts as long as a batch.
    pub compute: Option<Handle>,
    /// The running tasks; `None` = tasks do not end with their queries.
    pub tasks: Option<Tasks>,
}

/// Returns the worker. Clones share its tasks.
pub fn worker(options: &WorkerOptions) -> Result<Worker> {
    let mut runtime = RuntimeEnvBuilder::new().with_object_store_registry(Arc::new(options.archives.clone()));
    if let Some(bytes) = options.memory {
        let five = NonZeroUsize::MIN.saturating_add(4);
        runtime = runtime.with_memory_pool(Arc::new(TrackConsumersPool::new(FairSpillPool::new(bytes), five)));
    }
    let (archives, scalars, aggregates) =
        (Arc::new(options.archives.clone()), options.scalars.clone(), options.aggregates.clone());
    // Workers fetch from each other, so they need the same connections as the client.
    let channels = Channels::new(Limits::default(), options.tls.clone()).on(options.io.clone());
    let tasks = options.tasks.clone();
    let session = move |context: WorkerQueryContext| {
        let ended = tasks.as_ref().and_then(|tasks| tasks.of(&context.headers));
        let (archives, scalars, aggregates) = (Arc::clone(&archives), scalars.clone(), aggregates.clone());
        let channels = channels.clone();
        async move {
            let mut builder = context.builder;
            // The client's settings do not arrive. Only the options of `DistributedConfig` do.
            let config = builder.config().get_or_insert_default();
            config.options_mut().execution.parquet.pushdown_filters = true;
            config.set_extension(archives);
            if let Some(ended) = ended {
                config.set_extension(Arc::new(ended));
            }
            let mut state: SessionState =
                builder.with_distributed_user_codec(ScanCodec).with_distributed_channel_resolver(channels).build();
            for function in scalars {
                datafusion::execution::FunctionRegistry::register_udf(&mut state, function)?;
            }
            for function in aggregates {
                datafusion::execution::FunctionRegistry::register_udaf(&mut state, function)?;
            }
            Ok(state)
        }
    };
    Ok(Worker::from_session_builder(session).with_runtime_env(runtime.build_arc()?).with_version("trial 1"))
}

/// Serves a worker until the process ends.
pub async fn serve(worker: Worker, options: &WorkerOptions, listener: TcpListener) -> Result<()> {
    let mut server = Server::builder()
        .layer(RequestLayer { compute: options.compute.clone(), tasks: options.tasks.clone() })
        .http2_keepalive_interval(Some(Duration::from_secs(2)))
        .http2_keepalive_timeout(Some(Duration::from_secs(2)));
    if let Some(tls) = &options.tls {
        let config = ServerTlsConfig::new()
            .identity(Identity::from_pem(&tls.certificate, &tls.key))
            .client_ca_root(Certificate::from_pem(&tls.authority));
        server = server.tls_config(config).map_err(external)?;
    }
    let mut service = worker.into_worker_server();
    if let Some(bytes) = options.message_bytes {
        service = service.max_decoding_message_size(bytes);
    }
    // Without this, each answer may wait 40 ms for an acknowledgement.
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    server.add_service(service).serve_with_incoming(incoming).await.map_err(external)
}

/// Runs each request on the runtime of queries, and notices when its task ends.
#[derive(Clone)]
struct RequestLayer {
    compute: Option<Handle>,
    tasks: Option<Tasks>,
}

impl<S> Layer<S> for RequestLayer {
    type Service = Requests<S>;

    fn layer(&self, service: S) -> Requests<S> {
        Requests { service, layer: self.clone() }
    }
}

#[derive(Clone)]
struct Requests<S> {
    service: S,
    layer: RequestLayer,
}

impl<S> Service<Request<Body>> for Requests<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, std::result::Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<std::result::Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (request, ended) = match &self.layer.tasks {
            Some(tasks) => tasks.start(request),
            None => (request, None),
        };
        let watched = move |answer| match ended {
            Some(ended) => ended.watch(answer),
            None => answer,
        };
        // The service that is ready must get the request.
        let next = self.service.clone();
        let mut service = std::mem::replace(&mut self.service, next);
        let Some(compute) = &self.layer.compute else { return service.call(request).map_ok(watched).boxed() };
        let _entered = compute.enter();
        // Dropping the answer ends the task.
        let task = SpawnedTask::spawn(async move { service.call(request).await });
        async move {
            match task.await {
                Ok(answer) => answer.map(watched),
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            }
        }
        .boxed()
    }
}

fn external(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
