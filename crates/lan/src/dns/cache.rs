//! Cache of the answers of DNS servers, until their time to live is over (RFC 1035 7.4, RFC 2308).
//!
//! The cache has a maximum size in octets. If it is full, it removes the answers that would expire next.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use carnet_base::Time;

use super::message::{DnsQuery, DnsQuestion, DnsServerAnswer};

/// Maximum memory of all answers, in octets.
const MAX_CACHE_SIZE: usize = 512 << 10;
/// Maximum memory of one answer, in octets.
const MAX_CACHED_ANSWER: usize = 16 << 10;
/// Memory in octets that an entry takes in addition to its answer: keys, and nodes of the maps.
const ENTRY_OVERHEAD: usize = 256;
/// Maximum time in seconds for which an answer with records is stored.
const MAX_LIFETIME_SECONDS: u32 = 86_400;
/// Maximum time in seconds for which a negative answer is stored (RFC 2308 5).
const MAX_NEGATIVE_LIFETIME_SECONDS: u32 = 3600;

/// Key of an answer in the cache. The key also says whether the client wants signatures and whether it
/// disables checks, because the answers differ.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DnsCacheKey {
    question: DnsQuestion,
    wants_signatures: bool,
    disables_checks: bool,
}

impl DnsCacheKey {
    /// Returns the key of a query.
    pub fn of_query(query: &DnsQuery) -> DnsCacheKey {
        DnsCacheKey {
            question: query.question.clone(),
            wants_signatures: query.wants_signatures(),
            disables_checks: query.disables_checks(),
        }
    }

    /// Returns the question.
    pub fn question(&self) -> &DnsQuestion {
        &self.question
    }
}

#[derive(Debug)]
struct DnsCacheEntry {
    stored_answer: DnsServerAnswer,
    stored_at: Time,
    expires_at: Time,
}

/// The cache.
#[derive(Debug, Default)]
pub struct DnsAnswerCache {
    entries_by_key: BTreeMap<DnsCacheKey, DnsCacheEntry>,
    keys_by_expiry: BTreeSet<(Time, DnsCacheKey)>,
    memory_octets: usize,
}

impl DnsAnswerCache {
    /// Returns the stored answer to a query in the form for its client; `None` if the cache has none.
    pub fn cached_answer(&self, now: Time, query: &DnsQuery) -> Option<Vec<u8>> {
        let entry =
            self.entries_by_key.get(&DnsCacheKey::of_query(query)).filter(|entry| now < entry.expires_at)?;
        let age = now.saturating_since(entry.stored_at).as_secs();
        query.answer_from_server(&entry.stored_answer, u32::try_from(age).ok()?)
    }

    /// Stores an answer, unless it may not be stored or is too large. A negative answer (`is_negative`: no
    /// such name or no such record) is stored for a shorter time.
    pub fn store_answer(&mut self, now: Time, key: DnsCacheKey, answer: &DnsServerAnswer, is_negative: bool) {
        let limit = if is_negative { MAX_NEGATIVE_LIFETIME_SECONDS } else { MAX_LIFETIME_SECONDS };
        let Some(lifetime) = answer.lifetime.map(|it| it.min(limit)).filter(|it| *it > 0) else { return };
        if answer.memory_octets() > MAX_CACHED_ANSWER {
            return;
        }
        self.remove_entry(&key);
        let expires = now + Duration::from_secs(lifetime.into());
        self.memory_octets += entry_memory(&key, answer);
        self.keys_by_expiry.insert((expires, key.clone()));
        self.entries_by_key.insert(
            key,
            DnsCacheEntry { stored_answer: answer.clone(), stored_at: now, expires_at: expires },
        );
        while self.memory_octets > MAX_CACHE_SIZE {
            let Some((_, first)) = self.keys_by_expiry.first().cloned() else { return };
            self.remove_entry(&first);
        }
    }

    /// Removes expired answers.
    pub fn remove_expired(&mut self, now: Time) {
        while let Some((_, key)) = self.keys_by_expiry.first().filter(|(expires, _)| *expires <= now).cloned()
        {
            self.remove_entry(&key);
        }
    }

    /// Returns the number of answers.
    pub fn len(&self) -> usize {
        self.entries_by_key.len()
    }

    /// Returns the memory of the answers, in octets.
    pub fn memory_octets(&self) -> usize {
        self.memory_octets
    }

    fn remove_entry(&mut self, key: &DnsCacheKey) {
        if let Some(entry) = self.entries_by_key.remove(key) {
            self.memory_octets -= entry_memory(key, &entry.stored_answer);
            self.keys_by_expiry.remove(&(entry.expires_at, key.clone()));
        }
    }
}

fn entry_memory(key: &DnsCacheKey, answer: &DnsServerAnswer) -> usize {
    ENTRY_OVERHEAD + 2 * key.question.name.len() + answer.memory_octets()
}
