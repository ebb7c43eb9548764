//! Distances, local coordinates and geographic areas (EN 302 636-4-1 annexes D to F, EN 302 931).
//!
//! Positions are WGS 84 latitude and longitude in 0.1 microdegree, as on the wire. All functions work in a
//! [`LocalPlane`]: metres east and north of a reference point, by the second-order expansion of the ellipsoid
//! around this point. Up to some 10 km the error against the geodesic is below 0.1 m. At 65 km (the longest
//! distance that an area can name) it is some metres. Beyond a few degrees the plane uses the chord through
//! the earth, so a distant position never appears near. The plane costs two sines and a square root per
//! reference point, and four multiplications per position. Other implementations compute a geodesic per
//! neighbour and packet, so they are slow with many neighbours.
//!
//! [`DistanceMetric`] is the cheaper first-order form for comparisons among positions. The metric depends on
//! the destination only, so every station that holds the same packet ranks positions alike. A packet that
//! comes strictly closer at every hop cannot come back, whatever the stations' own positions are.

use carnet_wire::geonet::{GeoArea, GeoAreaShape};

/// Semi-major axis of WGS 84 in metres.
const SEMI_MAJOR_AXIS: f64 = 6_378_137.0;
/// First eccentricity of WGS 84, squared.
const ECCENTRICITY_SQUARED: f64 = 6.694_379_990_141_316e-3;
/// Radians per 0.1 microdegree.
const RADIANS_PER_UNIT: f64 = std::f64::consts::PI / 180.0 * 1e-7;
/// A full turn in 0.1 microdegree.
pub(crate) const FULL_TURN_UNITS: i64 = 3_600_000_000;
/// Angle in radians beyond which the plane uses the exact form instead of the expansion.
const MAX_EXPANSION_DISTANCE_RADIANS: f64 = 0.02;

/// A position in 0.1 microdegree, as in position vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Position {
    /// WGS 84 latitude in 0.1 microdegree, north positive.
    pub latitude: i32,
    /// WGS 84 longitude in 0.1 microdegree, east positive.
    pub longitude: i32,
}

impl Position {
    /// Returns the position at `latitude` and `longitude`, in 0.1 microdegree.
    pub const fn new(latitude: i32, longitude: i32) -> Position {
        Position { latitude, longitude }
    }

    /// Returns whether the position is valid: latitude within 90 degrees, longitude within 180 degrees.
    pub const fn is_on_earth(self) -> bool {
        self.latitude.unsigned_abs() <= 900_000_000 && self.longitude.unsigned_abs() <= 1_800_000_000
    }

    /// Returns the distance to `other` in metres.
    pub fn distance_to(self, other: Position) -> f64 {
        LocalPlane::new(self).distance_to(other)
    }

    /// Returns the difference of longitude from `from` to `to` in 0.1 microdegree, by the shorter direction.
    fn longitude_difference(from: i32, to: i32) -> i64 {
        let difference = i64::from(to) - i64::from(from);
        if difference > FULL_TURN_UNITS / 2 {
            difference - FULL_TURN_UNITS
        } else if difference < -FULL_TURN_UNITS / 2 {
            difference + FULL_TURN_UNITS
        } else {
            difference
        }
    }
}

/// Returns the earth-centred coordinates of a position on the ellipsoid, in metres.
fn earth_centred_coordinates(position: Position) -> [f64; 3] {
    let (sin_lat, cos_lat) = (f64::from(position.latitude) * RADIANS_PER_UNIT).sin_cos();
    let (sin_lon, cos_lon) = (f64::from(position.longitude) * RADIANS_PER_UNIT).sin_cos();
    let prime = SEMI_MAJOR_AXIS / (1.0 - ECCENTRICITY_SQUARED * sin_lat * sin_lat).sqrt();
    [prime * cos_lat * cos_lon, prime * cos_lat * sin_lon, prime * (1.0 - ECCENTRICITY_SQUARED) * sin_lat]
}

/// The tangent plane at a reference point: metres east and north of this point.
#[derive(Debug, Clone, Copy)]
pub struct LocalPlane {
    reference_point: Position,
    /// Metres north per radian of latitude.
    metres_per_radian_north: f64,
    /// Half the derivative of `metres_per_radian_north` by latitude.
    north_curvature: f64,
    /// Metres north by which a parallel rises above the tangent, per squared radian of longitude.
    parallel_curvature: f64,
    /// Metres east per radian of longitude.
    metres_per_radian_east: f64,
    /// Derivative of `metres_per_radian_east` by latitude.
    east_first_derivative: f64,
    /// Half the second derivative of `metres_per_radian_east` by latitude.
    east_half_second_derivative: f64,
}

impl LocalPlane {
    /// Creates the plane at `origin`.
    pub fn new(origin: Position) -> LocalPlane {
        let (sin, cos) = (f64::from(origin.latitude) * RADIANS_PER_UNIT).sin_cos();
        let w2 = 1.0 - ECCENTRICITY_SQUARED * sin * sin;
        let prime = SEMI_MAJOR_AXIS / w2.sqrt();
        let meridian = prime * (1.0 - ECCENTRICITY_SQUARED) / w2;
        LocalPlane {
            reference_point: origin,
            metres_per_radian_north: meridian,
            north_curvature: 1.5 * meridian * ECCENTRICITY_SQUARED * sin * cos / w2,
            parallel_curvature: 0.5 * prime * sin * cos,
            metres_per_radian_east: prime * cos,
            east_first_derivative: -meridian * sin,
            east_half_second_derivative: -0.5 * meridian * cos,
        }
    }

    /// Returns the metres east and north of the origin.
    pub fn offset_of(&self, position: Position) -> (f64, f64) {
        let dlat = (i64::from(position.latitude) - i64::from(self.reference_point.latitude)) as f64
            * RADIANS_PER_UNIT;
        let dlon = Position::longitude_difference(self.reference_point.longitude, position.longitude) as f64
            * RADIANS_PER_UNIT;
        if dlat.abs() > MAX_EXPANSION_DISTANCE_RADIANS || dlon.abs() > MAX_EXPANSION_DISTANCE_RADIANS {
            return self.offset_of_distant(position);
        }
        let east = dlon
            * (self.metres_per_radian_east
                + dlat * (self.east_first_derivative + dlat * self.east_half_second_derivative));
        let north = dlat * (self.metres_per_radian_north + dlat * self.north_curvature)
            + self.parallel_curvature * dlon * dlon;
        (east, north)
    }

    /// Returns the offset of a far position by earth-centred coordinates, in the direction of the tangent
    /// plane and with the length of the chord.
    fn offset_of_distant(&self, position: Position) -> (f64, f64) {
        let (from, to) =
            (earth_centred_coordinates(self.reference_point), earth_centred_coordinates(position));
        let [dx, dy, dz] = [to[0] - from[0], to[1] - from[1], to[2] - from[2]];
        let (sin_lat, cos_lat) = (f64::from(self.reference_point.latitude) * RADIANS_PER_UNIT).sin_cos();
        let (sin_lon, cos_lon) = (f64::from(self.reference_point.longitude) * RADIANS_PER_UNIT).sin_cos();
        let east = -sin_lon * dx + cos_lon * dy;
        let north = -sin_lat * cos_lon * dx - sin_lat * sin_lon * dy + cos_lat * dz;
        let chord = (dx * dx + dy * dy + dz * dz).sqrt();
        let length = east.hypot(north);
        if length < 1e-6 {
            return (0.0, chord);
        }
        (east * chord / length, north * chord / length)
    }

    /// Returns the distance from the origin in metres.
    pub fn distance_to(&self, position: Position) -> f64 {
        let (east, north) = self.offset_of(position);
        east.hypot(north)
    }

    /// Returns the position `east` and `north` metres from the origin. The function is the inverse of
    /// [`Self::offset_of`] for some tens of kilometres.
    pub fn position_at(&self, east: f64, north: f64) -> Position {
        let mut position = self.reference_point;
        let (mut missing_east, mut missing_north) = (east, north);
        for _ in 0..3 {
            let dlat = missing_north / self.metres_per_radian_north;
            let dlon = if self.metres_per_radian_east.abs() < 1.0 {
                0.0
            } else {
                missing_east / self.metres_per_radian_east
            };
            let latitude = i64::from(position.latitude) + (dlat / RADIANS_PER_UNIT).round() as i64;
            let longitude = i64::from(position.longitude) + (dlon / RADIANS_PER_UNIT).round() as i64;
            let longitude =
                (longitude + FULL_TURN_UNITS / 2).rem_euclid(FULL_TURN_UNITS) - FULL_TURN_UNITS / 2;
            position = Position::new(latitude.clamp(-900_000_000, 900_000_000) as i32, longitude as i32);
            let (reached_east, reached_north) = self.offset_of(position);
            (missing_east, missing_north) = (east - reached_east, north - reached_north);
        }
        position
    }
}

/// Distance from a destination, for comparisons between positions: a first-order form that is equal in every
/// station.
#[derive(Debug, Clone, Copy)]
pub struct DistanceMetric {
    pub(crate) destination: Position,
    /// Metres per 0.1 microdegree of latitude and of longitude.
    pub(crate) metres_per_latitude_unit: f64,
    pub(crate) metres_per_longitude_unit: f64,
}

impl DistanceMetric {
    /// Creates the metric of `destination`.
    pub fn new(destination: Position) -> DistanceMetric {
        let plane = LocalPlane::new(destination);
        DistanceMetric {
            destination,
            metres_per_latitude_unit: plane.metres_per_radian_north * RADIANS_PER_UNIT,
            metres_per_longitude_unit: plane.metres_per_radian_east * RADIANS_PER_UNIT,
        }
    }

    /// Returns the squared distance of `position` from the destination, in square metres.
    pub fn squared_distance(&self, position: Position) -> f64 {
        let north = (i64::from(position.latitude) - i64::from(self.destination.latitude)) as f64
            * self.metres_per_latitude_unit;
        let east = Position::longitude_difference(self.destination.longitude, position.longitude) as f64
            * self.metres_per_longitude_unit;
        north * north + east * east
    }
}

/// Returns the centre of an area.
pub fn centre_of(area: &GeoArea) -> Position {
    Position::new(area.latitude, area.longitude)
}

/// Returns F(x, y) of EN 302 931 clause 5: 1 at the centre, positive inside the area, 0 on its border,
/// negative outside. `angle` is the azimuth of the long side, clockwise from North. An area with zero
/// distances contains no point.
pub fn area_function(area: &GeoArea, position: Position) -> f64 {
    let a = f64::from(area.distance_a);
    let b = if area.shape == GeoAreaShape::Circle { a } else { f64::from(area.distance_b) };
    if a == 0.0 || b == 0.0 {
        return f64::NEG_INFINITY;
    }
    let (east, north) = LocalPlane::new(centre_of(area)).offset_of(position);
    if area.shape == GeoAreaShape::Circle {
        return 1.0 - (east * east + north * north) / (a * a);
    }
    let (sin, cos) = f64::from(area.angle).to_radians().sin_cos();
    let along = (east * sin + north * cos) / a;
    let across = (east * cos - north * sin) / b;
    match area.shape {
        GeoAreaShape::Rectangle => (1.0 - along * along).min(1.0 - across * across),
        _ => 1.0 - along * along - across * across,
    }
}

/// Returns whether `position` lies inside `area` or on its border.
pub fn is_inside(area: &GeoArea, position: Position) -> bool {
    area_function(area, position) >= 0.0
}

/// Returns the size of an area in square metres (EN 302 636-4-1 B.3).
pub fn area_size(area: &GeoArea) -> f64 {
    let (a, b) = (f64::from(area.distance_a), f64::from(area.distance_b));
    match area.shape {
        GeoAreaShape::Circle => std::f64::consts::PI * a * a,
        GeoAreaShape::Rectangle => 4.0 * a * b,
        GeoAreaShape::Ellipse => std::f64::consts::PI * a * b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use geographiclib_rs::{DirectGeodesic, Geodesic, InverseGeodesic};
    use proptest::prelude::*;

    fn to_degrees(position: Position) -> (f64, f64) {
        (f64::from(position.latitude) * 1e-7, f64::from(position.longitude) * 1e-7)
    }

    fn position_moved(from: Position, azimuth: f64, metres: f64) -> Position {
        let (lat, lon) = to_degrees(from);
        let (lat, lon): (f64, f64) = Geodesic::wgs84().direct(lat, lon, azimuth, metres);
        Position::new((lat * 1e7).round() as i32, (lon * 1e7).round() as i32)
    }

    fn test_area(shape: GeoAreaShape, distance_a: u16, distance_b: u16, angle: u16) -> GeoArea {
        GeoArea { shape, latitude: 488_000_000, longitude: 21_000_000, distance_a, distance_b, angle }
    }

    proptest! {
        #[test]
        fn local_plane_offsets_agree_with_the_geodesic(
            lat in -800_000_000i32..800_000_000, lon in -1_800_000_000i32..1_800_000_000,
            azimuth in -180.0f64..180.0, metres in 1.0f64..10_000.0,
        ) {
            let from = Position::new(lat, lon);
            let to = position_moved(from, azimuth, metres);
            let (east, north) = LocalPlane::new(from).offset_of(to);
            let (sin, cos) = azimuth.to_radians().sin_cos();
            // The third-order error of the plane, d^3 tan^2(latitude) / R^2, is some 0.5 m at 10 km and 80
            // degrees.
            let allowed = 0.03 + 1e-4 * metres;
            prop_assert!((east - metres * sin).abs() < allowed, "east {east} {}", metres * sin);
            prop_assert!((north - metres * cos).abs() < allowed, "north {north} {}", metres * cos);
            let back = LocalPlane::new(from).position_at(east, north);
            prop_assert!(to.distance_to(back) < 0.05, "{to:?} {back:?}");
        }

        #[test]
        fn local_plane_keeps_distances_up_to_2000_kilometres(
            lat in -800_000_000i32..800_000_000, lon in -1_800_000_000i32..1_800_000_000,
            azimuth in -180.0f64..180.0, metres in 10_000.0f64..2_000_000.0,
        ) {
            let from = Position::new(lat, lon);
            let to = position_moved(from, azimuth, metres);
            let distance = LocalPlane::new(from).distance_to(to);
            prop_assert!((distance / metres - 1.0).abs() < 6e-3, "{distance} {metres}");
        }

        #[test]
        fn approximate_distance_orders_points_like_geodesic(
            lat in -700_000_000i32..700_000_000, lon in -1_800_000_000i32..1_800_000_000,
            first in (-180.0f64..180.0, 10.0f64..5_000.0), second in (-180.0f64..180.0, 10.0f64..5_000.0),
        ) {
            let destination = Position::new(lat, lon);
            let metric = DistanceMetric::new(destination);
            let a = position_moved(destination, first.0, first.1);
            let b = position_moved(destination, second.0, second.1);
            if (first.1 - second.1).abs() > 0.01 * first.1.max(second.1) {
                prop_assert_eq!(metric.squared_distance(a) < metric.squared_distance(b), first.1 < second.1);
            }
        }

        #[test]
        fn area_functions_agree_with_the_geodesic(
            angle in 0u16..360, azimuth in -180.0f64..180.0, metres in 1.0f64..2_000.0,
            shape in 0usize..3, a in 50u16..1_500, b in 50u16..1_500,
        ) {
            let shape = [GeoAreaShape::Circle, GeoAreaShape::Rectangle, GeoAreaShape::Ellipse][shape];
            let area = test_area(shape, a, b, angle);
            let position = position_moved(centre_of(&area), azimuth, metres);
            let (lat, lon) = to_degrees(centre_of(&area));
            let (to_lat, to_lon) = to_degrees(position);
            let (s, azimuth, _, _): (f64, f64, f64, f64) =
                Geodesic::wgs84().inverse(lat, lon, to_lat, to_lon);
            let turned = (azimuth - f64::from(angle)).to_radians();
            let (x, y) = (s * turned.cos() / f64::from(a), s * turned.sin() / f64::from(b));
            let expected = match shape {
                GeoAreaShape::Circle => 1.0 - (s / f64::from(a)).powi(2),
                GeoAreaShape::Rectangle => (1.0 - x * x).min(1.0 - y * y),
                _ => 1.0 - x * x - y * y,
            };
            let found = area_function(&area, position);
            prop_assert!((found - expected).abs() < 1e-3 * (1.0 + expected.abs()), "{found} {expected}");
        }
    }

    /// EN 302 931 clause 5: the function is positive inside, 0 on the border and negative outside.
    #[test]
    fn area_function_is_positive_inside_zero_on_border_negative_outside() {
        let circle = test_area(GeoAreaShape::Circle, 500, 0, 0);
        assert_eq!(area_function(&circle, centre_of(&circle)), 1.0);
        assert!(is_inside(&circle, position_moved(centre_of(&circle), 45.0, 499.9)));
        assert!(!is_inside(&circle, position_moved(centre_of(&circle), 45.0, 500.1)));
        // The long side of a rectangle and the long axis of an ellipse point along the angle.
        for shape in [GeoAreaShape::Rectangle, GeoAreaShape::Ellipse] {
            let east = test_area(shape, 500, 100, 90);
            assert!(is_inside(&east, position_moved(centre_of(&east), 90.0, 450.0)), "{shape:?}");
            assert!(!is_inside(&east, position_moved(centre_of(&east), 0.0, 450.0)), "{shape:?}");
        }
        assert!(is_inside(
            &test_area(GeoAreaShape::Rectangle, 100, 100, 0),
            position_moved(centre_of(&circle), 45.0, 140.0)
        ));
        assert!(!is_inside(
            &test_area(GeoAreaShape::Ellipse, 100, 100, 0),
            position_moved(centre_of(&circle), 45.0, 140.0)
        ));
    }

    /// An area whose distances are 0 contains no position, and all functions still return numbers.
    #[test]
    fn an_area_without_extent_contains_nothing() {
        for (shape, a, b) in [
            (GeoAreaShape::Circle, 0, 100),
            (GeoAreaShape::Rectangle, 100, 0),
            (GeoAreaShape::Ellipse, 0, 100),
        ] {
            let area = test_area(shape, a, b, 0);
            assert!(!is_inside(&area, centre_of(&area)), "{shape:?}");
        }
    }

    #[test]
    fn local_plane_works_in_all_hemispheres_and_at_date_line() {
        for (lat, lon) in [(-338_000_000, -703_000_000), (500_000_000, 1_799_999_000), (-1_000, -1_000)] {
            let area =
                GeoArea { latitude: lat, longitude: lon, ..test_area(GeoAreaShape::Circle, 500, 0, 0) };
            for azimuth in [0.0, 90.0, 180.0, 270.0] {
                assert!(
                    is_inside(&area, position_moved(centre_of(&area), azimuth, 480.0)),
                    "{lat} {lon} {azimuth}"
                );
                assert!(
                    !is_inside(&area, position_moved(centre_of(&area), azimuth, 520.0)),
                    "{lat} {lon} {azimuth}"
                );
            }
        }
    }

    /// The antipode is far away although it lies on the axis of the tangent plane.
    #[test]
    fn distance_to_the_antipode_is_half_the_circumference() {
        let here = Position::new(488_000_000, 21_000_000);
        let there = Position::new(-488_000_000, 21_000_000 - 1_800_000_000);
        assert!(here.distance_to(there) > 1.2e7);
    }

    /// B.3: the sizes are pi r^2, 4ab and pi ab.
    #[test]
    fn area_size_follows_shape_and_distances() {
        assert!((area_size(&test_area(GeoAreaShape::Circle, 100, 7, 0)) - 31_415.9).abs() < 0.1);
        assert_eq!(area_size(&test_area(GeoAreaShape::Rectangle, 100, 50, 30)), 20_000.0);
        assert!((area_size(&test_area(GeoAreaShape::Ellipse, 100, 50, 0)) - 15_707.96).abs() < 0.1);
    }
}
