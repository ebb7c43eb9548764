//! The service announcement service (EN 302 890-1): announces the station's services and stores those of
//! other stations.
//!
//! * *Announcing*: while the station has services, it sends one advertisement with all of them to all
//!   stations in range. The content count changes with the content, so that receivers need not compare known
//!   content. The message contains its repeat rate.
//! * *Learning*: the service stores advertisements by the GN address of the sender and the advertisement's
//!   number. The service does not use the station ID, because any station can write any number into this
//!   field. A new advertisement replaces the one with the same key. The service removes an advertisement that
//!   does not arrive for [`Parameters::missed`] of its intervals, at least [`SHORTEST_HOLD`]. Without an
//!   interval the limit is [`Parameters::hold`]. The number of its services is limited to [`MOST_LEARNT`].
//! * *A full table* removes the advertisement that did not arrive for the longest time. For a station with
//!   [`Parameters::of_one`] advertisements, the table removes one of this station. So a silent station cannot
//!   lock out a sending one, and one station cannot lock out many.
//!
//! Left out: channels (the station has one channel), routers (they send Router Advertisements) and answers by
//! a Service Response Message. The advertiser's position is left out as well: the network has it for every
//! packet.

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;
use carnet_geonet::Transport;
use carnet_wire::btp::port;
use carnet_wire::geonet::{GnAddress, TrafficClass};

use crate::ca::check_header;
use crate::cdd::{ItsPduHeader, MessageId, ProtocolVersion, StationId};
use crate::io::payload;
use crate::sam::{
    ChangeCount, ChannelIndex, ChannelOptions, ContentCount, Extensions, ItsAid, LONGEST_CONTEXT,
    LONGEST_IDENTIFIER, ListOf, SaId, Saem, Sam, SamBody, ServiceInfo, VERSION, reference,
};
use crate::{ItsDrop, Now, Transmission};

/// Version of the ITS PDU header.
const PROTOCOL_VERSION: ProtocolVersion = ProtocolVersion(1);
/// TC ID of announcements: DCC profile DP3, because they can wait.
const TRAFFIC_CLASS: u8 = 3;
/// Time over which the repeat rate counts messages.
const RATE: Duration = Duration::from_secs(5);
/// Largest number of services in one message, so that the message fits a frame.
pub const MOST_SERVICES: usize = 16;
/// Largest number of services that the station stores from one advertisement; it ignores the others.
pub const MOST_LEARNT: usize = 32;
/// Least time for which the station stores an advertisement, even with a higher repeat rate.
pub const SHORTEST_HOLD: Duration = Duration::from_secs(1);

/// Bounds and intervals of the service.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameters {
    /// Interval of the announcements.
    pub interval: Duration,
    /// Largest number of stored advertisements.
    pub advertisements: usize,
    /// Largest number of advertisements of one station.
    pub of_one: usize,
    /// Largest number of services in all advertisements.
    pub services: usize,
    /// Time for which the service stores an advertisement without a repeat rate.
    pub hold: Duration,
    /// Number of missed intervals after which the service removes an advertisement.
    pub missed: u32,
}

impl Default for Parameters {
    fn default() -> Parameters {
        Parameters {
            interval: Duration::from_secs(1),
            advertisements: 256,
            of_one: 4,
            services: 2048,
            hold: Duration::from_secs(5),
            missed: 3,
        }
    }
}

/// A service of this or another station.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Service {
    /// Kind of service (ITS-AID).
    pub its_aid: ItsAid,
    /// IPv6 address, if the service has one.
    pub address: Option<Ipv6Addr>,
    /// UDP or TCP port at this address, or BTP port.
    pub port: Option<u16>,
    /// Context of the service, at most 31 octets.
    pub context: Vec<u8>,
}

/// Advertisement of another station.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advertisement {
    /// GN address of the sender.
    pub source: GnAddress,
    /// Station ID in the message.
    pub station_id: StationId,
    /// Number of the advertisement among those of its sender.
    pub sa_id: SaId,
    /// Content count, which changes with the content.
    pub content_count: ContentCount,
    /// Name of the sender, for display.
    pub identifier: Option<String>,
    /// Services of the advertisement.
    pub services: Vec<Service>,
    /// Time at which the advertisement last arrived.
    pub heard: Time,
    /// Time at which the service removes the advertisement.
    pub expires: Time,
}

/// Change of the stored advertisements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// An advertisement is new, or its content has changed.
    Advertised(GnAddress, SaId),
    /// The service has removed an advertisement.
    Gone(GnAddress, SaId),
}

/// Key of an advertisement.
type Key = (GnAddress, SaId);

/// The service announcement service of one station.
#[derive(Debug)]
pub struct SaService {
    parameters: Parameters,
    station_id: StationId,
    identifier: Option<String>,
    services: Vec<Service>,
    content_count: u8,
    /// Time of the next announcement; `None` without services.
    next: Option<Time>,
    ready: Option<Transmission>,
    refused: Option<ItsDrop>,
    known: BTreeMap<Key, Advertisement>,
    changes: VecDeque<Change>,
}

impl SaService {
    /// Creates the service of a station that announces nothing.
    pub fn new(parameters: Parameters, station_id: StationId) -> SaService {
        SaService {
            parameters,
            station_id,
            identifier: None,
            services: Vec::new(),
            content_count: 0,
            next: None,
            ready: None,
            refused: None,
            known: BTreeMap::new(),
            changes: VecDeque::new(),
        }
    }

    /// Sets a new station ID.
    pub fn set_station_id(&mut self, station_id: StationId) {
        self.station_id = station_id;
    }

    /// Sets the services of the station and announces them at once; with an empty list the station stops
    /// announcing. `identifier` is its name.
    ///
    /// # Errors
    /// [`ItsDrop::NotEncodable`] if there are more than [`MOST_SERVICES`], or a field of a service is too
    /// long; then nothing changes.
    pub fn announce(
        &mut self,
        now: Now,
        identifier: Option<String>,
        services: Vec<Service>,
    ) -> Result<(), ItsDrop> {
        let fits =
            |service: &Service| service.its_aid.0 <= ItsAid::MOST && service.context.len() <= LONGEST_CONTEXT;
        let name = identifier.as_ref().map_or(1, String::len);
        if services.len() > MOST_SERVICES
            || !services.iter().all(fits)
            || !(1..=LONGEST_IDENTIFIER).contains(&name)
        {
            return Err(ItsDrop::NotEncodable);
        }
        if (&self.identifier, &self.services) != (&identifier, &services) {
            self.content_count = (self.content_count + 1) % 16;
            (self.identifier, self.services) = (identifier, services);
        }
        self.next = (!self.services.is_empty()).then_some(now.time);
        self.handle_timeout(now);
        Ok(())
    }

    /// Returns the announced services.
    pub fn announced(&self) -> &[Service] {
        &self.services
    }

    /// Returns the advertisements of other stations.
    pub fn known(&self) -> impl Iterator<Item = &Advertisement> {
        self.known.values()
    }

    /// Handles a message of another station with the GN address `source`.
    ///
    /// # Errors
    /// The reason for which the message had no effect: [`ItsDrop`].
    pub fn handle_message(&mut self, now: Now, source: GnAddress, octets: &[u8]) -> Result<(), ItsDrop> {
        let saem = Saem::from_octets(octets).map_err(|_| ItsDrop::Malformed)?;
        check_header(&saem.header, MessageId::SAEM)?;
        if saem.sam.version != VERSION {
            return Err(ItsDrop::WrongVersion);
        }
        let station_id = saem.header.station_id;
        if station_id == self.station_id {
            return Err(ItsDrop::OwnMessage);
        }
        self.forget(now.time);
        let SamBody { change_count: ChangeCount { sa_id, content_count }, extensions, service_infos, .. } =
            saem.sam.body;
        let key = (source, sa_id);
        let extensions = extensions.unwrap_or_default();
        let rate = extensions.octet(reference::REPEAT_RATE).filter(|rate| *rate > 0);
        let hold = rate.map_or(self.parameters.hold, |rate| RATE / u32::from(rate) * self.parameters.missed);
        let infos = service_infos.unwrap_or_default().0.into_iter();
        let heard = Advertisement {
            source,
            station_id,
            sa_id,
            content_count,
            identifier: extensions
                .text(reference::ADVERTISER_IDENTIFIER)
                .filter(|text| text.len() <= LONGEST_IDENTIFIER)
                .map(str::to_owned),
            services: infos.take(MOST_LEARNT).map(service).collect(),
            heard: now.time,
            expires: now.time + hold.max(SHORTEST_HOLD),
        };
        let same = self.known.get(&key).is_some_and(|before| {
            (&before.identifier, &before.services) == (&heard.identifier, &heard.services)
        });
        let before = self.known.remove(&key);
        if !self.make_room(source, heard.services.len()) {
            self.known.extend(before.map(|before| (key, before)));
            return Err(ItsDrop::TableFull);
        }
        self.known.insert(key, heard);
        if !same {
            self.changed(Change::Advertised(source, sa_id));
        }
        Ok(())
    }

    /// Returns the time at which the caller must call [`Self::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Time> {
        let expires = self.known.values().map(|advertisement| advertisement.expires).min();
        self.next.into_iter().chain(expires).min()
    }

    /// Serves the timers.
    pub fn handle_timeout(&mut self, now: Now) {
        self.forget(now.time);
        if self.next.is_some_and(|next| next <= now.time) {
            self.next = Some(now.time + self.parameters.interval);
            match payload(port::SAEM, &self.message()) {
                Ok(payload) => {
                    self.ready = Some(Transmission {
                        transport: Transport::SingleHop([0; 4]),
                        traffic_class: TrafficClass { id: TRAFFIC_CLASS, ..TrafficClass::default() },
                        maximum_lifetime: self.parameters.interval,
                        maximum_hop_limit: Some(1),
                        payload,
                    });
                }
                Err(reason) => self.refused = Some(reason),
            }
        }
    }

    /// Returns the next announcement for the network.
    pub fn poll_transmit(&mut self) -> Option<Transmission> {
        self.ready.take()
    }

    /// Returns the reason for which the service could not make an announcement.
    pub fn poll_refused(&mut self) -> Option<ItsDrop> {
        self.refused.take()
    }

    /// Returns the next change. If the caller does not fetch changes, the service drops the oldest.
    pub fn poll_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    fn changed(&mut self, change: Change) {
        if self.changes.len() >= self.parameters.advertisements {
            self.changes.pop_front();
        }
        self.changes.push_back(change);
    }

    /// Removes the advertisements that did not arrive for the longest time until one with `services` services
    /// fits. Returns false and removes no advertisement if it can never fit.
    fn make_room(&mut self, source: GnAddress, services: usize) -> bool {
        let Parameters { advertisements, of_one, services: most, .. } = self.parameters;
        if advertisements == 0 || of_one == 0 || services > most {
            return false;
        }
        let of_this = |key: &Key| key.0 == source;
        while self.known.keys().filter(|key| of_this(key)).count() >= of_one {
            self.forget_oldest(of_this);
        }
        let all =
            |known: &BTreeMap<Key, Advertisement>| known.values().map(|it| it.services.len()).sum::<usize>();
        while self.known.len() >= advertisements || all(&self.known) + services > most {
            self.forget_oldest(|_| true);
        }
        true
    }

    fn forget_oldest(&mut self, of: impl Fn(&Key) -> bool) {
        let oldest = self.known.iter().filter(|(key, _)| of(key)).min_by_key(|(_, it)| it.heard);
        if let Some(key) = oldest.map(|(key, _)| *key) {
            self.known.remove(&key);
            self.changed(Change::Gone(key.0, key.1));
        }
    }

    fn forget(&mut self, now: Time) {
        while let Some(key) = self.known.iter().find(|(_, it)| it.expires <= now).map(|(key, _)| *key) {
            self.known.remove(&key);
            self.changed(Change::Gone(key.0, key.1));
        }
    }

    fn message(&self) -> Saem {
        let mut extensions = Extensions::default();
        let rate = RATE.as_millis().checked_div(self.parameters.interval.as_millis()).unwrap_or_default();
        // The field cannot express a rate below one in five seconds.
        if let Ok(rate @ 1..) = u8::try_from(rate) {
            extensions.add(reference::REPEAT_RATE, &[rate]);
        }
        if let Some(identifier) = &self.identifier {
            extensions.add_counted(reference::ADVERTISER_IDENTIFIER, identifier.as_bytes());
        }
        let body = SamBody {
            change_count: ChangeCount { sa_id: SaId(0), content_count: ContentCount(self.content_count) },
            extensions: Some(extensions).filter(|extensions| !extensions.0.is_empty()),
            service_infos: Some(ListOf(self.services.iter().map(service_info).collect())),
            ..SamBody::default()
        };
        let header = ItsPduHeader {
            protocol_version: PROTOCOL_VERSION,
            message_id: MessageId::SAEM,
            station_id: self.station_id,
        };
        Saem { header, sam: Sam { version: VERSION, body } }
    }
}

fn service_info(service: &Service) -> ServiceInfo {
    let mut extensions = Extensions::default();
    if !service.context.is_empty() {
        extensions.add_counted(reference::PROVIDER_SERVICE_CONTEXT, &service.context);
    }
    if let Some(address) = service.address {
        extensions.add(reference::IPV6_ADDRESS, &address.octets());
    }
    if let Some(port) = service.port {
        extensions.add(reference::SERVICE_PORT, &port.to_be_bytes());
    }
    ServiceInfo {
        service_id: service.its_aid,
        channel_index: ChannelIndex::NOT_USED,
        options: ChannelOptions {
            extensions: Some(extensions).filter(|extensions| !extensions.0.is_empty()),
            ..ChannelOptions::default()
        },
    }
}

fn service(info: ServiceInfo) -> Service {
    let extensions = info.options.extensions.unwrap_or_default();
    let context = extensions.counted(reference::PROVIDER_SERVICE_CONTEXT);
    Service {
        its_aid: info.service_id,
        address: extensions.address(reference::IPV6_ADDRESS),
        // EN 302 890-1 puts the port into the options, IEEE 1609.3 into the extensions.
        port: extensions
            .number(reference::SERVICE_PORT)
            .or(info.options.service_provider_port.map(|port| port.0)),
        context: context.filter(|context| context.len() <= LONGEST_CONTEXT).unwrap_or_default().to_vec(),
    }
}
