//! Perimeter recovery: forwarding around a void along a planar subgraph (Karp and Kung, GPSR, MobiCom 2000).
//! **Not part of the standard**, and off by default.
//!
//! If greedy forwarding finds no neighbour nearer to the destination, the packet enters perimeter mode. The
//! packet follows the faces of a planar subgraph by the right-hand rule. It changes to the next face at an
//! edge that crosses the line from the point of entry to the destination. At a station nearer to the
//! destination than the point of entry, greedy forwarding resumes. A packet that would take the first edge of
//! its face again cannot reach the destination, and the station drops it.
//!
//! **On the air** a packet in perimeter mode is the original packet with two differences. The Common Header's
//! next header is [`PERIMETER_NEXT_HEADER`] (15, undefined), and 32 octets precede the payload, counted by
//! PL:
//!
//! | octet | field |
//! |---|---|
//! | 0 | version (4 bits, 1), the original next header (4 bits) |
//! | 1 | reserved, 0 |
//! | 2 | where the packet entered perimeter mode: latitude, longitude (i32, 0.1 microdegree) |
//! | 10 | where it entered the present face: latitude, longitude |
//! | 18 | first edge of the present face: MID of its beginning, MID of its end |
//! | 30 | reserved, 0 |
//!
//! A station sends a packet in perimeter mode to one neighbour and never broadcasts it. A station without the
//! extension discards such a packet for its next header, or forwards it greedily and never delivers it.
//! Without the extension the packet would be lost, too. At the end of perimeter mode the station restores the
//! original packet to the octet.
//!
//! **No loops.** Greedy steps come strictly closer to the destination. A greedy phase after a perimeter phase
//! starts closer to the destination than the previous greedy phase ended. On a face the packet takes no
//! directed edge twice: before it takes the first edge again, the station drops it. If outdated positions
//! make the faces of two stations disagree, RHL ends the walk. No station handles the same packet with the
//! same RHL twice.

use carnet_wire::geonet::CommonNextHeader;

use crate::geodesy::{DistanceMetric, LocalPlane, Position};
use crate::location_table::{EntrySlot, LocationTable};
use crate::mib::Planarisation;
use crate::{GeonetDrop, MacAddress};

/// The next header of a packet in perimeter mode.
pub const PERIMETER_NEXT_HEADER: u8 = 15;
/// The version of the recovery header.
const HEADER_VERSION: u8 = 1;
/// Progress in metres that a change of face requires. An edge's crossing with the line to the destination
/// must be nearer to the destination than the entry point by this distance. Otherwise the packet does not
/// change the face. The margin is needed because positions are rounded to centimetres.
const MIN_PROGRESS_METRES: f64 = 0.1;

/// The recovery header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecoveryHeader {
    /// Kind of the payload behind the header.
    pub next_header: CommonNextHeader,
    /// Position at which greedy forwarding failed (Lp).
    pub greedy_failure_position: Position,
    /// Position at which the packet entered the present face (Lf).
    pub face_entry_position: Position,
    /// First edge that the packet took on the present face of the planar graph (e0 in GPSR).
    pub first_edge: (MacAddress, MacAddress),
}

impl RecoveryHeader {
    /// Length of the header, octets.
    pub const LEN: usize = 32;

    /// Reads the header from the beginning of a payload.
    ///
    /// # Errors
    /// [`GeonetDrop::BadRecoveryHeader`] for fewer than 32 octets, another version or an invalid position.
    pub fn parse(payload: &[u8]) -> Result<RecoveryHeader, GeonetDrop> {
        let octets: &[u8; Self::LEN] = payload.first_chunk().ok_or(GeonetDrop::BadRecoveryHeader)?;
        let coordinate =
            |at: usize| i32::from_be_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]]);
        let mac = |at: usize| {
            let mut mac = MacAddress::default();
            mac.copy_from_slice(&octets[at..at + 6]);
            mac
        };
        let header = RecoveryHeader {
            next_header: CommonNextHeader::from_value(octets[0]),
            greedy_failure_position: Position::new(coordinate(2), coordinate(6)),
            face_entry_position: Position::new(coordinate(10), coordinate(14)),
            first_edge: (mac(18), mac(24)),
        };
        let known = !matches!(header.next_header, CommonNextHeader::Unknown(_));
        if octets[0] >> 4 == HEADER_VERSION
            && known
            && header.greedy_failure_position.is_on_earth()
            && header.face_entry_position.is_on_earth()
        {
            Ok(header)
        } else {
            Err(GeonetDrop::BadRecoveryHeader)
        }
    }

    /// Returns the octets of the header.
    pub fn to_octets(&self) -> [u8; Self::LEN] {
        let mut octets = [0; Self::LEN];
        octets[0] = HEADER_VERSION << 4 | self.next_header.value();
        octets[2..6].copy_from_slice(&self.greedy_failure_position.latitude.to_be_bytes());
        octets[6..10].copy_from_slice(&self.greedy_failure_position.longitude.to_be_bytes());
        octets[10..14].copy_from_slice(&self.face_entry_position.latitude.to_be_bytes());
        octets[14..18].copy_from_slice(&self.face_entry_position.longitude.to_be_bytes());
        octets[18..24].copy_from_slice(&self.first_edge.0);
        octets[24..30].copy_from_slice(&self.first_edge.1);
        octets
    }
}

/// Returns the neighbours to which the planar graph has an edge.
///
/// The function asks the spatial index for neighbours near the middle of each edge, because such a neighbour
/// removes the edge from the graph. The stations at both ends of an edge come to the same result.
pub fn planar_neighbours(
    table: &LocationTable,
    ego: Position,
    planarisation: Planarisation,
) -> Vec<EntrySlot> {
    let plane = LocalPlane::new(ego);
    let stays = |slot: EntrySlot, position: Position| {
        let (east, north) = plane.offset_of(position);
        let middle = DistanceMetric::new(plane.position_at(east / 2.0, north / 2.0));
        let length = middle.squared_distance(ego) + middle.squared_distance(position);
        match planarisation {
            Planarisation::Gabriel => {
                let radius = length / 2.0;
                has_no_neighbour_around(table, &middle, radius, |witness| witness != slot)
            }
            Planarisation::RelativeNeighbourhood => {
                let (to_ego, to_other) = (DistanceMetric::new(ego), DistanceMetric::new(position));
                let edge = to_ego.squared_distance(position).min(to_other.squared_distance(ego));
                let nearer = |witness: EntrySlot| {
                    witness != slot
                        && table.neighbour_index().position(witness).is_some_and(|place| {
                            to_ego.squared_distance(place) < edge && to_other.squared_distance(place) < edge
                        })
                };
                has_no_neighbour_around(table, &middle, 1.51 * length, nearer)
            }
        }
    };
    table
        .iter()
        .filter(|(_, entry)| entry.is_neighbour())
        .filter(|(slot, entry)| entry.position() != ego && stays(*slot, entry.position()))
        .map(|(slot, _)| slot)
        .collect()
}

fn has_no_neighbour_around(
    table: &LocationTable,
    middle: &DistanceMetric,
    radius: f64,
    witness: impl Fn(EntrySlot) -> bool,
) -> bool {
    !table.neighbour_index().has_item_within(middle, radius * (1.0 - 1e-9), witness)
}

/// Position of a neighbour relative to the destination, in metres.
#[derive(Debug, Clone, Copy)]
struct RelativeNeighbour {
    slot: EntrySlot,
    mac: MacAddress,
    metres_east: f64,
    metres_north: f64,
}

/// A station's view of the planar graph, with the destination at the origin.
#[derive(Debug)]
pub struct PlanarGraphView<'a> {
    table: &'a LocationTable,
    plane: LocalPlane,
    mac: MacAddress,
    own_offset: (f64, f64),
    neighbours: Vec<RelativeNeighbour>,
}

impl<'a> PlanarGraphView<'a> {
    /// Creates the view of the station `mac` at `ego` for a packet to `destination`; `neighbours` are the
    /// station's neighbours in the planar graph.
    pub fn new(
        table: &'a LocationTable,
        neighbours: &[EntrySlot],
        mac: MacAddress,
        ego: Position,
        destination: Position,
    ) -> PlanarGraphView<'a> {
        let plane = LocalPlane::new(destination);
        let corners = neighbours
            .iter()
            .map(|&slot| {
                let entry = table.entry(slot);
                let (east, north) = plane.offset_of(entry.position());
                RelativeNeighbour { slot, mac: entry.mac(), metres_east: east, metres_north: north }
            })
            .collect();
        PlanarGraphView { table, plane, mac, own_offset: plane.offset_of(ego), neighbours: corners }
    }

    /// Starts perimeter mode along the first edge counter-clockwise from the direction of the destination.
    /// Returns `None` if the station has no neighbour.
    pub fn enter_perimeter(
        &self,
        ego: Position,
        next_header: CommonNextHeader,
    ) -> Option<(RecoveryHeader, EntrySlot)> {
        let next = self.next_counter_clockwise((-self.own_offset.0, -self.own_offset.1))?;
        let first_edge = (self.mac, next.mac);
        Some((
            RecoveryHeader {
                next_header,
                greedy_failure_position: ego,
                face_entry_position: ego,
                first_edge,
            },
            next.slot,
        ))
    }

    /// Returns the next edge along the present face after the edge from `sender`. Continues on the next face
    /// if that edge crosses the line to the destination.
    ///
    /// # Errors
    ///
    /// [`GeonetDrop::Unreachable`] if the packet is back at the first edge of the face, or this station has
    /// no edge in the graph.
    pub fn next_edge(
        &self,
        header: &RecoveryHeader,
        sender: Option<Position>,
    ) -> Result<(RecoveryHeader, EntrySlot), GeonetDrop> {
        let from = match sender {
            Some(sender) => {
                let (east, north) = self.plane.offset_of(sender);
                (east - self.own_offset.0, north - self.own_offset.1)
            }
            None => (-self.own_offset.0, -self.own_offset.1),
        };
        let mut header = *header;
        let mut next = self.next_counter_clockwise(from).ok_or(GeonetDrop::Unreachable)?;
        let mut changed = false;
        for _ in 0..self.neighbours.len() {
            let reached = self.plane.distance_to(header.face_entry_position);
            let Some(crossing) = self
                .crossing_with_line(&next, self.plane.offset_of(header.greedy_failure_position))
                .filter(|(east, north)| east.hypot(*north) < reached - MIN_PROGRESS_METRES)
            else {
                break;
            };
            header.face_entry_position = self.plane.position_at(crossing.0, crossing.1);
            next = self
                .next_counter_clockwise((
                    next.metres_east - self.own_offset.0,
                    next.metres_north - self.own_offset.1,
                ))
                .ok_or(GeonetDrop::Unreachable)?;
            header.first_edge = (self.mac, next.mac);
            changed = true;
        }
        if !changed && header.first_edge == (self.mac, next.mac) {
            return Err(GeonetDrop::Unreachable);
        }
        Ok((header, next.slot))
    }

    /// Returns the first neighbour counter-clockwise from a direction; a neighbour exactly in this direction
    /// comes last. Returns `None` if this station has no edge.
    fn next_counter_clockwise(&self, from: (f64, f64)) -> Option<RelativeNeighbour> {
        let turn = |corner: &RelativeNeighbour| {
            let to = (corner.metres_east - self.own_offset.0, corner.metres_north - self.own_offset.1);
            let (cross, dot) = (from.0 * to.1 - from.1 * to.0, from.0 * to.0 + from.1 * to.1);
            let angle = cross.atan2(dot);
            if angle > 1e-9 { angle } else { angle + std::f64::consts::TAU }
        };
        self.neighbours.iter().copied().min_by(|a, b| turn(a).total_cmp(&turn(b)))
    }

    /// Returns the point where the edge to `next` crosses the line from `entry` to the destination (the
    /// origin); `None` if it does not cross the line.
    fn crossing_with_line(&self, next: &RelativeNeighbour, entry: (f64, f64)) -> Option<(f64, f64)> {
        let edge = (next.metres_east - self.own_offset.0, next.metres_north - self.own_offset.1);
        let determinant = edge.0 * entry.1 - edge.1 * entry.0;
        if determinant == 0.0 {
            return None;
        }
        // Find s and t with own offset + s * edge = t * entry: the point where the edge crosses the line.
        let s = (self.own_offset.1 * entry.0 - self.own_offset.0 * entry.1) / determinant;
        let t = (edge.0 * self.own_offset.1 - edge.1 * self.own_offset.0) / determinant;
        let on_both = (0.0..=1.0).contains(&s) && (0.0..=1.0).contains(&t);
        on_both.then_some((t * entry.0, t * entry.1))
    }

    /// Returns the link-layer address of a neighbour.
    pub fn mac_of(&self, slot: EntrySlot) -> MacAddress {
        self.table.entry(slot).mac()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mib;
    use carnet_base::Time;
    use carnet_wire::geonet::{GnAddress, LongPositionVector, StationType};

    const HOME_POSITION: Position = Position::new(488_375_000, 21_008_000);

    fn position_at(east: f64, north: f64) -> Position {
        LocalPlane::new(HOME_POSITION).position_at(east, north)
    }

    fn mac_of_number(number: u8) -> MacAddress {
        [2, 0, 0, 0, 0, number]
    }

    fn location_table(places: &[(f64, f64)]) -> LocationTable {
        let mut table = LocationTable::new(1);
        for (number, place) in (1u8..).zip(places) {
            let position = position_at(place.0, place.1);
            let pv = LongPositionVector {
                address: GnAddress::new(false, StationType::PassengerCar, mac_of_number(number)),
                latitude: position.latitude,
                longitude: position.longitude,
                ..LongPositionVector::default()
            };
            table.learn_position(Time::ZERO, &Mib::default(), &pv, true, None).expect("room");
        }
        table
    }

    /// The Gabriel graph and the relative neighbourhood graph (RNG) both remove an edge if a neighbour is
    /// inside the circle over the edge. Only RNG removes the edge if the neighbour is inside the lens but
    /// outside the circle.
    #[test]
    fn planar_subgraph_has_no_crossing_edges() {
        let planar = |places: &[(f64, f64)], planarisation| {
            planar_neighbours(&location_table(places), HOME_POSITION, planarisation).len()
        };
        for (witness, gabriel, relative) in
            [((100.0, 10.0), 1, 1), ((100.0, 130.0), 2, 1), ((80.0, 200.0), 2, 2), ((-10.0, 0.0), 2, 2)]
        {
            let places = [(200.0, 0.0), witness];
            assert_eq!(planar(&places, Planarisation::Gabriel), gabriel, "{witness:?}");
            assert_eq!(planar(&places, Planarisation::RelativeNeighbourhood), relative, "{witness:?}");
        }
    }

    /// The right-hand rule of GPSR: the packet takes the next edge counter-clockwise. It goes back only if
    /// this station has no other edge.
    #[test]
    fn right_hand_rule_takes_next_edge_counter_clockwise() {
        let table = location_table(&[(100.0, 0.0), (0.0, 100.0), (-100.0, -10.0)]);
        let neighbours = planar_neighbours(&table, HOME_POSITION, Planarisation::Gabriel);
        assert_eq!(neighbours.len(), 3);
        let walk = PlanarGraphView::new(
            &table,
            &neighbours,
            mac_of_number(9),
            HOME_POSITION,
            position_at(0.0, -5000.0),
        );
        let (header, first) = walk.enter_perimeter(HOME_POSITION, CommonNextHeader::BtpB).expect("an edge");
        assert_eq!(
            (walk.mac_of(first), header.first_edge),
            (mac_of_number(1), (mac_of_number(9), mac_of_number(1)))
        );
        let mut header = header;
        header.first_edge = (mac_of_number(7), mac_of_number(8));
        for (from, to) in [(1, 2), (2, 3), (3, 1)] {
            let sender = table.entry(neighbours[from - 1]).position();
            let (_, next) = walk.next_edge(&header, Some(sender)).expect("an edge");
            assert_eq!(walk.mac_of(next), mac_of_number(to), "from {from}");
        }
    }

    /// GPSR's change of faces. The packet does not take an edge that crosses the line from entry point to
    /// destination nearer than the last crossing. It continues along the next face, whose first edge its
    /// header then holds.
    #[test]
    fn perimeter_walk_changes_face_at_line_to_destination() {
        let table = location_table(&[(-900.0, 50.0), (-450.0, -100.0), (-400.0, 200.0)]);
        let ego = position_at(-500.0, 100.0);
        let walk = PlanarGraphView::new(&table, &[0, 1, 2], mac_of_number(9), ego, HOME_POSITION);
        let header = |reached: f64| RecoveryHeader {
            next_header: CommonNextHeader::BtpB,
            greedy_failure_position: position_at(-1000.0, 0.0),
            face_entry_position: position_at(reached, 0.0),
            first_edge: (mac_of_number(7), mac_of_number(8)),
        };
        let (changed, next) =
            walk.next_edge(&header(-1000.0), Some(position_at(-900.0, 50.0))).expect("an edge");
        assert_eq!(
            (walk.mac_of(next), changed.first_edge),
            (mac_of_number(3), (mac_of_number(9), mac_of_number(3)))
        );
        assert!(changed.face_entry_position.distance_to(position_at(-475.0, 0.0)) < 0.1);
        // If the previous crossing was nearer to the destination, the packet takes this edge and stays on its
        // face.
        let (same, next) = walk.next_edge(&header(-300.0), Some(position_at(-900.0, 50.0))).expect("an edge");
        assert_eq!((walk.mac_of(next), same), (mac_of_number(2), header(-300.0)));
    }

    #[test]
    fn perimeter_header_is_encoded_and_decoded() {
        let header = RecoveryHeader {
            next_header: CommonNextHeader::Ipv6,
            greedy_failure_position: Position::new(-5, 6),
            face_entry_position: Position::new(7, -8),
            first_edge: (mac_of_number(1), mac_of_number(2)),
        };
        let octets = header.to_octets();
        assert_eq!(RecoveryHeader::parse(&octets), Ok(header));
        assert_eq!(RecoveryHeader::parse(&octets[..31]), Err(GeonetDrop::BadRecoveryHeader));
        for (at, octet) in [(0, 0x23), (0, 0x1f), (2, 0x7f), (14, 0x80)] {
            let mut bad = octets;
            bad[at] = octet;
            assert_eq!(RecoveryHeader::parse(&bad), Err(GeonetDrop::BadRecoveryHeader), "{at}");
        }
    }
}
