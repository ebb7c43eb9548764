//! Optional parts of the program, which a small build leaves out.
//!
//! A value that needs a part holds a token of this part. Without the part (a feature of this crate) the
//! token's type has no values. So the compiler knows that no holder of the token exists, and generates no
//! code for the holder. It still compiles all code; only the places that request a token differ.

/// A type with one value: the part is in the program.
#[cfg(any(feature = "bpf", feature = "geonet"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Here {
    Yes,
}

/// A type without values: the part is not in the program.
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

            /// Returns the token if the program has the part.
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
    /// The data paths in BPF programs.
    Bpf, bpf, "bpf";
    /// GeoNetworking and the layers above it.
    Geonet, geonet, "geonet";
}
