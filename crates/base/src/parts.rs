//! Parts of the program that a small one does without.
//!
//! Whatever only makes sense with a part holds a token of it. Where the part is left out (a feature of this crate) there is no
//! value of that type, so that nothing that holds one can be there either: the compiler sees that and makes no
//! code for it. All of it is still compiled, and the same everywhere but where a token is asked for.

/// Something that there is.
#[cfg(any(feature = "bpf", feature = "geonet"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Here {
    Yes,
}

/// Something that there is not.
#[cfg(not(all(feature = "bpf", feature = "geonet")))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nowhere {}

macro_rules! parts {
    ($($(#[$about:meta])* $part:ident, $ask:ident, $feature:literal;)*) => {
        $(
            $(#[$about])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq)]
            pub struct $part(
                #[cfg(feature = $feature)] Here,
                #[cfg(not(feature = $feature))] Nowhere,
            );

            /// The token, in a program that has the part.
            pub const fn $ask() -> Option<$part> {
                #[cfg(feature = $feature)]
                {
                    Some($part(Here::Yes))
                }
                #[cfg(not(feature = $feature))]
                {
                    None
                }
            }
        )*
    };
}

parts! {
    /// The data paths of BPF programs.
    Bpf, bpf, "bpf";
    /// GeoNetworking and what is above it.
    Geonet, geonet, "geonet";
}
