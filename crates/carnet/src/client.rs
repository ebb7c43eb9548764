//! Client of a running station: HTTP/1.1 over its UNIX socket, one connection for each request.

pub mod drain;
#[cfg(feature = "geonet")]
pub mod facilities;
#[cfg(feature = "geonet")]
pub mod geonet;
pub mod uplink_dns;
pub mod wait;

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use carnet_api::model::ErrorBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde_json::Value;
use tokio::net::UnixStream;

/// Default directory of the stations' sockets.
pub const SOCKET_DIRECTORY: &str = "/run/carnet";

/// Time limit for an answer of the station. It is longer than the server's own time limit, so that an error
/// message of the server arrives first.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Access to the API of a station.
#[derive(Debug)]
pub struct ApiClient {
    socket: PathBuf,
}

impl ApiClient {
    /// Selects the station whose socket is `socket`, or otherwise the only station with a socket in
    /// `directory`.
    pub fn find_station(socket: Option<PathBuf>, directory: &Path) -> anyhow::Result<ApiClient> {
        if let Some(socket) = socket {
            return Ok(ApiClient { socket });
        }
        let mut sockets = socket_paths(directory);
        if sockets.len() > 1 {
            // A killed station leaves its socket file, but no program listens on it.
            let listens = |path: &PathBuf| match std::os::unix::net::UnixStream::connect(path) {
                Ok(_) => true,
                Err(error) => error.kind() != std::io::ErrorKind::ConnectionRefused,
            };
            sockets.retain(listens);
        }
        match sockets.pop() {
            Some(socket) if sockets.is_empty() => Ok(ApiClient { socket }),
            Some(last) => {
                sockets.push(last);
                sockets.sort();
                let names: Vec<String> = sockets.iter().map(|path| path.display().to_string()).collect();
                bail!(
                    "expected one running station, found several: choose one with --socket: {}",
                    names.join(", ")
                )
            }
            None => bail!(
                "no station runs: found no socket in {}, expected one there, or its path in --socket or \
                 CARNET_SOCKET",
                directory.display()
            ),
        }
    }

    /// Returns the path of the station's socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Sends `GET` for a path, and returns the content in any format.
    pub async fn get_text(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        let response = self.send_request(Method::GET, path, Bytes::new()).await?;
        Ok(self.explain_lost_station(response.into_body().collect().await)?.to_bytes().to_vec())
    }

    /// Sends `GET` for a path, and returns the JSON.
    pub async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let response = self.send_request(Method::GET, path, Bytes::new()).await?;
        let body = self.explain_lost_station(response.into_body().collect().await)?.to_bytes();
        serde_json::from_slice(&body).with_context(|| format!("the station's answer to {path} is no JSON"))
    }

    /// Sends `POST` for a path with a JSON body.
    pub async fn post_json<T: Serialize>(&self, path: &str, body: &T) -> anyhow::Result<()> {
        self.send_request(Method::POST, path, serde_json::to_vec(body)?.into()).await?;
        Ok(())
    }

    /// Sends `POST` for a path with a JSON body, and returns the JSON of the answer.
    pub async fn post_for<T: Serialize>(&self, path: &str, body: &T) -> anyhow::Result<Value> {
        let response = self.send_request(Method::POST, path, serde_json::to_vec(body)?.into()).await?;
        let body = self.explain_lost_station(response.into_body().collect().await)?.to_bytes();
        serde_json::from_slice(&body).with_context(|| format!("the station's answer to {path} is no JSON"))
    }

    /// Sends `GET` for the path of an event stream, and returns the stream.
    pub async fn follow_events(&self, path: &str) -> anyhow::Result<EventStream> {
        let response = self.send_request(Method::GET, path, Bytes::new()).await?;
        Ok(EventStream { response_body: response.into_body(), unread_octets: Vec::new() })
    }

    /// Sends `POST` for a path with a JSON body, and returns the event stream of the answer.
    pub async fn post_and_follow<T: Serialize>(&self, path: &str, body: &T) -> anyhow::Result<EventStream> {
        let response = self.send_request(Method::POST, path, serde_json::to_vec(body)?.into()).await?;
        Ok(EventStream { response_body: response.into_body(), unread_octets: Vec::new() })
    }

    /// Sends a request. If the answer is not a success, returns an error with the station's reason.
    async fn send_request(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> anyhow::Result<Response<Incoming>> {
        match tokio::time::timeout(ANSWER_TIMEOUT, self.exchange_request(method, path, body)).await {
            Ok(answer) => answer,
            Err(_) => bail!("the station at {} did not answer the request in time", self.socket.display()),
        }
    }

    async fn exchange_request(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> anyhow::Result<Response<Incoming>> {
        let stream = UnixStream::connect(&self.socket)
            .await
            .with_context(|| format!("cannot reach the station at {}", self.socket.display()))?;
        let (mut sender, connection) =
            self.explain_lost_station(http1::handshake(TokioIo::new(stream)).await)?;
        // The task ends with the connection. The request itself also reports the connection's errors.
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "carnet")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))?;
        let response = self.explain_lost_station(sender.send_request(request).await)?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = self.explain_lost_station(response.into_body().collect().await)?.to_bytes();
        Err(refusal_reason(status, &body))
    }

    fn explain_lost_station<T>(&self, result: Result<T, hyper::Error>) -> anyhow::Result<T> {
        result.with_context(|| format!("the station at {} closed the connection", self.socket.display()))
    }
}

/// Returns the reason that an error answer contains.
fn refusal_reason(status: StatusCode, body: &[u8]) -> anyhow::Error {
    match serde_json::from_slice::<ErrorBody>(body) {
        Ok(body) => anyhow!(body.error),
        Err(_) => anyhow!("the station refused the request with HTTP status {status}, without a reason"),
    }
}

/// Returns the paths of the sockets in a directory.
fn socket_paths(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()))
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "sock"))
        .collect()
}

/// An event stream (`text/event-stream`) of which only the `data` lines remain.
#[derive(Debug)]
pub struct EventStream {
    response_body: Incoming,
    unread_octets: Vec<u8>,
}

impl EventStream {
    /// Returns the next event; `None` after the stream has ended.
    pub async fn next(&mut self) -> anyhow::Result<Option<Value>> {
        loop {
            while let Some(end) = self.unread_octets.iter().position(|octet| *octet == b'\n') {
                let line: Vec<u8> = self.unread_octets.drain(..=end).collect();
                if let Some(data) = line.strip_prefix(b"data:") {
                    return Ok(Some(
                        serde_json::from_slice(data).context("expected an event in JSON from the station")?,
                    ));
                }
            }
            match self.response_body.frame().await {
                None => return Ok(None),
                Some(frame) => {
                    let frame = frame.context("the station closed the connection")?;
                    if let Some(data) = frame.data_ref() {
                        self.unread_octets.extend_from_slice(data);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::ScratchFolder;

    #[test]
    fn client_uses_the_only_control_socket_by_default() {
        let scratch = ScratchFolder::new();
        let find = || ApiClient::find_station(None, scratch.path()).map(|client| client.socket);
        let directory = scratch.path().display();
        assert_eq!(
            find().expect_err("no socket").to_string(),
            format!(
                "no station runs: found no socket in {directory}, expected one there, or its path in \
                 --socket or CARNET_SOCKET"
            )
        );
        fs::write(scratch.path().join("file.sock"), "").expect("file");
        let _b = std::os::unix::net::UnixListener::bind(scratch.path().join("b.sock")).expect("socket");
        assert_eq!(find().expect("found"), scratch.path().join("b.sock"));
        let a = std::os::unix::net::UnixListener::bind(scratch.path().join("a.sock")).expect("socket");
        assert_eq!(
            find().expect_err("two sockets").to_string(),
            format!(
                "expected one running station, found several: choose one with --socket: {directory}/a.sock, \
                 {directory}/b.sock"
            )
        );
        // A killed station leaves its socket file.
        drop(a);
        assert_eq!(find().expect("found"), scratch.path().join("b.sock"));
        let given = ApiClient::find_station(Some("x".into()), scratch.path()).expect("given");
        assert_eq!(given.socket, PathBuf::from("x"));
    }

    #[test]
    fn the_client_reports_the_status_of_a_refusal_without_body() {
        assert_eq!(refusal_reason(StatusCode::CONFLICT, br#"{"error": "no"}"#).to_string(), "no");
        assert_eq!(
            refusal_reason(StatusCode::BAD_GATEWAY, b"<html>").to_string(),
            "the station refused the request with HTTP status 502 Bad Gateway, without a reason"
        );
    }
}
