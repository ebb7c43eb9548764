//! Connects GeoNetworking with the facilities: passes payloads to the services, and the services' messages to
//! the router.

use carnet_base::{Time, WallTime};
use carnet_geonet::{Delivery, Request};
use carnet_its::den;
use carnet_its::facilities::Output as Done;
use carnet_wire::btp::port;

use super::Geonet;
use crate::facilities::plane::{Facilities, NO_FACILITIES_ERROR, SAEM_INDEX};
use crate::geonetworking::output::Output;
use crate::position::PositionQuality;

impl Geonet {
    /// Returns the facilities, if the station has them.
    pub fn facilities(&self) -> Option<&Facilities> {
        self.facilities.as_deref()
    }

    /// Sets the date of the facilities and of the security entity.
    pub fn handle_date(&mut self, now: Time, wall: WallTime) {
        if let Some(facilities) = &mut self.facilities {
            facilities.handle_date(now, wall);
        }
        if let Some(secured) = &mut self.security_plane {
            secured.handle_date(now, wall);
        }
    }

    /// Sets the quality of the positions that arrive from now on.
    pub fn handle_quality(&mut self, quality: PositionQuality) {
        if let Some(facilities) = &mut self.facilities {
            facilities.handle_quality(quality);
        }
        if let Some(secured) = &mut self.security_plane {
            secured.handle_quality(&quality);
        }
    }

    /// Handles vehicle data from an application.
    ///
    /// # Errors
    ///
    /// Returns an error if the octets are not a CAM, or if the station has no facilities.
    pub fn handle_vehicle(&mut self, now: Time, octets: &[u8]) -> Result<(), String> {
        self.check_permission_for_message(now, port::CAM, octets)?;
        self.facilities.as_mut().ok_or(NO_FACILITIES_ERROR)?.handle_vehicle(now, octets)?;
        self.collect_outputs(now);
        Ok(())
    }

    /// Checks whether a ticket of this station permits a message of a service.
    ///
    /// # Errors
    /// Returns an error if no ticket permits the message.
    fn check_permission_for_service(&mut self, now: Time, request: Request<'_>) -> Result<(), String> {
        let Some(secured) = &mut self.security_plane else { return Ok(()) };
        let result = secured.check_permission_for_service(now, request.next_header, request.payload);
        self.outputs.extend(secured.poll_warning().map(Output::Warning));
        result
    }

    /// Checks whether the ticket permits a message of an application.
    ///
    /// # Errors
    /// Returns an error if the ticket does not permit the message.
    pub(crate) fn check_permission_for_message(
        &mut self,
        now: Time,
        port: u16,
        message: &[u8],
    ) -> Result<(), String> {
        self.security_plane
            .as_mut()
            .map_or(Ok(()), |secured| secured.check_permission_for_message(now, port, message))
    }

    /// Passes a payload that the router has delivered to its service.
    pub(super) fn pass_to_facilities(&mut self, now: Time, delivery: &Delivery) {
        if let Some(facilities) = &mut self.facilities
            && let Some(message) = facilities.handle_delivery(now, delivery)
        {
            self.outputs.push_back(Output::Message(message));
        }
    }

    /// Passes the messages of the services to the router.
    pub(super) fn send_facilities_messages(&mut self, now: Time) {
        while let Some(facilities) = &mut self.facilities {
            let at = facilities.now(now);
            match facilities.services_mut().poll_output(at) {
                Some(Done::Transmit(transmission)) => {
                    let port = transmission.payload.get(..2);
                    let ports = [port::CAM, port::DENM].map(u16::to_be_bytes);
                    let kind = ports.iter().position(|it| port == Some(&it[..])).unwrap_or(SAEM_INDEX);
                    // If the message is refused, the security entity has queued a warning, or the router has
                    // counted the reason.
                    let sent = self.check_permission_for_service(now, transmission.to_request()).is_ok()
                        && self.router.handle_request(now, transmission.to_request()).is_ok();
                    if let Some(facilities) = &mut self.facilities {
                        facilities.count_sent(kind, sent);
                    }
                    self.collect_router_outputs(now);
                }
                Some(Done::Event(den::DenEvent::Ended(action))) => {
                    self.outputs.push_back(Output::EventOver(action.into()));
                }
                // `handle_delivery` has already returned these received messages for the applications.
                Some(Done::Event(den::DenEvent::Received { .. }) | Done::Cam(_)) => {}
                None => {
                    facilities.count_generation_errors();
                    return;
                }
            }
        }
    }
}
