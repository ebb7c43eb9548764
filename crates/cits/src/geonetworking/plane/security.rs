//! Connects GeoNetworking with security: frames of the link pass the security entity before the router.

use carnet_base::Time;
use carnet_geonet::ReceivedFrame;
use carnet_security::HandledFrame;
use carnet_security::pseudonym::StationIdentity;

use super::Geonet;
use crate::geonetworking::output::Output;
use crate::security::plane::SecurityPlane;

impl Geonet {
    /// Begins to sign and verify packets. With pseudonyms, the station changes its addresses to those of its
    /// ticket.
    pub fn start_security(&mut self, now: Time, mut secured: SecurityPlane) {
        let identity = secured.first_identity(now);
        self.security_plane = Some(secured);
        self.change_identity(now, identity);
    }

    /// Changes the pseudonym if a change is due. The caller calls this function after it has sent the
    /// messages about the present position.
    pub(super) fn change_pseudonym_if_due(&mut self, now: Time) {
        let repeats = self.facilities.as_ref().is_some_and(|facilities| facilities.has_own_event());
        let identity = self.security_plane.as_mut().and_then(|secured| secured.poll_identity(now, repeats));
        self.change_identity(now, identity);
    }

    pub(crate) fn change_identity(&mut self, now: Time, identity: Option<StationIdentity>) {
        let Some(identity) = identity else { return };
        let address = identity.gn_address(self.address.station_type());
        if let Some(facilities) = &mut self.facilities {
            facilities.handle_address(address);
        }
        self.handle_address(now, address);
    }

    /// Returns the state of the security entity; `None` if the station neither signs nor verifies packets.
    pub fn security_plane(&self) -> Option<&SecurityPlane> {
        self.security_plane.as_ref()
    }

    /// Handles a frame of the link if the station verifies packets.
    pub(super) fn handle_secured_frame(&mut self, now: Time, frame: ReceivedFrame<'_>) {
        let Some(secured) = &mut self.security_plane else { return };
        // The entity counts the frames that it drops.
        match secured.handle_frame(now, frame) {
            Ok(HandledFrame::Plain) => self.route_frame(now, frame),
            Ok(HandledFrame::Ready(copy)) => self.route_frame(now, copy.to_received_frame()),
            Ok(HandledFrame::Queued) | Err(_) => {}
        }
        self.route_verified_packets(now);
        if let Some(secured) = &mut self.security_plane {
            secured.warn_about_wrong_clock(now);
            self.outputs.extend(secured.poll_warning().map(Output::Warning));
        }
    }

    /// Passes the packets that the entity has verified to the router.
    pub(super) fn route_verified_packets(&mut self, now: Time) {
        while let Some(secured) = &mut self.security_plane
            && let Some(verified) = secured.poll_verified(now)
        {
            self.route_frame(now, verified.to_received_frame());
        }
    }
}
