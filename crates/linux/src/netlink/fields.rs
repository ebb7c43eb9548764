//! Reads fields of the kernel's messages.

/// Returns the N octets from this position on; `None` if there are fewer.
pub(super) fn at<const N: usize>(octets: &[u8], place: usize) -> Option<[u8; N]> {
    octets.get(place..)?.first_chunk().copied()
}
