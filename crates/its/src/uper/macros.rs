//! Macros that generate types with an encoding from a notation close to ASN.1.
//!
//! The types and components have the names of the standard in Rust's spelling. A type takes as many lines as
//! in ASN.1, and the macro knows its width at compile time.

/// `INTEGER (least..most)` with named numbers. Each becomes a Rust type of its own, so that units cannot be
/// mixed up.
///
/// `[extensible]` is ASN.1's extension marker: the encoder writes values outside the range as unconstrained
/// integers.
macro_rules! integers {
    ($($(#[$meta:meta])* $name:ident($repr:ty) $least:literal ..= $most:literal $([$extensible:ident])?,
       default $default:literal $({ $($constant:ident = $value:literal),* $(,)? })?;)*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $repr);

        impl $name {
            /// The least value of the type.
            pub const LEAST: $repr = $least;
            /// The greatest value of the type.
            pub const MOST: $repr = $most;
            $($(#[allow(missing_docs, reason = "named numbers of the standard")]
            pub const $constant: $name = $name($value);)*)?
        }

        impl Default for $name {
            fn default() -> Self {
                $name($default)
            }
        }

        impl $crate::uper::Uper for $name {
            const NAME: &'static str = stringify!($name);

            #[inline]
            fn decode(reader: &mut $crate::uper::Reader<'_>) -> Self {
                $(if $crate::uper::macros::extension_marker!($extensible) && reader.read_bit(Self::NAME) {
                    let (least, most) = (<$repr>::MIN as i64, <$repr>::MAX as i64);
                    let found = $crate::uper::macros::decode_unconstrained(reader, least, most, Self::NAME);
                    return $name(found as $repr);
                })?
                $name(reader.read_constrained_integer($least, $most, Self::NAME) as $repr)
            }

            #[inline]
            fn encode(&self, writer: &mut $crate::uper::Writer) {
                let value = self.0 as i64;
                $(if $crate::uper::macros::extension_marker!($extensible) {
                    let within = ($least..=$most).contains(&value);
                    writer.write_bits(u64::from(!within), 1);
                    if !within {
                        return $crate::uper::macros::encode_unconstrained(value, writer);
                    }
                })?
                writer.write_constrained_integer(value, $least, $most, Self::NAME);
            }
        }
    )*};
}

/// Defines `ENUMERATED` types.
macro_rules! enumerated {
    ($($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident),* $(,)? })*) => {$(
        $(#[$meta])*
        #[allow(missing_docs, reason = "named values of the standard")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub enum $name { $($(#[$vmeta])* $variant),* }

        impl $name {
            /// Every value, in the standard's order.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];
        }

        impl $crate::uper::Uper for $name {
            const NAME: &'static str = stringify!($name);

            #[inline]
            fn decode(reader: &mut $crate::uper::Reader<'_>) -> Self {
                let found = reader.read_constrained_integer(0, Self::ALL.len() as i64 - 1, Self::NAME);
                Self::ALL.get(found as usize).copied().unwrap_or_default()
            }

            #[inline]
            fn encode(&self, writer: &mut $crate::uper::Writer) {
                writer.write_constrained_integer(*self as i64, 0, Self::ALL.len() as i64 - 1, Self::NAME);
            }
        }
    )*};
}

/// `ENUMERATED` with an extension marker. Additions known to carnet are in a second pair of braces. The
/// variant `Other` holds the number of an unknown addition, counted from 0.
macro_rules! extensible_enumerated {
    ($($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident),* $(,)? }
       $({ $($later:ident),* $(,)? })?)*) => {$(
        $(#[$meta])*
        #[allow(missing_docs, reason = "named values of the standard")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub enum $name { $($(#[$vmeta])* $variant,)* $($($later,)*)? Other(u8) }

        impl $name {
            /// Every value of the root, in the standard's order.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];
            /// Additions that carnet knows.
            const ADDITIONS: &'static [$name] = &[$($($name::$later),*)?];
        }

        impl $crate::uper::Uper for $name {
            const NAME: &'static str = stringify!($name);

            fn decode(reader: &mut $crate::uper::Reader<'_>) -> Self {
                if reader.read_bit(Self::NAME) {
                    let later = reader.read_small_number(Self::NAME);
                    return Self::ADDITIONS.get(usize::from(later)).copied().unwrap_or($name::Other(later));
                }
                let found = reader.read_constrained_integer(0, Self::ALL.len() as i64 - 1, Self::NAME);
                Self::ALL.get(found as usize).copied().unwrap_or_default()
            }

            fn encode(&self, writer: &mut $crate::uper::Writer) {
                if let Some(index) = Self::ALL.iter().position(|value| value == self) {
                    writer.write_bits(0, 1);
                    let last = Self::ALL.len() as i64 - 1;
                    return writer.write_constrained_integer(index as i64, 0, last, Self::NAME);
                }
                let known = Self::ADDITIONS.iter().position(|value| value == self);
                let later = match *self {
                    $name::Other(later) => later,
                    _ => known.unwrap_or_default() as u8,
                };
                writer.write_bits(1, 1);
                writer.write_small_number(later, Self::NAME);
            }
        }
    )*};
}

/// `BIT STRING (SIZE (width))` with named bits. The first bit of the standard is the most significant of the
/// `width`.
macro_rules! bit_strings {
    ($($(#[$meta:meta])* $name:ident($repr:ty) $width:literal {
        $($constant:ident = $bit:literal),* $(,)?
    })*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name(pub $repr);

        impl $name {
            $(#[allow(missing_docs, reason = "named bits of the standard")]
            pub const $constant: $name = $name(1 << ($width - 1 - $bit));)*

            /// Returns whether all bits of `other` are set.
            pub const fn contains(self, other: $name) -> bool {
                self.0 & other.0 == other.0
            }
        }

        impl std::ops::BitOr for $name {
            type Output = $name;
            fn bitor(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }
        }

        impl $crate::uper::Uper for $name {
            const NAME: &'static str = stringify!($name);

            #[inline]
            fn decode(reader: &mut $crate::uper::Reader<'_>) -> Self {
                $name(reader.read_bits($width, Self::NAME) as $repr)
            }

            #[inline]
            fn encode(&self, writer: &mut $crate::uper::Writer) {
                writer.write_constrained_integer(i64::from(self.0), 0, (1 << $width) - 1, Self::NAME);
            }
        }
    )*};
}

/// `BIT STRING (SIZE (least..most))`; `[extensible]` is the extension marker.
macro_rules! variable_bit_strings {
    ($(
        $(#[$meta:meta])* $name:ident($repr:ty) $least:literal ..= $most:literal $([$extensible:ident])?;
    )*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name {
            /// Number of bits.
            pub width: u8,
            /// Bits of the string, as a number of `width` bits; the first bit of the string is the highest.
            pub bits: $repr,
        }

        impl Default for $name {
            fn default() -> Self {
                $name { width: $least, bits: 0 }
            }
        }

        impl $crate::uper::Uper for $name {
            const NAME: &'static str = stringify!($name);

            fn decode(reader: &mut $crate::uper::Reader<'_>) -> Self {
                let extensible = false $(|| $crate::uper::macros::extension_marker!($extensible))?;
                let range = ($least, $most);
                let width = $crate::uper::macros::decode_count(reader, Self::NAME, range, extensible);
                let width = $crate::uper::macros::bit_count(reader, Self::NAME, width, <$repr>::BITS);
                $name { width, bits: reader.read_bits(u32::from(width), Self::NAME) as $repr }
            }

            fn encode(&self, writer: &mut $crate::uper::Writer) {
                let extensible = false $(|| $crate::uper::macros::extension_marker!($extensible))?;
                let width = self.width;
                let range = ($least, $most);
                $crate::uper::macros::encode_count(width.into(), writer, Self::NAME, range, extensible);
                let most = (1_i64 << width.min(<$repr>::BITS as u8)) - 1;
                writer.write_constrained_integer(self.bits as i64, 0, most, Self::NAME);
            }
        }
    )*};
}

/// `OCTET STRING (SIZE (least..most))`; `[extensible]` is the extension marker.
macro_rules! octet_strings {
    ($($(#[$meta:meta])* $name:ident $least:literal ..= $most:literal $([$extensible:ident])?;)*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct $name(pub Vec<u8>);

        impl $crate::uper::Uper for $name {
            const NAME: &'static str = stringify!($name);

            fn decode(reader: &mut $crate::uper::Reader<'_>) -> Self {
                let extensible = false $(|| $crate::uper::macros::extension_marker!($extensible))?;
                let range = ($least, $most);
                let count = $crate::uper::macros::decode_count(reader, Self::NAME, range, extensible);
                $name(reader.read_octets(count, Self::NAME))
            }

            fn encode(&self, writer: &mut $crate::uper::Writer) {
                let extensible = false $(|| $crate::uper::macros::extension_marker!($extensible))?;
                let range = ($least, $most);
                $crate::uper::macros::encode_count(self.0.len(), writer, Self::NAME, range, extensible);
                writer.write_octets(&self.0);
            }
        }
    )*};
}

/// `SEQUENCE`. A component is optional if its type is an `Option`; `= value` is its DEFAULT.
macro_rules! sequences {
    ($($(#[$meta:meta])* $name:ident {
        $($field:ident: $type:ty $(= $default:expr)?),* $(,)?
    })*) => {$(
        $crate::uper::macros::sequences!(@one [$(#[$meta])*] $name false
            { $($field: $type $(= $default)?),* } {});
    )*};
    (@one [$($meta:tt)*] $name:ident $extensible:literal
     { $($field:ident: $type:ty $(= $default:expr)?),* } { $($later:ident: $addition:ty),* }) => {
        $($meta)*
        #[allow(missing_docs, reason = "the components' names are the standard's; units stand at their \
                                        types")]
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name { $(pub $field: $type,)* $(pub $later: Option<$addition>,)* }

        impl Default for $name {
            fn default() -> Self {
                $name {
                    $($field: $crate::uper::macros::component!(default $type $(= $default)?),)*
                    $($later: None,)*
                }
            }
        }

        impl $crate::uper::Uper for $name {
            const NAME: &'static str = stringify!($name);

            fn decode(reader: &mut $crate::uper::Reader<'_>) -> Self {
                let additions = $extensible && reader.read_bit(Self::NAME);
                $(let $field = $crate::uper::macros::component!(always $type $(= $default)?)
                    || reader.read_bit(Self::NAME);)*
                #[allow(unused_mut, reason = "there may be no additions")]
                let mut value = $name {
                    $($field: $crate::uper::macros::component!(decode reader $field $type $(= $default)?),)*
                    $($later: None,)*
                };
                if additions {
                    reader.read_extension_additions(Self::NAME, &mut |_number, _reader| {
                        let mut _place = 0;
                        $(if _number == _place {
                            value.$later = Some($crate::uper::Uper::decode(_reader));
                        }
                        _place += 1;)*
                    });
                }
                value
            }

            fn encode(&self, writer: &mut $crate::uper::Writer) {
                let additions = false $(|| self.$later.is_some())*;
                if $extensible {
                    writer.write_bits(u64::from(additions), 1);
                }
                $($crate::uper::macros::component!(preamble self writer $field $type $(= $default)?);)*
                $($crate::uper::macros::component!(encode self writer $field $type $(= $default)?);)*
                if additions {
                    writer.write_extension_additions(&[$(self.$later.is_some()),*], Self::NAME);
                    $(if let Some(value) = &self.$later {
                        writer.write_open_type(Self::NAME, &|writer| {
                            $crate::uper::Uper::encode(value, writer);
                        });
                    })*
                }
            }
        }
    };
}

/// Generates the code for a component, with or without a DEFAULT.
macro_rules! component {
    (default $type:ty) => {
        <$type>::default()
    };
    (default $type:ty = $default:expr) => {
        $default
    };
    (always $type:ty) => {
        !<$type as $crate::uper::Uper>::OPTIONAL
    };
    (always $type:ty = $default:expr) => {
        false
    };
    (decode $reader:ident $present:ident $type:ty) => {
        <$type as $crate::uper::Uper>::decode_component($reader, $present)
    };
    (decode $reader:ident $present:ident $type:ty = $default:expr) => {
        if $present { <$type as $crate::uper::Uper>::decode($reader) } else { $default }
    };
    (preamble $self:ident $writer:ident $field:ident $type:ty) => {
        if <$type as $crate::uper::Uper>::OPTIONAL {
            $writer.write_bits(u64::from($crate::uper::Uper::is_present(&$self.$field)), 1);
        }
    };
    (preamble $self:ident $writer:ident $field:ident $type:ty = $default:expr) => {
        $writer.write_bits(u64::from($self.$field != $default), 1);
    };
    (encode $self:ident $writer:ident $field:ident $type:ty) => {
        if $crate::uper::Uper::is_present(&$self.$field) {
            $crate::uper::Uper::encode(&$self.$field, $writer);
        }
    };
    (encode $self:ident $writer:ident $field:ident $type:ty = $default:expr) => {
        if $self.$field != $default {
            $crate::uper::Uper::encode(&$self.$field, $writer);
        }
    };
}

/// `SEQUENCE` with an extension marker. Additions known to carnet are in a second pair of braces, and each
/// may be absent. The decoder skips unknown additions.
macro_rules! extensible_sequences {
    ($($(#[$meta:meta])* $name:ident {
        $($field:ident: $type:ty $(= $default:expr)?),* $(,)?
    } $({ $($later:ident: $addition:ty),* $(,)? })?)*) => {$(
        $crate::uper::macros::sequences!(@one [$(#[$meta])*] $name true
            { $($field: $type $(= $default)?),* } { $($($later: $addition),*)? });
    )*};
}

/// `CHOICE`. The default value is the first alternative.
macro_rules! choices {
    ($($(#[$meta:meta])* $name:ident { $($variant:ident($type:ty)),* $(,)? })*) => {$(
        $(#[$meta])*
        #[allow(missing_docs, reason = "the alternatives' names are the standard's")]
        #[allow(clippy::large_enum_variant, reason = "the alternatives are the standard's")]
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum $name { $($variant($type)),* }

        impl $name {
            const COUNT: i64 = [$(stringify!($variant)),*].len() as i64;
        }

        $crate::uper::macros::choices!(@default $name $($variant($type)),*);

        impl $crate::uper::Uper for $name {
            const NAME: &'static str = stringify!($name);

            fn decode(reader: &mut $crate::uper::Reader<'_>) -> Self {
                let found = reader.read_constrained_integer(0, Self::COUNT - 1, Self::NAME);
                let mut index = 0;
                $(if found == index {
                    return $name::$variant(<$type as $crate::uper::Uper>::decode(reader));
                }
                index += 1;)*
                let _ = index;
                // The match does not reach this arm, because the number is in its range.
                $name::default()
            }

            fn encode(&self, writer: &mut $crate::uper::Writer) {
                let mut index = 0;
                $(#[allow(irrefutable_let_patterns, reason = "there may be one alternative")]
                if let $name::$variant(value) = self {
                    writer.write_constrained_integer(index, 0, Self::COUNT - 1, Self::NAME);
                    return $crate::uper::Uper::encode(value, writer);
                }
                index += 1;)*
                let _ = index;
            }
        }
    )*};
    (@default $name:ident $variant:ident($type:ty) $(, $($rest:tt)*)?) => {
        impl Default for $name {
            fn default() -> Self {
                $name::$variant(<$type>::default())
            }
        }
    };
}

/// `CHOICE` with an extension marker. Alternatives known to carnet are in a second pair of braces. `Other`
/// holds the octets of an unknown alternative. The default value is the first alternative.
macro_rules! extensible_choices {
    ($($(#[$meta:meta])* $name:ident { $($variant:ident($type:ty)),* $(,)? }
       $({ $($later:ident($addition:ty)),* $(,)? })?)*) => {$(
        $(#[$meta])*
        #[allow(missing_docs, reason = "the alternatives' names are the standard's")]
        #[allow(clippy::large_enum_variant, reason = "the alternatives are the standard's")]
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum $name { $($variant($type),)* $($($later($addition),)*)? Other($crate::uper::OpenType) }

        impl $name {
            /// Number of alternatives in the root.
            const COUNT: i64 = [$(stringify!($variant)),*].len() as i64;
        }

        $crate::uper::macros::choices!(@default $name $($variant($type)),*);

        impl $crate::uper::Uper for $name {
            const NAME: &'static str = stringify!($name);

            fn decode(reader: &mut $crate::uper::Reader<'_>) -> Self {
                if reader.read_bit(Self::NAME) {
                    let index = reader.read_small_number(Self::NAME);
                    let mut _place = 0;
                    $($(if index == _place {
                        let mut value = <$addition>::default();
                        reader.read_open_type(Self::NAME, &mut |reader| {
                            value = $crate::uper::Uper::decode(reader);
                        });
                        return $name::$later(value);
                    }
                    _place += 1;)*)?
                    return $name::Other($crate::uper::OpenType::decode(reader, index, Self::NAME));
                }
                let found = reader.read_constrained_integer(0, Self::COUNT - 1, Self::NAME);
                let mut index = 0;
                $(if found == index {
                    return $name::$variant(<$type as $crate::uper::Uper>::decode(reader));
                }
                index += 1;)*
                let _ = index;
                // The match does not reach this arm, because the number is in its range.
                $name::Other($crate::uper::OpenType::default())
            }

            fn encode(&self, writer: &mut $crate::uper::Writer) {
                let mut index = 0;
                $(if let $name::$variant(value) = self {
                    writer.write_bits(0, 1);
                    writer.write_constrained_integer(index, 0, Self::COUNT - 1, Self::NAME);
                    return $crate::uper::Uper::encode(value, writer);
                }
                index += 1;)*
                let _ = index;
                writer.write_bits(1, 1);
                let mut _place = 0;
                $($(if let $name::$later(value) = self {
                    writer.write_small_number(_place, Self::NAME);
                    return writer.write_open_type(Self::NAME, &|writer| {
                        $crate::uper::Uper::encode(value, writer);
                    });
                }
                _place += 1;)*)?
                if let $name::Other(other) = self {
                    other.encode(writer, Self::NAME);
                }
            }
        }
    )*};
}

/// A number followed by an open type, where the number determines the type (X.681). `Other` holds the octets
/// of a value with an unknown number.
macro_rules! numbered {
    ($($(#[$meta:meta])* $name:ident($number:ty) {
        $($variant:ident($type:ty) = $value:literal),* $(,)?
    })*) => {$(
        $(#[$meta])*
        #[allow(missing_docs, reason = "the types' names are the standard's")]
        #[allow(clippy::large_enum_variant, reason = "the types are the standard's")]
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum $name { $($variant($type),)* Other($number, Vec<u8>) }

        $crate::uper::macros::choices!(@default $name $($variant($type)),*);

        impl $crate::uper::Uper for $name {
            const NAME: &'static str = stringify!($name);

            fn decode(reader: &mut $crate::uper::Reader<'_>) -> Self {
                let number = <$number as $crate::uper::Uper>::decode(reader);
                $(if number.0 == $value {
                    let mut value = <$type>::default();
                    reader.read_open_type(Self::NAME, &mut |reader| {
                        value = $crate::uper::Uper::decode(reader);
                    });
                    return $name::$variant(value);
                })*
                let length = reader.read_length(Self::NAME);
                $name::Other(number, reader.read_octets(length, Self::NAME))
            }

            fn encode(&self, writer: &mut $crate::uper::Writer) {
                match self {
                    $($name::$variant(value) => {
                        let mut number = <$number>::default();
                        number.0 = $value;
                        $crate::uper::Uper::encode(&number, writer);
                        writer.write_open_type(Self::NAME, &|writer| {
                            $crate::uper::Uper::encode(value, writer);
                        });
                    })*
                    $name::Other(number, octets) => {
                        $crate::uper::Uper::encode(number, writer);
                        writer.write_length(octets.len(), Self::NAME);
                        writer.write_octets(octets);
                    }
                }
            }
        }
    )*};
}

/// `SEQUENCE (SIZE (least..most)) OF`; `[extensible]` is the extension marker.
macro_rules! lists {
    ($(
        $(#[$meta:meta])* $name:ident[$item:ty] $least:literal ..= $most:literal $([$extensible:ident])?;
    )*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct $name(pub Vec<$item>);

        impl $crate::uper::Uper for $name {
            const NAME: &'static str = stringify!($name);

            fn decode(reader: &mut $crate::uper::Reader<'_>) -> Self {
                let extensible = false $(|| $crate::uper::macros::extension_marker!($extensible))?;
                $name($crate::uper::macros::decode_list(reader, Self::NAME, ($least, $most), extensible))
            }

            fn encode(&self, writer: &mut $crate::uper::Writer) {
                let extensible = false $(|| $crate::uper::macros::extension_marker!($extensible))?;
                $crate::uper::macros::encode_list(&self.0, writer, Self::NAME, ($least, $most), extensible);
            }
        }
    )*};
}

/// Known-multiplier character strings (X.691 30): `SIZE (least..most)`, and an alphabet of `width` bits.
macro_rules! strings {
    ($($(#[$meta:meta])* $name:ident $alphabet:ident $least:literal ..= $most:literal;)*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct $name(pub String);

        impl $crate::uper::Uper for $name {
            const NAME: &'static str = stringify!($name);

            fn decode(reader: &mut $crate::uper::Reader<'_>) -> Self {
                use $crate::uper::macros::CharacterSet;
                let range = ($least, $most);
                $name($crate::uper::macros::decode_string(reader, Self::NAME, range, CharacterSet::$alphabet))
            }

            fn encode(&self, writer: &mut $crate::uper::Writer) {
                use $crate::uper::macros::CharacterSet;
                let range = ($least, $most);
                let characters = CharacterSet::$alphabet;
                $crate::uper::macros::encode_string(&self.0, writer, Self::NAME, range, characters);
            }
        }
    )*};
}

/// Turns the word `extensible` of a definition into `true`, and accepts no other word.
macro_rules! extension_marker {
    (extensible) => {
        true
    };
}

pub(crate) use {
    bit_strings, choices, component, enumerated, extensible_choices, extensible_enumerated,
    extensible_sequences, extension_marker, integers, lists, numbered, octet_strings, sequences, strings,
    variable_bit_strings,
};

pub(crate) use super::Null;
use super::{Error, Reader, Uper, Writer, width};

/// Reads an INTEGER without bounds (X.691 13.2.4) of at most eight octets. The reader stores an error if the
/// number is outside `least..=most`.
pub(crate) fn decode_unconstrained(
    reader: &mut Reader<'_>,
    least: i64,
    most: i64,
    what: &'static str,
) -> i64 {
    let length = reader.read_length(what);
    if !(1..=8).contains(&length) {
        let found = i64::try_from(length).unwrap_or(i64::MAX);
        reader.store_error(Error::OutOfRange { what, least: 1, most: 8, found });
        return least;
    }
    let mut value = 0_i64;
    for number in 0..length {
        let octet = reader.read_bits(8, what) as u8;
        // The first octet contains the sign.
        value = if number == 0 { i64::from(octet.cast_signed()) } else { value << 8 | i64::from(octet) };
    }
    if !(least..=most).contains(&value) {
        reader.store_error(Error::OutOfRange { what, least, most, found: value });
        return least;
    }
    value
}

/// Writes an unconstrained integer in as few octets as possible (X.691 13.2.4).
pub(crate) fn encode_unconstrained(value: i64, writer: &mut Writer) {
    let magnitude = if value < 0 { !value } else { value } as u64;
    // The sign needs one bit more.
    let octets = ((width(magnitude) + 1).div_ceil(8)) as usize;
    writer.write_bits(octets as u64, 8);
    writer.write_octets(value.to_be_bytes().get(8 - octets..).unwrap_or_default());
}

/// Reads a count within `least..=most`, or any count below 16,384 if the size is extensible.
pub(crate) fn decode_count(
    reader: &mut Reader<'_>,
    what: &'static str,
    size: (usize, usize),
    extensible: bool,
) -> usize {
    if extensible && reader.read_bit(what) {
        return reader.read_length(what);
    }
    reader.read_constrained_integer(size.0 as i64, size.1 as i64, what) as usize
}

pub(crate) fn encode_count(
    count: usize,
    writer: &mut Writer,
    what: &'static str,
    size: (usize, usize),
    extensible: bool,
) {
    if extensible {
        let within = (size.0..=size.1).contains(&count);
        writer.write_bits(u64::from(!within), 1);
        if !within {
            return writer.write_length(count, what);
        }
    }
    writer.write_constrained_integer(
        i64::try_from(count).unwrap_or(i64::MAX),
        size.0 as i64,
        size.1 as i64,
        what,
    );
}

/// Returns `count` as a number of bits if it is at most `room`; otherwise the reader stores an error.
pub(crate) fn bit_count(reader: &mut Reader<'_>, what: &'static str, count: usize, room: u32) -> u8 {
    if count <= room as usize {
        return count as u8;
    }
    reader.store_error(Error::OutOfRange { what, least: 0, most: room.into(), found: count as i64 });
    0
}

pub(crate) fn decode_list<T: Uper>(
    reader: &mut Reader<'_>,
    what: &'static str,
    size: (usize, usize),
    extensible: bool,
) -> Vec<T> {
    let count = decode_count(reader, what, size, extensible);
    // Allocate for the allowed size only, not for the count in the message, and at most for 64 items.
    let mut items = Vec::with_capacity(count.min(size.1).min(64));
    for _ in 0..count {
        items.push(T::decode(reader));
        if reader.error().is_some() {
            break;
        }
    }
    items
}

pub(crate) fn encode_list<T: Uper>(
    items: &[T],
    writer: &mut Writer,
    what: &'static str,
    size: (usize, usize),
    extensible: bool,
) {
    encode_count(items.len(), writer, what, size, extensible);
    items.iter().for_each(|item| item.encode(writer));
}

/// Alphabet of a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CharacterSet {
    /// IA5String: seven bits as they are.
    Ia5,
    /// NumericString: space and digits, numbered from 0 in four bits.
    Numeric,
    /// UTF8String: X.691 ignores its size constraint, so the decoder checks the size itself.
    Utf8,
}

impl CharacterSet {
    fn width(self) -> u32 {
        match self {
            CharacterSet::Ia5 => 7,
            CharacterSet::Numeric => 4,
            CharacterSet::Utf8 => 8,
        }
    }
}

pub(crate) fn decode_string(
    reader: &mut Reader<'_>,
    what: &'static str,
    size: (usize, usize),
    alphabet: CharacterSet,
) -> String {
    if alphabet == CharacterSet::Utf8 {
        return decode_utf8(reader, what, size);
    }
    let count = decode_count(reader, what, size, false);
    let mut text = String::with_capacity(count);
    for _ in 0..count {
        let code = reader.read_bits(alphabet.width(), what) as u8;
        let octet = match (alphabet, code) {
            (CharacterSet::Ia5, _) => code,
            (CharacterSet::Numeric, 0) => b' ',
            (CharacterSet::Numeric, 1..=10) => b'0' + code - 1,
            _ => {
                reader.store_error(Error::Character { what, found: code });
                break;
            }
        };
        text.push(char::from(octet));
    }
    text
}

pub(crate) fn encode_string(
    text: &str,
    writer: &mut Writer,
    what: &'static str,
    size: (usize, usize),
    alphabet: CharacterSet,
) {
    if alphabet == CharacterSet::Utf8 {
        if let Some(error) = size_error(text, what, size) {
            return writer.store_error(error);
        }
        writer.write_length(text.len(), what);
        return writer.write_octets(text.as_bytes());
    }
    encode_count(text.len(), writer, what, size, false);
    for octet in text.bytes() {
        let code = match (alphabet, octet) {
            (CharacterSet::Ia5, 0..=127) => octet,
            (CharacterSet::Numeric, b' ') => 0,
            (CharacterSet::Numeric, b'0'..=b'9') => octet - b'0' + 1,
            _ => return writer.store_error(Error::Character { what, found: octet }),
        };
        writer.write_bits(u64::from(code), alphabet.width());
    }
}

/// Returns an error if a text is too short or too long.
fn size_error(text: &str, what: &'static str, (least, most): (usize, usize)) -> Option<Error> {
    let found = text.chars().count();
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    (!(least..=most).contains(&found)).then_some(Error::OutOfRange {
        what,
        least: number(least),
        most: number(most),
        found: number(found),
    })
}

fn decode_utf8(reader: &mut Reader<'_>, what: &'static str, size: (usize, usize)) -> String {
    let length = reader.read_length(what);
    let octets = reader.read_octets(length, what);
    let text = String::from_utf8(octets).unwrap_or_else(|error| {
        let bad = error.utf8_error().valid_up_to();
        let found = error.as_bytes().get(bad).copied().unwrap_or_default();
        reader.store_error(Error::Character { what, found });
        String::new()
    });
    if let Some(error) = size_error(&text, what, size) {
        reader.store_error(error);
    }
    text
}
