//! Converts places on the map, in metres to the east and north of an origin, to degrees on the globe and
//! back.
//!
//! The projection is linear (equidistant cylindrical, with the radii of curvature of WGS 84 at the origin).
//! So a straight line at constant speed on the map is straight in degrees too, and stations that interpolate
//! in degrees agree with the medium. Within 20 km of the origin distances are right to 0.3 %.

/// Semi-major axis of WGS 84, metres.
const A: f64 = 6_378_137.0;
/// Square of the first eccentricity of WGS 84.
const WGS84_ECCENTRICITY_SQUARED: f64 = 6.694_379_990_14e-3;

/// A place on the map.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Point {
    /// Metres to the east of the origin.
    pub x: f64,
    /// Metres to the north of the origin.
    pub y: f64,
}

impl Point {
    /// Returns the distance between two places in metres.
    pub fn distance_to(self, other: Point) -> f64 {
        (self.x - other.x).hypot(self.y - other.y)
    }

    /// Returns the place on the line to another place, at the fraction `share` of its length.
    pub fn point_towards(self, other: Point, share: f64) -> Point {
        Point { x: self.x + share * (other.x - self.x), y: self.y + share * (other.y - self.y) }
    }
}

/// Position of the map's origin on the globe.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MapOrigin {
    latitude: f64,
    longitude: f64,
    metres_per_degree_north: f64,
    metres_per_degree_east: f64,
}

impl MapOrigin {
    /// Creates a map around this latitude and longitude.
    pub fn new(latitude: f64, longitude: f64) -> MapOrigin {
        let (sin, cos) = latitude.to_radians().sin_cos();
        let w = 1.0 - WGS84_ECCENTRICITY_SQUARED * sin * sin;
        let (meridian, normal) = (A * (1.0 - WGS84_ECCENTRICITY_SQUARED) / w.powf(1.5), A / w.sqrt());
        MapOrigin {
            latitude,
            longitude,
            metres_per_degree_north: meridian.to_radians(),
            metres_per_degree_east: (normal * cos).to_radians(),
        }
    }

    /// Returns latitude and longitude of a place.
    pub fn to_degrees(self, place: Point) -> (f64, f64) {
        (
            self.latitude + place.y / self.metres_per_degree_north,
            self.longitude + place.x / self.metres_per_degree_east,
        )
    }

    /// Returns the place at a latitude and longitude.
    pub fn point_at(&self, latitude: f64, longitude: f64) -> Point {
        Point {
            x: (longitude - self.longitude) * self.metres_per_degree_east,
            y: (latitude - self.latitude) * self.metres_per_degree_north,
        }
    }
}

/// Checks that latitude and longitude are valid.
///
/// # Errors
/// The error contains the invalid value and the expected range.
pub fn check_degrees((latitude, longitude): (f64, f64)) -> Result<(), String> {
    if (-90.0..=90.0).contains(&latitude) && (-180.0..=180.0).contains(&longitude) {
        return Ok(());
    }
    Err(format!(
        "latitude {latitude}, longitude {longitude} is no place on the globe, expected a latitude from -90 \
         to 90 and a longitude from -180 to 180"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected distances are geodesics on WGS 84.
    #[test]
    fn position_conversion_to_metres_is_reversible() {
        use geographiclib_rs::{Geodesic, InverseGeodesic};
        let wgs84 = Geodesic::wgs84();
        for (latitude, longitude) in [(48.8375, 2.1008), (0.0, -70.0), (-60.0, 179.0)] {
            let origin = MapOrigin::new(latitude, longitude);
            for (x, y) in [(0.0, 0.0), (1000.0, 0.0), (0.0, -2000.0), (-3000.0, 4000.0), (15e3, -13e3)] {
                let place = Point { x, y };
                let (to_latitude, to_longitude) = origin.to_degrees(place);
                assert!(origin.point_at(to_latitude, to_longitude).distance_to(place) < 1e-6);
                let metres: f64 = wgs84.inverse(latitude, longitude, to_latitude, to_longitude);
                let error = (metres - x.hypot(y)).abs();
                assert!(error <= x.hypot(y) * 0.003, "{latitude} {place:?}: {error} m");
            }
        }
    }

    #[test]
    fn position_between_two_points_is_interpolated() {
        let (a, b) = (Point { x: 0.0, y: 0.0 }, Point { x: 30.0, y: 40.0 });
        assert_eq!((a.distance_to(b), a.point_towards(b, 0.5)), (50.0, Point { x: 15.0, y: 20.0 }));
    }
}
