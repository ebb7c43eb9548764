//! Requests of applications to the facilities.

use carnet_api::model::{AnnouncedService, DenmRequest, GnArea, Ldm, Triggered, Vehicle};
use carnet_linux::clock;
use carnet_station::io::{Area, Command, DenmWish, Input};

use super::Runner;
use crate::facilities::{Filter, NO_FACILITIES, denm, ldm, vehicle};
use crate::request::Answer;

impl Runner {
    /// Returns the present place of an area; `None` if the request has no area.
    pub(super) fn area(&self, area: Option<&GnArea>) -> Answer<Option<Area>> {
        let Some(area) = area else { return Ok(None) };
        self.ask_geonet(|geonet, _| geonet.area(clock::now(), area, &self.station)).flatten().map(Some)
    }

    pub(super) fn set_vehicle(&mut self, told: Vehicle) -> Answer<()> {
        let facilities = self.config.facilities.as_ref().ok_or(NO_FACILITIES)?;
        let octets = vehicle::message(&told, facilities.role)?;
        self.try_input(Input::Vehicle(octets))?;
        if let Some(applications) = self.applications.get_mut() {
            applications.vehicle = told;
        }
        Ok(())
    }

    pub(super) fn denm(
        &mut self,
        wish: DenmWish,
        message: Vec<u8>,
        request: &DenmRequest,
    ) -> Answer<Option<Triggered>> {
        if self.applications.get().is_none() {
            return Err(NO_FACILITIES.into());
        }
        // An event that is sent only once needs a link now. The message of a repeated event may wait until
        // the link is back.
        if request.repetition_interval_ms.is_none() {
            self.ask_geonet(|geonet, _| geonet.check_link()).flatten()?;
        }
        let area = self.area(request.area.as_ref())?;
        // The area `here` is around the station's present position.
        self.update_position();
        let order = denm::order(wish, message, request, area);
        self.try_input(Input::Command(Command::Denm(order)))?;
        Ok(self.applications.get_mut().and_then(|applications| applications.take_triggered()))
    }

    /// Returns the answer to `GET /v1/services`. This station's own services come first.
    pub(super) fn services(&self) -> Answer<Vec<AnnouncedService>> {
        let facilities = self.station.facilities().ok_or(NO_FACILITIES)?;
        Ok(facilities.service_status(clock::now()))
    }

    pub(super) fn ldm(&self, filter: &Filter) -> Answer<Ldm> {
        let area = self.area(filter.area.as_ref())?.map(Into::into);
        let facilities = self.station.facilities().ok_or(NO_FACILITIES)?;
        Ok(ldm::ldm(&facilities.services().ldm, clock::now(), filter, area.as_ref()))
    }
}
