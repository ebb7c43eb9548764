//! State of a seat and its members, as text and as JSON.
//!
//! etcd stores no times, so an entry of the leader may be a year old. So this command reads the entries, and
//! then waits for writes: a leader writes every keep-alive interval, and a standby every second. The command
//! ends when each member has written. Otherwise it ends after the time without a write by which a member
//! counts as failed; for a leader this time is the lease.
//!
//! Left out: the time at which the present leader began. etcd does not store it, but the log has it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use carnet_fleet::store::TokenState;
use carnet_fleet::{LeaderToken, LeadershipConfig, MEMBER_TIMEOUT, MemberPresence, StoreEvent, StoreKey};
use serde::Serialize;
use tokio::time::{Instant, timeout, timeout_at};

use crate::agent;
use crate::config::Config;
use crate::etcd::{EtcdConnection, KeyPrefix, READ_TIMEOUT, SeatOverview, SeatWatch, StoreServer};

/// State of a seat (a home agent of the fleet), as JSON.
#[derive(Debug, Serialize)]
struct SeatStatus {
    seat: String,
    /// Name of the leader.
    owner: Option<String>,
    state: SeatState,
    /// Last member that wrote as the leader, or that gave up the leadership; `None` if no such member is
    /// known.
    last: Option<LastLeader>,
    members: Vec<MemberStatus>,
    /// Number of nodes for which the home agent has records; `None` if no server of the store answers.
    nodes: Option<u64>,
    store: Vec<ServerState>,
    here: LocalMember,
}

/// State of the seat in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum SeatState {
    /// The leader's home agent is active and serves its mobile routers.
    Working,
    /// The leader's home agent is starting.
    Starting,
    /// The last leader gave the seat up, and no member has taken it yet.
    Free,
    /// The last leader no longer writes.
    Silent,
    /// The seat has never had a leader.
    New,
    /// Another version of this program wrote the leader's entry.
    Unknown,
    /// No server of the store answers.
    Unreachable,
}

#[derive(Debug, Serialize)]
struct LastLeader {
    member: String,
    /// Number of the leader's process. It is text, because many programs read JSON numbers as floating-point
    /// numbers.
    process: String,
    /// Number of the last transaction that the leader's process has written.
    transaction: u64,
    /// Member to which the leader gives the seat, if the leader chose a member.
    gives_to: Option<String>,
}

#[derive(Debug, Serialize)]
struct MemberStatus {
    name: String,
    state: MemberState,
    /// Whether the member does not reach its neighbouring routers.
    cut_off: bool,
    /// Whether the member has another private key than the fleet.
    has_other_key: bool,
    /// Whether this config lists the member.
    listed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum MemberState {
    Owner,
    Waits,
    Silent,
}

/// A server of the store, with the result of the request to it.
#[derive(Debug, Serialize)]
struct ServerState {
    server: String,
    /// Reason why the server does not answer.
    error: Option<String>,
}

/// The member that this config names, on this machine.
#[derive(Debug, Serialize)]
struct LocalMember {
    member: String,
    /// Whether the member's carnet-fleet runs; `None` if this user cannot find out.
    runs: Option<bool>,
}

/// State that the store has sent so far.
#[derive(Debug)]
struct ReceivedState {
    seat_config: LeadershipConfig,
    /// Leader's entry; `None` if the store has none. The inner value is `None` if another version of this
    /// program wrote the entry.
    leader_entry: Option<Option<LeaderToken>>,
    /// Whether the leader has written its entry since this command started.
    leader_wrote_lately: bool,
    present_members: BTreeMap<String, MemberPresence>,
}

impl ReceivedState {
    fn new(seat: LeadershipConfig, overview: &SeatOverview) -> ReceivedState {
        let owner = overview.owner_value.as_deref().map(LeaderToken::from_text);
        ReceivedState {
            seat_config: seat,
            leader_entry: owner,
            leader_wrote_lately: false,
            present_members: BTreeMap::new(),
        }
    }

    fn handle_event(&mut self, event: StoreEvent) {
        match (event.key, event.value) {
            (StoreKey::Owner, value) => {
                (self.leader_entry, self.leader_wrote_lately) =
                    (value.as_deref().map(LeaderToken::from_text), true);
            }
            (StoreKey::Member(name), Some(value)) => {
                self.present_members.insert(name, MemberPresence::from_text(&value));
            }
            (StoreKey::Member(_), None) | (StoreKey::Record(_), _) => {}
        }
    }

    fn leader_token(&self) -> Option<&LeaderToken> {
        self.leader_entry.as_ref()?.as_ref()
    }

    fn state(&self) -> SeatState {
        match (&self.leader_entry, self.leader_wrote_lately) {
            (None, _) => SeatState::New,
            (Some(None), _) => SeatState::Unknown,
            (Some(Some(LeaderToken { state: TokenState::Free(_), .. })), _) => SeatState::Free,
            (Some(Some(_)), false) => SeatState::Silent,
            (Some(Some(LeaderToken { state: TokenState::Starting, .. })), true) => SeatState::Starting,
            (Some(Some(LeaderToken { state: TokenState::Working, .. })), true) => SeatState::Working,
        }
    }

    fn leader_name(&self) -> Option<&str> {
        let has_it = matches!(self.state(), SeatState::Working | SeatState::Starting);
        self.leader_token().filter(|_| has_it).map(|token| token.member.as_str())
    }

    /// Returns whether all members and the leader have written since this command started.
    fn has_received_all(&self) -> bool {
        let owner = self.leader_name();
        let heard = |name: &String| owner == Some(name) || self.present_members.contains_key(name);
        owner.is_some() && self.seat_config.member_names.iter().all(heard)
    }

    /// Returns for how long the command waits for writes.
    fn time_to_wait(&self) -> Duration {
        if self.state() == SeatState::Silent {
            MEMBER_TIMEOUT.max(self.seat_config.lease_duration)
        } else {
            MEMBER_TIMEOUT
        }
    }

    /// Returns the members of the config, and further members that have written.
    fn member_list(&self) -> Vec<MemberStatus> {
        let owner = self.leader_name();
        let listed = |name: &str| self.seat_config.member_names.iter().any(|one| one == name);
        let mut others: Vec<&str> = self.present_members.keys().map(String::as_str).chain(owner).collect();
        others.retain(|name| !listed(name));
        others.sort_unstable();
        others.dedup();
        let all = self.seat_config.member_names.iter().map(String::as_str).chain(others);
        all.map(|name| {
            let present = self.present_members.get(name);
            let state = match present {
                _ if owner == Some(name) => MemberState::Owner,
                Some(_) => MemberState::Waits,
                None => MemberState::Silent,
            };
            let present = present.copied().unwrap_or_default();
            let MemberPresence { cut_off, has_other_key, .. } = present;
            MemberStatus { name: name.to_owned(), state, cut_off, has_other_key, listed: listed(name) }
        })
        .collect()
    }
}

/// Prints the state of the seat; returns whether the seat has a leader.
///
/// # Errors
/// Returns an error if the state cannot be read or printed.
pub async fn show_status(config: &Config, json: bool) -> anyhow::Result<bool> {
    let status = request_status(config).await?;
    let text = match json {
        true => serde_json::to_string_pretty(&status)? + "\n",
        false => status.to_text(),
    };
    std::io::stdout().write_all(text.as_bytes()).context("cannot print")?;
    Ok(status.owner.is_some())
}

async fn request_status(config: &Config) -> anyhow::Result<SeatStatus> {
    let prefix = KeyPrefix::of_seat(&config.fleet, &config.seat);
    let servers = config.store_servers()?;
    let asked: Vec<_> = servers
        .iter()
        .map(|server| {
            let (server, prefix) = (server.clone(), prefix.clone());
            tokio::spawn(async move { seat_overview(&server, &prefix).await })
        })
        .collect();
    let (mut store, mut answers) = (Vec::new(), Vec::new());
    for (server, answer) in servers.iter().zip(asked) {
        let error = match answer.await? {
            Ok(overview) => {
                answers.push((server, overview));
                None
            }
            Err(error) => Some(format!("{error:#}")),
        };
        store.push(ServerState { server: server.address.clone(), error });
    }
    for (server, overview) in answers {
        match receive_seat_state(server, &prefix, config.seat_config(), &overview).await {
            Ok(heard) => return Ok(SeatStatus::from_received(config, &heard, overview.node_count, store)),
            Err(error) => {
                let failed = store.iter_mut().find(|one| one.server == server.address);
                failed.into_iter().for_each(|one| one.error = Some(format!("{error:#}")));
            }
        }
    }
    Ok(SeatStatus {
        seat: config.seat.clone(),
        owner: None,
        state: SeatState::Unreachable,
        last: None,
        members: Vec::new(),
        nodes: None,
        store,
        here: local_member(config),
    })
}

async fn seat_overview(server: &StoreServer, prefix: &KeyPrefix) -> anyhow::Result<SeatOverview> {
    let answer = async { EtcdConnection::connect_to(server).await?.seat_overview(prefix).await };
    within_time_limit(answer).await
}

async fn within_time_limit<T>(answer: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    timeout(READ_TIMEOUT, answer)
        .await
        .unwrap_or_else(|_| bail!("etcd did not answer within {} s", READ_TIMEOUT.as_secs()))
}

async fn receive_seat_state(
    server: &StoreServer,
    prefix: &KeyPrefix,
    seat: LeadershipConfig,
    overview: &SeatOverview,
) -> anyhow::Result<ReceivedState> {
    let watch =
        async { EtcdConnection::connect_to(server).await?.watch_seat(prefix, overview.store_revision).await };
    let mut watch: SeatWatch = within_time_limit(watch).await?;
    let (began, mut listener) = (Instant::now(), ReceivedState::new(seat, overview));
    while !listener.has_received_all() {
        let Ok(changes) = timeout_at(began + listener.time_to_wait(), watch.next()).await else { break };
        for event in changes?.into_values().flatten() {
            listener.handle_event(event);
        }
    }
    Ok(listener)
}

impl SeatStatus {
    fn from_received(
        config: &Config,
        heard: &ReceivedState,
        nodes: u64,
        store: Vec<ServerState>,
    ) -> SeatStatus {
        let last = heard.leader_token().map(|token| LastLeader {
            member: token.member.clone(),
            process: token.process.to_string(),
            transaction: token.count,
            gives_to: match &token.state {
                TokenState::Free(to) => to.clone(),
                TokenState::Starting | TokenState::Working => None,
            },
        });
        SeatStatus {
            seat: config.seat.clone(),
            owner: heard.leader_name().map(str::to_owned),
            state: heard.state(),
            last,
            members: heard.member_list(),
            nodes: Some(nodes),
            store,
            here: local_member(config),
        }
    }

    fn to_text(&self) -> String {
        let mut out = String::new();
        let mut line = |name: &str, value: &str| {
            let _ = writeln!(out, "{name:<17} {value}");
        };
        let last = self.last.as_ref();
        let last_member = last.map_or("an unknown member", |last| &last.member);
        let owner = match self.state {
            SeatState::Working => format!("{last_member}, whose home agent works"),
            SeatState::Starting => format!("{last_member}, whose home agent is starting"),
            SeatState::Free => match last.and_then(|last| last.gives_to.as_ref()) {
                Some(to) => format!("no leader: {last_member} gives the leadership to {to}"),
                None => format!("no leader: {last_member} has given the leadership up"),
            },
            SeatState::Silent => format!(
                "no leader: {last_member} was the last one, and no longer writes to \
                                      the store"
            ),
            SeatState::New => "nobody yet".to_owned(),
            SeatState::Unknown => {
                "unknown: another version of carnet-fleet wrote the leader's entry".to_owned()
            }
            SeatState::Unreachable => "unknown: no server of the store answers".to_owned(),
        };
        line("seat", &self.seat);
        line("owner", &owner);
        for one in &self.members {
            let state = match one.state {
                MemberState::Owner => "has the seat",
                MemberState::Waits => "waits",
                MemberState::Silent => "says nothing",
            };
            let cut_off = match (one.has_other_key, one.cut_off) {
                (true, _) => ", has another private key",
                (false, true) => ", cut off from routers",
                (false, false) => "",
            };
            let listed = if one.listed { "" } else { ", not in this config" };
            line(&format!("  {}", one.name), &format!("{state}{cut_off}{listed}"));
        }
        if let Some(nodes) = self.nodes {
            line("nodes", &nodes.to_string());
        }
        for one in &self.store {
            line("store", &format!("{}: {}", one.server, one.error.as_deref().unwrap_or("answers")));
        }
        let runs = match self.here.runs {
            Some(true) => "carnet-fleet runs",
            Some(false) => "no carnet-fleet runs",
            None => "this user may not see whether carnet-fleet runs",
        };
        line("here", &format!("{}: {runs}", self.here.member));
        out
    }
}

fn local_member(config: &Config) -> LocalMember {
    LocalMember { member: config.member.clone(), runs: program_runs(&config.directory, &config.seat) }
}

/// Returns whether a carnet-fleet for this home agent runs on this machine, found by a connection to its
/// socket. The process does not notice the connection. Returns `None` if the attempt fails for another
/// reason, such as missing rights.
fn program_runs(directory: &Path, seat: &str) -> Option<bool> {
    let [_, ready] = agent::socket_paths(directory, seat);
    match UnixDatagram::unbound().and_then(|socket| socket.connect(ready)) {
        Ok(()) => Some(true),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
            Some(false)
        }
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn received_state(owner: Option<&str>) -> ReceivedState {
        let seat = LeadershipConfig::new("anna", vec!["anna".into(), "bruno".into()]);
        ReceivedState::new(
            seat,
            &SeatOverview { store_revision: 7, owner_value: owner.map(str::to_owned), node_count: 0 },
        )
    }

    fn token_value(member: &str, state: TokenState) -> String {
        LeaderToken { member: member.into(), process: u64::MAX, count: 3, state }.to_text()
    }

    /// Asserts the state and the leader that the command would report.
    fn assert_state_and_leader(listener: &ReceivedState, owner: Option<&str>, expected: &str) {
        let config: Config = toml::from_str(
            "member = 'anna'\nstore = []\nseat = 'north'\nconfig = 'north.toml'\nmembers = ['anna', \
             'bruno']\ndirectory = '/nonexistent'",
        )
        .expect("a config");
        let status = SeatStatus::from_received(&config, listener, 0, Vec::new());
        assert_eq!(status.owner.as_deref(), owner);
        assert!(status.to_text().contains(expected), "{}", status.to_text());
    }

    /// An entry that the leader wrote before the command started does not prove that the leader is alive.
    #[test]
    fn status_names_a_leader_only_after_its_keep_alive() {
        let working = token_value("anna", TokenState::Working);
        let mut listener = received_state(Some(&working));
        assert_state_and_leader(
            &listener,
            None,
            "no leader: anna was the last one, and no longer writes to the store\n",
        );
        listener.handle_event(StoreEvent { key: StoreKey::Owner, value: Some(working) });
        assert_state_and_leader(&listener, Some("anna"), "anna, whose home agent works\n");
        assert!(!listener.has_received_all());
        let waits = MemberPresence { process: 1, cut_off: true, has_other_key: false }.to_text();
        listener.handle_event(StoreEvent { key: StoreKey::Member("bruno".into()), value: Some(waits) });
        assert!(listener.has_received_all());
        assert_state_and_leader(
            &listener,
            Some("anna"),
            "  anna            has the seat\n  bruno           waits, cut off from routers\n",
        );
    }

    /// The time after which the leader counts as failed is at least the configured lease.
    #[test]
    fn status_shows_leader_with_valid_lease() {
        let mut listener = received_state(Some(&token_value("anna", TokenState::Working)));
        assert_eq!(listener.time_to_wait(), MEMBER_TIMEOUT);
        listener.seat_config.lease_duration = MEMBER_TIMEOUT * 2;
        assert_eq!(listener.time_to_wait(), MEMBER_TIMEOUT * 2);
        listener.handle_event(StoreEvent {
            key: StoreKey::Owner,
            value: Some(token_value("bruno", TokenState::Starting)),
        });
        assert_eq!(listener.time_to_wait(), MEMBER_TIMEOUT);
        assert_state_and_leader(&listener, Some("bruno"), "bruno, whose home agent is starting\n");
    }

    #[test]
    fn status_names_no_leader_after_handing_over() {
        let mut listener = received_state(Some(&token_value("anna", TokenState::Free(Some("bruno".into())))));
        assert_state_and_leader(&listener, None, "no leader: anna gives the leadership to bruno\n");
        listener.handle_event(StoreEvent {
            key: StoreKey::Owner,
            value: Some(token_value("anna", TokenState::Free(None))),
        });
        assert_state_and_leader(&listener, None, "no leader: anna has given the leadership up\n");
        assert!(!listener.has_received_all());
        listener.handle_event(StoreEvent { key: StoreKey::Owner, value: None });
        assert_state_and_leader(&listener, None, "nobody yet\n");
        listener.handle_event(StoreEvent { key: StoreKey::Owner, value: Some("of another version".into()) });
        assert_state_and_leader(
            &listener,
            None,
            "unknown: another version of carnet-fleet wrote the leader's entry\n",
        );
    }

    /// The configs of two members may list different members.
    #[test]
    fn status_lists_unconfigured_members_that_write() {
        let mut listener = received_state(None);
        listener.handle_event(StoreEvent {
            key: StoreKey::Owner,
            value: Some(token_value("dora", TokenState::Working)),
        });
        let waits = MemberPresence::default().to_text();
        listener.handle_event(StoreEvent { key: StoreKey::Member("carla".into()), value: Some(waits) });
        assert_state_and_leader(
            &listener,
            Some("dora"),
            "  carla           waits, not in this config\n  dora            has the seat, not",
        );
        let members: Vec<Value> =
            listener.member_list().iter().map(|one| serde_json::to_value(one).expect("JSON")).collect();
        let silent = json!({"name": "anna", "state": "silent", "cut_off": false, "has_other_key": false,
"listed": true});
        assert_eq!((members.len(), &members[0]), (4, &silent));
    }
}
