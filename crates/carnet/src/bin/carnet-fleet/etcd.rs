//! The store, in etcd: its JSON gateway (`/v3/kv/txn`, `/v3/kv/range`, `/v3/kv/put`, `/v3/watch`) over HTTP/1.1.
//!
//! Keys and values are Base64 there, and 64-bit numbers are text. Whatever goes wrong with a transaction, it may
//! have been made. Answers are bounded: what the store says that is longer than [`LONGEST`] is an error.
//!
//! Left out: TLS and etcd's own users. The store's port is the fleet's alone: by addresses, or in a tunnel.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use carnet_fleet::{Event, Key, Outcome, Revision, Snapshot, Token, Transaction};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, Response, header};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpStream;

/// Keys in one answer.
const PAGE: u32 = 1000;
/// Octets of one answer, or of one line of a watch.
const LONGEST: usize = 64 << 20;
/// How long a connection may take.
const CONNECT: Duration = Duration::from_millis(500);
/// How long an answer to a reading may take.
const READ: Duration = Duration::from_secs(5);

/// One of the store's servers, as `host:port`.
#[derive(Debug, Clone)]
pub struct Server(pub String);

/// A connection to one.
#[derive(Debug)]
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    host: String,
}

/// The prefix of a seat's keys.
#[derive(Debug, Clone)]
pub struct Prefix(String);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Header {
    revision: Number,
}

/// A 64-bit number, which JSON for protocol buffers writes as text.
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

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Watched {
    result: Option<Changes>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Changes {
    canceled: bool,
    compact_revision: Number,
    events: Vec<Changed>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Changed {
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

impl Prefix {
    /// Of a seat.
    pub fn of(fleet: &str, seat: &str) -> Prefix {
        Prefix(format!("/{fleet}/{seat}/"))
    }

    fn name(&self, key: &Key) -> String {
        encoded(&format!("{}{key}", self.0))
    }

    /// The end of the range of all keys.
    fn end(&self) -> String {
        let mut end = self.0.clone().into_bytes();
        // The last octet is a slash, and there is one behind it.
        end.pop();
        end.push(b'/' + 1);
        STANDARD.encode(end)
    }

    fn key(&self, name: &str) -> anyhow::Result<Option<Key>> {
        Ok(decoded(name)?.strip_prefix(&self.0).and_then(Key::of))
    }
}

impl Connection {
    /// Connects to a server.
    ///
    /// # Errors
    /// When it cannot be reached.
    pub async fn to(server: &Server) -> anyhow::Result<Connection> {
        let connect = async {
            let stream = TcpStream::connect(&server.0).await?;
            stream.set_nodelay(true)?;
            let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
            // It ends with the connection, and what goes wrong the requests are told.
            tokio::spawn(connection);
            anyhow::Ok(Connection { sender, host: server.0.clone() })
        };
        let connected = tokio::time::timeout(CONNECT, connect).await;
        connected.context("no answer").flatten().with_context(|| format!("cannot reach etcd at {}", server.0))
    }

    async fn send(&mut self, path: &str, body: &Value) -> anyhow::Result<Response<Incoming>> {
        self.sender.ready().await?;
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(header::HOST, &self.host)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(serde_json::to_vec(body)?)))?;
        let response = self.sender.send_request(request).await?;
        let status = response.status();
        if !status.is_success() {
            let body = whole(response).await.unwrap_or_default();
            bail!("etcd answers {status}: {}", String::from_utf8_lossy(&body).trim());
        }
        Ok(response)
    }

    /// Makes a transaction.
    ///
    /// # Errors
    /// When nobody knows whether it is made.
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

    /// Writes a key without asking.
    ///
    /// # Errors
    /// When it is not known to be written.
    pub async fn put(&mut self, prefix: &Prefix, key: &Key, value: &str) -> anyhow::Result<()> {
        let body = json!({"key": prefix.name(key), "value": encoded(value)});
        whole(self.send("/v3/kv/put", &body).await?).await?;
        Ok(())
    }

    /// Reads all keys, as they are at one revision.
    ///
    /// # Errors
    /// When it cannot.
    pub async fn read(&mut self, prefix: &Prefix) -> anyhow::Result<Snapshot> {
        let mut snapshot = Snapshot::default();
        let mut from = encoded(&prefix.0);
        loop {
            let mut body = json!({"key": from, "range_end": prefix.end(), "limit": PAGE});
            if snapshot.revision > 0 {
                body["revision"] = json!(snapshot.revision.to_string());
            }
            let page = async {
                anyhow::Ok(serde_json::from_slice::<Range>(
                    &whole(self.send("/v3/kv/range", &body).await?).await?,
                )?)
            };
            let page = tokio::time::timeout(READ, page).await.context("no answer")??;
            if snapshot.revision == 0 {
                snapshot.revision = page.header.revision.0;
                ensure!(snapshot.revision > 0, "etcd's answer has no revision");
            }
            for pair in &page.kvs {
                if let Some(key) = prefix.key(&pair.key)? {
                    if key == Key::Owner {
                        snapshot.owner = pair.mod_revision.0;
                    }
                    snapshot.values.push((key, decoded(&pair.value)?));
                }
            }
            match page.kvs.last() {
                Some(last) if page.more => {
                    let mut next = STANDARD.decode(&last.key)?;
                    next.push(0);
                    from = STANDARD.encode(next);
                }
                _ => return Ok(snapshot),
            }
        }
    }

    /// Begins to watch all keys, from the revision after this one.
    ///
    /// # Errors
    /// When it cannot.
    pub async fn watch(mut self, prefix: &Prefix, known: Revision) -> anyhow::Result<Watch> {
        let body = json!({"create_request": {
            "key": encoded(&prefix.0),
            "range_end": prefix.end(),
            "start_revision": (known + 1).to_string(),
        }});
        let response =
            tokio::time::timeout(READ, self.send("/v3/watch", &body)).await.context("no answer")??;
        Ok(Watch {
            _connection: self,
            prefix: prefix.clone(),
            body: response.into_body(),
            buffer: Vec::new(),
        })
    }
}

/// What is changed, as it comes.
#[derive(Debug)]
pub struct Watch {
    _connection: Connection,
    prefix: Prefix,
    body: Incoming,
    buffer: Vec<u8>,
}

impl Watch {
    /// The next changes, by revision. Safe to cancel.
    ///
    /// # Errors
    /// When the watch has ended: it has to be begun anew, from what is read then.
    pub async fn next(&mut self) -> anyhow::Result<BTreeMap<Revision, Vec<Event>>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|octet| *octet == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let changes = self.changes(&line)?;
                if !changes.is_empty() {
                    return Ok(changes);
                }
                continue;
            }
            ensure!(self.buffer.len() < LONGEST, "etcd's watch has a line without an end");
            let frame = self.body.frame().await.context("etcd has ended the watch")??;
            if let Ok(data) = frame.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }

    fn changes(&self, line: &[u8]) -> anyhow::Result<BTreeMap<Revision, Vec<Event>>> {
        let watched: Watched = serde_json::from_slice(line)?;
        let Some(found) = watched.result else {
            bail!("etcd's watch: {}", String::from_utf8_lossy(line).trim())
        };
        ensure!(
            !found.canceled,
            "etcd has ended the watch; what it has begins at {}",
            found.compact_revision.0
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

/// The whole body of an answer, if it is not too long.
async fn whole(response: Response<Incoming>) -> anyhow::Result<Bytes> {
    let body = http_body_util::Limited::new(response.into_body(), LONGEST);
    let collected = body.collect().await.map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(collected.to_bytes())
}
