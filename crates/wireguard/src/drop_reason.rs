//! Reasons for which the engine drops a datagram or a payload.

use sanstun::Error;

carnet_base::drop_reasons! {
    /// Reason for which the engine dropped a datagram, or did not send a payload.
    pub enum WireguardDropReason {
        /// The length or the type of the datagram is not that of a WireGuard message.
        Malformed = "malformed",
        /// The first MAC of a handshake message is wrong, so the sender does not know the receiver's public
        /// key.
        Mac = "mac",
        /// The second MAC of a handshake message is missing or wrong, while handshakes are limited. The
        /// engine has sent a cookie.
        Cookie = "cookie",
        /// A handshake from a source that has sent too many handshakes, while handshakes are limited.
        RateLimited = "rate_limited",
        /// The queue for handshakes is full.
        QueueFull = "queue_full",
        /// A handshake or data message does not decrypt.
        Authentication = "authentication",
        /// A handshake of a remote public key that is not configured.
        UnknownKey = "unknown_key",
        /// The timestamp of a handshake is not later than that of the last accepted handshake of this path.
        OldTimestamp = "old_timestamp",
        /// A handshake with a path number above the limit.
        PathNumber = "path_number",
        /// The path has already begun as many handshakes as it may (16 at once and 8 a second).
        Share = "share",
        /// A handshake response or a cookie without an outstanding handshake.
        Unexpected = "unexpected",
        /// A data message of a session that does not exist or has ended.
        NoSession = "no_session",
        /// A data message whose counter was received before, or is too old.
        Replayed = "replayed",
        /// A payload for a path that has no session yet.
        NotEstablished = "not_established",
        /// A payload that is empty, or longer than the buffer for its datagram.
        Length = "length",
    }
}

impl From<Error> for WireguardDropReason {
    fn from(error: Error) -> WireguardDropReason {
        match error {
            Error::InvalidPacket => WireguardDropReason::Malformed,
            Error::InvalidMac => WireguardDropReason::Mac,
            Error::RateLimited => WireguardDropReason::RateLimited,
            Error::InvalidAeadTag | Error::LowOrderPoint => WireguardDropReason::Authentication,
            Error::WrongKey => WireguardDropReason::UnknownKey,
            Error::ReplayedHandshakeInitiation => WireguardDropReason::OldTimestamp,
            Error::InvalidCounter | Error::DuplicateCounter => WireguardDropReason::Replayed,
            Error::UnexpectedPacket => WireguardDropReason::Unexpected,
            Error::WrongIndex | Error::NoCurrentSession | Error::ConnectionExpired => {
                WireguardDropReason::NoSession
            }
            Error::EmptyPlaintext | Error::DestinationBufferTooSmall { .. } => WireguardDropReason::Length,
        }
    }
}
