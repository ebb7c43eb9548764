//! The HTTP/JSON API of a running station, over a UNIX socket.
//!
//! The server knows nothing of the station. It passes each question to the run loop as a [`Request`] and
//! waits for the answer; events come over a broadcast channel, whose sender never waits: a reader that
//! falls behind loses the oldest events and is told how many. Paths and bodies are listed in
//! [`carnet_api::model`].
//!
//! Who may talk to the station is decided by the file mode of the socket, 0660.

mod geonet;

use std::convert::Infallible;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use axum::extract::rejection::JsonRejection;
use axum::extract::{Json, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Router, serve as serve_http};
use carnet_api::model::{DrainRequest, ErrorBody, HandoverRequest, RevokeRequest, SignalRequest, missed};
use futures_util::stream::{self, Stream};
use serde::Serialize;
use serde_json::Value;
use tokio::net::UnixListener;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::request::{Answer, Request};

/// The run loop answers at once or it is in trouble.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Answers that are under way at the end get this long.
const END_WITHIN: Duration = Duration::from_millis(500);

/// Mode of the socket: the owner and the group.
const SOCKET_MODE: u32 = 0o660;

/// A running server. Dropping it removes the socket, too, but cuts off answers that are under way.
#[derive(Debug)]
pub struct Server {
    socket: SocketFile,
    stop: watch::Sender<bool>,
    task: JoinHandle<io::Result<()>>,
}

/// Opens the socket and serves the API on it. When this returns, the socket accepts.
///
/// `requests` leads to the run loop. `events` carries events in their envelope
/// ([`carnet_api::model::event`]).
pub async fn serve(
    socket_path: &Path,
    requests: mpsc::Sender<Request>,
    events: broadcast::Sender<Value>,
) -> anyhow::Result<Server> {
    let (listener, socket) = bind(socket_path)?;
    let (stop, stopped) = watch::channel(false);
    let app = router(App { requests, events, stopped: stopped.clone() });
    let task =
        tokio::spawn(async move { serve_http(listener, app).with_graceful_shutdown(when(stopped)).await });
    Ok(Server { socket, stop, task })
}

impl Server {
    /// Path of the socket.
    pub fn socket(&self) -> &Path {
        &self.socket.path
    }

    /// Removes the socket, ends event streams and waits for answers that are under way. The run loop
    /// has to answer until this returns, or drop the receiver of the requests first.
    pub async fn shutdown(mut self) {
        self.socket.remove();
        self.stop.send_replace(true);
        if tokio::time::timeout(END_WITHIN, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Resolves when the server is told to stop, or is gone.
async fn when(mut stopped: watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// The socket in the file system; goes when it is dropped.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Device and inode, so as never to remove another station's socket.
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

/// Whether there is a socket that nobody listens on: what a killed station left. To be asked also before
/// anything is set up, because a station beside its socket keeps more files of that name.
///
/// # Errors
/// When another station has the place.
pub fn is_stale(path: &Path) -> anyhow::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(file) if !file.file_type().is_socket() => {
            bail!("cannot listen at {}: there is a file that is no socket", path.display())
        }
        Ok(_) => match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => bail!("another station runs at {}", path.display()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(true),
            Err(error) => Err(error).with_context(|| format!("cannot tell who is at {}", path.display())),
        },
        // Nothing there, or nothing to be seen: binding will tell.
        Err(_) => Ok(false),
    }
}

/// Binds the socket; a stale one is replaced.
fn bind(path: &Path) -> anyhow::Result<(UnixListener, SocketFile)> {
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make the directory {} of the socket", directory.display()))?;
    }
    if is_stale(path)? {
        fs::remove_file(path)
            .with_context(|| format!("cannot remove the stale socket {}", path.display()))?;
    }
    let listener =
        UnixListener::bind(path).with_context(|| format!("cannot listen at {}", path.display()))?;
    let file = fs::symlink_metadata(path).with_context(|| format!("cannot see {}", path.display()))?;
    let socket = SocketFile { path: path.to_owned(), identity: Some((file.dev(), file.ino())) };
    fs::set_permissions(path, fs::Permissions::from_mode(SOCKET_MODE))
        .with_context(|| format!("cannot set the mode of {}", path.display()))?;
    Ok((listener, socket))
}

/// What the handlers share.
#[derive(Clone)]
struct App {
    requests: mpsc::Sender<Request>,
    events: broadcast::Sender<Value>,
    stopped: watch::Receiver<bool>,
}

fn router(app: App) -> Router {
    Router::new()
        .route("/v1/status", get(|State(app): State<App>| async move { app.ask(Request::Status).await }))
        .route("/v1/bindings", get(|State(app): State<App>| async move { app.ask(Request::Bindings).await }))
        .route("/v1/uplinks", get(|State(app): State<App>| async move { app.ask(Request::Uplinks).await }))
        .route("/v1/tunnels", get(|State(app): State<App>| async move { app.ask(Request::Tunnels).await }))
        .route("/v1/routes", get(|State(app): State<App>| async move { app.ask(Request::Routes).await }))
        .route("/v1/policies", get(|State(app): State<App>| async move { app.ask(Request::Policies).await }))
        .route("/v1/counters", get(|State(app): State<App>| async move { app.ask(Request::Counters).await }))
        .route("/v1/events", get(events))
        .route(
            "/v1/drain",
            get(|State(app): State<App>| async move { app.ask(Request::Drain).await }).post(drain),
        )
        .route("/v1/drain/end", post(end_drain))
        .route("/v1/revoke", post(revoke))
        .route("/v1/handover", post(handover))
        .route("/v1/signal", post(signal))
        .merge(geonet::router())
        .fallback(|| async { Refusal::new(StatusCode::NOT_FOUND, "no such path") })
        .method_not_allowed_fallback(|| async {
            Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "this path does not know that method")
        })
        .with_state(app)
}

impl App {
    /// Asks the run loop, and gives its answer as JSON.
    async fn ask<T: Serialize>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> Request,
    ) -> Result<Json<T>, Refusal> {
        self.answer(request).await.map(Json)
    }

    /// The same where the station may say no.
    async fn ask_whether<T: Serialize>(
        &self,
        request: impl FnOnce(oneshot::Sender<Answer<T>>) -> Request,
    ) -> Result<Json<T>, Refusal> {
        self.try_answer(request).await.map(Json)
    }

    /// The run loop's answer, which may be no.
    async fn try_answer<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<Answer<T>>) -> Request,
    ) -> Result<T, Refusal> {
        self.answer(request).await?.map_err(|reason| Refusal::new(StatusCode::CONFLICT, reason))
    }

    async fn answer<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> Request) -> Result<T, Refusal> {
        let (reply, answer) = oneshot::channel();
        let exchange = async {
            self.requests.send(request(reply)).await.ok()?;
            answer.await.ok()
        };
        match tokio::time::timeout(ANSWER_WITHIN, exchange).await {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the station is about to stop")),
            Err(_) => Err(Refusal::new(StatusCode::GATEWAY_TIMEOUT, "the station does not answer")),
        }
    }
}

/// `POST /v1/handover`
async fn handover(
    State(app): State<App>,
    body: Result<Json<HandoverRequest>, JsonRejection>,
) -> Result<StatusCode, Refusal> {
    let Json(handover) = body.map_err(Refusal::body)?;
    app.try_answer(|reply| Request::Handover { handover, reply }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/drain`
async fn drain(
    State(app): State<App>,
    body: Result<Json<DrainRequest>, JsonRejection>,
) -> Result<StatusCode, Refusal> {
    let Json(drain) = body.map_err(Refusal::body)?;
    app.try_answer(|reply| Request::BeginDrain { drain, reply }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/drain/end`
async fn end_drain(State(app): State<App>) -> Result<StatusCode, Refusal> {
    app.try_answer(Request::EndDrain).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/revoke`
async fn revoke(
    State(app): State<App>,
    body: Result<Json<RevokeRequest>, JsonRejection>,
) -> Result<StatusCode, Refusal> {
    let Json(revoke) = body.map_err(Refusal::body)?;
    app.try_answer(|reply| Request::Revoke { revoke, reply }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/signal`
async fn signal(
    State(app): State<App>,
    body: Result<Json<SignalRequest>, JsonRejection>,
) -> Result<StatusCode, Refusal> {
    let Json(signal) = body.map_err(Refusal::body)?;
    app.try_answer(|reply| Request::Signal { signal, reply }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /v1/events`
async fn events(State(app): State<App>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let stream = stream::unfold((app.events.subscribe(), app.stopped), |(mut events, stopped)| async {
        let event = tokio::select! {
            event = events.recv() => match event {
                Ok(event) => event,
                Err(RecvError::Lagged(count)) => missed(unix_time(), count),
                Err(RecvError::Closed) => return None,
            },
            () = when(stopped.clone()) => return None,
        };
        Some((Ok(Event::default().data(event.to_string())), (events, stopped)))
    });
    Sse::new(stream).keep_alive(KeepAlive::default())
}

/// Seconds since 1970.
fn unix_time() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// An answer that is not a success.
struct Refusal {
    status: StatusCode,
    body: ErrorBody,
}

impl Refusal {
    fn new(status: StatusCode, error: impl Into<String>) -> Refusal {
        Refusal { status, body: ErrorBody { error: error.into() } }
    }

    /// A body that cannot be read.
    fn body(rejection: JsonRejection) -> Refusal {
        Refusal::new(rejection.status(), rejection.body_text())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status, Json(self.body)).into_response()
    }
}

#[cfg(test)]
mod tests;
