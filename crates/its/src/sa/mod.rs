//! The service announcement service (EN 302 890-1): announces the station's services and stores those of
//! other stations.
//!
//! * *Announcing*: while the station has services, it sends one advertisement with all of them to all
//!   stations in range. The content count changes with the content, so that receivers need not compare known
//!   content. The message contains its repeat rate.
//! * *Learning*: the service stores advertisements by the GN address of the sender and the advertisement's
//!   number. The service does not use the station ID, because any station can write any number into this
//!   field. A new advertisement replaces the one with the same key. The service removes an advertisement that
//!   does not arrive for [`SaParameters::max_missed_intervals`] of its intervals, at least
//!   [`MIN_ADVERTISEMENT_LIFETIME`]. Without an interval the limit is [`SaParameters::default_lifetime`]. The
//!   number of its services is limited to [`MAX_STORED_SERVICES`].
//! * *A full table* removes the advertisement that did not arrive for the longest time. If a station already
//!   has [`SaParameters::advertisements_per_station`] advertisements, its next one replaces one of its own.
//!   So a silent station cannot lock out a sending one, and one station cannot lock out many.
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
use crate::io::encode_btp_payload;
use crate::sam::{
    ChangeCount, ChannelIndex, ChannelOptions, ContentCount, Extensions, ItsAid, MAX_CONTEXT_LENGTH,
    MAX_IDENTIFIER_LENGTH, SaId, Saem, Sam, SamBody, ServiceInfo, UnboundedList, VERSION, reference,
};
use crate::{ItsDrop, ItsTime, MessageTransmission};

/// Version of the ITS PDU header.
const SAEM_PROTOCOL_VERSION: ProtocolVersion = ProtocolVersion(1);
/// TC ID of announcements: DCC profile DP3, because they can wait.
const SAEM_TRAFFIC_CLASS: u8 = 3;
/// Time over which the repeat rate counts messages.
const REPEAT_RATE_PERIOD: Duration = Duration::from_secs(5);
/// Largest number of services in one message. More services may not fit a frame.
pub const MAX_SERVICES_PER_MESSAGE: usize = 16;
/// Largest number of services that the station stores from one advertisement; it ignores further services.
pub const MAX_STORED_SERVICES: usize = 32;
/// Least time for which the station stores an advertisement, even with a higher repeat rate.
pub const MIN_ADVERTISEMENT_LIFETIME: Duration = Duration::from_secs(1);

/// Bounds and intervals of the service.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SaParameters {
    /// Interval of the announcements.
    pub announcement_interval: Duration,
    /// Largest number of stored advertisements.
    pub max_advertisements: usize,
    /// Largest number of advertisements of one station.
    pub advertisements_per_station: usize,
    /// Largest number of services in all advertisements.
    pub max_services: usize,
    /// Time for which the service stores an advertisement without a repeat rate.
    pub default_lifetime: Duration,
    /// Number of missed intervals after which the service removes an advertisement.
    pub max_missed_intervals: u32,
}

impl Default for SaParameters {
    fn default() -> SaParameters {
        SaParameters {
            announcement_interval: Duration::from_secs(1),
            max_advertisements: 256,
            advertisements_per_station: 4,
            max_services: 2048,
            default_lifetime: Duration::from_secs(5),
            max_missed_intervals: 3,
        }
    }
}

/// A service of this or another station.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AnnouncedService {
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
    /// Number of this advertisement among the sender's advertisements.
    pub sa_id: SaId,
    /// Content count, which changes with the content.
    pub content_count: ContentCount,
    /// Name of the sender, for display.
    pub identifier: Option<String>,
    /// Services of the advertisement.
    pub services: Vec<AnnouncedService>,
    /// Time at which the advertisement arrived last.
    pub last_received: Time,
    /// Time at which the service removes the advertisement.
    pub expires_at: Time,
}

/// Change of the stored advertisements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdvertisementChange {
    /// An advertisement is new, or its content has changed.
    Advertised(GnAddress, SaId),
    /// The service has removed an advertisement.
    Gone(GnAddress, SaId),
}

/// Key of an advertisement.
type AdvertisementKey = (GnAddress, SaId);

/// The service announcement service of one station.
#[derive(Debug)]
pub struct SaService {
    parameters: SaParameters,
    station_id: StationId,
    identifier: Option<String>,
    services: Vec<AnnouncedService>,
    content_count: u8,
    /// Time of the next announcement; `None` if the station announces no services.
    next_announcement_at: Option<Time>,
    next_announcement_transmission: Option<MessageTransmission>,
    last_announcement_error: Option<ItsDrop>,
    stored_advertisements: BTreeMap<AdvertisementKey, Advertisement>,
    unreported_changes: VecDeque<AdvertisementChange>,
}

impl SaService {
    /// Creates a service that announces nothing yet.
    pub fn new(parameters: SaParameters, station_id: StationId) -> SaService {
        SaService {
            parameters,
            station_id,
            identifier: None,
            services: Vec::new(),
            content_count: 0,
            next_announcement_at: None,
            next_announcement_transmission: None,
            last_announcement_error: None,
            stored_advertisements: BTreeMap::new(),
            unreported_changes: VecDeque::new(),
        }
    }

    /// Sets a new station ID.
    pub fn set_station_id(&mut self, station_id: StationId) {
        self.station_id = station_id;
    }

    /// Replaces the services that this station announces, and announces them at once. An empty list ends the
    /// announcements. `identifier` is the name of the station.
    ///
    /// # Errors
    ///
    /// [`ItsDrop::NotEncodable`] if there are more than [`MAX_SERVICES_PER_MESSAGE`] services or a field is
    /// too long; the old list then stays in use.
    pub fn announce_services(
        &mut self,
        now: ItsTime,
        identifier: Option<String>,
        services: Vec<AnnouncedService>,
    ) -> Result<(), ItsDrop> {
        let fits = |service: &AnnouncedService| {
            service.its_aid.0 <= ItsAid::MAX_ITS_AID && service.context.len() <= MAX_CONTEXT_LENGTH
        };
        let name = identifier.as_ref().map_or(1, String::len);
        if services.len() > MAX_SERVICES_PER_MESSAGE
            || !services.iter().all(fits)
            || !(1..=MAX_IDENTIFIER_LENGTH).contains(&name)
        {
            return Err(ItsDrop::NotEncodable);
        }
        if (&self.identifier, &self.services) != (&identifier, &services) {
            self.content_count = (self.content_count + 1) % 16;
            (self.identifier, self.services) = (identifier, services);
        }
        self.next_announcement_at = (!self.services.is_empty()).then_some(now.time);
        self.handle_timeout(now);
        Ok(())
    }

    /// Returns the announced services.
    pub fn announced_services(&self) -> &[AnnouncedService] {
        &self.services
    }

    /// Returns the advertisements of other stations.
    pub fn known_advertisements(&self) -> impl Iterator<Item = &Advertisement> {
        self.stored_advertisements.values()
    }

    /// Handles a message of another station with the GN address `source`.
    ///
    /// # Errors
    /// The reason for which the message had no effect: [`ItsDrop`].
    pub fn handle_message(&mut self, now: ItsTime, source: GnAddress, octets: &[u8]) -> Result<(), ItsDrop> {
        let saem = Saem::from_octets(octets).map_err(|_| ItsDrop::Malformed)?;
        check_header(&saem.header, MessageId::SAEM)?;
        if saem.sam.version != VERSION {
            return Err(ItsDrop::WrongVersion);
        }
        let station_id = saem.header.station_id;
        if station_id == self.station_id {
            return Err(ItsDrop::OwnMessage);
        }
        self.remove_expired(now.time);
        let SamBody { change_count: ChangeCount { sa_id, content_count }, extensions, service_infos, .. } =
            saem.sam.body;
        let key = (source, sa_id);
        let extensions = extensions.unwrap_or_default();
        let rate = extensions.extension_octet(reference::REPEAT_RATE).filter(|rate| *rate > 0);
        let hold = rate.map_or(self.parameters.default_lifetime, |rate| {
            REPEAT_RATE_PERIOD / u32::from(rate) * self.parameters.max_missed_intervals
        });
        let infos = service_infos.unwrap_or_default().0.into_iter();
        let heard = Advertisement {
            source,
            station_id,
            sa_id,
            content_count,
            identifier: extensions
                .extension_text(reference::ADVERTISER_IDENTIFIER)
                .filter(|text| text.len() <= MAX_IDENTIFIER_LENGTH)
                .map(str::to_owned),
            services: infos.take(MAX_STORED_SERVICES).map(to_announced_service).collect(),
            last_received: now.time,
            expires_at: now.time + hold.max(MIN_ADVERTISEMENT_LIFETIME),
        };
        let same = self.stored_advertisements.get(&key).is_some_and(|before| {
            (&before.identifier, &before.services) == (&heard.identifier, &heard.services)
        });
        let before = self.stored_advertisements.remove(&key);
        if !self.make_room_for_advertisement(source, heard.services.len()) {
            self.stored_advertisements.extend(before.map(|before| (key, before)));
            return Err(ItsDrop::TableFull);
        }
        self.stored_advertisements.insert(key, heard);
        if !same {
            self.push_change(AdvertisementChange::Advertised(source, sa_id));
        }
        Ok(())
    }

    /// Returns the time at which the caller must call [`Self::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Time> {
        let expires = self.stored_advertisements.values().map(|advertisement| advertisement.expires_at).min();
        self.next_announcement_at.into_iter().chain(expires).min()
    }

    /// Sends an announcement and removes expired advertisements, if their time has come.
    pub fn handle_timeout(&mut self, now: ItsTime) {
        self.remove_expired(now.time);
        if self.next_announcement_at.is_some_and(|next| next <= now.time) {
            self.next_announcement_at = Some(now.time + self.parameters.announcement_interval);
            match encode_btp_payload(port::SAEM, &self.build_message()) {
                Ok(payload) => {
                    self.next_announcement_transmission = Some(MessageTransmission {
                        transport: Transport::SingleHop([0; 4]),
                        traffic_class: TrafficClass { id: SAEM_TRAFFIC_CLASS, ..TrafficClass::default() },
                        maximum_lifetime: self.parameters.announcement_interval,
                        maximum_hop_limit: Some(1),
                        payload,
                    });
                }
                Err(reason) => self.last_announcement_error = Some(reason),
            }
        }
    }

    /// Returns the next announcement to send.
    pub fn poll_transmit(&mut self) -> Option<MessageTransmission> {
        self.next_announcement_transmission.take()
    }

    /// Returns the reason for which the service could not make an announcement; `None` if no announcement
    /// failed since the previous call.
    pub fn poll_announcement_error(&mut self) -> Option<ItsDrop> {
        self.last_announcement_error.take()
    }

    /// Returns the next change of the stored advertisements. If the caller does not poll, the service drops
    /// the oldest changes.
    pub fn poll_change(&mut self) -> Option<AdvertisementChange> {
        self.unreported_changes.pop_front()
    }

    fn push_change(&mut self, change: AdvertisementChange) {
        if self.unreported_changes.len() >= self.parameters.max_advertisements {
            self.unreported_changes.pop_front();
        }
        self.unreported_changes.push_back(change);
    }

    /// Removes the advertisements that have not arrived for the longest time, until the table has room for
    /// `services` services. Returns false, and removes nothing, if the services would not fit an empty table.
    fn make_room_for_advertisement(&mut self, source: GnAddress, services: usize) -> bool {
        let SaParameters {
            max_advertisements: advertisements,
            advertisements_per_station: of_one,
            max_services: most,
            ..
        } = self.parameters;
        if advertisements == 0 || of_one == 0 || services > most {
            return false;
        }
        let of_this = |key: &AdvertisementKey| key.0 == source;
        while self.stored_advertisements.keys().filter(|key| of_this(key)).count() >= of_one {
            self.remove_oldest(of_this);
        }
        let all = |known: &BTreeMap<AdvertisementKey, Advertisement>| {
            known.values().map(|it| it.services.len()).sum::<usize>()
        };
        while self.stored_advertisements.len() >= advertisements
            || all(&self.stored_advertisements) + services > most
        {
            self.remove_oldest(|_| true);
        }
        true
    }

    fn remove_oldest(&mut self, of: impl Fn(&AdvertisementKey) -> bool) {
        let oldest = self
            .stored_advertisements
            .iter()
            .filter(|(key, _)| of(key))
            .min_by_key(|(_, it)| it.last_received);
        if let Some(key) = oldest.map(|(key, _)| *key) {
            self.stored_advertisements.remove(&key);
            self.push_change(AdvertisementChange::Gone(key.0, key.1));
        }
    }

    fn remove_expired(&mut self, now: Time) {
        while let Some(key) =
            self.stored_advertisements.iter().find(|(_, it)| it.expires_at <= now).map(|(key, _)| *key)
        {
            self.stored_advertisements.remove(&key);
            self.push_change(AdvertisementChange::Gone(key.0, key.1));
        }
    }

    fn build_message(&self) -> Saem {
        let mut extensions = Extensions::default();
        let rate = REPEAT_RATE_PERIOD
            .as_millis()
            .checked_div(self.parameters.announcement_interval.as_millis())
            .unwrap_or_default();
        // The field is the number of messages in five seconds, so it cannot express a lower rate than one.
        if let Ok(rate @ 1..) = u8::try_from(rate) {
            extensions.add(reference::REPEAT_RATE, &[rate]);
        }
        if let Some(identifier) = &self.identifier {
            extensions.add_with_length(reference::ADVERTISER_IDENTIFIER, identifier.as_bytes());
        }
        let body = SamBody {
            change_count: ChangeCount { sa_id: SaId(0), content_count: ContentCount(self.content_count) },
            extensions: Some(extensions).filter(|extensions| !extensions.0.is_empty()),
            service_infos: Some(UnboundedList(self.services.iter().map(service_info).collect())),
            ..SamBody::default()
        };
        let header = ItsPduHeader {
            protocol_version: SAEM_PROTOCOL_VERSION,
            message_id: MessageId::SAEM,
            station_id: self.station_id,
        };
        Saem { header, sam: Sam { version: VERSION, body } }
    }
}

fn service_info(service: &AnnouncedService) -> ServiceInfo {
    let mut extensions = Extensions::default();
    if !service.context.is_empty() {
        extensions.add_with_length(reference::PROVIDER_SERVICE_CONTEXT, &service.context);
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

fn to_announced_service(info: ServiceInfo) -> AnnouncedService {
    let extensions = info.options.extensions.unwrap_or_default();
    let context = extensions.octets_with_length(reference::PROVIDER_SERVICE_CONTEXT);
    AnnouncedService {
        its_aid: info.service_id,
        address: extensions.address(reference::IPV6_ADDRESS),
        // EN 302 890-1 puts the port into the options, IEEE 1609.3 into the extensions.
        port: extensions
            .extension_number(reference::SERVICE_PORT)
            .or(info.options.service_provider_port.map(|port| port.0)),
        context: context.filter(|context| context.len() <= MAX_CONTEXT_LENGTH).unwrap_or_default().to_vec(),
    }
}
