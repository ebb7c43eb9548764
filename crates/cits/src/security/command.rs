//! Operators' and applications' commands about the pseudonym, and their body in the API.

use std::time::Duration;

use carnet_base::Time;
use carnet_security::pseudonym::StationIdentity;
use serde::{Deserialize, Serialize};

use super::plane::SecurityPlane;

/// Body of `POST /v1/pseudonym`: without `lock_s` the station changes its pseudonym at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PseudonymRequest {
    /// Seconds for which the station keeps its pseudonym, because the safety of others depends on recognising
    /// it; 0 ends this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_s: Option<u32>,
}

/// Error for an order about pseudonyms if the station has no pseudonyms.
pub(crate) const NO_PSEUDONYMS_ERROR: &str =
    "this station does not change its pseudonym: there is no [security.pseudonyms] in its config";

impl SecurityPlane {
    /// Changes the pseudonym now, even if an application has locked it. Returns the new identity.
    ///
    /// # Errors
    /// Returns the reason of a failure, in words for the operator.
    pub(crate) fn handle_pseudonym_change(&mut self, now: Time) -> Result<StationIdentity, String> {
        if !self.security_entity.has_pseudonyms() {
            return Err(NO_PSEUDONYMS_ERROR.into());
        }
        let identity = self.security_entity.change_pseudonym(self.now(now));
        identity.ok_or_else(|| "this station has no other ticket that is valid now".into())
    }

    /// Locks the pseudonym for a time span; an empty span ends the lock.
    ///
    /// # Errors
    /// Returns the reason of a failure, in words for the operator.
    pub(crate) fn handle_pseudonym_lock(&mut self, now: Time, span: Duration) -> Result<(), String> {
        if !self.security_entity.has_pseudonyms() {
            return Err(NO_PSEUDONYMS_ERROR.into());
        }
        self.locked_until = Some(now + span);
        Ok(())
    }
}
