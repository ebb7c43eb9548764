//! The HTTP/JSON API of a running station, over a UNIX socket and, if configured, a TCP port.
//!
//! The server holds no state of the station. It passes each request to the run loop as a [`StationRequest`]
//! and waits for the answer. Events come over a broadcast channel, whose sender never waits. A reader that
//! falls behind loses the oldest events, and the stream tells it their number. [`carnet_api::model`] lists
//! paths and bodies.
//!
//! Over the socket, the file mode 0660 decides which users may use the API; over TCP, tokens decide
//! ([`tcp`]).
//!
//! Little code depends on the types of requests and answers. A path has a plain function
//! ([`RequestHandler`]), its body and answer are octets for axum, and a stream is boxed. Otherwise the
//! program would contain the whole server once for each path.

#[cfg(feature = "geonet")]
mod facilities;
#[cfg(feature = "geonet")]
mod geonet;
mod metrics;
mod pages;
mod tcp;

use std::convert::Infallible;
use std::fs;
use std::future::Future;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use axum::body::Bytes;
use axum::extract::{FromRequest, Request as HttpRequest, State};
use axum::http::{StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use axum::{Router, serve as serve_http};
use carnet_api::config::TcpApi;
use carnet_api::model::{ErrorBody, missed_events};
use carnet_linux::with_umask;
use futures_util::stream::{self, Stream, StreamExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::UnixListener;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::request::{Answer, StationRequest};

/// Time within which the run loop must answer a request; a later answer is a fault of the program.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit for receiving the body of a request.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause between two attempts to bind the port of `station.http`. The log message below names the same pause.
const BIND_RETRY_PAUSE: Duration = Duration::from_millis(if cfg!(test) { 20 } else { 5000 });
const BIND_RETRY_MESSAGE: &str = "the station continues without this port, and tries to open it every 5 s";

/// Time for which a stopping server waits until it has sent the answers in progress.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

/// File mode of the socket: owner and group may use it.
const SOCKET_FILE_MODE: u32 = 0o660;

/// A running server. Dropping the value also removes the socket, but aborts answers in progress.
#[derive(Debug)]
pub struct ApiServer {
    socket: SocketFile,
    stop_sender: watch::Sender<bool>,
    server_tasks: Vec<JoinHandle<io::Result<()>>>,
}

/// Checks the file that `station.http_tokens` names.
///
/// # Errors
/// Returns the mistake in the file.
pub fn check_tokens(path: &Path) -> anyhow::Result<()> {
    tcp::AccessControl::new(Some(path)).map(drop)
}

/// Opens the socket, and the port if configured, and serves the API there. When this function returns, the
/// socket accepts connections. The port does too, unless it could not be bound. In this case the server tries
/// again later, because the station's network does not depend on the port.
///
/// The server sends requests to the run loop through `requests`. It receives events from `events`, each in
/// its envelope ([`carnet_api::model::event`]).
pub async fn serve_api(
    socket_path: &Path,
    http: Option<&TcpApi>,
    requests: mpsc::Sender<StationRequest>,
    events: broadcast::Sender<Value>,
) -> anyhow::Result<ApiServer> {
    let (listener, socket) = bind_socket(socket_path)?;
    let (stop, stopped) = watch::channel(false);
    let app = api_router(ApiState { request_sender: requests, events, stop_receiver: stopped.clone() });
    let mut tasks = Vec::new();
    if let Some(http) = http {
        let (app, http, stopped) = (app.clone(), http.clone(), stopped.clone());
        let opened = open_port(&http).inspect_err(|error| warn!("{error:#}; {BIND_RETRY_MESSAGE}"));
        tasks.push(tokio::spawn(async move { serve_port(app, http, opened.ok(), stopped).await }));
    }
    tasks.push(tokio::spawn(async move {
        serve_http(listener, app).with_graceful_shutdown(wait_until_stopped(stopped)).await
    }));
    Ok(ApiServer { socket, stop_sender: stop, server_tasks: tasks })
}

/// Returns the port of `station.http`, and the rights of its clients.
fn open_port(http: &TcpApi) -> anyhow::Result<(tcp::AccessControl, tcp::TcpPort)> {
    let gate = tcp::AccessControl::new(http.token_file.as_deref())?.with_pages(&http.dashboard_directory);
    Ok((gate, tcp::TcpPort::bind(http.address)?))
}

/// Serves the API at the port, as soon as the port can be bound.
async fn serve_port(
    app: Router,
    http: TcpApi,
    opened: Option<(tcp::AccessControl, tcp::TcpPort)>,
    stopped: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut port = opened;
    let (gate, port) = loop {
        if let Some(opened) = port.take() {
            break opened;
        }
        tokio::select! {
        () = tokio::time::sleep(BIND_RETRY_PAUSE) => {}
        () = wait_until_stopped(stopped.clone()) => return Ok(()),
        }
        port = open_port(&http).ok();
        if port.is_some() {
            info!("station.http: the API listens at {}", http.address);
        }
    };
    port.serve_clients(gate, app, stopped).await
}

impl ApiServer {
    /// Returns the path of the socket.
    pub fn socket(&self) -> &Path {
        &self.socket.path
    }

    /// Removes the socket, ends event streams, and waits for answers in progress. Until this function
    /// returns, the run loop must answer requests. Otherwise it must drop the receiver of the requests first.
    pub async fn shutdown(mut self) {
        self.socket.remove();
        self.stop_sender.send_replace(true);
        let all = async {
            for task in &mut self.server_tasks {
                let _ = task.await;
            }
        };
        // After this time, dropping `all` ends the remaining requests.
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, all).await;
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.server_tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Waits until the server stops, which `stopped` reports, or until the server is dropped.
async fn wait_until_stopped(mut stopped: watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// The socket in the file system; dropping the value removes it.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Device and inode of the socket. Dropping the value compares them, so that it never removes the socket
    /// of another station.
    device_and_inode: Option<(u64, u64)>,
}

impl SocketFile {
    fn remove(&mut self) {
        let Some(identity) = self.device_and_inode.take() else { return };
        if fs::symlink_metadata(&self.path).is_ok_and(|file| (file.dev(), file.ino()) == identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Returns whether the path is a socket without a listener, which a killed station has left. A starting
/// station must call this function before it changes anything. Its other files have the same name as the
/// socket, and may belong to a running station.
///
/// # Errors
/// Returns an error if another station uses the socket.
pub fn is_stale_socket(path: &Path) -> anyhow::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(file) if !file.file_type().is_socket() => {
            bail!(
                "cannot listen at {}: expected a socket or no file there, found another file",
                path.display()
            )
        }
        Ok(_) => match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => bail!("cannot listen at {}: another running station uses this socket", path.display()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(true),
            Err(error) => Err(error).with_context(|| {
                format!(
                    "cannot find out whether a station listens at \
                {}",
                    path.display()
                )
            }),
        },
        // The file does not exist, or this process cannot see it. Binding the socket will show which of the
        // two is the case.
        Err(_) => Ok(false),
    }
}

/// Binds the socket, and replaces a stale socket.
fn bind_socket(path: &Path) -> anyhow::Result<(UnixListener, SocketFile)> {
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make the directory {} of the socket", directory.display()))?;
    }
    if is_stale_socket(path)? {
        fs::remove_file(path)
            .with_context(|| format!("cannot remove the stale socket {}", path.display()))?;
    }
    let listener = with_umask(!SOCKET_FILE_MODE & 0o777, || UnixListener::bind(path))
        .with_context(|| format!("cannot listen at {}", path.display()))?;
    let file = fs::symlink_metadata(path).with_context(|| format!("cannot see {}", path.display()))?;
    let socket = SocketFile { path: path.to_owned(), device_and_inode: Some((file.dev(), file.ino())) };
    Ok((listener, socket))
}

/// Shared state of the handlers.
#[derive(Clone)]
struct ApiState {
    request_sender: mpsc::Sender<StationRequest>,
    events: broadcast::Sender<Value>,
    stop_receiver: watch::Receiver<bool>,
}

/// Future of an answer to a client.
type AnswerFuture = Pin<Box<dyn Future<Output = Result<Response, ApiRefusal>> + Send>>;

/// Function that answers requests to a path.
type RequestHandler = fn(ApiState, HttpRequest) -> AnswerFuture;

fn get_route(handler: RequestHandler) -> MethodRouter<ApiState> {
    method_route(MethodFilter::GET, handler)
}

/// Returns the route of a path whose requests may have a query.
fn get_route_with_query(handler: RequestHandler) -> MethodRouter<ApiState> {
    on(MethodFilter::GET, move |State(app): State<ApiState>, request: HttpRequest| handler(app, request))
}

fn post_route(handler: RequestHandler) -> MethodRouter<ApiState> {
    method_route(MethodFilter::POST, handler)
}

fn put_route(handler: RequestHandler) -> MethodRouter<ApiState> {
    method_route(MethodFilter::PUT, handler)
}

/// Returns the route of a path without parameters. The route refuses a query instead of ignoring it.
fn method_route(method: MethodFilter, handler: RequestHandler) -> MethodRouter<ApiState> {
    on(method, move |State(app): State<ApiState>, request: HttpRequest| {
        let unknown = request.uri().query().and_then(|query| query.split('&').find(|pair| !pair.is_empty()));
        let refusal = unknown.map(|pair| {
            let key = pair.split_once('=').map_or(pair, |(key, _)| key);
            bad_query_refusal(format!("{key:?} is not known, expected no parameters"))
        });
        async move {
            match refusal {
                Some(refusal) => Err(refusal),
                None => handler(app, request).await,
            }
        }
    })
}

/// Returns the error response for a wrong query.
fn bad_query_refusal(mistake: String) -> ApiRefusal {
    ApiRefusal::new(StatusCode::BAD_REQUEST, mistake)
}

fn api_router(app: ApiState) -> Router {
    let router = Router::new();
    #[cfg(feature = "geonet")]
    let router = router.merge(geonet::geonet_router()).merge(facilities::facilities_router());
    router
        .route("/v1/status", get_route(|app, _| app.query_station(StationRequest::Status)))
        .route("/v1/bindings", get_route(|app, _| app.query_station(StationRequest::Bindings)))
        .route("/v1/uplinks", get_route(|app, _| app.query_station(StationRequest::Uplinks)))
        .route("/v1/tunnels", get_route(|app, _| app.query_station(StationRequest::Tunnels)))
        .route("/v1/routes", get_route(|app, _| app.query_station(StationRequest::Routes)))
        .route("/v1/policies", get_route(|app, _| app.query_station(StationRequest::Policies)))
        .route("/v1/lan", get_route(|app, _| app.query_station(StationRequest::Lan)))
        .route("/v1/keys", get_route(|app, _| app.query_or_refuse(StationRequest::Keys)))
        .route("/v1/keys/read", post_route(|app, _| app.command_station(StationRequest::ReadKeys)))
        .route("/v1/counters", get_route(|app, _| app.query_station(StationRequest::Counters)))
        .route("/v1/events", get_route(|app, _| Box::pin(async { Ok(stream_events(app)) })))
        .route("/metrics", get_route(|app, _| Box::pin(metrics::answer_metrics(app))))
        .route("/v1/drain", get_route(|app, _| app.query_station(StationRequest::Drain)))
        .route(
            "/v1/drain",
            post_route(|app, body| {
                app.command_with_body(body, |drain, reply| StationRequest::BeginDrain { drain, reply })
            }),
        )
        .route("/v1/drain/end", post_route(|app, _| app.command_station(StationRequest::EndDrain)))
        .route(
            "/v1/revoke",
            post_route(|app, body| {
                app.command_with_body(body, |revoke, reply| StationRequest::Revoke { revoke, reply })
            }),
        )
        .route(
            "/v1/handover",
            post_route(|app, body| {
                app.command_with_body(body, |handover, reply| StationRequest::Handover { handover, reply })
            }),
        )
        .route(
            "/v1/portal",
            post_route(|app, body| {
                app.command_with_body(body, |portal, reply| StationRequest::Portal { portal, reply })
            }),
        )
        .route(
            "/v1/signal",
            post_route(|app, body| {
                app.command_with_body(body, |signal, reply| StationRequest::Signal { signal, reply })
            }),
        )
        .fallback(|| async { ApiRefusal::new(StatusCode::NOT_FOUND, "no such path") })
        .method_not_allowed_fallback(|| async {
            ApiRefusal::new(StatusCode::METHOD_NOT_ALLOWED, "this path does not support this method")
        })
        .with_state(app)
}

impl ApiState {
    /// Sends a request to the run loop, and returns the answer as JSON.
    fn query_station<T: Serialize + Send + 'static>(
        self,
        request: fn(oneshot::Sender<T>) -> StationRequest,
    ) -> AnswerFuture {
        Box::pin(async move { Ok(json_response(&self.answer_in_json(request).await?)) })
    }

    /// Sends a request that the station may refuse to the run loop, and returns the answer as JSON.
    fn query_or_refuse<T: Serialize + Send + 'static>(
        self,
        request: fn(oneshot::Sender<Answer<T>>) -> StationRequest,
    ) -> AnswerFuture {
        Box::pin(async move { Ok(json_response(&self.answer_or_refusal(request).await?)) })
    }

    /// Sends a command that the station may refuse to the run loop.
    fn command_station(self, request: fn(oneshot::Sender<Answer<()>>) -> StationRequest) -> AnswerFuture {
        Box::pin(async move { self.empty_answer(request).await })
    }

    /// Sends a command to the run loop, with the body of the HTTP request.
    fn command_with_body<T: DeserializeOwned + Send + 'static>(
        self,
        body: HttpRequest,
        request: fn(T, oneshot::Sender<Answer<()>>) -> StationRequest,
    ) -> AnswerFuture {
        Box::pin(async move {
            let wish = read_json_body(body).await?;
            self.empty_answer(|reply| request(wish, reply)).await
        })
    }

    async fn empty_answer(
        &self,
        request: impl FnOnce(oneshot::Sender<Answer<()>>) -> StationRequest,
    ) -> Result<Response, ApiRefusal> {
        self.answer_or_refusal(request).await?;
        Ok(StatusCode::NO_CONTENT.into_response())
    }

    /// Sends a request to the run loop. Returns the answer, or the station's refusal.
    async fn answer_or_refusal<T: Send>(
        &self,
        request: impl FnOnce(oneshot::Sender<Answer<T>>) -> StationRequest,
    ) -> Result<T, ApiRefusal> {
        self.answer_in_json(request).await?.map_err(|reason| ApiRefusal::new(StatusCode::CONFLICT, reason))
    }

    async fn answer_in_json<T: Send>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> StationRequest,
    ) -> Result<T, ApiRefusal> {
        let (reply, answer) = oneshot::channel();
        let request = request(reply);
        let mut found = None;
        self.exchange_with_run_loop(request, pin!(async { found = answer.await.ok() })).await?;
        found.ok_or_else(refusal_while_stopping)
    }

    /// Sends a request to the run loop, and waits until the future `answered` has its answer.
    async fn exchange_with_run_loop(
        &self,
        request: StationRequest,
        answered: Pin<&mut (dyn Future<Output = ()> + Send)>,
    ) -> Result<(), ApiRefusal> {
        let exchange = async {
            self.request_sender.send(request).await.map_err(|_| refusal_while_stopping())?;
            answered.await;
            Ok(())
        };
        tokio::time::timeout(ANSWER_TIMEOUT, exchange).await.unwrap_or_else(|_| {
            Err(ApiRefusal::new(StatusCode::GATEWAY_TIMEOUT, "the station does not answer"))
        })
    }
}

fn refusal_while_stopping() -> ApiRefusal {
    ApiRefusal::new(StatusCode::SERVICE_UNAVAILABLE, "the station is about to stop")
}

/// Returns an answer as JSON. Values of the API's types are always valid JSON.
fn json_response<T: Serialize>(answer: &T) -> Response {
    json_octets_response(serde_json::to_vec(answer).unwrap_or_default())
}

fn json_octets_response(octets: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], octets).into_response()
}

/// Reads the body of a request as JSON.
async fn read_json_body<T: DeserializeOwned>(request: HttpRequest) -> Result<T, ApiRefusal> {
    let octets = read_json_octets(request).await?;
    let read = serde_json::from_slice(&octets).or_else(|error| {
        let whole = write_whole_floats_as_integers(&octets).ok_or(error)?;
        serde_json::from_slice(&whole)
    });
    read.map_err(|error| {
        let status = match error.is_data() {
            true => StatusCode::UNPROCESSABLE_ENTITY,
            false => StatusCode::BAD_REQUEST,
        };
        ApiRefusal::new(status, format!("cannot parse the body: {error}"))
    })
}

/// Returns JSON with whole numbers as integers. JSON has one kind of number (RFC 8259 6), so that 24.0 and
/// 2.4e1 are 24. Returns `None` if no number changes.
fn write_whole_floats_as_integers(json: &[u8]) -> Option<Vec<u8>> {
    /// Largest number up to which a double represents every integer exactly.
    const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;
    let is_of_number =
        |octet: &u8| octet.is_ascii_digit() || matches!(octet, b'+' | b'-' | b'.' | b'e' | b'E');
    let (mut out, mut rest, mut found) = (Vec::with_capacity(json.len()), json, false);
    while let Some(first) = rest.first() {
        let length = match first {
            b'"' => {
                let mut escaped = false;
                let end = rest[1..].iter().position(|octet| {
                    let ends = *octet == b'"' && !escaped;
                    escaped = *octet == b'\\' && !escaped;
                    ends
                });
                end.map_or(rest.len(), |end| end + 2)
            }
            b'-' | b'0'..=b'9' => rest.iter().take_while(|octet| is_of_number(octet)).count(),
            b't' | b'f' | b'n' => rest.iter().take_while(|octet| octet.is_ascii_alphabetic()).count(),
            _ => 1,
        };
        let (token, behind) = rest.split_at(length);
        rest = behind;
        let is_number = matches!(first, b'-' | b'0'..=b'9');
        let whole = std::str::from_utf8(token)
            .ok()
            .filter(|text| is_number && text.contains(['.', 'e', 'E']))
            .and_then(|text| serde_json::from_str::<f64>(text).ok())
            .filter(|number| number.fract() == 0.0 && number.abs() <= MAX_EXACT_INTEGER);
        match whole {
            Some(number) => {
                found = true;
                out.extend_from_slice(format!("{number:.0}").as_bytes());
            }
            None => out.extend_from_slice(token),
        }
    }
    found.then_some(out)
}

/// Reads the body of a request whose content type must be JSON.
async fn read_json_octets(request: HttpRequest) -> Result<Bytes, ApiRefusal> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
    if !kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json")) {
        let expected = "expected JSON, with `Content-Type: application/json`";
        return Err(ApiRefusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, expected));
    }
    let octets = tokio::time::timeout(BODY_TIMEOUT, Bytes::from_request(request, &())).await;
    let late = |_| ApiRefusal::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time");
    let octets = octets
        .map_err(late)?
        .map_err(|rejection| ApiRefusal::new(rejection.status(), rejection.body_text()))?;
    // serde also accepts an array in place of an object, in the order of the fields in the source. The API
    // refuses an array.
    if octets.trim_ascii_start().starts_with(b"[") {
        return Err(ApiRefusal::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "the body is an array, expected an object",
        ));
    }
    Ok(octets)
}

/// Answers `GET /v1/events` with a stream of events.
fn stream_events(app: ApiState) -> Response {
    stream_response(stream::unfold(
        (app.events.subscribe(), app.stop_receiver),
        |(mut events, stopped)| async {
            let event = tokio::select! {
            event = events.recv() => match event {
            Ok(event) => event,
            Err(RecvError::Lagged(count)) => missed_events(unix_time(), count),
            Err(RecvError::Closed) => return None,
            },
            () = wait_until_stopped(stopped.clone()) => return None,
            };
            Some((event.to_string(), (events, stopped)))
        },
    ))
}

/// Returns a response that streams messages in JSON.
fn stream_response(messages: impl Stream<Item = String> + Send + 'static) -> Response {
    let messages: Pin<Box<dyn Stream<Item = String> + Send>> = Box::pin(messages);
    let events = messages.map(|message| Ok::<_, Infallible>(Event::default().data(message)));
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

/// Returns a message of a stream as JSON. Values of these types are always valid JSON.
fn stream_message<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Returns the present time in seconds since 1970.
fn unix_time() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// An error response of the API.
struct ApiRefusal {
    status_code: StatusCode,
    error_body: ErrorBody,
}

impl ApiRefusal {
    fn new(status: StatusCode, error: impl Into<String>) -> ApiRefusal {
        ApiRefusal { status_code: status, error_body: ErrorBody { error: error.into() } }
    }
}

impl IntoResponse for ApiRefusal {
    fn into_response(self) -> Response {
        (self.status_code, json_response(&self.error_body)).into_response()
    }
}

#[cfg(test)]
mod tests;
