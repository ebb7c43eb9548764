//! The store in etcd. The module uses etcd's JSON gateway (`/v3/kv/txn`, `/v3/kv/range`, `/v3/kv/put`,
//! `/v3/watch`, `/v3/auth/authenticate`) over HTTP/1.1, with TLS if the config has `https://`.
//!
//! The gateway encodes keys and values in Base64, and 64-bit numbers as text. After an error etcd may still
//! have executed a transaction, unless the error says that it refuses the token. An answer above
//! [`MAX_ANSWER_LENGTH`] octets is an error. Error messages repeat at most [`MAX_ERROR_CHARACTERS`]
//! characters of etcd's text.

mod server;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use carnet_fleet::{
    LeaderToken, StoreEvent, StoreKey, StoreRevision, StoreSnapshot, StoreTransaction,
    StoreTransactionOutcome,
};
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

use crate::access::{self, EtcdUser};

pub use server::StoreServer;

/// Maximum number of keys in one answer of etcd.
const MAX_KEYS_PER_ANSWER: u32 = 1000;
/// Maximum size of an answer, or of one line of a watch, in octets.
const MAX_ANSWER_LENGTH: usize = 64 << 20;
/// Maximum size in octets of all keys and values of one home agent in the store. It suffices for some hundred
/// thousand bindings.
const MAX_SEAT_RECORDS_LENGTH: usize = 512 << 20;
/// Maximum size of an error answer, in octets.
const MAX_ERROR_LENGTH: usize = 64 << 10;
/// Maximum number of characters of etcd's text in an error message.
const MAX_ERROR_CHARACTERS: usize = 300;
/// Time limit for opening a connection, including TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Time limit of a read request, and of a login, for which etcd computes a password hash.
pub const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Last part of the key of the home agent's own record.
const OWN_RECORD_KEY: &str = "own";
/// Beginning of the last part of the keys of encrypted sessions. All other keys belong to nodes.
const SESSION_RECORD_KEYS: &str = "session";
/// Maximum length of a token of etcd, in octets.
const MAX_TOKEN_LENGTH: usize = 16 << 10;
/// Errors with which etcd refuses a request because of its token, before it executes anything. The token is
/// unknown, missing, or older than a change of users.
const STALE_TOKEN_ERRORS: [&str; 3] =
    ["etcdserver: invalid auth token", NO_USER_NAME_ERROR, "etcdserver: revision of auth store is old"];
const NO_USER_NAME_ERROR: &str = "etcdserver: user name is empty";
/// Error of etcd for a token request if its authentication is off.
const NO_AUTHENTICATION_ERROR: &str = "etcdserver: authentication is not enabled";

/// Start of etcd's error for a client certificate with a common name. If etcd has users, its gateway does not
/// accept such a certificate.
const COMMON_NAME_ERROR: &str = "CommonName of client";

/// A connection to one of etcd's servers.
#[derive(Debug)]
pub struct EtcdConnection {
    request_sender: SendRequest<Full<Bytes>>,
    /// Task that runs the connection; its result says why the connection has ended.
    connection_task: Option<JoinHandle<hyper::Result<()>>>,
    etcd_server: StoreServer,
}

/// State of a seat (a home agent of the fleet) in the store, without the records themselves.
#[derive(Debug)]
pub struct SeatOverview {
    /// Revision of the store at which the state was read.
    pub store_revision: StoreRevision,
    /// Value of [`StoreKey::Owner`]; `None` if the store has no such key.
    pub owner_value: Option<String>,
    /// Number of nodes that have records.
    pub node_count: u64,
}

/// Answer of etcd: a success, or etcd's reason for a failure.
enum EtcdAnswer {
    Yes(Response<Incoming>),
    No(StatusCode, String),
}

/// Prefix of all keys of one home agent (seat) in the store.
#[derive(Debug, Clone)]
pub struct KeyPrefix(String);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AnswerHeader {
    revision: NumberAsText,
}

/// A 64-bit number, which is text in etcd's answers, as in the JSON form of protocol buffers.
#[derive(Debug, Default, Clone, Copy)]
struct NumberAsText(u64);

impl<'de> Deserialize<'de> for NumberAsText {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<NumberAsText, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(NumberAsText).map_err(serde::de::Error::custom)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct KeyValuePair {
    key: String,
    value: String,
    mod_revision: NumberAsText,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RangeAnswer {
    header: AnswerHeader,
    kvs: Vec<KeyValuePair>,
    more: bool,
    count: NumberAsText,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TransactionPart {
    response_range: RangeAnswer,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TransactionAnswer {
    header: AnswerHeader,
    succeeded: bool,
    responses: Vec<TransactionPart>,
}

#[derive(Deserialize)]
struct AuthenticationAnswer {
    token: String,
}

/// Error of etcd. Versions up to 3.5 send both fields, with the same text; later versions send only the
/// second.
#[derive(Deserialize)]
struct EtcdFailure {
    error: Option<String>,
    message: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WatchMessage {
    result: Option<WatchChanges>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WatchChanges {
    canceled: bool,
    cancel_reason: String,
    compact_revision: NumberAsText,
    events: Vec<KeyChange>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct KeyChange {
    #[serde(rename = "type")]
    kind: String,
    kv: KeyValuePair,
}

fn encode_base64(text: &str) -> String {
    STANDARD.encode(text)
}

fn decode_base64(text: &str) -> anyhow::Result<String> {
    Ok(String::from_utf8(STANDARD.decode(text)?)?)
}

/// Returns the end of the range of keys that begin with this prefix: a text that sorts after all these keys.
/// The prefix ends with a slash.
fn range_end_of_prefix(names: &str) -> String {
    let mut end = names.to_owned();
    end.pop();
    // `0` is the character after the slash.
    end.push('0');
    end
}

impl KeyPrefix {
    /// Returns the prefix of a seat.
    pub fn of_seat(fleet: &str, seat: &str) -> KeyPrefix {
        KeyPrefix(format!("/{fleet}/{seat}/"))
    }

    fn encoded_key(&self, key: &StoreKey) -> String {
        encode_base64(&format!("{}{key}", self.0))
    }

    /// Returns the end (exclusive) of the range that contains all keys of the seat.
    fn encoded_range_end(&self) -> String {
        encode_base64(&range_end_of_prefix(&self.0))
    }

    fn parse_key(&self, name: &str) -> anyhow::Result<Option<StoreKey>> {
        Ok(decode_base64(name)?.strip_prefix(&self.0).and_then(StoreKey::of_name))
    }
}

impl EtcdConnection {
    /// Connects to a server.
    ///
    /// # Errors
    /// Returns an error if the server cannot be reached.
    pub async fn connect_to(server: &StoreServer) -> anyhow::Result<EtcdConnection> {
        let connect = async {
            let stream = TcpStream::connect(&server.address).await?;
            stream.set_nodelay(true)?;
            match &server.tls_with_name {
                Some((tls, name)) => {
                    EtcdConnection::connect_over(tls.start_tls_over(name, stream).await?, server).await
                }
                None => EtcdConnection::connect_over(stream, server).await,
            }
        };
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, connect).await;
        connected
            .context("etcd did not answer in time")
            .flatten()
            .with_context(|| format!("cannot reach etcd at {}", server.address))
    }

    async fn connect_over<S>(stream: S, server: &StoreServer) -> anyhow::Result<EtcdConnection>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // The task ends when the connection ends.
        Ok(EtcdConnection {
            request_sender: sender,
            connection_task: Some(tokio::spawn(connection)),
            etcd_server: server.clone(),
        })
    }

    async fn send(&mut self, path: &str, body: &Value) -> anyhow::Result<Response<Incoming>> {
        let body = Bytes::from(serde_json::to_vec(body)?);
        let server = self.etcd_server.clone();
        let mut token = server.token_except(None).await?;
        let mut answered = self.exchange_request(path, body.clone(), token.value.as_ref()).await?;
        if let EtcdAnswer::No(_, why) = &answered
            && server.etcd_user.is_some()
            && STALE_TOKEN_ERRORS.contains(&why.as_str())
        {
            token = server.token_except(Some(&token)).await?;
            answered = self.exchange_request(path, body, token.value.as_ref()).await?;
        }
        match answered {
            EtcdAnswer::Yes(response) => Ok(response),
            EtcdAnswer::No(_, why) if why == NO_USER_NAME_ERROR && server.etcd_user.is_none() => {
                bail!("expected the key access.user in the config, because etcd requires a user: {why}")
            }
            EtcdAnswer::No(status, why) => bail!("etcd refused the request with HTTP status {status}: {why}"),
        }
    }

    /// Requests a token for a user. Returns the token, or `None` if etcd needs no token, or the reason why
    /// etcd refuses the user.
    async fn authenticate(&mut self, user: &EtcdUser) -> anyhow::Result<Result<Option<HeaderValue>, String>> {
        let question = Bytes::from_owner(user.token_request_body()?);
        let response = match self.exchange_request("/v3/auth/authenticate", question, None).await? {
            EtcdAnswer::Yes(response) => response,
            EtcdAnswer::No(_, why) if why == NO_AUTHENTICATION_ERROR => {
                warn!(
                    "etcd at {} has authentication off, so any client can change the records of the home \
                     agents: {why}",
                    self.etcd_server.address
                );
                return Ok(Ok(None));
            }
            EtcdAnswer::No(status, why) if status.is_client_error() => return Ok(Err(why)),
            EtcdAnswer::No(status, why) => bail!("etcd refused the request with HTTP status {status}: {why}"),
        };
        let answer: AuthenticationAnswer = serde_json::from_slice(&read_whole_body(response).await?)?;
        let usable = !answer.token.is_empty() && answer.token.len() <= MAX_TOKEN_LENGTH;
        ensure!(
            usable,
            "expected a token of 1 to {MAX_TOKEN_LENGTH} octets from etcd, found {} octets",
            answer.token.len()
        );
        let mut token =
            HeaderValue::try_from(answer.token).context("expected an etcd token that fits an HTTP header")?;
        token.set_sensitive(true);
        Ok(Ok(Some(token)))
    }

    /// Sends a request and returns the answer; for a watch, only its headers.
    async fn exchange_request(
        &mut self,
        path: &str,
        body: Bytes,
        token: Option<&HeaderValue>,
    ) -> anyhow::Result<EtcdAnswer> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(header::HOST, &self.etcd_server.address)
            .header(header::CONTENT_TYPE, "application/json")
            // This header marks a request of the JSON gateway. Without it etcd would use the common name
            // of its own certificate as the user.
            .header(header::ACCEPT, "application/json");
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, token);
        }
        let request = request.body(Full::new(body))?;
        let sent = async {
            self.request_sender.ready().await?;
            self.request_sender.send_request(request).await
        };
        let response = match sent.await {
            Ok(response) => response,
            Err(error) => return Err(self.explain_failure(error).await),
        };
        let status = response.status();
        if status.is_success() {
            return Ok(EtcdAnswer::Yes(response));
        }
        let body = read_error_body(MAX_ERROR_LENGTH, response).await.unwrap_or_default();
        let said = serde_json::from_slice(&body)
            .ok()
            .and_then(|failure: EtcdFailure| failure.error.or(failure.message));
        let why = printable_text(said.as_deref().unwrap_or(&String::from_utf8_lossy(&body)));
        ensure!(
            !why.starts_with(COMMON_NAME_ERROR),
            "access.certificate: expected a subject without a common name (CN), because etcd refuses it \
             with HTTP status {status}: {why}"
        );
        Ok(EtcdAnswer::No(status, why))
    }

    /// Returns why a request has failed. If the connection has ended, this is the reason of its end.
    async fn explain_failure(&mut self, error: hyper::Error) -> anyhow::Error {
        let ended = match self.connection_task.take() {
            Some(driver) if self.request_sender.is_closed() => driver.await.ok().and_then(Result::err),
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
    pub async fn execute_transaction(
        &mut self,
        prefix: &KeyPrefix,
        transaction: &StoreTransaction,
    ) -> anyhow::Result<StoreTransactionOutcome> {
        let owner = prefix.encoded_key(&StoreKey::Owner);
        let put =
            |key: &str, value: &str| json!({"request_put": {"key": key, "value": encode_base64(value)}});
        let mut success = vec![put(&owner, &transaction.token.to_text())];
        for (key, value) in &transaction.changes {
            let key = prefix.encoded_key(&StoreKey::Record(key.clone()));
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
        "mod_revision": transaction.expected_owner_revision.to_string(),
        }],
        "success": success,
        "failure": [{"request_range": {"key": owner}}],
        });
        let response = self.send("/v3/kv/txn", &body).await?;
        let answer: TransactionAnswer = serde_json::from_slice(&read_whole_body(response).await?)?;
        if answer.succeeded {
            return Ok(StoreTransactionOutcome::Done(answer.header.revision.0));
        }
        let found = answer.responses.into_iter().next().unwrap_or_default().response_range.kvs;
        Ok(match found.into_iter().next() {
            Some(pair) => StoreTransactionOutcome::Refused(
                pair.mod_revision.0,
                LeaderToken::from_text(&decode_base64(&pair.value)?),
            ),
            None => StoreTransactionOutcome::Refused(0, None),
        })
    }

    /// Writes a key without any condition.
    ///
    /// # Errors
    /// Returns an error if it is unknown whether etcd has written the key.
    pub async fn put_value(&mut self, prefix: &KeyPrefix, key: &StoreKey, value: &str) -> anyhow::Result<()> {
        let body = json!({"key": prefix.encoded_key(key), "value": encode_base64(value)});
        read_whole_body(self.send("/v3/kv/put", &body).await?).await?;
        Ok(())
    }

    /// Reads all keys of a seat at one revision.
    ///
    /// # Errors
    /// Returns an error if a read fails.
    pub async fn read_seat(&mut self, prefix: &KeyPrefix) -> anyhow::Result<StoreSnapshot> {
        let mut snapshot = StoreSnapshot::default();
        let (mut from, mut octets) = (prefix.0.clone().into_bytes(), 0_usize);
        loop {
            let mut body = json!({"key": STANDARD.encode(&from), "range_end": prefix.encoded_range_end(),
"limit": MAX_KEYS_PER_ANSWER});
            if snapshot.revision > 0 {
                body["revision"] = json!(snapshot.revision.to_string());
            }
            let page = async {
                anyhow::Ok(serde_json::from_slice::<RangeAnswer>(
                    &read_whole_body(self.send("/v3/kv/range", &body).await?).await?,
                )?)
            };
            let page =
                tokio::time::timeout(READ_TIMEOUT, page).await.context("etcd did not answer in time")??;
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
                    octets <= MAX_SEAT_RECORDS_LENGTH,
                    "expected at most {MAX_SEAT_RECORDS_LENGTH} octets of records for this home agent in \
                     etcd, found more"
                );
                from = name;
                from.push(0);
                if let Some(key) = prefix.parse_key(&pair.key)? {
                    if key == StoreKey::Owner {
                        snapshot.owner_revision = pair.mod_revision.0;
                    }
                    snapshot.keys_with_values.push((key, decode_base64(&pair.value)?));
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
    pub async fn seat_overview(&mut self, prefix: &KeyPrefix) -> anyhow::Result<SeatOverview> {
        let records = format!("{}record/", prefix.0);
        let sessions = format!("{records}{SESSION_RECORD_KEYS}");
        // One transaction, so that all values have the same revision.
        let body = json!({"success": [
        {"request_range": {"key": prefix.encoded_key(&StoreKey::Owner)}},
        {"request_range": {"key": encode_base64(&records),
        "range_end": encode_base64(&range_end_of_prefix(&records)), "count_onl\
                        y": true}},
        {"request_range": {
        "key": prefix.encoded_key(&StoreKey::Record(OWN_RECORD_KEY.into())), "count_only": true
        }},
        {"request_range": {"key": encode_base64(&sessions),
        "range_end": encode_base64(&range_end_of_prefix(&sessions)), "count_only": true}},
        ]});
        let response = self.send("/v3/kv/txn", &body).await?;
        let answer: TransactionAnswer = serde_json::from_slice(&read_whole_body(response).await?)?;
        let [owner, records, own, sessions] = <[TransactionPart; 4]>::try_from(answer.responses)
            .map_err(|parts| {
                anyhow!("expected four results in etcd's answer to a transaction, found {}", parts.len())
            })?
            .map(|part| part.response_range);
        let owner = owner.kvs.first().map(|pair| decode_base64(&pair.value)).transpose()?;
        let nodes = records.count.0.saturating_sub(own.count.0).saturating_sub(sessions.count.0);
        Ok(SeatOverview { store_revision: answer.header.revision.0, owner_value: owner, node_count: nodes })
    }

    /// Begins to watch all keys of a seat, from the revision after `known_revision`.
    ///
    /// # Errors
    /// Returns an error if the watch cannot begin.
    pub async fn watch_seat(
        mut self,
        prefix: &KeyPrefix,
        known_revision: StoreRevision,
    ) -> anyhow::Result<SeatWatch> {
        let body = json!({"create_request": {
        "key": encode_base64(&prefix.0),
        "range_end": prefix.encoded_range_end(),
        "start_revision": known_revision.saturating_add(1).to_string(),
        }});
        let response = tokio::time::timeout(READ_TIMEOUT, self.send("/v3/watch", &body))
            .await
            .context("etcd did not answer in time")??;
        Ok(SeatWatch {
            _connection: self,
            prefix: prefix.clone(),
            response_body: response.into_body(),
            unread_octets: Vec::new(),
            searched_octets: 0,
        })
    }
}

/// An open watch in etcd, which delivers changes of keys as they arrive.
#[derive(Debug)]
pub struct SeatWatch {
    _connection: EtcdConnection,
    prefix: KeyPrefix,
    response_body: Incoming,
    unread_octets: Vec<u8>,
    /// Number of octets at the start of the buffer that have no line end; the next search begins behind them.
    searched_octets: usize,
}

impl SeatWatch {
    /// Returns the next changes, grouped by revision. Safe to cancel.
    ///
    /// # Errors
    /// Returns an error if the watch has ended: the caller must read all keys and begin another watch.
    pub async fn next(&mut self) -> anyhow::Result<BTreeMap<StoreRevision, Vec<StoreEvent>>> {
        loop {
            let found = self.unread_octets[self.searched_octets..].iter().position(|octet| *octet == b'\n');
            if let Some(end) = found.map(|end| self.searched_octets + end) {
                let line: Vec<u8> = self.unread_octets.drain(..=end).collect();
                self.searched_octets = 0;
                let changes = self.parse_changes(&line)?;
                if !changes.is_empty() {
                    return Ok(changes);
                }
                continue;
            }
            self.searched_octets = self.unread_octets.len();
            ensure!(
                self.searched_octets < MAX_ANSWER_LENGTH,
                "expected lines below {MAX_ANSWER_LENGTH} octets in the event stream of etcd's watch, \
                 found a longer one"
            );
            let frame = self.response_body.frame().await.context("etcd has ended the watch")??;
            if let Ok(data) = frame.into_data() {
                self.unread_octets.extend_from_slice(&data);
            }
        }
    }

    fn parse_changes(&self, line: &[u8]) -> anyhow::Result<BTreeMap<StoreRevision, Vec<StoreEvent>>> {
        let watched: WatchMessage = serde_json::from_slice(line)?;
        let Some(found) = watched.result else {
            bail!("etcd refused to watch the keys: {}", printable_text(&String::from_utf8_lossy(line)))
        };
        ensure!(
            !found.canceled,
            "etcd has ended the watch, because it has deleted the revisions before {}. {}",
            found.compact_revision.0,
            printable_text(&found.cancel_reason)
        );
        let mut changes: BTreeMap<StoreRevision, Vec<StoreEvent>> = BTreeMap::new();
        for changed in found.events {
            let Some(key) = self.prefix.parse_key(&changed.kv.key)? else { continue };
            let value = (changed.kind != "DELETE").then(|| decode_base64(&changed.kv.value)).transpose()?;
            changes.entry(changed.kv.mod_revision.0).or_default().push(StoreEvent { key, value });
        }
        Ok(changes)
    }
}

/// Returns the whole body of an answer; an error if it is larger than [`MAX_ANSWER_LENGTH`].
async fn read_whole_body(response: Response<Incoming>) -> anyhow::Result<Bytes> {
    read_error_body(MAX_ANSWER_LENGTH, response).await
}

/// Returns a text of another program, shortened and with printable characters only.
fn printable_text(text: &str) -> String {
    let printable = text.trim().chars().map(|one| if one.is_control() { '\u{fffd}' } else { one });
    printable.take(MAX_ERROR_CHARACTERS).collect()
}

/// Returns the whole body of an answer; an error if it is larger than `longest` octets.
async fn read_error_body(longest: usize, response: Response<Incoming>) -> anyhow::Result<Bytes> {
    let body = http_body_util::Limited::new(response.into_body(), longest);
    let collected = body.collect().await.map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(collected.to_bytes())
}
