//! Access to fields at offsets that the compiler checks.

/// Returns the `N` octets at offset `AT` of a structure of `L` octets. A field that exceeds the structure
/// does not compile.
pub(super) fn field_at<const AT: usize, const N: usize, const L: usize>(octets: &[u8; L]) -> [u8; N] {
    const { assert!(AT + N <= L) };
    let mut field = [0; N];
    field.copy_from_slice(&octets[AT..AT + N]);
    field
}

/// Writes the `N` octets at offset `AT` of a structure of `L` octets. A field that exceeds the structure does
/// not compile.
pub(super) fn set_field_at<const AT: usize, const N: usize, const L: usize>(
    octets: &mut [u8; L],
    field: [u8; N],
) {
    const { assert!(AT + N <= L) };
    octets[AT..AT + N].copy_from_slice(&field);
}
