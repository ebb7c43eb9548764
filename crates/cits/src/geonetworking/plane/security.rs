//! Bridges GeoNetworking and security: frames of the link pass the entity before the router.

use carnet_base::Time;
use carnet_geonet::ReceivedFrame;
use carnet_security::Handled;
use carnet_security::pseudonym::Identity;

use super::Geonet;
use crate::geonetworking::output::Output;
use crate::security::plane::Secured;

impl Geonet {
    /// Begins to sign and verify packets. With pseudonyms, the station changes its addresses to those of its
    /// ticket.
    pub fn secure(&mut self, now: Time, mut secured: Secured) {
        let identity = secured.first_identity(now);
        self.secured = Some(secured);
        self.become_another(now, identity);
    }

    /// Changes the pseudonym if a change is due. Before the call, the caller has sent the messages of the
    /// present position.
    pub(super) fn look_at_pseudonym(&mut self, now: Time) {
        let repeats = self.facilities.as_ref().is_some_and(|facilities| facilities.is_telling());
        let identity = self.secured.as_mut().and_then(|secured| secured.poll_identity(now, repeats));
        self.become_another(now, identity);
    }

    pub(crate) fn become_another(&mut self, now: Time, identity: Option<Identity>) {
        let Some(identity) = identity else { return };
        let address = identity.gn_address(self.address.station_type());
        if let Some(facilities) = &mut self.facilities {
            facilities.follow(address);
        }
        self.handle_address(now, address);
    }

    /// Returns the security wing, if the station signs and verifies packets.
    pub fn secured(&self) -> Option<&Secured> {
        self.secured.as_ref()
    }

    /// Handles a frame of the link if the station verifies packets.
    pub(super) fn handle_secured_frame(&mut self, now: Time, frame: ReceivedFrame<'_>) {
        let Some(secured) = &mut self.secured else { return };
        // The entity counts the frames that it drops.
        match secured.handle_frame(now, frame) {
            Ok(Handled::Plain) => self.route_frame(now, frame),
            Ok(Handled::Ready(copy)) => self.route_frame(now, copy.frame()),
            Ok(Handled::Queued) | Err(_) => {}
        }
        self.take_verified(now);
        if let Some(secured) = &mut self.secured {
            secured.look_at_clock(now);
            self.outputs.extend(secured.poll_warning().map(Output::Warning));
        }
    }

    /// Passes the packets that the entity has verified to the router.
    pub(super) fn take_verified(&mut self, now: Time) {
        while let Some(secured) = &mut self.secured
            && let Some(verified) = secured.poll_verified(now)
        {
            self.route_frame(now, verified.frame());
        }
    }
}
