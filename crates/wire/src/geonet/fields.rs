//! Fields at places that the compiler checks.

/// The `N` octets at `AT` of a structure of `L` octets; one that would reach outside does not compile.
pub(super) fn take<const AT: usize, const N: usize, const L: usize>(octets: &[u8; L]) -> [u8; N] {
    const { assert!(AT + N <= L) };
    let mut field = [0; N];
    field.copy_from_slice(&octets[AT..AT + N]);
    field
}

/// Writes the `N` octets at `AT` of a structure of `L` octets; one that would reach outside does not compile.
pub(super) fn put<const AT: usize, const N: usize, const L: usize>(octets: &mut [u8; L], field: [u8; N]) {
    const { assert!(AT + N <= L) };
    octets[AT..AT + N].copy_from_slice(&field);
}
