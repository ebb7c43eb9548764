//! Connects GeoNetworking to its link, its virtual interfaces and the mobile network.

use std::net::SocketAddr;

use carnet_base::{Time, WallTime};
use carnet_geonet::multicast::LanPacket;
use carnet_geonet::{ReceivedFrame, ipv6_adaptation};
use carnet_linux::clock;
use carnet_linux::frame_link::LinkEvent;
use carnet_linux::multicast_link::{self, MulticastEvent};
use carnet_linux::virtual_link::{HostFrame, VirtualLinkEvent};
use carnet_station::io::{Command, Event, Frame, Input, Position, VirtualFrame};

use super::StationRunner;
use crate::geonet::{Geonet, GeonetEvent};
use crate::upper_tester::TesterMessage;

impl StationRunner {
    /// Passes the present position to the router, so that the router's packets contain it.
    pub(super) fn update_position(&mut self) {
        let position = self.geonet.get_mut().and_then(|geonet| geonet.present_position(clock::now()));
        if let Some(position) = position {
            self.move_station_to(position);
        }
    }

    fn pass_position_to_station(&mut self, now: Time) {
        if let Some(position) = self.geonet.get_mut().and_then(|geonet| geonet.report_position(now)) {
            self.move_station_to(position);
        }
    }

    fn move_station_to(&mut self, position: Position) {
        let position = match self.upper_tester.get() {
            Some(upper_tester) => upper_tester.displaced_position(position),
            None => position,
        };
        if let (Some(geonet), Some(applications)) = (self.geonet.get(), self.applications.get_mut())
            && let Some(quality) = applications.changed_quality(geonet.position_quality())
        {
            self.handle_input(Input::PositionQuality(quality));
        }
        self.handle_input(Input::Position(position));
    }

    pub(super) fn handle_geonet_event(&mut self, event: GeonetEvent) -> carnet_linux::Result<()> {
        let (now, wall) = (clock::now(), clock::wall_time());
        match event {
            GeonetEvent::Link(LinkEvent::Frames) => self.receive_radio_frames(now, wall)?,
            GeonetEvent::Link(LinkEvent::Changed(state)) => {
                let changed = self.geonet.get_mut().and_then(|geonet| geonet.handle_link_change(now, state));
                if let Some(address) = changed {
                    self.handle_input(Input::GeonetAddress(address.0));
                    self.pass_position_to_station(now);
                }
                self.pass_link_mtu_to_station();
                self.update_fast_path();
            }
            GeonetEvent::Link(_) => {}
            GeonetEvent::Position(event) => {
                let Some(geonet) = self.geonet.get_mut() else { return Ok(()) };
                let (position, news) = geonet.convert_position_event(now, event);
                if let Some(position) = position {
                    self.move_station_to(position);
                }
                if let Some(message) = news {
                    self.report_event(&Event::Warning { message });
                }
            }
            GeonetEvent::Update => {
                self.pass_position_to_station(now);
            }
            GeonetEvent::Virtual(VirtualLinkEvent::Frames) => self.receive_host_frames(now, wall),
            GeonetEvent::Virtual(VirtualLinkEvent::Addresses { link, addresses }) => {
                if link == 0
                    && let Some(geonet) = self.geonet.get_mut()
                {
                    geonet.update_addresses(&addresses);
                }
                self.handle_input(Input::VirtualAddresses { link, addresses });
                self.update_fast_path();
            }
            GeonetEvent::Report => {
                self.pass_position_to_station(now);
                self.update_fast_path();
                if let Some(report) = self.geonet.get_mut().and_then(|geonet| geonet.take_report(now)) {
                    self.handle_input(Input::GeonetReport(report));
                }
            }
            GeonetEvent::Multicast(MulticastEvent::Frames) => self.receive_lan_packets(now, wall),
            GeonetEvent::Multicast(MulticastEvent::Addresses { interface, addresses }) => {
                self.handle_input(Input::LanAddresses { interface, addresses });
            }
            GeonetEvent::FastPath(loaded) => {
                self.geonet_path_refusal = loaded.err();
                if let Some(geonet) = self.geonet.get_mut() {
                    geonet.update_listeners();
                }
                self.update_fast_path();
            }
            GeonetEvent::Ping => {
                let Some(geonet) = self.geonet.get_mut() else { return Ok(()) };
                for request in geonet.ping_requests(now, &self.station) {
                    // If the station refuses the request, no answer arrives, and the ping reports the request
                    // as lost.
                    if let Err(refusal) = self.try_handle_input(Input::Geonet(request)) {
                        tracing::debug!("{refusal}");
                    }
                }
            }
        }
        Ok(())
    }

    /// Receives a batch of frames.
    fn receive_radio_frames(&mut self, now: Time, wall: WallTime) -> carnet_linux::Result<()> {
        // Under a flood of frames the loop would never end, so it ends when a timer of the station is due.
        if self.station.poll_timeout().is_some_and(|due| due <= now) {
            self.handle_input(Input::Timeout);
        }
        // The router may answer a received packet, and the answer needs the present position.
        self.update_position();
        let unacknowledged = self.geonet.get_mut().map_or(Ok(Vec::new()), Geonet::take_unacknowledged)?;
        for frame in unacknowledged {
            self.handle_input(Input::Unacknowledged(frame));
        }
        let StationRunner { geonet, station, recorder, waiting_outputs: outputs, .. } = self;
        let Some(geonet) = geonet.get_mut() else { return Ok(()) };
        station.handle_date(now, wall);
        let result = geonet.receive_frames(|frame| {
            if recorder.is_active() {
                let ReceivedFrame { source, destination, packet } = frame;
                let frame = Frame { source, destination, profile: None, packet: packet.to_vec() };
                recorder.record_input(now, wall, Input::Frame(frame));
            }
            station.handle_frame(now, frame);
            outputs.extend(std::iter::from_fn(|| station.poll_output()));
        });
        self.carry_out_waiting_outputs();
        result
    }

    /// Handles a batch of frames that the host has sent on virtual interfaces.
    fn receive_host_frames(&mut self, now: Time, wall: WallTime) {
        // Under a flood of frames the loop never ends by itself, so it ends when a timer is due.
        if self.station.poll_timeout().is_some_and(|due| due <= now) {
            self.handle_input(Input::Timeout);
        }
        self.update_position();
        if let Some(octets) =
            self.geonet.get_mut().and_then(|geonet| geonet.take_changed_backlog(&self.station))
        {
            self.handle_input(Input::GeonetBacklog(octets));
        }
        let StationRunner { geonet, station, recorder, waiting_outputs: outputs, .. } = self;
        let Some(geonet) = geonet.get_mut() else { return };
        geonet.interfaces.receive_frames(|frame| {
            let HostFrame { link_id: link, destination, source, ether_type, payload } = frame;
            if recorder.is_active() {
                let payload = payload.to_vec();
                let frame = VirtualFrame { link, destination, source, ether_type, payload };
                recorder.record_input(now, wall, Input::VirtualFrame(frame));
            }
            let frame = ipv6_adaptation::HostFrame { destination, source, ether_type, payload };
            station.handle_host_frame(now, link, frame);
            outputs.extend(std::iter::from_fn(|| station.poll_output()));
        });
        self.carry_out_waiting_outputs();
    }

    /// Handles a batch of multicast packets that hosts of the mobile network have sent.
    fn receive_lan_packets(&mut self, now: Time, wall: WallTime) {
        // Under a flood of packets the loop never ends by itself, so it ends when a timer is due.
        if self.station.poll_timeout().is_some_and(|due| due <= now) {
            self.handle_input(Input::Timeout);
        }
        self.update_position();
        let StationRunner { geonet, station, recorder, waiting_outputs: outputs, .. } = self;
        let Some(geonet) = geonet.get_mut() else { return };
        geonet.multicast_lans.receive_packets(|lan| {
            let multicast_link::ReceivedMulticast { interface, source, packet } = lan;
            if recorder.is_active() {
                let (interface, packet) = (interface.to_owned(), packet.to_vec());
                recorder.record_input(now, wall, Input::LanPacket { interface, source, packet });
            }
            station.handle_lan_packet(now, LanPacket { interface, source, packet });
            outputs.extend(std::iter::from_fn(|| station.poll_output()));
        });
        self.carry_out_waiting_outputs();
    }

    /// Executes the outputs that were collected while a batch of frames was received.
    fn carry_out_waiting_outputs(&mut self) {
        let mut outputs = std::mem::take(&mut self.waiting_outputs);
        for output in outputs.drain(..) {
            self.carry_out_output(output);
        }
        self.waiting_outputs = outputs;
        self.carry_out_outputs();
    }

    /// Attaches the fast path of GeoNetworking to the interfaces, and tells the station whether the fast path
    /// exists.
    pub(super) fn update_fast_path(&mut self) {
        let is_router = self.station.geonet().is_some();
        let changed = self.geonet.get_mut().and_then(|geonet| geonet.attach_fast_path(is_router));
        if let Some(is) = changed {
            let numbers = self.geonet.get().and_then(Geonet::sequence_numbers);
            if let Some(numbers) = numbers.filter(|_| is) {
                self.station.share_sequence_numbers(numbers);
            }
            self.handle_input(Input::GeonetFastPath(is));
        }
    }

    /// Passes the largest payload of a radio frame to the station.
    pub(super) fn pass_link_mtu_to_station(&mut self) {
        // A station without a GeoNetworking router does not need the link's MTU.
        if self.station.geonet().is_some()
            && let Some(mtu) = self.geonet.get_mut().and_then(Geonet::take_changed_mtu)
        {
            self.handle_input(Input::GeonetMtu(mtu));
        }
    }

    /// Executes a command of the test system, and reports the result to it.
    pub(super) fn execute_tester_command(&mut self, tester: SocketAddr, message: TesterMessage) {
        let place = self.station.geonet().and_then(|router| router.position_vector()).copied();
        let done = match &message {
            TesterMessage::Initialize => {
                let home = place.zip(self.upper_tester.get_mut());
                if let Some(position) =
                    home.and_then(|(place, upper_tester)| upper_tester.end_displacement(&place))
                {
                    self.handle_input(Input::Position(position));
                }
                self.try_handle_input(Input::Command(Command::ResetGeonet))
            }
            TesterMessage::ChangePosition(north, east) => {
                let moved = place
                    .zip(self.upper_tester.get_mut())
                    .and_then(|(place, upper_tester)| upper_tester.displace_position(&place, *north, *east));
                moved
                    .ok_or_else(|| "there is no such position".to_owned())
                    .and_then(|position| self.try_handle_input(Input::Position(position)))
            }
            TesterMessage::ChangePseudonym => self.try_handle_input(Input::Command(Command::ChangePseudonym)),
            TesterMessage::Gn(request) | TesterMessage::Btp(request) => {
                self.try_handle_input(Input::Geonet(request.clone()))
            }
        };
        if let Err(refusal) = &done {
            tracing::debug!("cannot execute the upper tester's message {message:?}: {refusal}");
        }
        if let Some(upper_tester) = self.upper_tester.get() {
            upper_tester.send_result(tester, &message, done.is_ok());
        }
    }
}
