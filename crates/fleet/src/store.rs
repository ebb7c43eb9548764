//! Requests to the store, and its answers.
//!
//! All keys of a seat are below one prefix, which the runner knows. A transaction always has one comparison,
//! of the key [`Key::Owner`]. The store must be able to compare and put several keys in one step.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The store's count of its changes. A key's revision is that of the change that wrote it last; 0: there is
/// no such key.
pub type Revision = u64;

/// The number of a transaction, by which its outcome is told.
pub type RequestId = u64;

/// A key, without the prefix of its seat.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// The leader: a [`Token`].
    Owner,
    /// State of a standby: a [`Presence`], which the member writes each second. A leader writes it when it is
    /// cut off, to ask the other members.
    Member(String),
    /// A record of the home agent, by the record's own key.
    Record(String),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Owner => f.write_str("owner"),
            Key::Member(name) => write!(f, "member/{name}"),
            Key::Record(key) => write!(f, "record/{key}"),
        }
    }
}

impl Key {
    /// The key of this name; `None`: no version of ours writes such a one.
    pub fn of(name: &str) -> Option<Key> {
        match name.split_once('/') {
            None if name == "owner" => Some(Key::Owner),
            Some(("member", rest)) if !rest.is_empty() => Some(Key::Member(rest.to_owned())),
            Some(("record", rest)) if !rest.is_empty() => Some(Key::Record(rest.to_owned())),
            _ => None,
        }
    }
}

/// The value of [`Key::Owner`]. No two transactions ever write the same one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Member that wrote the token.
    pub member: String,
    /// Which process of that member: chosen at random when it starts.
    pub process: u64,
    /// Which transaction of that process.
    pub count: u64,
    /// State of the leadership.
    pub state: TokenState,
}

/// State that the leader announces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenState {
    /// It has the seat, and its home agent is starting.
    Starting,
    /// It has the seat, and its home agent works.
    Working,
    /// The leader gives the leadership up: to a certain member, or to the first that takes it.
    Free(Option<String>),
}

impl Token {
    /// As it is written.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads one; `None`: it is not of ours.
    pub fn of(text: &str) -> Option<Token> {
        serde_json::from_str(text).ok()
    }
}

/// The value of [`Key::Member`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Presence {
    /// Which process of that member.
    pub process: u64,
    /// It does not reach its routers, or has not done so for long enough.
    #[serde(default)]
    pub cut_off: bool,
}

impl Presence {
    /// As it is written.
    pub fn to_text(self) -> String {
        serde_json::to_string(&self).unwrap_or_default()
    }

    /// Reads one. A member of another version may say something else, and is not thought to be cut off.
    pub fn of(text: &str) -> Presence {
        serde_json::from_str(text).unwrap_or_default()
    }
}

/// Key of a record and its new value; `None` if the record is deleted.
pub type Change = (String, Option<String>);

/// A change that the store makes whole or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// It is made only if [`Key::Owner`] has this revision.
    pub expected: Revision,
    /// The leader from then on.
    pub token: Token,
    /// The records that change with it.
    pub changes: Vec<Change>,
}

/// Result of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was made, with this revision.
    Done(Revision),
    /// It was not, for the owner's key has another revision: what that key has now, `None` where it is not
    /// ours.
    Refused(Revision, Option<Token>),
    /// The result is unknown: the store sent no answer, or an error.
    Unknown,
}

/// A change that the store has made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The changed key.
    pub key: Key,
    /// Its value; `None`: it was removed.
    pub value: Option<String>,
}

/// All keys of a seat at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// The store's revision then.
    pub revision: Revision,
    /// The revision of [`Key::Owner`].
    pub owner: Revision,
    /// The keys and their values.
    pub values: Vec<(Key, String)>,
}
