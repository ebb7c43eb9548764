//! Regions of certificates (IEEE 1609.2 6.4.17 to 6.4.23, TS 103 097 7.2.1).
//!
//! The functions decide whether a place is in a region, and whether a region lies in the region of an issuer.
//! Countries need a map, which this crate does not have: the caller says in which country a place is
//! ([`CountryFinder`]). Without this information no place is in a country.
//!
//! To decide whether a region lies in another one, they test points on its border. For a polygon these are
//! its corners and edges, for other shapes twelve points. The test may reject a region that touches the
//! issuer's border. It never accepts a region with a corner outside.

use carnet_geonet::geodesy::{LocalPlane, Position};

use crate::coer::{Error, Reader, Writer};

/// Largest number of rectangles in a region (test purpose TC_SEC_SND_CERT_04_01: less than six).
pub const MAX_RECTANGLES: usize = 6;
/// Largest number of corners of a polygon (test purpose TC_SEC_SND_CERT_05_01).
pub const MAX_CORNERS: usize = 12;
/// Largest number of countries in a region; fewer countries exist.
pub const MAX_COUNTRIES: usize = 255;

/// A country, some regions of a country, or some subregions of its regions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum IdentifiedRegion {
    /// A whole country, by its number (UN M49, ISO 3166-1 numeric).
    CountryOnly(u16),
    /// Some regions of a country.
    CountryAndRegions(u16, Vec<u8>),
    /// Some subregions of a country's regions.
    CountryAndSubregions(u16, Vec<(u8, Vec<u16>)>),
}

impl IdentifiedRegion {
    /// Returns the number of the country.
    pub const fn country(&self) -> u16 {
        match self {
            IdentifiedRegion::CountryOnly(country)
            | IdentifiedRegion::CountryAndRegions(country, _)
            | IdentifiedRegion::CountryAndSubregions(country, _) => *country,
        }
    }

    fn contains_place(&self, place: &CountryAndRegion) -> bool {
        self.country() == place.country
            && match self {
                IdentifiedRegion::CountryOnly(_) => true,
                IdentifiedRegion::CountryAndRegions(_, regions) => {
                    place.region.is_some_and(|region| regions.contains(&region))
                }
                IdentifiedRegion::CountryAndSubregions(_, regions) => {
                    regions.iter().any(|(region, subregions)| {
                        place.region == Some(*region)
                            && place.subregion.is_some_and(|subregion| subregions.contains(&subregion))
                    })
                }
            }
    }

    /// Returns whether this region lies completely in `issuer`.
    fn is_within(&self, issuer: &IdentifiedRegion) -> bool {
        use IdentifiedRegion::{CountryAndRegions, CountryAndSubregions, CountryOnly};
        self.country() == issuer.country()
            && match (self, issuer) {
                (_, CountryOnly(_)) => true,
                (CountryOnly(_), _) | (CountryAndRegions(..), CountryAndSubregions(..)) => false,
                (CountryAndRegions(_, mine), CountryAndRegions(_, theirs)) => {
                    mine.iter().all(|region| theirs.contains(region))
                }
                (CountryAndSubregions(_, mine), CountryAndRegions(_, theirs)) => {
                    mine.iter().all(|(region, _)| theirs.contains(region))
                }
                (CountryAndSubregions(_, mine), CountryAndSubregions(_, theirs)) => {
                    mine.iter().all(|(region, subregions)| {
                        theirs.iter().any(|(other, others)| {
                            region == other && subregions.iter().all(|subregion| others.contains(subregion))
                        })
                    })
                }
            }
    }
}

/// Country and region in which a position lies, if known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CountryAndRegion {
    /// Number of the country (UN M49).
    pub country: u16,
    /// Region of the country.
    pub region: Option<u8>,
    /// Subregion of the region.
    pub subregion: Option<u16>,
}

/// Returns the country of a place.
pub trait CountryFinder {
    /// Returns the country in which a position lies; `None` if it is unknown.
    fn country_of(&self, place: Position) -> Option<CountryAndRegion>;
}

/// Finder for a station that stays in one country: every position lies in this country.
impl CountryFinder for CountryAndRegion {
    fn country_of(&self, _place: Position) -> Option<CountryAndRegion> {
        Some(*self)
    }
}

/// Finder for a station without a map: the country of every position is unknown.
impl CountryFinder for () {
    fn country_of(&self, _place: Position) -> Option<CountryAndRegion> {
        None
    }
}

/// Region of a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum GeographicRegion {
    /// A circle with a radius in metres.
    Circular {
        /// Centre of the circle.
        center: Position,
        /// Radius of the circle, metres.
        radius: u16,
    },
    /// Rectangles, each by its north-west and south-east corner.
    Rectangular(Vec<(Position, Position)>),
    /// A polygon, by its corners.
    Polygonal(Vec<Position>),
    /// Countries.
    Identified(Vec<IdentifiedRegion>),
}

fn decode_position(reader: &mut Reader<'_>) -> Result<Position, Error> {
    let at = reader.octets_read();
    let place = Position::new(reader.read_i32("Latitude")?, reader.read_i32("Longitude")?);
    // A region may not contain coordinates that mean "unknown".
    if !place.is_on_earth() {
        return Err(Error::Profile { what: "TwoDLocation", at, expected: "a place on earth" });
    }
    Ok(place)
}

fn write_position(writer: &mut Writer, place: Position) {
    writer.write_i32(place.latitude);
    writer.write_i32(place.longitude);
}

impl GeographicRegion {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<GeographicRegion, Error> {
        const TYPE_NAME: &str = "GeographicRegion";
        Ok(match reader.read_tag(TYPE_NAME)? {
            0x80 => GeographicRegion::Circular {
                center: decode_position(reader)?,
                radius: reader.read_u16("radius")?,
            },
            0x81 => {
                let rectangles =
                    reader.read_list(1, MAX_RECTANGLES, "SequenceOfRectangularRegion", |reader| {
                        Ok((decode_position(reader)?, decode_position(reader)?))
                    })?;
                // 6.4.20: a rectangle's first corner is its north-west corner, the second its south-east
                // corner.
                if !rectangles.iter().all(|(nw, se)| nw.latitude > se.latitude && nw.longitude < se.longitude)
                {
                    return Err(
                        reader.unknown_tag_error("RectangularRegion", "a north-west and a south-east corner")
                    );
                }
                GeographicRegion::Rectangular(rectangles)
            }
            0x82 => GeographicRegion::Polygonal(reader.read_list(
                3,
                MAX_CORNERS,
                "PolygonalRegion",
                decode_position,
            )?),
            0x83 => GeographicRegion::Identified(reader.read_list(
                1,
                MAX_COUNTRIES,
                "SequenceOfIdentifiedRegion",
                decode_identified,
            )?),
            _ => {
                return Err(
                    reader.unknown_tag_error(TYPE_NAME, "a circle, rectangles, a polygon or countries")
                );
            }
        })
    }

    pub(crate) fn encode(&self, writer: &mut Writer) {
        match self {
            GeographicRegion::Circular { center, radius } => {
                writer.write_u8(0x80);
                write_position(writer, *center);
                writer.write_u16(*radius);
            }
            GeographicRegion::Rectangular(rectangles) => {
                writer.write_u8(0x81);
                writer.write_list(rectangles, |writer, (north_west, south_east)| {
                    write_position(writer, *north_west);
                    write_position(writer, *south_east);
                });
            }
            GeographicRegion::Polygonal(corners) => {
                writer.write_u8(0x82);
                writer.write_list(corners, |writer, corner| write_position(writer, *corner));
            }
            GeographicRegion::Identified(countries) => {
                writer.write_u8(0x83);
                writer.write_list(countries, encode_identified);
            }
        }
    }

    /// Returns whether a place is in the region.
    pub fn contains_place(&self, place: Position, countries: &dyn CountryFinder) -> bool {
        match self {
            GeographicRegion::Circular { center, radius } => center.distance_to(place) <= f64::from(*radius),
            GeographicRegion::Rectangular(rectangles) => {
                rectangles.iter().any(|rectangle| is_in_rectangle(rectangle, place))
            }
            GeographicRegion::Polygonal(corners) => is_in_polygon(corners, place),
            GeographicRegion::Identified(regions) => countries
                .country_of(place)
                .is_some_and(|country| regions.iter().any(|region| region.contains_place(&country))),
        }
    }

    /// Returns whether this region lies within the issuer's region (5.1.2.4); false if that cannot be
    /// decided.
    pub fn is_within(&self, issuer: &GeographicRegion, countries: &dyn CountryFinder) -> bool {
        match (self, issuer) {
            (GeographicRegion::Identified(mine), GeographicRegion::Identified(theirs)) => {
                mine.iter().all(|region| theirs.iter().any(|other| region.is_within(other)))
            }
            // carnet has no map of borders, so it cannot decide whether a country lies within a circle,
            // rectangle or polygon.
            (GeographicRegion::Identified(_), _) => false,
            (
                GeographicRegion::Circular { center, radius },
                GeographicRegion::Circular { center: other, radius: room },
            ) => other.distance_to(*center) + f64::from(*radius) <= f64::from(*room),
            (GeographicRegion::Polygonal(mine), GeographicRegion::Polygonal(theirs)) => {
                mine.iter().all(|corner| is_in_polygon(theirs, *corner)) && !do_edges_cross(mine, theirs)
            }
            _ => self.border_points().iter().all(|place| issuer.contains_place(*place, countries)),
        }
    }

    /// Returns points on the border of the region: its corners, and points between the corners.
    fn border_points(&self) -> Vec<Position> {
        match self {
            GeographicRegion::Circular { center, radius } => {
                let metre = units_per_metre(*center);
                (0..12)
                    .map(|hour| {
                        let (sin, cos) = (f64::from(hour) * std::f64::consts::TAU / 12.0).sin_cos();
                        let [east, north] = [sin, cos].map(|part| part * f64::from(*radius));
                        let [latitude, longitude] = [north * metre.1, east * metre.0].map(|part| part as i32);
                        Position::new(
                            center.latitude.saturating_add(latitude),
                            center.longitude.saturating_add(longitude),
                        )
                    })
                    .collect()
            }
            GeographicRegion::Rectangular(rectangles) => rectangles
                .iter()
                .flat_map(|(nw, se)| {
                    let middle = |a: i32, b: i32| ((i64::from(a) + i64::from(b)) / 2) as i32;
                    let latitudes = [nw.latitude, middle(nw.latitude, se.latitude), se.latitude];
                    let longitudes = [nw.longitude, middle(nw.longitude, se.longitude), se.longitude];
                    latitudes.into_iter().flat_map(move |latitude| {
                        longitudes.into_iter().map(move |longitude| Position::new(latitude, longitude))
                    })
                })
                .collect(),
            GeographicRegion::Polygonal(corners) => corners.clone(),
            GeographicRegion::Identified(_) => Vec::new(),
        }
    }
}

/// Returns how many units of 0.1 microdegree a metre to the east and a metre to the north have at a place.
fn units_per_metre(place: Position) -> (f64, f64) {
    let plane = LocalPlane::new(place);
    let (east, north) =
        plane.offset_of(Position::new(place.latitude, place.longitude.saturating_add(10_000)));
    let (_, up) = plane.offset_of(Position::new(place.latitude.saturating_add(10_000), place.longitude));
    let _ = north;
    (10_000.0 / east.max(1.0), 10_000.0 / up.max(1.0))
}

fn is_in_rectangle((nw, se): &(Position, Position), place: Position) -> bool {
    (se.latitude..=nw.latitude).contains(&place.latitude)
        && (nw.longitude..=se.longitude).contains(&place.longitude)
}

/// Returns whether a place is in a polygon: a line from the place to the west crosses an odd number of edges.
/// The line lies on the map of latitude and longitude, as in 6.4.21.
fn is_in_polygon(corners: &[Position], place: Position) -> bool {
    let mut inside = false;
    for (a, b) in polygon_edges(corners) {
        if (a.latitude > place.latitude) != (b.latitude > place.latitude) {
            let side = side_of_line(a, b, place);
            inside ^= if b.latitude > a.latitude { side > 0 } else { side < 0 };
        }
    }
    inside
}

fn polygon_edges(corners: &[Position]) -> impl Iterator<Item = (Position, Position)> + '_ {
    corners.iter().copied().zip(corners.iter().copied().cycle().skip(1))
}

/// Returns a number whose sign says on which side of the line through `a` and `b` the point `place` lies.
fn side_of_line(a: Position, b: Position, place: Position) -> i128 {
    let difference = |to: i32, from: i32| i128::from(to) - i128::from(from);
    difference(b.latitude, a.latitude) * difference(place.longitude, a.longitude)
        - difference(b.longitude, a.longitude) * difference(place.latitude, a.latitude)
}

fn do_edges_cross(mine: &[Position], theirs: &[Position]) -> bool {
    polygon_edges(mine).any(|(a, b)| {
        polygon_edges(theirs).any(|(c, d)| {
            side_of_line(a, b, c).signum() * side_of_line(a, b, d).signum() < 0
                && side_of_line(c, d, a).signum() * side_of_line(c, d, b).signum() < 0
        })
    })
}

/// Returns whether edges of one polygon cross each other (test purpose TC_SEC_SND_CERT_05_01: no
/// intersections).
pub fn is_self_crossing(corners: &[Position]) -> bool {
    do_edges_cross(corners, corners)
}

fn decode_identified(reader: &mut Reader<'_>) -> Result<IdentifiedRegion, Error> {
    const TYPE_NAME: &str = "IdentifiedRegion";
    let tag = reader.read_tag(TYPE_NAME)?;
    if !(0x80..=0x82).contains(&tag) {
        return Err(reader.unknown_tag_error(TYPE_NAME, "a country, with or without regions"));
    }
    let country = reader.read_u16("UnCountryId")?;
    Ok(match tag {
        0x80 => IdentifiedRegion::CountryOnly(country),
        0x81 => {
            let regions = reader.read_list(1, 255, "SequenceOfUint8", |reader| reader.read_u8("region"))?;
            IdentifiedRegion::CountryAndRegions(country, regions)
        }
        _ => {
            let regions = reader.read_list(1, 255, "SequenceOfRegionAndSubregions", |reader| {
                let region = reader.read_u8("region")?;
                Ok((
                    region,
                    reader.read_list(1, 255, "SequenceOfUint16", |reader| reader.read_u16("subregion"))?,
                ))
            })?;
            IdentifiedRegion::CountryAndSubregions(country, regions)
        }
    })
}

fn encode_identified(writer: &mut Writer, region: &IdentifiedRegion) {
    let tag = match region {
        IdentifiedRegion::CountryOnly(_) => 0x80,
        IdentifiedRegion::CountryAndRegions(..) => 0x81,
        IdentifiedRegion::CountryAndSubregions(..) => 0x82,
    };
    writer.write_u8(tag);
    writer.write_u16(region.country());
    match region {
        IdentifiedRegion::CountryOnly(_) => {}
        IdentifiedRegion::CountryAndRegions(_, regions) => {
            writer.write_list(regions, |writer, region| writer.write_u8(*region));
        }
        IdentifiedRegion::CountryAndSubregions(_, regions) => {
            writer.write_list(regions, |writer, (region, subregions)| {
                writer.write_u8(*region);
                writer.write_list(subregions, |writer, subregion| writer.write_u16(*subregion));
            });
        }
    }
}
