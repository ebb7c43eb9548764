//! Encrypted sessions in a program that was built without them (Cargo feature `wireguard`).

use std::convert::Infallible;
use std::net::{IpAddr, Ipv6Addr, SocketAddrV4};

use anyhow::bail;
use carnet_api::config::{Config, PrivateKey};
use carnet_api::model::Keys;
use carnet_base::{Endpoint, Time};
use carnet_mobility::SessionPeer;
use carnet_nemo::forwarding::packet::PacketBuffer;

use super::{OutgoingDatagram, SessionArrival, SessionDeparture};
use crate::state::{RecordChange, RecordKey};

/// Takes the place of the sessions in a program that was built without encrypted sessions. No value of this
/// type exists.
pub struct Sessions(Infallible);

impl Sessions {
    /// Returns `None`: the station has no sessions.
    ///
    /// # Errors
    /// Returns an error if the config has a key of a remote end.
    pub fn new(
        config: &Config,
        _: Time,
        _: Option<&[(RecordKey, String)]>,
    ) -> anyhow::Result<Option<Sessions>> {
        if config.has_sessions() {
            bail!("this program was built without encrypted sessions, expected a config without public keys");
        }
        Ok(None)
    }

    pub fn key_status(&self) -> Keys {
        match self.0 {}
    }

    pub fn has_key_of(&self, _: Option<&PrivateKey>) -> bool {
        match self.0 {}
    }

    pub fn set_private_keys(&mut self, _: Time, _: &PrivateKey) {
        match self.0 {}
    }

    pub fn reconfigure(&mut self, _: Time, _: &Config) {
        match self.0 {}
    }

    pub fn newest_key(&self) -> Option<[u8; 32]> {
        match self.0 {}
    }

    pub fn set_care_of_addresses(&mut self, _: &[Ipv6Addr]) {
        match self.0 {}
    }

    pub fn accept_key(&mut self, _: Time, _: SessionPeer, _: [u8; 32]) {
        match self.0 {}
    }

    pub fn end_direct(&mut self, _: SessionPeer) {
        match self.0 {}
    }

    pub fn agent_socket(&self) -> Option<SocketAddrV4> {
        match self.0 {}
    }

    pub fn counters(&self) -> Vec<(String, u64)> {
        match self.0 {}
    }

    pub fn receive_ipv6_packet(&mut self, _: Time, _: &mut PacketBuffer) -> SessionArrival {
        match self.0 {}
    }

    pub fn receive_datagram(
        &mut self,
        _: Time,
        _: (Endpoint, Endpoint),
        _: u8,
        _: &mut PacketBuffer,
    ) -> SessionArrival {
        match self.0 {}
    }

    pub fn send_inner_packet(&mut self, _: Time, _: SessionPeer, _: (Endpoint, Endpoint), _: bool, _: &[u8]) {
        match self.0 {}
    }

    pub fn prepare_session(&mut self, _: Time, _: (Endpoint, Endpoint)) {
        match self.0 {}
    }

    pub fn send_outer_packet(&mut self, _: Time, _: &[u8]) -> SessionDeparture {
        match self.0 {}
    }

    pub fn send_inside_ipv4(&mut self, _: Time, _: (Endpoint, Endpoint), _: &[u8]) -> SessionDeparture {
        match self.0 {}
    }

    pub fn poll_datagram(&mut self) -> Option<OutgoingDatagram> {
        match self.0 {}
    }

    pub fn outgoing_packet_mut(&mut self) -> &mut PacketBuffer {
        match self.0 {}
    }

    pub fn outgoing_fragments(&mut self) -> Vec<Vec<u8>> {
        match self.0 {}
    }

    pub fn mtu_of_too_big(&self, _: Ipv6Addr, _: &[u8]) -> Option<((Endpoint, Endpoint), u32)> {
        match self.0 {}
    }

    pub fn ends_of_too_big_report(&self, _: Endpoint, _: Endpoint) -> (Endpoint, Endpoint) {
        match self.0 {}
    }

    pub fn poll_timeout(&self) -> Option<Time> {
        match self.0 {}
    }

    pub fn handle_due_work(&mut self, _: Time) {
        match self.0 {}
    }

    pub fn poll_message(&mut self, _: impl Fn(IpAddr) -> bool) -> Option<String> {
        match self.0 {}
    }

    pub fn take_changes(&mut self) -> Vec<RecordChange> {
        match self.0 {}
    }

    pub fn hold_until(&mut self, _: Time, _: Option<u64>) -> bool {
        match self.0 {}
    }

    pub fn handle_written(&mut self, _: Time, _: u64) {
        match self.0 {}
    }

    pub fn store_timestamps(&mut self) {
        match self.0 {}
    }
}
