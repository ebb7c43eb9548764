//! DNS forwarder with a cache, for hosts of the mobile network (RFC 1035, RFC 5452, RFC 6891).
//!
//! The forwarder asks the servers of the config. The caller sends each query from a socket of its own with a
//! random port. The socket is connected to the server, so that only this server's answers arrive (RFC 5452).
//! The forwarder checks ID and question. If a server does not answer in time, perhaps during a handover, the
//! forwarder asks the next one, and asks all servers again. Hosts with a lease have names ([`names`]).
//!
//! Every resource has a limit: waiting queries, queries of one host, the cache, messages per second. A host
//! can have many addresses, so the queries of all addresses of a host count together if the caller knows its
//! link-layer address. All other addresses of a network share a part of the queries.
//!
//! The forwarder passes records on as they are, so a host may validate DNSSEC itself. Left out: recursion,
//! validation, zone transfers, updates, names of hosts without a lease, and encrypted DNS.

mod cache;
mod drop_reason;
pub mod message;
pub mod names;

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use carnet_base::{RateLimiter, Rng, Time};

use crate::LinkAddress;
use cache::{Cache, CacheKey};
pub use drop_reason::DnsDrop;
use message::{Answer, Code, Query};
use names::{HostNames, Network};

/// Times to wait after each attempt before the next one. After the last time the query fails.
const ATTEMPTS: [Duration; 6] = [
    Duration::from_millis(800),
    Duration::from_millis(800),
    Duration::from_millis(1600),
    Duration::from_millis(1600),
    Duration::from_millis(2400),
    Duration::from_millis(2400),
];
/// Maximum number of queries that wait for servers, and maximum number of clients that wait for one query.
const MAX_QUERIES: usize = 96;
const MAX_CLIENTS: usize = 64;
/// Maximum number of answers for which one host waits. The next constant is that for all unknown addresses of
/// a network. With both, one host cannot use up the queries.
const MAX_OF_HOST: usize = 24;
const MAX_OF_UNKNOWN: usize = 48;
/// Number of queries that the forwarder may process at once. The next constant is the time until it may
/// process one more.
const BURST: u32 = 2000;
const INTERVAL: Duration = Duration::from_millis(1);

/// Number by which the forwarder and its caller identify a query to servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueryId(pub u64);

/// Transport of a DNS message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Datagrams, with a limited length.
    Udp,
    /// A connection, without a limit.
    Tcp,
}

/// Client of a query. The caller chooses `number`, and finds the client by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// Number by which the caller finds the client.
    pub number: u64,
    /// Address of the client.
    pub address: IpAddr,
    /// Link-layer address at which the host with this address is; `None` if the caller does not know it.
    pub link_address: Option<LinkAddress>,
    /// Network of the client.
    pub network: Network,
    /// Transport of the query, and of its answer.
    pub transport: Transport,
}

/// An output of the forwarder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// The caller sends this query to a server through a new socket. The sockets of earlier attempts of the
    /// query may stay open.
    Ask {
        /// Number of the query.
        query: QueryId,
        /// Address of the server.
        server: IpAddr,
        /// Transport of query and answer.
        transport: Transport,
        /// The query.
        octets: Vec<u8>,
    },
    /// The query needs no further answer: the caller closes its sockets.
    Done(QueryId),
    /// The caller sends this answer to a client.
    Answer(Client, Vec<u8>),
}

/// Counters of the forwarder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DnsCounters {
    /// Queries of hosts.
    pub queries: u64,
    /// Answers from the cache.
    pub cached: u64,
    /// Answers about hosts on board.
    pub local: u64,
    /// Queries to servers, with repetitions.
    pub asked: u64,
    /// Answers of servers.
    pub answered: u64,
    /// Queries that no server answered.
    pub failed: u64,
    drops: BTreeMap<DnsDrop, u64>,
}

impl DnsCounters {
    fn drop(&mut self, reason: DnsDrop) {
        *self.drops.entry(reason).or_default() += 1;
    }

    /// Returns the number of messages that were not passed on for this reason.
    pub fn dropped(&self, reason: DnsDrop) -> u64 {
        self.drops.get(&reason).copied().unwrap_or_default()
    }

    /// Returns the counters by name.
    pub fn named(&self) -> impl Iterator<Item = (String, u64)> {
        use carnet_base::DropReason;
        let sums = [
            ("queries", self.queries),
            ("cached", self.cached),
            ("local", self.local),
            ("asked", self.asked),
            ("answered", self.answered),
            ("failed", self.failed),
        ];
        let drops =
            DnsDrop::ALL.iter().map(|reason| (format!("dropped.{}", reason.name()), self.dropped(*reason)));
        sums.map(|(name, count)| (name.to_owned(), count)).into_iter().chain(drops)
    }
}

/// A query that waits for a server.
#[derive(Debug)]
struct Pending {
    key: CacheKey,
    /// Query of the first client. The forwarder makes its queries to servers from this query.
    query: Query,
    clients: Vec<(Client, Query)>,
    /// IDs of the attempts whose answers the forwarder still accepts, each with its server.
    ids: Vec<(u16, IpAddr)>,
    /// Number of attempts.
    attempts: usize,
    /// Transport of the next attempt.
    transport: Transport,
    due: Time,
}

/// The forwarder.
#[derive(Debug)]
pub struct Forwarder {
    servers: Vec<IpAddr>,
    /// Index of the server that answered last; the forwarder asks this server first.
    preferred: usize,
    names: HostNames,
    cache: Cache,
    pending: BTreeMap<QueryId, Pending>,
    by_key: BTreeMap<CacheKey, QueryId>,
    next: u64,
    limiter: RateLimiter,
    rng: Rng,
    counters: DnsCounters,
    outputs: VecDeque<Output>,
}

impl Forwarder {
    /// Creates a forwarder that asks these servers, the preferred first.
    pub fn new(servers: Vec<IpAddr>, rng: Rng) -> Forwarder {
        Forwarder {
            servers,
            preferred: 0,
            names: HostNames::default(),
            cache: Cache::default(),
            pending: BTreeMap::new(),
            by_key: BTreeMap::new(),
            next: 0,
            limiter: RateLimiter::new(BURST, INTERVAL),
            rng,
            counters: DnsCounters::default(),
            outputs: VecDeque::new(),
        }
    }

    /// Replaces the servers. Answers in the cache stay.
    pub fn set_servers(&mut self, servers: Vec<IpAddr>) {
        self.preferred = 0;
        self.servers = servers;
    }

    /// Sets the hosts on board.
    pub fn set_names(&mut self, names: HostNames) {
        self.names = names;
    }

    /// Returns whether the answer to a query depends on the IPv6 addresses of hosts on board.
    pub fn needs_ipv6(&self, client: Network, octets: &[u8]) -> bool {
        matches!(Query::parse(octets), Some(Ok(query)) if self.names.needs_ipv6(client, &query.question))
    }

    /// Returns the servers.
    pub fn servers(&self) -> &[IpAddr] {
        &self.servers
    }

    /// Returns the counters.
    pub fn counters(&self) -> &DnsCounters {
        &self.counters
    }

    /// Returns the number of answers in the cache, and their memory in octets.
    pub fn cache_size(&self) -> (usize, usize) {
        (self.cache.len(), self.cache.size())
    }

    /// Returns the number of queries that wait for servers.
    pub fn waiting(&self) -> usize {
        self.pending.len()
    }

    /// Returns the next output.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns when [`Self::handle_timeout`] is due next.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.pending.values().map(|pending| pending.due).min()
    }

    /// Handles a message of a client.
    pub fn handle_query(&mut self, now: Time, client: Client, octets: &[u8]) {
        self.counters.queries += 1;
        if !self.limiter.allow(now) {
            return self.counters.drop(DnsDrop::RateLimit);
        }
        let query = match Query::parse(octets) {
            None => return self.counters.drop(DnsDrop::Malformed),
            Some(Err(code)) => {
                self.counters.drop(DnsDrop::Malformed);
                return self.answer_invalid(client, octets, code);
            }
            Some(Ok(query)) => query,
        };
        if let Some(answer) = self.names.answer(client.network, &query) {
            self.counters.local += 1;
            return self.answer(client, &query, Some(answer));
        }
        self.cache.expire(now);
        if let Some(answer) = self.cache.answer(now, &query) {
            self.counters.cached += 1;
            return self.answer(client, &query, Some(answer));
        }
        if let Err(reason) = self.forward(now, client, &query) {
            self.counters.drop(reason);
            self.answer(client, &query, Some(query.empty(Code::Refused)));
        }
    }

    /// Sends a query to a server. If a query with the same question already waits, adds the client to it.
    fn forward(&mut self, now: Time, client: Client, query: &Query) -> Result<(), DnsDrop> {
        let clients = || self.pending.values().flat_map(|pending| &pending.clients).map(|(client, _)| client);
        let of_address = clients().filter(|other| other.address == client.address).count();
        let of_host = clients().filter(|other| {
            (other.network.number, other.link_address) == (client.network.number, client.link_address)
        });
        let most = if client.link_address.is_some() { MAX_OF_HOST } else { MAX_OF_UNKNOWN };
        if of_address >= MAX_OF_HOST || of_host.count() >= most {
            return Err(DnsDrop::ClientLimit);
        }
        let key = CacheKey::of(query);
        if let Some(pending) = self.by_key.get(&key).and_then(|id| self.pending.get_mut(id)) {
            // A host that repeats its query must get only one answer.
            let is_known = |(other, waiting): &(Client, Query)| {
                (other.address, waiting.id, other.transport) == (client.address, query.id, client.transport)
            };
            if let Some((known, _)) = pending.clients.iter_mut().find(|it| is_known(it)) {
                *known = client;
            } else if pending.clients.len() < MAX_CLIENTS {
                pending.clients.push((client, query.clone()));
            } else {
                return Err(DnsDrop::Busy);
            }
            return Ok(());
        }
        if self.pending.len() >= MAX_QUERIES || self.servers.is_empty() {
            return Err(DnsDrop::Busy);
        }
        let id = QueryId(self.next);
        self.next += 1;
        self.by_key.insert(key.clone(), id);
        let (clients, ids, transport) = (vec![(client, query.clone())], Vec::new(), Transport::Udp);
        let pending = Pending { key, query: query.clone(), clients, ids, attempts: 0, transport, due: now };
        self.pending.insert(id, pending);
        self.ask(now, id);
        Ok(())
    }

    /// Sends a query to the next server, or lets it fail.
    fn ask(&mut self, now: Time, id: QueryId) {
        let Some(pending) = self.pending.get_mut(&id) else { return };
        let Some(wait) = ATTEMPTS.get(pending.attempts) else { return self.fail(id) };
        let Some(place) = (self.preferred + pending.attempts).checked_rem(self.servers.len()) else {
            return self.fail(id);
        };
        let (server, number) = (self.servers[place], self.rng.u16());
        pending.attempts += 1;
        pending.ids.push((number, server));
        pending.due = now + *wait;
        let (transport, octets) = (pending.transport, pending.query.to_server(number));
        self.counters.asked += 1;
        self.outputs.push_back(Output::Ask { query: id, server, transport, octets });
    }

    /// Handles an answer of a server.
    pub fn handle_answer(&mut self, now: Time, id: QueryId, server: IpAddr, octets: &[u8]) {
        let Some(pending) = self.pending.get_mut(&id) else {
            return self.counters.drop(DnsDrop::LateAnswer);
        };
        let ids = pending.ids.iter().filter(|(_, asked)| *asked == server);
        let mut answers = ids.filter_map(|(number, _)| Answer::parse(octets, *number));
        let question = pending.key.question();
        let Some(answer) = answers.find(|answer| answer.question == *question) else {
            return self.counters.drop(DnsDrop::BadAnswer);
        };
        if answer.is_truncated && pending.transport == Transport::Tcp {
            // An earlier attempt over UDP got this answer, or the server is broken.
            return self.counters.drop(DnsDrop::BadAnswer);
        }
        if answer.is_truncated {
            pending.transport = Transport::Tcp;
            // The truncated answer does not count as an attempt: ask the same server again at once, over TCP.
            pending.attempts = pending.attempts.saturating_sub(1);
            return self.ask(now, id);
        }
        self.counters.answered += 1;
        // If a server fails, another server may know the answer.
        if answer.is_failure && pending.attempts < self.servers.len() {
            return self.ask(now, id);
        }
        if let Some(place) = self.servers.iter().position(|known| *known == server) {
            self.preferred = place;
        }
        self.finish(now, id, &answer);
    }

    /// Answers all clients of a query.
    fn finish(&mut self, now: Time, id: QueryId, answer: &Answer) {
        let Some(pending) = self.remove(id) else { return };
        self.cache.store(now, pending.key, answer, !answer.has_answers());
        for (client, query) in pending.clients {
            let octets = query.answer(answer, 0);
            self.answer(client, &query, octets);
        }
    }

    /// Handles an error of a server's socket: the server is not reachable, or refuses.
    pub fn handle_failure(&mut self, now: Time, id: QueryId, server: IpAddr) {
        let Some(pending) = self.pending.get(&id) else { return };
        let is_last = pending.ids.last().is_some_and(|(_, asked)| *asked == server);
        // If there is only one server, or every server has failed, wait before the next attempt: the path may
        // come back.
        if is_last && pending.attempts < self.servers.len() {
            self.ask(now, id);
        }
    }

    /// Repeats queries without an answer.
    pub fn handle_timeout(&mut self, now: Time) {
        let due: Vec<QueryId> =
            self.pending.iter().filter(|(_, pending)| pending.due <= now).map(|(id, _)| *id).collect();
        for id in due {
            self.ask(now, id);
        }
    }

    /// Sends the clients of a query the answer that no server has answered (SERVFAIL).
    fn fail(&mut self, id: QueryId) {
        let Some(pending) = self.remove(id) else { return };
        self.counters.failed += 1;
        for (client, query) in pending.clients {
            let octets = query.empty(Code::Failure);
            self.answer(client, &query, Some(octets));
        }
    }

    fn remove(&mut self, id: QueryId) -> Option<Pending> {
        let pending = self.pending.remove(&id)?;
        self.by_key.remove(&pending.key);
        self.outputs.push_back(Output::Done(id));
        Some(pending)
    }

    /// Sends an answer, or asks the client to use TCP if it is too long for a datagram.
    fn answer(&mut self, client: Client, query: &Query, octets: Option<Vec<u8>>) {
        let octets = octets.unwrap_or_else(|| query.empty(Code::Failure));
        let fits = client.transport == Transport::Tcp || octets.len() <= query.max_size();
        let octets = if fits { octets } else { query.truncated() };
        self.outputs.push_back(Output::Answer(client, octets));
    }

    /// Answers a query that the parser rejects, with the ID of the query and an error code alone.
    fn answer_invalid(&mut self, client: Client, octets: &[u8], code: Code) {
        if let Some(answer) = message::refusal(octets, code) {
            self.outputs.push_back(Output::Answer(client, answer));
        }
    }
}
