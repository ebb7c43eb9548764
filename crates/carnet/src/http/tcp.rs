//! The API over TCP (`station.http`): the rights of clients, and the limits of connections.
//!
//! For the UNIX socket, file modes decide; here tokens decide (`station.http_tokens`, RFC 6750 2.1). A `read`
//! token permits reading, an `operate` token permits everything. Without a token file the port is on a
//! loopback address, which the config ensures. Then every program on this machine may read, and none may
//! change anything. Every page in a browser on this machine reaches that port. So requests without a token
//! must name `localhost` or an IP address. A page of another site cannot send such a request (DNS rebinding).
//!
//! An unknown client cannot keep other clients out. The client has [`HEADER_TIMEOUT`] for a header, and its
//! connection ends after one answer. A connection is *proven* once the server has allowed a request on it. If
//! the server has [`MAX_CONNECTIONS`] connections, a new one replaces the oldest unproven one. A source has
//! at most [`MAX_UNAUTHENTICATED_PER_SOURCE`] unproven connections.
//!
//! Left out: TLS. An operator who opens the port to a network puts a proxy with TLS in front of it
//! (docs/operating.md).

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as TaskContext, Poll, ready};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use axum::extract::{Request as HttpRequest, State};
use axum::http::header::{AUTHORIZATION, CONNECTION, HOST, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use carnet_linux::key_file;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, Sleep, sleep};
use tracing::warn;
use zeroize::Zeroizing;

use super::{ApiRefusal, pages, wait_until_stopped};

/// Largest number of connections at the same time.
const MAX_CONNECTIONS: usize = 64;
/// Maximum number of unproven connections of one source address.
const MAX_UNAUTHENTICATED_PER_SOURCE: usize = 8;
/// Time limit of a request's header. A connection on which no request comes ends after this time as well.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time without data after which a connection ends. Event streams send data every 15 s.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause before the next attempt to accept a connection, if the process has no file descriptor left.
const PAUSE_AFTER_ACCEPT_ERROR: Duration = Duration::from_millis(100);
/// Minimum length of a token in octets. [`MAX_TOKEN_FILE_LENGTH`] is the maximum size of the token file.
const MIN_TOKEN_LENGTH: usize = 16;
const MAX_TOKEN_FILE_LENGTH: u64 = 65_536;

/// Right that a token gives to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum AccessRight {
    Read,
    Operate,
}

/// Checks requests for the rights of their clients.
#[derive(Debug, Clone)]
pub(super) struct AccessControl {
    /// Path of the token file (`station.http_tokens`); `None` if the config has none. The server reads the
    /// file for each request, so a removed token is invalid at once.
    token_file: Option<Arc<PathBuf>>,
    /// Directory of the dashboard's files (`station.http_pages`).
    dashboard_directory: Arc<PathBuf>,
}

impl AccessControl {
    /// Creates the access control, with the token file if there is one.
    ///
    /// # Errors
    /// Returns an error if the token file cannot be used.
    pub(super) fn new(tokens: Option<&Path>) -> anyhow::Result<AccessControl> {
        if let Some(path) = tokens {
            read_tokens(path)?;
        }
        Ok(AccessControl {
            token_file: tokens.map(|path| Arc::new(path.to_owned())),
            dashboard_directory: Arc::default(),
        })
    }

    /// Adds the directory of the dashboard's files, which need no token.
    pub(super) fn with_pages(self, directory: &Path) -> AccessControl {
        AccessControl { dashboard_directory: Arc::new(directory.to_owned()), ..self }
    }

    fn check_right(&self, needed_right: AccessRight, headers: &HeaderMap) -> Result<(), ApiRefusal> {
        let refused = |status, why: &str| Err(ApiRefusal::new(status, why));
        let Some(path) = &self.token_file else {
            return match needed_right {
                AccessRight::Operate => refused(
                    StatusCode::FORBIDDEN,
                    "without station.http_tokens this port permits only reading; use the UNIX socket for \
                     commands",
                ),
                AccessRight::Read if !is_addressed_to_machine(headers) => {
                    refused(StatusCode::FORBIDDEN, "the host is neither localhost nor an IP address")
                }
                AccessRight::Read => Ok(()),
            };
        };
        let tokens = read_tokens(path).map_err(|error| {
            warn!("station.http: the API refuses all clients over TCP: {error:#}");
            ApiRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, "station.http_tokens cannot be read")
        })?;
        let token = headers.get(AUTHORIZATION).and_then(|value| {
            let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        let Some(token) = token else {
            return refused(StatusCode::UNAUTHORIZED, "expected a token: Authorization: Bearer TOKEN");
        };
        // The server compares all tokens, so that the time does not depend on which token matches.
        let right =
            tokens.iter().filter(|(_, known)| are_tokens_equal(known, token)).map(|(right, _)| *right).max();
        match right {
            None => refused(StatusCode::UNAUTHORIZED, "this token is unknown"),
            Some(right) if right < needed_right => {
                refused(StatusCode::FORBIDDEN, "this token permits only reading, expected an `operate` token")
            }
            Some(_) => Ok(()),
        }
    }
}

/// Whether the server has allowed a request on a connection.
#[derive(Debug, Clone, Default)]
struct AuthorizedFlag(Arc<AtomicBool>);

impl AuthorizedFlag {
    fn set_authorized(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Passes a request to its handler if the token allows it. The dashboard's files need no token, because
/// operators enter their token on these pages. After a request that is not allowed, the connection ends with
/// the answer.
async fn guard_request(
    State(gate): State<AccessControl>,
    Extension(proven): Extension<AuthorizedFlag>,
    request: HttpRequest,
    next: Next,
) -> Response {
    let asks = matches!(*request.method(), Method::GET | Method::HEAD);
    let page = pages::DashboardFile::file_of_path(request.uri().path()).filter(|_| asks);
    let mut answer = match (page, if asks { AccessRight::Read } else { AccessRight::Operate }) {
        (Some(page), _) => page.read_file(&gate.dashboard_directory).await,
        (None, right) => match gate.check_right(right, request.headers()) {
            Ok(()) => {
                proven.set_authorized();
                return next.run(request).await;
            }
            Err(refusal) if refusal.status_code == StatusCode::UNAUTHORIZED => {
                ([(WWW_AUTHENTICATE, "Bearer")], refusal).into_response()
            }
            Err(refusal) => refusal.into_response(),
        },
    };
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

/// Compares two tokens in a time that does not depend on their content.
fn are_tokens_equal(known: &str, token: &str) -> bool {
    let differences = known.bytes().zip(token.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(differences) == 0 && known.len() == token.len()
}

fn is_addressed_to_machine(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(HOST).and_then(|host| host.to_str().ok()) else { return false };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name == "localhost" || name.parse::<IpAddr>().is_ok()
}

/// Reads the tokens of a file: one on each line, after `read` or `operate`. Only its owner may read the file,
/// as with key files.
fn read_tokens(path: &Path) -> anyhow::Result<Vec<(AccessRight, Zeroizing<String>)>> {
    let place = path.display();
    let octets = key_file::read_secret_file(path, MAX_TOKEN_FILE_LENGTH);
    let octets = Zeroizing::new(octets.with_context(|| format!("cannot read {place}"))?);
    let text = std::str::from_utf8(&octets).with_context(|| format!("cannot read {place}"))?;
    let lines = text.lines().enumerate().map(|(number, line)| (number + 1, line.trim()));
    let tokens =
        lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')).map(|(number, line)| {
            let (right, token) = match line.split_once(char::is_whitespace) {
                Some(("read", token)) => (AccessRight::Read, token.trim()),
                Some(("operate", token)) => (AccessRight::Operate, token.trim()),
                _ => bail!("{place}:{number}: expected a line `read TOKEN` or `operate TOKEN`"),
            };
            ensure!(
                token.len() >= MIN_TOKEN_LENGTH && token.bytes().all(|octet| octet.is_ascii_graphic()),
                "{place}:{number}: the token has {} characters, expected {MIN_TOKEN_LENGTH} at least, \
                 without spaces",
                token.len()
            );
            Ok((right, Zeroizing::new(token.to_owned())))
        });
    let tokens = tokens.collect::<anyhow::Result<Vec<_>>>()?;
    ensure!(!tokens.is_empty(), "{place}: expected lines such as `read TOKEN`, found no token");
    Ok(tokens)
}

/// A TCP port on which the server listens.
pub(super) struct TcpPort {
    tcp_listener: TcpListener,
}

impl TcpPort {
    /// Listens at an address, even if no interface has this address yet.
    ///
    /// # Errors
    /// Returns an error if the address cannot be bound.
    pub(super) fn bind(address: SocketAddr) -> anyhow::Result<TcpPort> {
        let listener = carnet_linux::listen_on(address).and_then(TcpListener::from_std);
        let listener = listener.with_context(|| format!("station.http: cannot listen at {address}"))?;
        if !carnet_linux::is_local_address(address) {
            let address = address.ip();
            warn!(
                "station.http: no interface has the address {address} yet; the port answers as soon as one \
                 has it"
            );
        }
        Ok(TcpPort { tcp_listener: listener })
    }

    async fn accept(&self) -> (TcpStream, IpAddr) {
        loop {
            match self.tcp_listener.accept().await {
                Ok((stream, address)) => return (stream, address.ip().to_canonical()),
                Err(_) => sleep(PAUSE_AFTER_ACCEPT_ERROR).await,
            }
        }
    }

    /// Serves the API to clients that may use it, until the server stops.
    pub(super) async fn serve_clients(
        self,
        gate: AccessControl,
        app: Router,
        stopped: watch::Receiver<bool>,
    ) -> std::io::Result<()> {
        let app = app.layer(from_fn_with_state(gate, guard_request));
        let mut tasks = JoinSet::new();
        let mut places = ServedConnections::default();
        loop {
            let (stream, source) = tokio::select! {
                accepted = self.accept() => accepted,
                () = wait_until_stopped(stopped.clone()) => break,
            };
            while tasks.try_join_next().is_some() {}
            if places.make_room_for(source) {
                let proven = AuthorizedFlag::default();
                let task =
                    tasks.spawn(serve_connection(stream, app.clone(), proven.clone(), stopped.clone()));
                places.0.push(ServedConnection { source, authorized_flag: proven, task_handle: task });
            }
        }
        drop(self);
        while tasks.join_next().await.is_some() {}
        Ok(())
    }
}

/// Serves the requests on one connection, until the connection ends or the server stops.
async fn serve_connection(
    stream: TcpStream,
    app: Router,
    proven: AuthorizedFlag,
    stopped: watch::Receiver<bool>,
) {
    let io =
        TokioIo::new(IdleLimitedStream { tcp_stream: stream, idle_timer: Box::pin(sleep(IDLE_TIMEOUT)) });
    let service = TowerToHyperService::new(app.layer(Extension(proven)));
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    let mut connection = std::pin::pin!(server.serve_connection(io, service));
    tokio::select! {
        _ = connection.as_mut() => return,
        () = wait_until_stopped(stopped) => connection.as_mut().graceful_shutdown(),
    }
    // An error on a connection concerns only the client of that connection.
    let _ = connection.await;
}

/// A connection that the server is serving.
struct ServedConnection {
    source: IpAddr,
    authorized_flag: AuthorizedFlag,
    task_handle: AbortHandle,
}

/// Connections that the server is serving, the oldest first.
#[derive(Default)]
struct ServedConnections(Vec<ServedConnection>);

impl ServedConnections {
    /// Makes room for a new connection from a source; may end another connection for this. Returns whether
    /// there is room.
    fn make_room_for(&mut self, source: IpAddr) -> bool {
        self.0.retain(|place| !place.task_handle.is_finished());
        let is_unproven = |place: &&ServedConnection| !place.authorized_flag.get();
        let own = self.0.iter().filter(is_unproven).filter(|place| place.source == source).count();
        let mut leaving = None;
        if own >= MAX_UNAUTHENTICATED_PER_SOURCE {
            leaving = self.0.iter().position(|place| is_unproven(&place) && place.source == source);
        } else if self.0.len() >= MAX_CONNECTIONS {
            leaving = self.0.iter().position(|place| is_unproven(&place));
        }
        if let Some(leaving) = leaving {
            self.0.remove(leaving).task_handle.abort();
        }
        self.0.len() < MAX_CONNECTIONS
    }
}

/// A connection that ends after [`IDLE_TIMEOUT`] without data.
struct IdleLimitedStream {
    tcp_stream: TcpStream,
    idle_timer: Pin<Box<Sleep>>,
}

impl IdleLimitedStream {
    /// Restarts the idle timer after a read or write that succeeded. Returns an error if the timer has run
    /// out.
    fn restart_timer_after<T>(
        &mut self,
        cx: &mut TaskContext<'_>,
        done: Poll<std::io::Result<T>>,
    ) -> Poll<std::io::Result<T>> {
        if done.is_ready() {
            self.idle_timer.as_mut().reset(Instant::now() + IDLE_TIMEOUT);
            return done;
        }
        ready!(self.idle_timer.as_mut().poll(cx));
        Poll::Ready(Err(std::io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for IdleLimitedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let done = Pin::new(&mut self.tcp_stream).poll_read(cx, buffer);
        self.restart_timer_after(cx, done)
    }
}

impl AsyncWrite for IdleLimitedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
        octets: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let done = Pin::new(&mut self.tcp_stream).poll_write(cx, octets);
        self.restart_timer_after(cx, done)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.tcp_stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.tcp_stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::scratch::ScratchFolder;

    const READER_TOKEN: &str = "0123456789abcdef";
    const OPERATOR_TOKEN: &str = "fedcba9876543210";

    fn write_token_file(scratch: &ScratchFolder, text: &str, mode: u32) -> PathBuf {
        let path = scratch.path().join("tokens");
        std::fs::write(&path, text).expect("a file");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("a mode");
        path
    }

    fn headers_with(name: axum::http::HeaderName, value: &str) -> HeaderMap {
        [(name, value.parse().expect("a value"))].into_iter().collect()
    }

    #[test]
    fn token_of_an_http_client_limits_its_requests() {
        let scratch = ScratchFolder::new();
        let path = write_token_file(
            &scratch,
            &format!("# who\nread {READER_TOKEN}\n\noperate  {OPERATOR_TOKEN}\n"),
            0o600,
        );
        let gate = AccessControl::new(Some(&path)).expect("a gate");
        let may = |right, value: &str| {
            gate.check_right(right, &headers_with(AUTHORIZATION, value))
                .map_err(|refusal| refusal.status_code.as_u16())
        };
        assert_eq!(may(AccessRight::Read, &format!("Bearer {READER_TOKEN}")), Ok(()));
        assert_eq!(may(AccessRight::Operate, &format!("Bearer {READER_TOKEN}")), Err(403));
        assert_eq!(may(AccessRight::Operate, &format!("bearer {OPERATOR_TOKEN}")), Ok(()));
        assert_eq!(may(AccessRight::Read, &format!("Bearer {OPERATOR_TOKEN}")), Ok(()));
        for wrong in
            ["Bearer ", "Bearer 0123456789abcde", "Bearer 0123456789abcdef0", READER_TOKEN, "Basic abc"]
        {
            assert_eq!(may(AccessRight::Read, wrong), Err(401), "{wrong}");
        }
        assert!(gate.check_right(AccessRight::Read, &HeaderMap::new()).is_err());
        // A token that is removed from the file becomes invalid at once.
        write_token_file(&scratch, &format!("operate {OPERATOR_TOKEN}"), 0o600);
        assert_eq!(may(AccessRight::Read, &format!("Bearer {READER_TOKEN}")), Err(401));
        write_token_file(&scratch, &format!("operate {OPERATOR_TOKEN}"), 0o644);
        assert_eq!(may(AccessRight::Read, &format!("Bearer {OPERATOR_TOKEN}")), Err(500));
    }

    #[test]
    fn the_error_of_an_unusable_token_file_names_the_reason() {
        let scratch = ScratchFolder::new();
        for (text, mode, expected) in [
            ("read 0123456789abcdef", 0o640, "expected file mode 0600, found 0640"),
            ("read short", 0o600, "tokens:1: the token has 5 characters, expected 16 at least"),
            ("\nwrite 0123456789abcdef", 0o600, "tokens:2: expected a line `read TOKEN` or `operate TOKEN`"),
            ("# nobody\n", 0o600, "found no token"),
        ] {
            let error = AccessControl::new(Some(&write_token_file(&scratch, text, mode))).expect_err(text);
            assert!(format!("{error:#}").contains(expected), "{error:#}");
        }
        assert!(AccessControl::new(Some(Path::new("/nowhere"))).is_err());
        // A user who can replace a symbolic link could choose the tokens, so the server refuses a link.
        let link = scratch.path().join("link");
        std::os::unix::fs::symlink(write_token_file(&scratch, "read 0123456789abcdef", 0o600), &link)
            .expect("a link");
        let error = AccessControl::new(Some(&link)).expect_err("a link");
        assert!(format!("{error:#}").contains("found a symbolic link"), "{error:#}");
        // Only root can give the file to another user. The server refuses a file of another user.
        if nix::unistd::geteuid().is_root() {
            let path = write_token_file(&scratch, "read 0123456789abcdef", 0o600);
            std::os::unix::fs::chown(&path, Some(4711), None).expect("given away");
            let error = AccessControl::new(Some(&path)).expect_err("somebody else's");
            assert!(format!("{error:#}").contains("found one of user 4711"), "{error:#}");
        }
    }

    #[test]
    fn without_tokens_port_allows_only_reading_by_loopback_names() {
        let gate = AccessControl::new(None).expect("a gate");
        let may = |right, host: &str| gate.check_right(right, &headers_with(HOST, host)).is_ok();
        for near in ["localhost", "localhost:8440", "127.0.0.1:8440", "[::1]:8440", "[::1]"] {
            assert!(may(AccessRight::Read, near), "{near}");
            assert!(!may(AccessRight::Operate, near), "{near}");
        }
        for far in ["evil.example", "evil.example:8440", "localhost.evil.example", "", "[evil]", ":8440"] {
            assert!(!may(AccessRight::Read, far), "{far}");
        }
        assert!(gate.check_right(AccessRight::Read, &HeaderMap::new()).is_err());
    }
}
