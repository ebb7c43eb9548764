//! Reactions of the mobile router to refusals (RFC 6275 11.7.3, RFC 3963 5.4).

use std::time::Duration;

use carnet_wire::mobility::binding_status::BindingStatus;

use super::retransmission::MAX_BINDACK_TIMEOUT;

/// Reaction of the mobile router to a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusalReaction {
    /// Send the Binding Update again after this time.
    Retry(Duration),
    /// De-register and register again, because the type of the registration has changed.
    StartOver,
    /// Ignore the refusal, and continue with retransmissions of the Binding Update.
    GoOn,
    /// Stop the service, and ask the home agent again after a pause. The pause doubles each time.
    BackOff,
    /// Stop the service, and ask the home agent again after the longest pause.
    Stop,
}

/// Returns the reaction to each status: RFC 6275 11.7.3, RFC 3963 5.4, RFC 4285. carnet has one configured
/// mode. So after the first refusal it has tried "every available mode".
pub(crate) fn refusal_reaction(status: BindingStatus) -> RefusalReaction {
    match status {
        BindingStatus::TYPE_CHANGE_DISALLOWED => RefusalReaction::StartOver,
        // The operator may be changing the key at this moment, so the router tries again soon.
        BindingStatus::AUTHENTICATION_FAILED => RefusalReaction::Retry(Duration::from_secs(30)),
        // A home agent that has just started refuses with this status until it knows the prefixes of its
        // home link. RFC 6275 11.7.3 permits the node to try again; the pauses double as in 11.8.
        BindingStatus::HOME_REGISTRATION_NOT_SUPPORTED
        | BindingStatus::NOT_HOME_SUBNET
        | BindingStatus::NOT_HOME_AGENT
        | BindingStatus::PROHIBITED => RefusalReaction::BackOff,
        // RFC 3963 5.4: after this status the router must not send Binding Updates.
        BindingStatus::MOBILE_ROUTER_NOT_PERMITTED
        | BindingStatus::INVALID_PREFIX
        | BindingStatus::NOT_AUTHORIZED_FOR_PREFIX
        | BindingStatus::FORWARDING_SETUP_FAILED
        | BindingStatus::MESSAGE_ID_REQUIRED => RefusalReaction::Stop,
        // Causes of other statuses may disappear. With status 134, for example, another node on the home link
        // has the home address, and may leave soon.
        _ => RefusalReaction::Retry(MAX_BINDACK_TIMEOUT),
    }
}
