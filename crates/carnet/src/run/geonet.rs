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

use super::Runner;
use crate::geonet::{Geonet, GeonetEvent};
use crate::upper_tester::Message;

impl Runner {
    /// Passes the present position to the router, so that the router's packets contain it.
    pub(super) fn update_position(&mut self) {
        let position = self.geonet.get_mut().and_then(|geonet| geonet.position_now(clock::now()));
        if let Some(position) = position {
            self.move_to(position);
        }
    }

    fn tell_position(&mut self, now: Time) {
        if let Some(position) = self.geonet.get_mut().and_then(|geonet| geonet.tell(now)) {
            self.move_to(position);
        }
    }

    fn move_to(&mut self, position: Position) {
        let position = match self.upper_tester.get() {
            Some(upper_tester) => upper_tester.displaced(position),
            None => position,
        };
        if let (Some(geonet), Some(applications)) = (self.geonet.get(), self.applications.get_mut())
            && let Some(quality) = applications.news(geonet.quality())
        {
            self.input(Input::PositionQuality(quality));
        }
        self.input(Input::Position(position));
    }

    pub(super) fn geonet_event(&mut self, event: GeonetEvent) -> carnet_linux::Result<()> {
        let (now, wall) = (clock::now(), clock::wall_time());
        match event {
            GeonetEvent::Link(LinkEvent::Frames) => self.frames(now, wall)?,
            GeonetEvent::Link(LinkEvent::Changed(state)) => {
                let changed = self.geonet.get_mut().and_then(|geonet| geonet.link_changed(now, state));
                if let Some(address) = changed {
                    self.input(Input::GeonetAddress(address.0));
                    self.tell_position(now);
                }
                self.tell_mtu();
                self.place_fast_path();
            }
            GeonetEvent::Link(_) => {}
            GeonetEvent::Position(event) => {
                let Some(geonet) = self.geonet.get_mut() else { return Ok(()) };
                let (position, news) = geonet.position(now, event);
                if let Some(position) = position {
                    self.move_to(position);
                }
                if let Some(message) = news {
                    self.report(&Event::Warning { message });
                }
            }
            GeonetEvent::Update => {
                self.tell_position(now);
            }
            GeonetEvent::Virtual(VirtualLinkEvent::Frames) => self.host_frames(now, wall),
            GeonetEvent::Virtual(VirtualLinkEvent::Addresses { link, addresses }) => {
                if link == 0
                    && let Some(geonet) = self.geonet.get_mut()
                {
                    geonet.tell_addresses(&addresses);
                }
                self.input(Input::VirtualAddresses { link, addresses });
                self.place_fast_path();
            }
            GeonetEvent::Report => {
                self.tell_position(now);
                self.place_fast_path();
                if let Some(report) = self.geonet.get_mut().and_then(|geonet| geonet.report(now)) {
                    self.input(Input::GeonetReport(report));
                }
            }
            GeonetEvent::Multicast(MulticastEvent::Frames) => self.lan_packets(now, wall),
            GeonetEvent::Multicast(MulticastEvent::Addresses { interface, addresses }) => {
                self.input(Input::LanAddresses { interface, addresses });
            }
            GeonetEvent::FastPath(loaded) => {
                self.geonet_path_refused = loaded.err();
                if let Some(geonet) = self.geonet.get_mut() {
                    geonet.tell_listeners();
                }
                self.place_fast_path();
            }
            GeonetEvent::Ping => {
                let Some(geonet) = self.geonet.get_mut() else { return Ok(()) };
                for request in geonet.ping_requests(now, &self.station) {
                    // If a request cannot be sent, no answer arrives, and the ping reports the request as
                    // lost.
                    if let Err(refusal) = self.try_input(Input::Geonet(request)) {
                        tracing::debug!("{refusal}");
                    }
                }
            }
        }
        Ok(())
    }

    /// Receives a batch of frames.
    fn frames(&mut self, now: Time, wall: WallTime) -> carnet_linux::Result<()> {
        // Under a flood of frames the loop never ends by itself, so it ends when a timer is due.
        if self.station.poll_timeout().is_some_and(|due| due <= now) {
            self.input(Input::Timeout);
        }
        // The router may answer a received packet, and the answer needs the present position.
        self.update_position();
        let unacknowledged = self.geonet.get_mut().map_or(Ok(Vec::new()), Geonet::unacknowledged)?;
        for frame in unacknowledged {
            self.input(Input::Unacknowledged(frame));
        }
        let Runner { geonet, station, recorder, outputs, .. } = self;
        let Some(geonet) = geonet.get_mut() else { return Ok(()) };
        station.handle_date(now, wall);
        let result = geonet.receive(|frame| {
            if recorder.is_active() {
                let ReceivedFrame { source, destination, packet } = frame;
                let frame = Frame { source, destination, profile: None, packet: packet.to_vec() };
                recorder.record(now, wall, Input::Frame(frame));
            }
            station.handle_frame(now, frame);
            outputs.extend(std::iter::from_fn(|| station.poll_output()));
        });
        self.carry_collected();
        result
    }

    /// Handles a batch of frames that the host has sent on virtual interfaces.
    fn host_frames(&mut self, now: Time, wall: WallTime) {
        // Under a flood of frames the loop never ends by itself, so it ends when a timer is due.
        if self.station.poll_timeout().is_some_and(|due| due <= now) {
            self.input(Input::Timeout);
        }
        self.update_position();
        if let Some(octets) = self.geonet.get_mut().and_then(|geonet| geonet.new_backlog(&self.station)) {
            self.input(Input::GeonetBacklog(octets));
        }
        let Runner { geonet, station, recorder, outputs, .. } = self;
        let Some(geonet) = geonet.get_mut() else { return };
        geonet.interfaces.receive(|frame| {
            let HostFrame { link_id: link, destination, source, ether_type, payload } = frame;
            if recorder.is_active() {
                let payload = payload.to_vec();
                let frame = VirtualFrame { link, destination, source, ether_type, payload };
                recorder.record(now, wall, Input::VirtualFrame(frame));
            }
            let frame = ipv6_adaptation::HostFrame { destination, source, ether_type, payload };
            station.handle_host_frame(now, link, frame);
            outputs.extend(std::iter::from_fn(|| station.poll_output()));
        });
        self.carry_collected();
    }

    /// Handles a batch of multicast packets that hosts of the mobile network have sent.
    fn lan_packets(&mut self, now: Time, wall: WallTime) {
        // Under a flood of packets the loop never ends by itself, so it ends when a timer is due.
        if self.station.poll_timeout().is_some_and(|due| due <= now) {
            self.input(Input::Timeout);
        }
        self.update_position();
        let Runner { geonet, station, recorder, outputs, .. } = self;
        let Some(geonet) = geonet.get_mut() else { return };
        geonet.multicast.receive(|lan| {
            let multicast_link::ReceivedMulticast { interface, source, packet } = lan;
            if recorder.is_active() {
                let (interface, packet) = (interface.to_owned(), packet.to_vec());
                recorder.record(now, wall, Input::LanPacket { interface, source, packet });
            }
            station.handle_lan_packet(now, LanPacket { interface, source, packet });
            outputs.extend(std::iter::from_fn(|| station.poll_output()));
        });
        self.carry_collected();
    }

    /// Executes the outputs that the loop has collected while it received frames.
    fn carry_collected(&mut self) {
        let mut outputs = std::mem::take(&mut self.outputs);
        for output in outputs.drain(..) {
            self.carry(output);
        }
        self.outputs = outputs;
        self.carry_out();
    }

    /// Attaches the fast path of GeoNetworking to the interfaces, and tells the station whether the fast path
    /// exists.
    pub(super) fn place_fast_path(&mut self) {
        let is_router = self.station.geonet().is_some();
        let changed = self.geonet.get_mut().and_then(|geonet| geonet.place_fast_path(is_router));
        if let Some(is) = changed {
            let numbers = self.geonet.get().and_then(Geonet::sequence_numbers);
            if let Some(numbers) = numbers.filter(|_| is) {
                self.station.share_sequence_numbers(numbers);
            }
            self.input(Input::GeonetFastPath(is));
        }
    }

    /// Passes the largest payload of a radio frame to the station.
    pub(super) fn tell_mtu(&mut self) {
        // If the station has no GeoNetworking router, it does not need the payload size.
        if self.station.geonet().is_some()
            && let Some(mtu) = self.geonet.get_mut().and_then(Geonet::new_mtu)
        {
            self.input(Input::GeonetMtu(mtu));
        }
    }

    /// Executes a command of the upper tester, and reports the result to the tester.
    pub(super) fn steer(&mut self, tester: SocketAddr, message: Message) {
        let place = self.station.geonet().and_then(|router| router.position_vector()).copied();
        let done = match &message {
            Message::Initialize => {
                let home = place.zip(self.upper_tester.get_mut());
                if let Some(position) = home.and_then(|(place, upper_tester)| upper_tester.initialize(&place))
                {
                    self.input(Input::Position(position));
                }
                self.try_input(Input::Command(Command::ResetGeonet))
            }
            Message::ChangePosition(north, east) => {
                let moved = place
                    .zip(self.upper_tester.get_mut())
                    .and_then(|(place, upper_tester)| upper_tester.displace(&place, *north, *east));
                moved
                    .ok_or_else(|| "there is no such position".to_owned())
                    .and_then(|position| self.try_input(Input::Position(position)))
            }
            Message::ChangePseudonym => self.try_input(Input::Command(Command::ChangePseudonym)),
            Message::Gn(request) | Message::Btp(request) => self.try_input(Input::Geonet(request.clone())),
        };
        if let Err(refusal) = &done {
            tracing::debug!("cannot execute the upper tester's message {message:?}: {refusal}");
        }
        if let Some(upper_tester) = self.upper_tester.get() {
            upper_tester.answer(tester, &message, done.is_ok());
        }
    }
}
