//! What is known of another mobile router, and of a destination behind which there may be one.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{RateLimiter, Time};
use carnet_wire::mobility::DirectRoute;
use carnet_wire::mobility::direct_route::MAX_PREFIXES;
use ipnet::Ipv6Net;

use super::tokens::{Key, verify};
use crate::binding_update_list::Retransmission;
use crate::path_liveness::{PathLiveness, Proof, RoundTrip};

/// Answers to what one router has proven to have asked, of each kind.
const ANSWERS: u32 = 32;
const ANSWER_INTERVAL: Duration = Duration::from_millis(20);
/// Binding Updates from its care-of address that prove to be somebody else's.
const FORGERIES: u32 = 16;
const FORGERY_INTERVAL: Duration = Duration::from_millis(20);
/// So long a network counts as a router's that has only said so: then it is asked after again.
const CLAIM_LIFETIME: Duration = Duration::from_secs(480);

/// Answers in a row after which a failed path is taken again.
const PROOF: Proof = Proof { of_failed: 3, of_proving: 3 };

/// Its binding here: what it has proven.
#[derive(Debug, Clone)]
pub(super) struct Binding {
    pub(super) care_of_address: Ipv6Addr,
    /// The one before, and until when packets from there are taken.
    pub(super) previous: Option<(Ipv6Addr, Time)>,
    pub(super) prefixes: Vec<Ipv6Net>,
    pub(super) key: Key,
    /// The key before: our last acknowledgement may not have come.
    pub(super) former_key: Option<Key>,
    pub(super) until: Time,
    /// It sends packets here, or would.
    pub(super) wanted: bool,
}

impl Binding {
    /// Whether packets from there are taken.
    pub(super) fn is_at(&self, care_of_address: Ipv6Addr) -> bool {
        let previous = self.previous.map(|(previous, _)| previous);
        self.care_of_address == care_of_address || previous == Some(care_of_address)
    }

    /// The key that a message bears, which so is this router's.
    pub(super) fn key_of(&self, message: &DirectRoute) -> Option<Key> {
        [Some(self.key), self.former_key].into_iter().flatten().find(|key| verify(message, key))
    }
}

/// Our binding with it.
#[derive(Debug, Clone)]
pub(super) struct Registration {
    pub(super) care_of_address: Ipv6Addr,
    pub(super) key: Key,
    /// When its Binding Update left.
    pub(super) since: Time,
    pub(super) until: Time,
}

/// The tokens of home address and prefixes.
#[derive(Debug, Clone)]
pub(super) struct HomeTokens {
    pub(super) home: u64,
    pub(super) prefixes: Vec<u64>,
    pub(super) nonce: u16,
    pub(super) since: Time,
}

/// The token of a care-of address.
#[derive(Debug, Clone, Copy)]
pub(super) struct CareOfToken {
    pub(super) care_of_address: Ipv6Addr,
    pub(super) token: u64,
    pub(super) nonce: u16,
    pub(super) since: Time,
}

/// Answers to a Home Test Init, as far as they have come.
#[derive(Debug, Clone, Default)]
pub(super) struct HomeTests {
    /// Token and nonce.
    pub(super) home: Option<(u64, u16)>,
    /// Token, nonce, and care-of address of who answers.
    prefixes: BTreeMap<Ipv6Net, (u64, u16, Ipv6Addr)>,
}

impl HomeTests {
    /// A Prefix Test has come for one of these prefixes; false for another's.
    pub(super) fn note(&mut self, ours: &[Ipv6Net], prefix: Ipv6Net, test: &DirectRoute) -> bool {
        let is_ours = ours.contains(&prefix);
        if is_ours {
            self.prefixes.insert(prefix, (test.token, test.home_nonce, test.care_of_address));
        }
        is_ours
    }

    /// The tokens, once all of them are there and of one nonce, and the care-of address that came with them.
    pub(super) fn tokens(&self, now: Time, ours: &[Ipv6Net]) -> Option<(HomeTokens, Ipv6Addr)> {
        let (home, nonce) = self.home?;
        let tests: Option<Vec<_>> =
            ours.iter().map(|prefix| self.prefixes.get(prefix).filter(|(_, of, _)| *of == nonce)).collect();
        let tests = tests?;
        let (_, _, care_of_address) = **tests.first()?;
        let prefixes = tests.iter().map(|(token, ..)| *token).collect();
        Some((HomeTokens { home, prefixes, nonce, since: now }, care_of_address))
    }
}

/// What was asked and is not answered.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Home(HomeTests),
    CareOf { care_of_address: Ipv6Addr },
    Update { care_of_address: Ipv6Addr, sequence: u16, key: Key, first: Time },
}

#[derive(Debug, Clone)]
pub(super) struct Exchange {
    pub(super) step: Step,
    pub(super) cookie: u64,
    pub(super) retransmission: Retransmission,
    pub(super) next: Time,
}

impl Exchange {
    /// It is a Binding Update with this care-of address.
    pub(super) fn is_update_from(&self, local: Ipv6Addr) -> bool {
        matches!(self.step, Step::Update { care_of_address, .. } if care_of_address == local)
    }
}

/// Sequence numbers of routers that are known no longer, as long as somebody could play their Binding Updates
/// again.
#[derive(Debug, Default)]
pub(super) struct Memory(BTreeMap<Ipv6Addr, (u16, Time)>);

impl Memory {
    /// So many are remembered; of more, those for the longest.
    const MOST: usize = 128;

    pub(super) fn keep(&mut self, now: Time, home_address: Ipv6Addr, peer: &Peer) {
        let Some(heard) = peer.heard else { return };
        self.0.retain(|_, (_, until)| *until > now);
        self.0.insert(home_address, heard);
        if self.0.len() > Memory::MOST
            && let Some(first) = self.0.iter().min_by_key(|(_, (_, until))| *until).map(|(of, _)| *of)
        {
            self.0.remove(&first);
        }
    }

    pub(super) fn of(&self, now: Time, home_address: Ipv6Addr) -> Option<(u16, Time)> {
        self.0.get(&home_address).copied().filter(|(_, until)| *until > now)
    }
}

/// Another mobile router.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    /// An address of a network that is behind it, or that it says is: whose party it is.
    pub(super) network: Ipv6Addr,
    pub(super) binding: Option<Binding>,
    /// The sequence number of its last Binding Update, until when somebody could play it again.
    pub(super) heard: Option<(u16, Time)>,
    pub(super) registration: Option<Registration>,
    pub(super) home: Option<HomeTokens>,
    pub(super) care_of: Option<CareOfToken>,
    pub(super) exchange: Option<Exchange>,
    /// Of the last Binding Update to it.
    pub(super) sequence: u16,
    /// Where it can be reached straight, as far as is known.
    pub(super) remote: Option<Ipv6Addr>,
    /// From where no test or Binding Update was answered.
    pub(super) mute: bool,
    /// Which of our care-of addresses is tried.
    pub(super) choice: usize,
    /// What it says is behind it, of what was asked about, and until when that counts.
    claims: Vec<(Ipv6Net, Time)>,
    /// Heartbeats on the path in use, by their cookies.
    pub(super) heartbeats: PathLiveness<u64>,
    /// When a packet went to it last.
    pub(super) used: Option<Time>,
    /// Nothing is asked before.
    pub(super) hold: Time,
    pub(super) failures: u32,
    /// Packets go straight.
    pub(super) direct: bool,
    pub(super) since: Time,
    pub(super) reason: &'static str,
    /// Answers to its tests, where it has proven that they are its.
    pub(super) answers: RateLimiter,
    /// Answers to its heartbeats.
    pub(super) beats: RateLimiter,
    /// Binding Updates that others make up for it.
    pub(super) forgeries: RateLimiter,
    pub(super) due: Time,
}

impl Peer {
    pub(super) fn new(now: Time, network: Ipv6Net) -> Peer {
        Peer {
            network: network.network(),
            binding: None,
            heard: None,
            registration: None,
            home: None,
            care_of: None,
            exchange: None,
            sequence: 0,
            remote: None,
            mute: false,
            choice: 0,
            claims: Vec::new(),
            heartbeats: PathLiveness::new(PROOF, RoundTrip::default()),
            used: None,
            hold: Time::ZERO,
            failures: 0,
            direct: false,
            since: now,
            reason: "being asked",
            answers: RateLimiter::new(ANSWERS, ANSWER_INTERVAL),
            beats: RateLimiter::new(ANSWERS, ANSWER_INTERVAL),
            forgeries: RateLimiter::new(FORGERIES, FORGERY_INTERVAL),
            due: now,
        }
    }

    /// What is behind it: proven, or said.
    pub(super) fn prefixes(&self) -> Vec<Ipv6Net> {
        match &self.binding {
            Some(binding) => binding.prefixes.clone(),
            None => self.claims.iter().map(|(prefix, _)| *prefix).collect(),
        }
    }

    /// Whether packets to there are for it.
    pub(super) fn has(&self, now: Time, destination: Ipv6Addr) -> bool {
        match &self.binding {
            Some(binding) => binding.prefixes.iter().any(|prefix| prefix.contains(&destination)),
            None => self.claims.iter().any(|(prefix, until)| *until > now && prefix.contains(&destination)),
        }
    }

    /// It says that a network that was asked after is behind it.
    pub(super) fn claim(&mut self, now: Time, prefix: Ipv6Net) {
        self.claims.retain(|(known, until)| *known != prefix && *until > now);
        if self.claims.len() < MAX_PREFIXES {
            self.claims.push((prefix, now + CLAIM_LIFETIME));
        }
    }

    /// Somebody else has proven that these are his.
    pub(super) fn disclaim(&mut self, proven: &[Ipv6Net]) {
        self.claims.retain(|(prefix, _)| !proven.contains(prefix));
    }

    /// Whether the answer to the exchange under way bears this cookie.
    pub(super) fn awaits(&self, cookie: u64) -> bool {
        self.exchange.as_ref().is_some_and(|exchange| exchange.cookie == cookie)
    }
}

/// A network to which packets go, and behind which a mobile router may be.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    /// The address that is asked.
    pub(super) destination: Ipv6Addr,
    pub(super) cookie: u64,
    pub(super) tests: HomeTests,
    pub(super) retransmission: Retransmission,
    pub(super) failures: u32,
    pub(super) used: Time,
    /// When it is asked next.
    pub(super) next: Time,
}
