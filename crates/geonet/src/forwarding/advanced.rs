//! The sectorial contention area of advanced area forwarding (F.4).
//!
//! While this station waits to repeat a packet, it receives the repetition of another station, the forwarder.
//! The sector is the area around the direction from the original sender to the forwarder. If this station is
//! inside the sector and nearer to the sender than the forwarder, it does not repeat the packet. The
//! forwarder's repetition has then already reached the stations that this station would reach.

use crate::Mib;
use crate::geodesy::{LocalPlane, Position};

/// Returns whether `ego` (R) lies inside the sector of `forwarder` (F) as seen from `sender` (S): dist_R <
/// dist_F < dist_max and angle FSR < `itsGnBroadcastCBFDefSectorAngle`.
pub fn is_inside_sector(mib: &Mib, sender: Position, forwarder: Position, ego: Position) -> bool {
    let plane = LocalPlane::new(sender);
    let (ego, forwarder) = (plane.offset_of(ego), plane.offset_of(forwarder));
    let (ego_distance, forwarder_distance) = (ego.0.hypot(ego.1), forwarder.0.hypot(forwarder.1));
    let product = ego.0 * forwarder.0 + ego.1 * forwarder.1;
    let angle = (product / (ego_distance * forwarder_distance)).clamp(-1.0, 1.0).acos().to_degrees();
    ego_distance < forwarder_distance
        && forwarder_distance < mib.max_communication_range
        && angle < mib.sector_angle
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F.4: the sector contains positions nearer than the forwarder and within 30 degrees of its direction.
    #[test]
    fn forwarder_is_kept_only_inside_the_sector_angle_and_range() {
        let sender = Position::new(488_000_000, 21_000_000);
        let plane = LocalPlane::new(sender);
        let at = |degrees: f64, metres: f64| {
            let (sin, cos) = degrees.to_radians().sin_cos();
            plane.position_at(sin * metres, cos * metres)
        };
        let inside = |ego, forwarder| is_inside_sector(&Mib::default(), sender, forwarder, ego);
        assert!(inside(at(100.0, 400.0), at(80.0, 600.0)));
        assert!(!inside(at(120.0, 400.0), at(80.0, 600.0)), "angle");
        assert!(!inside(at(80.0, 700.0), at(80.0, 600.0)), "farther than the forwarder");
        assert!(!inside(at(80.0, 700.0), at(80.0, 1100.0)), "a forwarder out of range");
        assert!(!inside(sender, sender), "no direction at all");
    }
}
