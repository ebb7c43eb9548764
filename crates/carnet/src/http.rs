//! The HTTP/JSON API of a running station, over a UNIX socket and, if configured, a TCP port.
//!
//! The server holds no state of the station. It passes each request to the run loop as a [`Request`] and
//! waits for the answer. Events come over a broadcast channel, whose sender never waits. A reader that falls
//! behind loses the oldest events, and the stream tells it their number. [`carnet_api::model`] lists paths
//! and bodies.
//!
//! Over the socket, the file mode 0660 decides which users may use the API; over TCP, tokens decide
//! ([`tcp`]).
//!
//! Little code depends on the types of requests and answers. A path has a plain function ([`Handler`]), its
//! body and answer are octets for axum, and a stream is boxed. Otherwise the program would contain the whole
//! server once for each path.

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
use carnet_api::config::Http;
use carnet_api::model::{ErrorBody, missed};
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

use crate::request::{Answer, Request};

/// Time within which the run loop must answer a request; a later answer is a fault of the program.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Time limit for receiving the body of a request.
const BODY_WITHIN: Duration = Duration::from_secs(10);

/// Pause between two attempts to bind the port of `station.http`; below, the same pause as a text for the
/// log.
const AGAIN: Duration = Duration::from_millis(if cfg!(test) { 20 } else { 5000 });
const AGAIN_IN: &str = "the station continues without this port, and tries to open it every 5 s";

/// Time for which the ending server waits for answers under way.
const END_WITHIN: Duration = Duration::from_millis(500);

/// File mode of the socket: owner and group may use it.
const SOCKET_MODE: u32 = 0o660;

/// A running server. Dropping the value also removes the socket, but cuts off answers that are under way.
#[derive(Debug)]
pub struct Server {
    socket: SocketFile,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<io::Result<()>>>,
}

/// Checks the file that `station.http_tokens` names.
///
/// # Errors
/// Returns the mistake in the file.
pub fn check_tokens(path: &Path) -> anyhow::Result<()> {
    tcp::AccessControl::new(Some(path)).map(drop)
}

/// Opens the socket, and the port if configured, and serves the API there. When this function returns, the
/// socket accepts connections. The port also does, unless it could not be bound. In this case the server
/// tries again, because the station's network does not depend on the port.
///
/// `requests` leads to the run loop. `events` brings events in their envelope ([`carnet_api::model::event`]).
pub async fn serve(
    socket_path: &Path,
    http: Option<&Http>,
    requests: mpsc::Sender<Request>,
    events: broadcast::Sender<Value>,
) -> anyhow::Result<Server> {
    let (listener, socket) = bind(socket_path)?;
    let (stop, stopped) = watch::channel(false);
    let app = router(App { requests, events, stopped: stopped.clone() });
    let mut tasks = Vec::new();
    if let Some(http) = http {
        let (app, http, stopped) = (app.clone(), http.clone(), stopped.clone());
        let opened = open_port(&http).inspect_err(|error| warn!("{error:#}; {AGAIN_IN}"));
        tasks.push(tokio::spawn(async move { serve_port(app, http, opened.ok(), stopped).await }));
    }
    tasks.push(tokio::spawn(
        async move { serve_http(listener, app).with_graceful_shutdown(when(stopped)).await },
    ));
    Ok(Server { socket, stop, tasks })
}

/// Returns the port of `station.http`, and the rights of its clients.
fn open_port(http: &Http) -> anyhow::Result<(tcp::AccessControl, tcp::TcpPort)> {
    let gate = tcp::AccessControl::new(http.tokens.as_deref())?.with_pages(&http.pages);
    Ok((gate, tcp::TcpPort::bind(http.address)?))
}

/// Serves the API at the port, as soon as the port can be bound.
async fn serve_port(
    app: Router,
    http: Http,
    opened: Option<(tcp::AccessControl, tcp::TcpPort)>,
    stopped: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut port = opened;
    let (gate, port) = loop {
        if let Some(opened) = port.take() {
            break opened;
        }
        tokio::select! {
            () = tokio::time::sleep(AGAIN) => {}
            () = when(stopped.clone()) => return Ok(()),
        }
        port = open_port(&http).ok();
        if port.is_some() {
            info!("station.http: the API listens at {}", http.address);
        }
    };
    port.serve(gate, app, stopped).await
}

impl Server {
    /// Returns the path of the socket.
    pub fn socket(&self) -> &Path {
        &self.socket.path
    }

    /// Removes the socket, ends event streams and waits for answers under way. The run loop has to answer
    /// until this function returns, or must drop the receiver of the requests first.
    pub async fn shutdown(mut self) {
        self.socket.remove();
        self.stop.send_replace(true);
        let all = async {
            for task in &mut self.tasks {
                let _ = task.await;
            }
        };
        // After this time, dropping `all` ends the remaining requests.
        let _ = tokio::time::timeout(END_WITHIN, all).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Waits until the server stops, which `stopped` reports, or until the server is dropped.
async fn when(mut stopped: watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// The socket in the file system; dropping the value removes it.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Device and inode of the socket, so that the drop never removes the socket of another station.
    identity: Option<(u64, u64)>,
}

impl SocketFile {
    fn remove(&mut self) {
        let Some(identity) = self.identity.take() else { return };
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
/// station calls this function before any change, because a station has more files of that name beside its
/// socket.
///
/// # Errors
/// Returns an error if another station uses the socket.
pub fn is_stale(path: &Path) -> anyhow::Result<bool> {
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
fn bind(path: &Path) -> anyhow::Result<(UnixListener, SocketFile)> {
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make the directory {} of the socket", directory.display()))?;
    }
    if is_stale(path)? {
        fs::remove_file(path)
            .with_context(|| format!("cannot remove the stale socket {}", path.display()))?;
    }
    let listener = with_umask(!SOCKET_MODE & 0o777, || UnixListener::bind(path))
        .with_context(|| format!("cannot listen at {}", path.display()))?;
    let file = fs::symlink_metadata(path).with_context(|| format!("cannot see {}", path.display()))?;
    let socket = SocketFile { path: path.to_owned(), identity: Some((file.dev(), file.ino())) };
    Ok((listener, socket))
}

/// Shared state of the handlers.
#[derive(Clone)]
struct App {
    requests: mpsc::Sender<Request>,
    events: broadcast::Sender<Value>,
    stopped: watch::Receiver<bool>,
}

/// Future of an answer to a client.
type Answering = Pin<Box<dyn Future<Output = Result<Response, Refusal>> + Send>>;

/// Function that answers requests to a path.
type Handler = fn(App, HttpRequest) -> Answering;

fn get(handler: Handler) -> MethodRouter<App> {
    handle(MethodFilter::GET, handler)
}

/// Returns the route of a path whose requests may have a query.
fn get_with_query(handler: Handler) -> MethodRouter<App> {
    on(MethodFilter::GET, move |State(app): State<App>, request: HttpRequest| handler(app, request))
}

fn post(handler: Handler) -> MethodRouter<App> {
    handle(MethodFilter::POST, handler)
}

fn put(handler: Handler) -> MethodRouter<App> {
    handle(MethodFilter::PUT, handler)
}

/// Returns the route of a path without parameters. The route refuses a query instead of ignoring it.
fn handle(method: MethodFilter, handler: Handler) -> MethodRouter<App> {
    on(method, move |State(app): State<App>, request: HttpRequest| {
        let unknown = request.uri().query().and_then(|query| query.split('&').find(|pair| !pair.is_empty()));
        let refusal = unknown.map(|pair| {
            let key = pair.split_once('=').map_or(pair, |(key, _)| key);
            bad_query(format!("{key:?} is not known, expected no parameters"))
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
fn bad_query(mistake: String) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, mistake)
}

fn router(app: App) -> Router {
    let router = Router::new();
    #[cfg(feature = "geonet")]
    let router = router.merge(geonet::router()).merge(facilities::router());
    router
        .route("/v1/status", get(|app, _| app.ask(Request::Status)))
        .route("/v1/bindings", get(|app, _| app.ask(Request::Bindings)))
        .route("/v1/uplinks", get(|app, _| app.ask(Request::Uplinks)))
        .route("/v1/tunnels", get(|app, _| app.ask(Request::Tunnels)))
        .route("/v1/routes", get(|app, _| app.ask(Request::Routes)))
        .route("/v1/policies", get(|app, _| app.ask(Request::Policies)))
        .route("/v1/lan", get(|app, _| app.ask(Request::Lan)))
        .route("/v1/keys", get(|app, _| app.ask_whether(Request::Keys)))
        .route("/v1/keys/read", post(|app, _| app.order(Request::ReadKeys)))
        .route("/v1/counters", get(|app, _| app.ask(Request::Counters)))
        .route("/v1/events", get(|app, _| Box::pin(async { Ok(events(app)) })))
        .route("/metrics", get(|app, _| Box::pin(metrics::metrics(app))))
        .route("/v1/drain", get(|app, _| app.ask(Request::Drain)))
        .route(
            "/v1/drain",
            post(|app, body| app.tell(body, |drain, reply| Request::BeginDrain { drain, reply })),
        )
        .route("/v1/drain/end", post(|app, _| app.order(Request::EndDrain)))
        .route(
            "/v1/revoke",
            post(|app, body| app.tell(body, |revoke, reply| Request::Revoke { revoke, reply })),
        )
        .route(
            "/v1/handover",
            post(|app, body| app.tell(body, |handover, reply| Request::Handover { handover, reply })),
        )
        .route(
            "/v1/portal",
            post(|app, body| app.tell(body, |portal, reply| Request::Portal { portal, reply })),
        )
        .route(
            "/v1/signal",
            post(|app, body| app.tell(body, |signal, reply| Request::Signal { signal, reply })),
        )
        .fallback(|| async { Refusal::new(StatusCode::NOT_FOUND, "no such path") })
        .method_not_allowed_fallback(|| async {
            Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "this path does not support this method")
        })
        .with_state(app)
}

impl App {
    /// Sends a request to the run loop, and returns the answer as JSON.
    fn ask<T: Serialize + Send + 'static>(self, request: fn(oneshot::Sender<T>) -> Request) -> Answering {
        Box::pin(async move { Ok(json(&self.answer(request).await?)) })
    }

    /// Sends a request that the station may refuse to the run loop, and returns the answer as JSON.
    fn ask_whether<T: Serialize + Send + 'static>(
        self,
        request: fn(oneshot::Sender<Answer<T>>) -> Request,
    ) -> Answering {
        Box::pin(async move { Ok(json(&self.try_answer(request).await?)) })
    }

    /// Sends a command that the station may refuse to the run loop.
    fn order(self, request: fn(oneshot::Sender<Answer<()>>) -> Request) -> Answering {
        Box::pin(async move { self.done(request).await })
    }

    /// Sends a command to the run loop, with the body of the HTTP request.
    fn tell<T: DeserializeOwned + Send + 'static>(
        self,
        body: HttpRequest,
        request: fn(T, oneshot::Sender<Answer<()>>) -> Request,
    ) -> Answering {
        Box::pin(async move {
            let wish = read(body).await?;
            self.done(|reply| request(wish, reply)).await
        })
    }

    async fn done(
        &self,
        request: impl FnOnce(oneshot::Sender<Answer<()>>) -> Request,
    ) -> Result<Response, Refusal> {
        self.try_answer(request).await?;
        Ok(StatusCode::NO_CONTENT.into_response())
    }

    /// Sends a request to the run loop. Returns the answer, or the station's refusal.
    async fn try_answer<T: Send>(
        &self,
        request: impl FnOnce(oneshot::Sender<Answer<T>>) -> Request,
    ) -> Result<T, Refusal> {
        self.answer(request).await?.map_err(|reason| Refusal::new(StatusCode::CONFLICT, reason))
    }

    async fn answer<T: Send>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> Request,
    ) -> Result<T, Refusal> {
        let (reply, answer) = oneshot::channel();
        let request = request(reply);
        let mut found = None;
        self.exchange(request, pin!(async { found = answer.await.ok() })).await?;
        found.ok_or_else(stopping)
    }

    /// Waits until the run loop has taken the request, and until `answered` has ended.
    async fn exchange(
        &self,
        request: Request,
        answered: Pin<&mut (dyn Future<Output = ()> + Send)>,
    ) -> Result<(), Refusal> {
        let exchange = async {
            self.requests.send(request).await.map_err(|_| stopping())?;
            answered.await;
            Ok(())
        };
        tokio::time::timeout(ANSWER_WITHIN, exchange)
            .await
            .unwrap_or_else(|_| Err(Refusal::new(StatusCode::GATEWAY_TIMEOUT, "the station does not answer")))
    }
}

fn stopping() -> Refusal {
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the station is about to stop")
}

/// Returns an answer as JSON. Values of the API's types are always valid JSON.
fn json<T: Serialize>(answer: &T) -> Response {
    json_octets(serde_json::to_vec(answer).unwrap_or_default())
}

fn json_octets(octets: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], octets).into_response()
}

/// Reads the body of a request as JSON.
async fn read<T: DeserializeOwned>(request: HttpRequest) -> Result<T, Refusal> {
    let octets = octets(request).await?;
    let read = serde_json::from_slice(&octets).or_else(|error| {
        let whole = with_whole_numbers(&octets).ok_or(error)?;
        serde_json::from_slice(&whole)
    });
    read.map_err(|error| {
        let status = match error.is_data() {
            true => StatusCode::UNPROCESSABLE_ENTITY,
            false => StatusCode::BAD_REQUEST,
        };
        Refusal::new(status, format!("cannot parse the body: {error}"))
    })
}

/// Returns JSON with whole numbers as integers. JSON has one kind of number (RFC 8259 6), so that 24.0 and
/// 2.4e1 are 24. Returns `None` if no number changes.
fn with_whole_numbers(json: &[u8]) -> Option<Vec<u8>> {
    /// Largest number up to which a double represents every integer exactly.
    const EXACT: f64 = 9_007_199_254_740_992.0;
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
            .filter(|number| number.fract() == 0.0 && number.abs() <= EXACT);
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
async fn octets(request: HttpRequest) -> Result<Bytes, Refusal> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
    if !kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json")) {
        let expected = "expected JSON, with `Content-Type: application/json`";
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, expected));
    }
    let octets = tokio::time::timeout(BODY_WITHIN, Bytes::from_request(request, &())).await;
    let late = |_| Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time");
    let octets =
        octets.map_err(late)?.map_err(|rejection| Refusal::new(rejection.status(), rejection.body_text()))?;
    // serde also accepts an array in place of an object, in the order of the fields in the source. The API
    // refuses an array.
    if octets.trim_ascii_start().starts_with(b"[") {
        return Err(Refusal::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "the body is an array, expected an object",
        ));
    }
    Ok(octets)
}

/// Answers `GET /v1/events` with a stream of events.
fn events(app: App) -> Response {
    stream(stream::unfold((app.events.subscribe(), app.stopped), |(mut events, stopped)| async {
        let event = tokio::select! {
            event = events.recv() => match event {
                Ok(event) => event,
                Err(RecvError::Lagged(count)) => missed(unix_time(), count),
                Err(RecvError::Closed) => return None,
            },
            () = when(stopped.clone()) => return None,
        };
        Some((event.to_string(), (events, stopped)))
    }))
}

/// Returns a response that streams messages in JSON.
fn stream(messages: impl Stream<Item = String> + Send + 'static) -> Response {
    let messages: Pin<Box<dyn Stream<Item = String> + Send>> = Box::pin(messages);
    let events = messages.map(|message| Ok::<_, Infallible>(Event::default().data(message)));
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

/// Returns a message of a stream as JSON. Values of these types are always valid JSON.
fn message<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Returns the present time in seconds since 1970.
fn unix_time() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// An error response of the API.
struct Refusal {
    status: StatusCode,
    body: ErrorBody,
}

impl Refusal {
    fn new(status: StatusCode, error: impl Into<String>) -> Refusal {
        Refusal { status, body: ErrorBody { error: error.into() } }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status, json(&self.body)).into_response()
    }
}

#[cfg(test)]
mod tests;
