//! The server: its socket, its connections, its addresses, and its end.

use super::access::{Access, check_token, guard};
use super::addresses::{archive, games, reports, runs, statements};
use super::explorer::{Explorer, LivePolicy, MAX_BODY_BYTES};
use super::request::Failure;
use a2store::archive::Archive;
use a2store::error::{Error, Result};
use a2store::system::cancellation::CancellationToken;
use a2store::system::random;
use a2store::system::runtime::{PERIOD, Threads, block_for, runtime};
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::response::Html;
use axum::routing::{get, post};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};

// The files of the page, which `../web/` builds.
const INDEX: &str = include_str!("../../assets/index.html");
const SCRIPT: &str = include_str!("../../assets/app.js");
const STYLES: &str = include_str!("../../assets/app.css");

/// The maximum number of open connections. Further connections wait until one closes.
const MAX_CONNECTIONS: usize = 256;

/// The maximum size of a request's first line and headers, in bytes.
const MAX_HEADER_BYTES: usize = 32 << 10;

/// The maximum time to receive a request's headers, and between requests. It bounds how long an idle connection
/// counts towards the limit.
const MAX_HEADER_TIME: Duration = Duration::from_secs(10);

/// Options of a view.
pub struct ViewOptions {
    /// The port; 0 = any free port.
    pub port: u16,
    /// The token that each request needs; `None` = a random token.
    pub token: Option<String>,
    /// Whether the view shows new versions as they are committed.
    pub follows: bool,
    /// A policy whose values are shown beside the engine's values.
    pub policy: Option<Arc<dyn LivePolicy>>,
    /// The maximum time to receive a request, and the maximum time that a request waits for its turn.
    pub timeout: Duration,
}

impl ViewOptions {
    /// Returns the defaults, with the token and the timeout from the environment.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](a2store::ErrorKind::Argument) if the timeout is not a number from 0.01 to 3600.
    pub fn from_environment() -> Result<ViewOptions> {
        const SECONDS: &str = "A2STORE_VIEW_TIMEOUT_SECONDS";
        let given = std::env::var_os(SECONDS).map(|text| text.to_string_lossy().into_owned());
        let seconds = given.as_ref().map_or(Some(30.0), |text| text.parse().ok());
        let seconds = seconds.filter(|seconds: &f64| (0.01..=3600.0).contains(seconds));
        let invalid = || Error::argument(SECONDS, "0.01 to 3600", format!("{:?}", given.clone().unwrap_or_default()));
        let timeout = Duration::from_secs_f64(seconds.ok_or_else(invalid)?);
        let token = std::env::var_os("A2STORE_VIEW_TOKEN").map(|token| token.to_string_lossy().into_owned());
        Ok(ViewOptions { port: 0, token, follows: true, policy: None, timeout })
    }
}

/// A running explorer. Dropping it ends the server.
pub struct View {
    address: SocketAddr,
    token: String,
    end: watch::Sender<bool>,
    server: JoinHandle<()>,
    /// The server's tasks run on these threads.
    threads: Arc<Threads>,
}

impl View {
    /// Starts a server on the loopback interface.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](a2store::ErrorKind::Io) if the port is in use.
    /// [`ErrorKind::Argument`](a2store::ErrorKind::Argument) if the token is too short, or has characters other than
    /// letters, digits, `-` and `_`.
    pub fn start(archive: Archive, options: ViewOptions) -> Result<View> {
        let token = options.token.unwrap_or_else(random::id);
        check_token(&token)?;
        let threads = runtime()?;
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, options.port))
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(|source| Error::io(format!("127.0.0.1:{}", options.port), source))?;
        let (address, listener) = {
            let _entered = threads.handle().enter();
            let address = listener.local_addr().map_err(Error::from)?;
            (address, TcpListener::from_std(listener).map_err(Error::from)?)
        };
        let explorer = Arc::new(Explorer::new(archive, options.policy, options.timeout));
        let access = Arc::new(Access::new(&token, address.port()));
        let router = router(Arc::clone(&explorer), access);
        let (end, ended) = watch::channel(false);
        let (follows, timeout) = (options.follows, options.timeout);
        let server = threads.handle().spawn(async move {
            let watcher = follows.then(|| tokio::spawn(archive::watch_archive(explorer)));
            accept(listener, router, timeout, ended).await;
            watcher.inspect(JoinHandle::abort);
        });
        Ok(View { address, token, end, server, threads })
    }

    /// Returns the address to open in a browser, with the token.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/?token={}", self.address, self.token)
    }

    /// Waits until `cancel` is cancelled or the server has ended.
    pub fn wait(&mut self, cancel: &CancellationToken) {
        while !cancel.is_cancelled() && block_for(PERIOD, &mut self.server).is_none() {}
    }
}

impl Drop for View {
    /// Ends the server: closes all connections, and cancels the work for them.
    fn drop(&mut self) {
        // A forked child does not have the server's threads.
        if !self.threads.are_here() {
            return;
        }
        _ = self.end.send(true);
        if !self.server.is_finished() {
            _ = block_for(Duration::from_secs(2), &mut self.server);
        }
    }
}

async fn accept(listener: TcpListener, router: Router, timeout: Duration, mut ended: watch::Receiver<bool>) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let permit_and_stream = async {
            let permit = Arc::clone(&permits).acquire_owned().await;
            (permit, listener.accept().await)
        };
        let accepted = tokio::select! {
            _ = ended.changed() => break,
            accepted = permit_and_stream => accepted,
        };
        match accepted {
            (permit, Ok((stream, _))) => {
                let connection = serve(stream, router.clone(), timeout);
                connections.spawn(async move {
                    connection.await;
                    drop(permit);
                });
            }
            // For example, the process has too many open files.
            (_, Err(_)) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
        while connections.try_join_next().is_some() {}
    }
    connections.shutdown().await;
}

async fn serve(stream: TcpStream, router: Router, timeout: Duration) {
    _ = stream.set_nodelay(true);
    let mut builder = http1::Builder::new();
    let timeout = timeout.min(MAX_HEADER_TIME);
    builder.timer(TokioTimer::new()).header_read_timeout(timeout).max_buf_size(MAX_HEADER_BYTES);
    // An error means that the client disconnected or violated the protocol.
    _ = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await;
}

/// Returns the function that handles each address.
fn router(explorer: Arc<Explorer>, access: Arc<Access>) -> Router {
    Router::new()
        .route("/", get(async || Html(INDEX)))
        .route("/app.js", get(async || ([(CONTENT_TYPE, "text/javascript; charset=utf-8")], SCRIPT)))
        .route("/app.css", get(async || ([(CONTENT_TYPE, "text/css; charset=utf-8")], STYLES)))
        .route("/api/archive", get(archive::archive))
        .route("/api/events", get(archive::events))
        .route("/api/runs", post(runs::runs))
        .route("/api/runs/{run_id}", get(games::game))
        .route("/api/runs/{run_id}/annotations", get(games::annotations))
        .route("/api/policy", post(games::policy))
        .route("/api/position", post(games::position))
        .route("/api/sql", post(statements::rows))
        .route("/api/schema", get(archive::schema))
        .route("/api/download", post(statements::download))
        .route("/api/report", post(reports::report))
        .route("/report/{key}", get(reports::page))
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .with_state(explorer)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(from_fn_with_state(access, guard))
}

async fn unknown(uri: Uri) -> Failure {
    Failure::not_found(format!("no such address: {}", uri.path()))
}

async fn wrong_method(method: Method) -> Failure {
    Failure::new(StatusCode::METHOD_NOT_ALLOWED, "argument", format!("this address does not accept {method}"))
}
