//! Reads fields of the kernel's messages.

/// Returns N octets from the offset `place` on; `None` if fewer are left.
pub(super) fn octets_at<const N: usize>(octets: &[u8], place: usize) -> Option<[u8; N]> {
    octets.get(place..)?.first_chunk().copied()
}
