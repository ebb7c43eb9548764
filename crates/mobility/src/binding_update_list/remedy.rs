//! Remedies for refusals (RFC 6275 11.7.3, RFC 3963 5.4).

use std::time::Duration;

use carnet_wire::mobility::status::Status;

use super::retransmission::MAX_BINDACK_TIMEOUT;

/// Reaction to a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Send again after this long.
    Retry(Duration),
    /// De-register and begin anew (the type of registration changed under us).
    StartOver,
    /// Continue as if there had been no answer.
    GoOn,
    /// Stop the service, and ask again after a pause that doubles each time.
    BackOff,
    /// Stop the service, and ask again after a long while.
    Stop,
}

/// Returns the remedy for each status (RFC 6275 11.7.3, RFC 3963 5.4, RFC 4285). With one home agent and one
/// configured mode, "every available mode" has been tried after the first answer.
pub(crate) fn remedy(status: Status) -> Remedy {
    match status {
        Status::TYPE_CHANGE_DISALLOWED => Remedy::StartOver,
        // The operator of the home agent may be changing the key right now.
        Status::AUTHENTICATION_FAILED => Remedy::Retry(Duration::from_secs(30)),
        // A home agent that has just started sends this status until it has received the prefixes of its home
        // link. RFC 6275 11.7.3 permits the node to try again; the pauses double as in 11.8.
        Status::HOME_REGISTRATION_NOT_SUPPORTED
        | Status::NOT_HOME_SUBNET
        | Status::NOT_HOME_AGENT
        | Status::PROHIBITED => Remedy::BackOff,
        // RFC 3963 5.4: the router refrains from sending Binding Updates.
        Status::MOBILE_ROUTER_NOT_PERMITTED
        | Status::INVALID_PREFIX
        | Status::NOT_AUTHORIZED_FOR_PREFIX
        | Status::FORWARDING_SETUP_FAILED
        | Status::MESSAGE_ID_REQUIRED => Remedy::Stop,
        // Among them is 134: the node that has this home address on the home link may be gone soon.
        _ => Remedy::Retry(MAX_BINDACK_TIMEOUT),
    }
}
