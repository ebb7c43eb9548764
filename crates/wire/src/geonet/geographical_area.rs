//! Geographic areas as octets (clause 9.8.5, EN 302 931). The router decides which positions are inside an
//! area.

use super::position::is_on_globe;

/// Shape of a destination area: the header subtype of GBC and GAC (table 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GeoAreaShape {
    /// Subtype 0; [`GeoArea::distance_a`] is the radius.
    Circle,
    /// Subtype 1; the distances are half the sides' lengths.
    Rectangle,
    /// Subtype 2; the distances are half the axes' lengths.
    Ellipse,
}

/// A geographic area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GeoArea {
    /// Shape of the area.
    pub shape: GeoAreaShape,
    /// WGS 84 latitude of the centre, 0.1 microdegree, north positive.
    pub latitude: i32,
    /// WGS 84 longitude of the centre, 0.1 microdegree, east positive.
    pub longitude: i32,
    /// Distance a, metres: the radius of a circle, or the distance from the centre along the azimuth to the
    /// edge.
    pub distance_a: u16,
    /// Distance b, metres: the distance from the centre across the azimuth to the edge; 0 for a circle.
    pub distance_b: u16,
    /// Azimuth of distance a, degrees clockwise from North, 0 to 359; 0 for a circle.
    pub angle: u16,
}

impl GeoArea {
    /// Returns whether latitude and longitude of the centre are on the globe.
    pub fn is_on_globe(&self) -> bool {
        is_on_globe(self.latitude, self.longitude)
    }
}
