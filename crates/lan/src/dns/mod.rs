//! DNS forwarder with a cache, for hosts of the mobile network (RFC 1035, RFC 5452, RFC 6891).
//!
//! The forwarder asks the servers of the config. The caller sends each query from a socket of its own with a
//! random port. The socket is connected to the server, so that only this server's answers arrive (RFC 5452).
//! The forwarder checks ID and question. If a server does not answer in time, perhaps during a handover, the
//! forwarder asks the next one, and asks all servers again. Hosts with a lease have names ([`host_names`]).
//!
//! Every resource has a limit: waiting queries, queries of one host, the cache, messages per second. A host
//! can have many addresses, so the queries of all addresses of a host count together if the caller knows its
//! link-layer address. All other addresses of a network share a part of the queries.
//!
//! The forwarder passes records on as they are, so a host may validate DNSSEC itself. Left out: recursion,
//! validation, zone transfers, updates, names of hosts without a lease, and encrypted DNS.

mod cache;
mod drop_reason;
pub mod host_names;
pub mod message;

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use carnet_base::{RateLimiter, Rng, Time};

use crate::LinkAddress;
use cache::{DnsAnswerCache, DnsCacheKey};
pub use drop_reason::DnsDropReason;
use host_names::{HostNames, OnBoardNetwork};
use message::{DnsQuery, DnsResponseCode, DnsServerAnswer};

/// Time to wait for an answer after each attempt. After the last of these times, the query fails.
const RETRY_INTERVALS: [Duration; 6] = [
    Duration::from_millis(800),
    Duration::from_millis(800),
    Duration::from_millis(1600),
    Duration::from_millis(1600),
    Duration::from_millis(2400),
    Duration::from_millis(2400),
];
/// Maximum number of queries that wait for servers.
const MAX_PENDING_QUERIES: usize = 96;
/// Maximum number of clients that wait for the answer to one query.
const MAX_CLIENTS_PER_QUERY: usize = 64;
/// Maximum number of answers for which one host waits, so that one host cannot use up all queries.
const MAX_QUERIES_PER_HOST: usize = 24;
/// Maximum number of answers for which all addresses of one network without a known link-layer address may
/// wait together. One host may have many such addresses.
const MAX_QUERIES_OF_UNKNOWN_HOSTS: usize = 48;
/// Maximum number of queries that the forwarder processes in one burst.
const QUERY_BURST: u32 = 2000;
/// Time after which the forwarder may process one more query, once a burst has used up `QUERY_BURST`.
const QUERY_INTERVAL: Duration = Duration::from_millis(1);

/// Number by which the forwarder and its caller identify a query to servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DnsQueryId(pub u64);

/// Transport of a DNS message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DnsTransport {
    /// UDP datagrams, which limit the length of an answer.
    Udp,
    /// A TCP connection, which carries answers of every length.
    Tcp,
}

/// Client of a query. The caller chooses `client_number`, by which it finds the client again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DnsQueryClient {
    /// Number by which the caller finds the client.
    pub client_number: u64,
    /// Address of the client.
    pub address: IpAddr,
    /// Link-layer address of the host with this address; `None` if the caller does not know it.
    pub link_address: Option<LinkAddress>,
    /// Network of the client.
    pub network: OnBoardNetwork,
    /// Transport of the query, and of its answer.
    pub transport: DnsTransport,
}

/// An output of the forwarder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// The caller sends this query to a server through a new socket. The sockets of earlier attempts of the
    /// query may stay open.
    Ask {
        /// Number of the query.
        query: DnsQueryId,
        /// Address of the server.
        server: IpAddr,
        /// Transport of query and answer.
        transport: DnsTransport,
        /// The query.
        octets: Vec<u8>,
    },
    /// The query needs no further answer: the caller closes its sockets.
    Done(DnsQueryId),
    /// The caller sends this answer to a client.
    Answer(DnsQueryClient, Vec<u8>),
}

/// Counters of the forwarder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DnsCounters {
    /// Queries of hosts.
    pub host_queries: u64,
    /// Answers from the cache.
    pub answers_from_cache: u64,
    /// Answers about hosts on board, which the forwarder gives without a server.
    pub answers_about_hosts: u64,
    /// Queries to servers, with repetitions.
    pub server_queries: u64,
    /// Answers of servers.
    pub server_answers: u64,
    /// Queries that no server answered.
    pub failed_queries: u64,
    drops_by_reason: BTreeMap<DnsDropReason, u64>,
}

impl DnsCounters {
    fn count_drop(&mut self, reason: DnsDropReason) {
        *self.drops_by_reason.entry(reason).or_default() += 1;
    }

    /// Returns the number of messages that the forwarder did not pass on for this reason.
    pub fn dropped_messages(&self, reason: DnsDropReason) -> u64 {
        self.drops_by_reason.get(&reason).copied().unwrap_or_default()
    }

    /// Returns the counters by name.
    pub fn named_counters(&self) -> impl Iterator<Item = (String, u64)> {
        use carnet_base::DropReason;
        let sums = [
            ("queries", self.host_queries),
            ("cached", self.answers_from_cache),
            ("local", self.answers_about_hosts),
            ("asked", self.server_queries),
            ("answered", self.server_answers),
            ("failed", self.failed_queries),
        ];
        let drops = DnsDropReason::ALL
            .iter()
            .map(|reason| (format!("dropped.{}", reason.name()), self.dropped_messages(*reason)));
        sums.map(|(name, count)| (name.to_owned(), count)).into_iter().chain(drops)
    }
}

/// A query that waits for a server.
#[derive(Debug)]
struct PendingDnsQuery {
    cache_key: DnsCacheKey,
    /// Query of the first client, from which the forwarder makes its queries to servers.
    first_query: DnsQuery,
    waiting_clients: Vec<(DnsQueryClient, DnsQuery)>,
    /// IDs of the attempts whose answers the forwarder still accepts, each with its server.
    ids_of_attempts: Vec<(u16, IpAddr)>,
    /// Number of attempts.
    attempt_count: usize,
    /// Transport of the next attempt.
    next_transport: DnsTransport,
    next_attempt_at: Time,
}

/// The forwarder.
#[derive(Debug)]
pub struct DnsForwarder {
    dns_servers: Vec<IpAddr>,
    /// Index of the server that answered last; the forwarder asks this server first.
    preferred_server: usize,
    host_names: HostNames,
    answer_cache: DnsAnswerCache,
    pending_queries: BTreeMap<DnsQueryId, PendingDnsQuery>,
    query_by_key: BTreeMap<DnsCacheKey, DnsQueryId>,
    next_query_id: u64,
    query_limiter: RateLimiter,
    rng: Rng,
    counters: DnsCounters,
    outputs: VecDeque<Output>,
}

impl DnsForwarder {
    /// Creates a forwarder that asks these servers, the preferred first.
    pub fn new(servers: Vec<IpAddr>, rng: Rng) -> DnsForwarder {
        DnsForwarder {
            dns_servers: servers,
            preferred_server: 0,
            host_names: HostNames::default(),
            answer_cache: DnsAnswerCache::default(),
            pending_queries: BTreeMap::new(),
            query_by_key: BTreeMap::new(),
            next_query_id: 0,
            query_limiter: RateLimiter::new(QUERY_BURST, QUERY_INTERVAL),
            rng,
            counters: DnsCounters::default(),
            outputs: VecDeque::new(),
        }
    }

    /// Replaces the servers. Answers in the cache stay.
    pub fn set_servers(&mut self, servers: Vec<IpAddr>) {
        self.preferred_server = 0;
        self.dns_servers = servers;
    }

    /// Sets the hosts on board.
    pub fn set_names(&mut self, names: HostNames) {
        self.host_names = names;
    }

    /// Returns whether the answer to a query depends on the IPv6 addresses of hosts on board.
    pub fn depends_on_ipv6_addresses(&self, client: OnBoardNetwork, octets: &[u8]) -> bool {
        matches!(DnsQuery::parse(octets), Some(Ok(query))
            if self.host_names.depends_on_ipv6_addresses(client, &query.question))
    }

    /// Returns the servers.
    pub fn dns_servers(&self) -> &[IpAddr] {
        &self.dns_servers
    }

    /// Returns the counters.
    pub fn counters(&self) -> &DnsCounters {
        &self.counters
    }

    /// Returns the number of answers in the cache, and their memory in octets.
    pub fn cache_size(&self) -> (usize, usize) {
        (self.answer_cache.len(), self.answer_cache.memory_octets())
    }

    /// Returns the number of queries that wait for servers.
    pub fn waiting_query_count(&self) -> usize {
        self.pending_queries.len()
    }

    /// Returns the next output; `None` if no output waits.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns the time at which the caller must call [`Self::handle_timeout`]; `None` if no call is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.pending_queries.values().map(|pending| pending.next_attempt_at).min()
    }

    /// Handles a message of a client.
    pub fn handle_query(&mut self, now: Time, client: DnsQueryClient, octets: &[u8]) {
        self.counters.host_queries += 1;
        if !self.query_limiter.try_take_token(now) {
            return self.counters.count_drop(DnsDropReason::RateLimit);
        }
        let query = match DnsQuery::parse(octets) {
            None => return self.counters.count_drop(DnsDropReason::Malformed),
            Some(Err(code)) => {
                self.counters.count_drop(DnsDropReason::Malformed);
                return self.answer_invalid(client, octets, code);
            }
            Some(Ok(query)) => query,
        };
        if let Some(answer) = self.host_names.answer_about_host(client.network, &query) {
            self.counters.answers_about_hosts += 1;
            return self.send_answer(client, &query, Some(answer));
        }
        self.answer_cache.remove_expired(now);
        if let Some(answer) = self.answer_cache.cached_answer(now, &query) {
            self.counters.answers_from_cache += 1;
            return self.send_answer(client, &query, Some(answer));
        }
        if let Err(reason) = self.forward_query(now, client, &query) {
            self.counters.count_drop(reason);
            self.send_answer(client, &query, Some(query.empty_answer(DnsResponseCode::Refused)));
        }
    }

    /// Sends a query to a server. If a query with the same question already waits, adds the client to it.
    fn forward_query(
        &mut self,
        now: Time,
        client: DnsQueryClient,
        query: &DnsQuery,
    ) -> Result<(), DnsDropReason> {
        let clients = || {
            self.pending_queries
                .values()
                .flat_map(|pending| &pending.waiting_clients)
                .map(|(client, _)| client)
        };
        let of_address = clients().filter(|other| other.address == client.address).count();
        let of_host = clients().filter(|other| {
            (other.network.network_number, other.link_address)
                == (client.network.network_number, client.link_address)
        });
        let most =
            if client.link_address.is_some() { MAX_QUERIES_PER_HOST } else { MAX_QUERIES_OF_UNKNOWN_HOSTS };
        if of_address >= MAX_QUERIES_PER_HOST || of_host.count() >= most {
            return Err(DnsDropReason::ClientLimit);
        }
        let key = DnsCacheKey::of_query(query);
        if let Some(pending) = self.query_by_key.get(&key).and_then(|id| self.pending_queries.get_mut(id)) {
            // A host that repeats its query must get only one answer.
            let is_known = |(other, waiting): &(DnsQueryClient, DnsQuery)| {
                (other.address, waiting.message_id, other.transport)
                    == (client.address, query.message_id, client.transport)
            };
            if let Some((known, _)) = pending.waiting_clients.iter_mut().find(|it| is_known(it)) {
                *known = client;
            } else if pending.waiting_clients.len() < MAX_CLIENTS_PER_QUERY {
                pending.waiting_clients.push((client, query.clone()));
            } else {
                return Err(DnsDropReason::Busy);
            }
            return Ok(());
        }
        if self.pending_queries.len() >= MAX_PENDING_QUERIES || self.dns_servers.is_empty() {
            return Err(DnsDropReason::Busy);
        }
        let id = DnsQueryId(self.next_query_id);
        self.next_query_id += 1;
        self.query_by_key.insert(key.clone(), id);
        let (clients, ids, transport) = (vec![(client, query.clone())], Vec::new(), DnsTransport::Udp);
        let pending = PendingDnsQuery {
            cache_key: key,
            first_query: query.clone(),
            waiting_clients: clients,
            ids_of_attempts: ids,
            attempt_count: 0,
            next_transport: transport,
            next_attempt_at: now,
        };
        self.pending_queries.insert(id, pending);
        self.send_attempt(now, id);
        Ok(())
    }

    /// Sends a query to the next server. After the last attempt, the query fails.
    fn send_attempt(&mut self, now: Time, id: DnsQueryId) {
        let Some(pending) = self.pending_queries.get_mut(&id) else { return };
        let Some(wait) = RETRY_INTERVALS.get(pending.attempt_count) else { return self.fail_query(id) };
        let Some(place) = (self.preferred_server + pending.attempt_count).checked_rem(self.dns_servers.len())
        else {
            return self.fail_query(id);
        };
        let (server, number) = (self.dns_servers[place], self.rng.random_u16());
        pending.attempt_count += 1;
        pending.ids_of_attempts.push((number, server));
        pending.next_attempt_at = now + *wait;
        let (transport, octets) = (pending.next_transport, pending.first_query.to_server_query(number));
        self.counters.server_queries += 1;
        self.outputs.push_back(Output::Ask { query: id, server, transport, octets });
    }

    /// Handles an answer of a server.
    pub fn handle_answer(&mut self, now: Time, id: DnsQueryId, server: IpAddr, octets: &[u8]) {
        let Some(pending) = self.pending_queries.get_mut(&id) else {
            return self.counters.count_drop(DnsDropReason::LateAnswer);
        };
        let ids = pending.ids_of_attempts.iter().filter(|(_, asked)| *asked == server);
        let mut answers = ids.filter_map(|(number, _)| DnsServerAnswer::parse(octets, *number));
        let question = pending.cache_key.question();
        let Some(answer) = answers.find(|answer| answer.question == *question) else {
            return self.counters.count_drop(DnsDropReason::BadAnswer);
        };
        if answer.is_truncated && pending.next_transport == DnsTransport::Tcp {
            // The truncated answer belongs to an earlier attempt over UDP, or the server is broken.
            return self.counters.count_drop(DnsDropReason::BadAnswer);
        }
        if answer.is_truncated {
            pending.next_transport = DnsTransport::Tcp;
            // The truncated answer does not count as an attempt: ask the same server again at once, over TCP.
            pending.attempt_count = pending.attempt_count.saturating_sub(1);
            return self.send_attempt(now, id);
        }
        self.counters.server_answers += 1;
        // If a server fails, another server may know the answer.
        if answer.is_failure && pending.attempt_count < self.dns_servers.len() {
            return self.send_attempt(now, id);
        }
        if let Some(place) = self.dns_servers.iter().position(|known| *known == server) {
            self.preferred_server = place;
        }
        self.finish_query(now, id, &answer);
    }

    /// Passes the answer on to all clients that asked this query.
    fn finish_query(&mut self, now: Time, id: DnsQueryId, answer: &DnsServerAnswer) {
        let Some(pending) = self.remove_query(id) else { return };
        self.answer_cache.store_answer(now, pending.cache_key, answer, !answer.has_answers());
        for (client, query) in pending.waiting_clients {
            let octets = query.answer_from_server(answer, 0);
            self.send_answer(client, &query, octets);
        }
    }

    /// Handles an error of a server's socket: the server is not reachable, or refuses.
    pub fn handle_failure(&mut self, now: Time, id: DnsQueryId, server: IpAddr) {
        let Some(pending) = self.pending_queries.get(&id) else { return };
        let is_last = pending.ids_of_attempts.last().is_some_and(|(_, asked)| *asked == server);
        // If every server has failed, wait before the next attempt, because the path may become usable again.
        // With only one server, this is after its first failure.
        if is_last && pending.attempt_count < self.dns_servers.len() {
            self.send_attempt(now, id);
        }
    }

    /// Repeats queries without an answer.
    pub fn handle_timeout(&mut self, now: Time) {
        let due: Vec<DnsQueryId> = self
            .pending_queries
            .iter()
            .filter(|(_, pending)| pending.next_attempt_at <= now)
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            self.send_attempt(now, id);
        }
    }

    /// Sends the clients of a query the answer that no server has answered (SERVFAIL).
    fn fail_query(&mut self, id: DnsQueryId) {
        let Some(pending) = self.remove_query(id) else { return };
        self.counters.failed_queries += 1;
        for (client, query) in pending.waiting_clients {
            let octets = query.empty_answer(DnsResponseCode::Failure);
            self.send_answer(client, &query, Some(octets));
        }
    }

    fn remove_query(&mut self, id: DnsQueryId) -> Option<PendingDnsQuery> {
        let pending = self.pending_queries.remove(&id)?;
        self.query_by_key.remove(&pending.cache_key);
        self.outputs.push_back(Output::Done(id));
        Some(pending)
    }

    /// Sends an answer. If it is too long for a datagram, asks the client to use TCP instead.
    fn send_answer(&mut self, client: DnsQueryClient, query: &DnsQuery, octets: Option<Vec<u8>>) {
        let octets = octets.unwrap_or_else(|| query.empty_answer(DnsResponseCode::Failure));
        let fits = client.transport == DnsTransport::Tcp || octets.len() <= query.max_answer_size();
        let octets = if fits { octets } else { query.truncated_answer() };
        self.outputs.push_back(Output::Answer(client, octets));
    }

    /// Answers a query that the parser rejects, with the ID of the query and an error code alone.
    fn answer_invalid(&mut self, client: DnsQueryClient, octets: &[u8], code: DnsResponseCode) {
        if let Some(answer) = message::refusal_of_query(octets, code) {
            self.outputs.push_back(Output::Answer(client, answer));
        }
    }
}
