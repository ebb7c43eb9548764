//! Optional parts of the program, which a small build leaves out.
//!
//! A value that needs a part holds a token of it. Without the part (a feature of this crate) the token's type
//! has no values. The compiler then knows that no holder of the token exists and generates no code for it. It
//! still compiles all code, and only the places that ask for a token differ.

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
