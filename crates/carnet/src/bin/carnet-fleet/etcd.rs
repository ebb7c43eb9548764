//! The store in etcd. The module uses etcd's JSON gateway (`/v3/kv/txn`, `/v3/kv/range`, `/v3/kv/put`,
//! `/v3/watch`, `/v3/auth/authenticate`) over HTTP/1.1, with TLS if the config has `https://`.
//!
//! The gateway encodes keys and values in Base64, and 64-bit numbers as text. After an error etcd may still
//! have executed a transaction, unless the error says that it refuses the token. An answer above [`LONGEST`]
//! octets is an error. Error messages repeat at most [`WORDS`] characters of etcd's text.

mod server;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use carnet_fleet::{Event, Key, Outcome, Revision, Snapshot, Token, Transaction};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tracing::warn;

use crate::access::{self, User};

pub use server::Server;

/// Maximum number of keys in one answer of etcd.
const PAGE: u32 = 1000;
/// Maximum size of an answer, or of one line of a watch, in octets.
const LONGEST: usize = 64 << 20;
/// Maximum size of all keys and values of a seat, in octets. It suffices for some hundred thousand bindings.
const MOST: usize = 512 << 20;
/// Maximum size of an error answer, in octets.
const LONGEST_WHY: usize = 64 << 10;
/// Maximum number of characters of etcd's text in an error message.
const WORDS: usize = 300;
/// Time limit for opening a connection, including TLS.
const CONNECT: Duration = Duration::from_millis(500);
/// Time limit of a read request, and of a login, for which etcd computes a password hash.
pub const READ: Duration = Duration::from_secs(5);
/// Last part of the key of the home agent's own record; all other keys belong to nodes.
const OWN: &str = "own";
/// Maximum length of a token of etcd, in octets.
const LONGEST_TOKEN: usize = 16 << 10;
/// Errors with which etcd refuses a request because of its token, before it executes anything. The token is
/// unknown, missing, or older than a change of users.
const STALE: [&str; 3] =
    ["etcdserver: invalid auth token", NO_USER, "etcdserver: revision of auth store is old"];
const NO_USER: &str = "etcdserver: user name is empty";
/// Error of etcd for a token request if its authentication is off.
const NO_USERS: &str = "etcdserver: authentication is not enabled";

/// Start of etcd's error for a client certificate with a common name. If etcd has users, its gateway does not
/// accept such a certificate.
const COMMON_NAME: &str = "CommonName of client";

/// A connection to one of etcd's servers.
#[derive(Debug)]
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// Task that runs the connection; its result says why the connection has ended.
    driver: Option<JoinHandle<hyper::Result<()>>>,
    server: Server,
}

/// State of a seat in the store, without the records themselves.
#[derive(Debug)]
pub struct SeatOverview {
    /// Revision of the store at which the state was read.
    pub revision: Revision,
    /// Value of [`Key::Owner`]; `None` if the store has no such key.
    pub owner: Option<String>,
    /// Number of nodes that have records.
    pub nodes: u64,
}

/// Answer of etcd: a success, or etcd's reason for a failure.
enum EtcdAnswer {
    Yes(Response<Incoming>),
    No(StatusCode, String),
}

/// Prefix of all keys of a seat.
#[derive(Debug, Clone)]
pub struct Prefix(String);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Header {
    revision: Number,
}

/// A 64-bit number, which is text in etcd's answers, as in the JSON form of protocol buffers.
#[derive(Debug, Default, Clone, Copy)]
struct Number(u64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Number, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Number).map_err(serde::de::Error::custom)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Pair {
    key: String,
    value: String,
    mod_revision: Number,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Range {
    header: Header,
    kvs: Vec<Pair>,
    more: bool,
    count: Number,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Part {
    response_range: Range,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Answer {
    header: Header,
    succeeded: bool,
    responses: Vec<Part>,
}

#[derive(Deserialize)]
struct Authenticated {
    token: String,
}

/// Error of etcd. Versions up to 3.5 send both fields, with the same text; later versions send only the
/// second.
#[derive(Deserialize)]
struct Failure {
    error: Option<String>,
    message: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WatchMessage {
    result: Option<Changes>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Changes {
    canceled: bool,
    cancel_reason: String,
    compact_revision: Number,
    events: Vec<KeyChange>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct KeyChange {
    #[serde(rename = "type")]
    kind: String,
    kv: Pair,
}

fn encoded(text: &str) -> String {
    STANDARD.encode(text)
}

fn decoded(text: &str) -> anyhow::Result<String> {
    Ok(String::from_utf8(STANDARD.decode(text)?)?)
}

/// Returns the end of the range of keys that begin with this prefix: a text that sorts after all these keys.
/// The prefix ends with a slash.
fn after(names: &str) -> String {
    let mut end = names.to_owned();
    end.pop();
    // `0` is the character after the slash.
    end.push('0');
    end
}

impl Prefix {
    /// Returns the prefix of a seat.
    pub fn of(fleet: &str, seat: &str) -> Prefix {
        Prefix(format!("/{fleet}/{seat}/"))
    }

    fn name(&self, key: &Key) -> String {
        encoded(&format!("{}{key}", self.0))
    }

    /// Returns the end (exclusive) of the range that contains all keys of the seat.
    fn end(&self) -> String {
        encoded(&after(&self.0))
    }

    fn key(&self, name: &str) -> anyhow::Result<Option<Key>> {
        Ok(decoded(name)?.strip_prefix(&self.0).and_then(Key::of))
    }
}

impl Connection {
    /// Connects to a server.
    ///
    /// # Errors
    /// Returns an error if the server cannot be reached.
    pub async fn to(server: &Server) -> anyhow::Result<Connection> {
        let connect = async {
            let stream = TcpStream::connect(&server.address).await?;
            stream.set_nodelay(true)?;
            match &server.tls {
                Some((tls, name)) => Connection::over(tls.over(name, stream).await?, server).await,
                None => Connection::over(stream, server).await,
            }
        };
        let connected = tokio::time::timeout(CONNECT, connect).await;
        connected
            .context("etcd did not answer in time")
            .flatten()
            .with_context(|| format!("cannot reach etcd at {}", server.address))
    }

    async fn over<S>(stream: S, server: &Server) -> anyhow::Result<Connection>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // The task ends when the connection ends.
        Ok(Connection { sender, driver: Some(tokio::spawn(connection)), server: server.clone() })
    }

    async fn send(&mut self, path: &str, body: &Value) -> anyhow::Result<Response<Incoming>> {
        let body = Bytes::from(serde_json::to_vec(body)?);
        let server = self.server.clone();
        let mut token = server.token(None).await?;
        let mut answered = self.exchange(path, body.clone(), token.value.as_ref()).await?;
        if let EtcdAnswer::No(_, why) = &answered
            && server.user.is_some()
            && STALE.contains(&why.as_str())
        {
            token = server.token(Some(&token)).await?;
            answered = self.exchange(path, body, token.value.as_ref()).await?;
        }
        match answered {
            EtcdAnswer::Yes(response) => Ok(response),
            EtcdAnswer::No(_, why) if why == NO_USER && server.user.is_none() => {
                bail!("expected the key access.user in the config, because etcd requires a user: {why}")
            }
            EtcdAnswer::No(status, why) => bail!("etcd refused the request with HTTP status {status}: {why}"),
        }
    }

    /// Requests a token for a user. Returns the token, or `None` if etcd needs no token, or the reason why
    /// etcd refuses the user.
    async fn authenticate(&mut self, user: &User) -> anyhow::Result<Result<Option<HeaderValue>, String>> {
        let question = Bytes::from_owner(user.question()?);
        let response = match self.exchange("/v3/auth/authenticate", question, None).await? {
            EtcdAnswer::Yes(response) => response,
            EtcdAnswer::No(_, why) if why == NO_USERS => {
                warn!(
                    "etcd at {} has authentication off, so any client can change the fleet's records: \
                     {why}",
                    self.server.address
                );
                return Ok(Ok(None));
            }
            EtcdAnswer::No(status, why) if status.is_client_error() => return Ok(Err(why)),
            EtcdAnswer::No(status, why) => bail!("etcd refused the request with HTTP status {status}: {why}"),
        };
        let answer: Authenticated = serde_json::from_slice(&whole(response).await?)?;
        let usable = !answer.token.is_empty() && answer.token.len() <= LONGEST_TOKEN;
        ensure!(
            usable,
            "expected a token of 1 to {LONGEST_TOKEN} octets from etcd, found {} octets",
            answer.token.len()
        );
        let mut token =
            HeaderValue::try_from(answer.token).context("expected an etcd token that fits an HTTP header")?;
        token.set_sensitive(true);
        Ok(Ok(Some(token)))
    }

    /// Sends a request and returns the answer; for a watch, only its headers.
    async fn exchange(
        &mut self,
        path: &str,
        body: Bytes,
        token: Option<&HeaderValue>,
    ) -> anyhow::Result<EtcdAnswer> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(header::HOST, &self.server.address)
            .header(header::CONTENT_TYPE, "application/json")
            // This header marks a request of the JSON gateway. Without it etcd would use the common name
            // of its own certificate as the user.
            .header(header::ACCEPT, "application/json");
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, token);
        }
        let request = request.body(Full::new(body))?;
        let sent = async {
            self.sender.ready().await?;
            self.sender.send_request(request).await
        };
        let response = match sent.await {
            Ok(response) => response,
            Err(error) => return Err(self.why(error).await),
        };
        let status = response.status();
        if status.is_success() {
            return Ok(EtcdAnswer::Yes(response));
        }
        let body = at_most(LONGEST_WHY, response).await.unwrap_or_default();
        let said =
            serde_json::from_slice(&body).ok().and_then(|failure: Failure| failure.error.or(failure.message));
        let why = words(said.as_deref().unwrap_or(&String::from_utf8_lossy(&body)));
        ensure!(
            !why.starts_with(COMMON_NAME),
            "access.certificate: expected a subject without a common name (CN), because etcd refuses it \
             with HTTP status {status}: {why}"
        );
        Ok(EtcdAnswer::No(status, why))
    }

    /// Returns why a request has failed. If the connection has ended, this is the reason of its end.
    async fn why(&mut self, error: hyper::Error) -> anyhow::Error {
        let ended = match self.driver.take() {
            Some(driver) if self.sender.is_closed() => driver.await.ok().and_then(Result::err),
            _ => None,
        };
        let error = anyhow::Error::new(ended.unwrap_or(error));
        if access::refuses_certificate(&error) {
            return error.context("etcd does not take this member's certificate (access.certificate)");
        }
        error
    }

    /// Executes a transaction in the store.
    ///
    /// # Errors
    /// Returns an error if it is unknown whether etcd has executed the transaction.
    pub async fn transact(&mut self, prefix: &Prefix, transaction: &Transaction) -> anyhow::Result<Outcome> {
        let owner = prefix.name(&Key::Owner);
        let put = |key: &str, value: &str| json!({"request_put": {"key": key, "value": encoded(value)}});
        let mut success = vec![put(&owner, &transaction.token.to_text())];
        for (key, value) in &transaction.changes {
            let key = prefix.name(&Key::Record(key.clone()));
            success.push(match value {
                Some(value) => put(&key, value),
                None => json!({"request_delete_range": {"key": key}}),
            });
        }
        let body = json!({
            "compare": [{
                "key": owner,
                "target": "MOD",
                "result": "EQUAL",
                "mod_revision": transaction.expected.to_string(),
            }],
            "success": success,
            "failure": [{"request_range": {"key": owner}}],
        });
        let response = self.send("/v3/kv/txn", &body).await?;
        let answer: Answer = serde_json::from_slice(&whole(response).await?)?;
        if answer.succeeded {
            return Ok(Outcome::Done(answer.header.revision.0));
        }
        let found = answer.responses.into_iter().next().unwrap_or_default().response_range.kvs;
        Ok(match found.into_iter().next() {
            Some(pair) => Outcome::Refused(pair.mod_revision.0, Token::of(&decoded(&pair.value)?)),
            None => Outcome::Refused(0, None),
        })
    }

    /// Writes a key without any condition.
    ///
    /// # Errors
    /// Returns an error if it is unknown whether etcd has written the key.
    pub async fn put(&mut self, prefix: &Prefix, key: &Key, value: &str) -> anyhow::Result<()> {
        let body = json!({"key": prefix.name(key), "value": encoded(value)});
        whole(self.send("/v3/kv/put", &body).await?).await?;
        Ok(())
    }

    /// Reads all keys of a seat at one revision.
    ///
    /// # Errors
    /// Returns an error if a read fails.
    pub async fn read(&mut self, prefix: &Prefix) -> anyhow::Result<Snapshot> {
        let mut snapshot = Snapshot::default();
        let (mut from, mut octets) = (prefix.0.clone().into_bytes(), 0_usize);
        loop {
            let mut body = json!({"key": STANDARD.encode(&from), "range_end": prefix.end(), "limit": PAGE});
            if snapshot.revision > 0 {
                body["revision"] = json!(snapshot.revision.to_string());
            }
            let page = async {
                anyhow::Ok(serde_json::from_slice::<Range>(
                    &whole(self.send("/v3/kv/range", &body).await?).await?,
                )?)
            };
            let page = tokio::time::timeout(READ, page).await.context("etcd did not answer in time")??;
            if snapshot.revision == 0 {
                snapshot.revision = page.header.revision.0;
                ensure!(snapshot.revision > 0, "expected a revision in etcd's answer to a read, found none");
            }
            for pair in &page.kvs {
                // Keys must arrive in ascending order, so a faulty server cannot make this loop endless.
                let name = STANDARD.decode(&pair.key)?;
                ensure!(name >= from, "expected only the requested keys in etcd's answer, found other keys");
                octets += pair.key.len() + pair.value.len();
                ensure!(
                    octets <= MOST,
                    "expected at most {MOST} octets of records for this home agent in etcd, found more"
                );
                from = name;
                from.push(0);
                if let Some(key) = prefix.key(&pair.key)? {
                    if key == Key::Owner {
                        snapshot.owner = pair.mod_revision.0;
                    }
                    snapshot.values.push((key, decoded(&pair.value)?));
                }
            }
            if page.kvs.is_empty() || !page.more {
                return Ok(snapshot);
            }
        }
    }

    /// Reads the state of a seat for operators. The cost does not depend on the number of records.
    ///
    /// # Errors
    /// Returns an error if a read fails.
    pub async fn overview(&mut self, prefix: &Prefix) -> anyhow::Result<SeatOverview> {
        let records = format!("{}record/", prefix.0);
        // One transaction, so that all values have the same revision.
        let body = json!({"success": [
            {"request_range": {"key": prefix.name(&Key::Owner)}},
            {"request_range": {"key": encoded(&records), "range_end": encoded(&after(&records)), "count_onl\
                y": true}},
            {"request_range": {"key": prefix.name(&Key::Record(OWN.into())), "count_only": true}},
        ]});
        let response = self.send("/v3/kv/txn", &body).await?;
        let answer: Answer = serde_json::from_slice(&whole(response).await?)?;
        let [owner, records, own] = <[Part; 3]>::try_from(answer.responses)
            .map_err(|parts| {
                anyhow!("expected three results in etcd's answer to a transaction, found {}", parts.len())
            })?
            .map(|part| part.response_range);
        let owner = owner.kvs.first().map(|pair| decoded(&pair.value)).transpose()?;
        let nodes = records.count.0.saturating_sub(own.count.0);
        Ok(SeatOverview { revision: answer.header.revision.0, owner, nodes })
    }

    /// Begins to watch all keys of a seat, from the revision after `known`.
    ///
    /// # Errors
    /// Returns an error if the watch cannot begin.
    pub async fn watch(mut self, prefix: &Prefix, known: Revision) -> anyhow::Result<Watch> {
        let body = json!({"create_request": {
            "key": encoded(&prefix.0),
            "range_end": prefix.end(),
            "start_revision": known.saturating_add(1).to_string(),
        }});
        let response = tokio::time::timeout(READ, self.send("/v3/watch", &body))
            .await
            .context("etcd did not answer in time")??;
        Ok(Watch {
            _connection: self,
            prefix: prefix.clone(),
            body: response.into_body(),
            buffer: Vec::new(),
            searched: 0,
        })
    }
}

/// An open watch in etcd, which delivers changes of keys as they arrive.
#[derive(Debug)]
pub struct Watch {
    _connection: Connection,
    prefix: Prefix,
    body: Incoming,
    buffer: Vec<u8>,
    /// Number of octets at the start of the buffer that have no line end; the next search begins behind them.
    searched: usize,
}

impl Watch {
    /// Returns the next changes, grouped by revision. Safe to cancel.
    ///
    /// # Errors
    /// Returns an error if the watch has ended: the caller must read all keys and begin another watch.
    pub async fn next(&mut self) -> anyhow::Result<BTreeMap<Revision, Vec<Event>>> {
        loop {
            let found = self.buffer[self.searched..].iter().position(|octet| *octet == b'\n');
            if let Some(end) = found.map(|end| self.searched + end) {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                self.searched = 0;
                let changes = self.changes(&line)?;
                if !changes.is_empty() {
                    return Ok(changes);
                }
                continue;
            }
            self.searched = self.buffer.len();
            ensure!(
                self.searched < LONGEST,
                "expected lines below {LONGEST} octets in the event stream of etcd's watch, found a longer \
                 one"
            );
            let frame = self.body.frame().await.context("etcd has ended the watch")??;
            if let Ok(data) = frame.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }

    fn changes(&self, line: &[u8]) -> anyhow::Result<BTreeMap<Revision, Vec<Event>>> {
        let watched: WatchMessage = serde_json::from_slice(line)?;
        let Some(found) = watched.result else {
            bail!("etcd refused to watch the keys: {}", words(&String::from_utf8_lossy(line)))
        };
        ensure!(
            !found.canceled,
            "etcd has ended the watch, because it has deleted the revisions before {}. {}",
            found.compact_revision.0,
            words(&found.cancel_reason)
        );
        let mut changes: BTreeMap<Revision, Vec<Event>> = BTreeMap::new();
        for changed in found.events {
            let Some(key) = self.prefix.key(&changed.kv.key)? else { continue };
            let value = (changed.kind != "DELETE").then(|| decoded(&changed.kv.value)).transpose()?;
            changes.entry(changed.kv.mod_revision.0).or_default().push(Event { key, value });
        }
        Ok(changes)
    }
}

/// Returns the whole body of an answer; an error if it is larger than [`LONGEST`].
async fn whole(response: Response<Incoming>) -> anyhow::Result<Bytes> {
    at_most(LONGEST, response).await
}

/// Returns a text of another program, shortened and with printable characters only.
fn words(said: &str) -> String {
    let printable = said.trim().chars().map(|one| if one.is_control() { '\u{fffd}' } else { one });
    printable.take(WORDS).collect()
}

/// Returns the whole body of an answer; an error if it is larger than `longest` octets.
async fn at_most(longest: usize, response: Response<Incoming>) -> anyhow::Result<Bytes> {
    let body = http_body_util::Limited::new(response.into_body(), longest);
    let collected = body.collect().await.map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(collected.to_bytes())
}
