//! Outputs of the facilities as serde types, so that a recording can contain them.

use carnet_base::hex;
use carnet_its::cdd;
use serde::{Deserialize, Serialize};

/// Type of a message of the facilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageKind {
    /// Cooperative Awareness Message.
    Cam,
    /// Decentralized Environmental Notification Message.
    Denm,
}

/// A message of another station that a service has accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Type of the message.
    pub kind: MessageKind,
    /// GN address of the sender. With keep-alive forwarding the sender is not the originating station.
    pub source: u64,
    /// The message as UPER octets, without the BTP header.
    #[serde(with = "hex")]
    pub octets: Vec<u8>,
}

/// Identifier of an event, which is the same in the messages of every sender (actionID).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActionId {
    /// Station ID of the originating station.
    pub originating_station_id: u32,
    /// Number of the event at the originating station.
    pub sequence_number: u16,
}

impl From<cdd::ActionId> for ActionId {
    fn from(action: cdd::ActionId) -> ActionId {
        ActionId {
            originating_station_id: action.originating_station_id.0,
            sequence_number: action.sequence_number.0,
        }
    }
}
