//! Requests of applications to the facilities.

use carnet_api::model::{AnnouncedService, DenmRequest, GnArea, Ldm, Triggered, Vehicle};
use carnet_linux::clock;
use carnet_station::io::{Area, Command, DenmAction, Input};

use super::StationRunner;
use crate::facilities::{ERROR_NO_FACILITIES, MessageFilter, denm_requests, ldm_objects, vehicle_data};
use crate::request::Answer;

impl StationRunner {
    /// Returns an area at its present position; `None` if the request has no area.
    pub(super) fn present_area(&self, area: Option<&GnArea>) -> Answer<Option<Area>> {
        let Some(area) = area else { return Ok(None) };
        self.query_geonet(|geonet, _| geonet.area_at_present(clock::now(), area, &self.station))
            .flatten()
            .map(Some)
    }

    pub(super) fn set_vehicle(&mut self, vehicle: Vehicle) -> Answer<()> {
        let facilities = self.config.facilities.as_ref().ok_or(ERROR_NO_FACILITIES)?;
        let octets = vehicle_data::cam_of_vehicle(&vehicle, facilities.vehicle_role)?;
        self.try_handle_input(Input::Vehicle(octets))?;
        if let Some(applications) = self.applications.get_mut() {
            applications.vehicle_report = vehicle;
        }
        Ok(())
    }

    pub(super) fn trigger_denm(
        &mut self,
        wish: DenmAction,
        message: Vec<u8>,
        request: &DenmRequest,
    ) -> Answer<Option<Triggered>> {
        if self.applications.get().is_none() {
            return Err(ERROR_NO_FACILITIES.into());
        }
        // A DENM that is sent only once needs a link now. A repeated DENM may wait until the link is back.
        if request.repetition_interval_ms.is_none() {
            self.query_geonet(|geonet, _| geonet.check_link()).flatten()?;
        }
        let area = self.present_area(request.area.as_ref())?;
        // The area `here` is around the station's present position.
        self.update_position();
        let order = denm_requests::denm_order(wish, message, request, area);
        self.try_handle_input(Input::Command(Command::Denm(order)))?;
        Ok(self.applications.get_mut().and_then(|applications| applications.take_triggered_event()))
    }

    /// Returns the answer to `GET /v1/services`. This station's own services come first.
    pub(super) fn announced_services(&self) -> Answer<Vec<AnnouncedService>> {
        let facilities = self.station.facilities().ok_or(ERROR_NO_FACILITIES)?;
        Ok(facilities.service_status(clock::now()))
    }

    pub(super) fn ldm_objects(&self, filter: &MessageFilter) -> Answer<Ldm> {
        let area = self.present_area(filter.area.as_ref())?.map(Into::into);
        let facilities = self.station.facilities().ok_or(ERROR_NO_FACILITIES)?;
        Ok(ldm_objects::filtered_ldm(&facilities.services().ldm, clock::now(), filter, area.as_ref()))
    }
}
