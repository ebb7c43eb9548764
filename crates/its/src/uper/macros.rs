//! From a notation close to the ASN.1 to types with an encoding.
//!
//! The types' names are the standard's, in Rust's spelling; so are the components'. A type in the notation is one
//! line where ASN.1 needs one line, and the macro knows its width when the program is compiled.

/// `INTEGER (least..most)` with named numbers: a number of its own type, so that units do not mix.
///
/// `[extensible]` is ASN.1's extension marker: values outside the range are written as they are.
macro_rules! integers {
    ($($(#[$meta:meta])* $name:ident($repr:ty) $least:literal ..= $most:literal $([$extensible:ident])?,
       default $default:literal $({ $($constant:ident = $value:literal),* $(,)? })?;)*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $repr);

        impl $name {
            /// The least value.
            pub const LEAST: $repr = $least;
            /// The greatest value.
            pub const MOST: $repr = $most;
            $($(#[allow(missing_docs, reason = "named numbers of the standard")]
            pub const $constant: $name = $name($value);)*)?

            /// Bits that a value takes.
            const WIDTH: u32 = $crate::uper::width(($most as i64 - $least as i64) as u64);
        }

        impl Default for $name {
            fn default() -> Self {
                $name($default)
            }
        }

        impl $crate::uper::Uper for $name {
            const NAME: &'static str = stringify!($name);

            #[inline]
            fn decode(reader: &mut $crate::uper::Reader<'_>) -> Result<Self, $crate::uper::Error> {
                $(if $crate::uper::macros::extension_marker!($extensible) && reader.bit(Self::NAME)? {
                    let found = $crate::uper::macros::decode_unconstrained(reader, Self::NAME)?;
                    return <$repr>::try_from(found).map($name).map_err(|_| {
                        $crate::uper::out_of_range(Self::NAME, <$repr>::MIN as i64, <$repr>::MAX as i64, found)
                    });
                })?
                let value = reader.bits(Self::WIDTH, Self::NAME)? as i64 + $least;
                if value > $most {
                    return Err($crate::uper::out_of_range(Self::NAME, $least, $most, value));
                }
                Ok($name(value as $repr))
            }

            #[inline]
            fn encode(&self, writer: &mut $crate::uper::Writer) -> Result<(), $crate::uper::Error> {
                let value = self.0 as i64;
                let within = ($least..=$most).contains(&value);
                $(if $crate::uper::macros::extension_marker!($extensible) {
                    writer.bits(u64::from(!within), 1);
                    if !within {
                        $crate::uper::macros::encode_unconstrained(value, writer);
                        return Ok(());
                    }
                })?
                if !within {
                    return Err($crate::uper::out_of_range(Self::NAME, $least, $most, value));
                }
                writer.bits((value - $least) as u64, Self::WIDTH);
                Ok(())
            }
        }
    )*};
}

/// `ENUMERATED`.
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
            fn decode(reader: &mut $crate::uper::Reader<'_>) -> Result<Self, $crate::uper::Error> {
                let most = Self::ALL.len() as u64 - 1;
                let found = reader.bits($crate::uper::width(most), Self::NAME)?;
                Self::ALL.get(found as usize).copied().ok_or_else(|| {
                    $crate::uper::out_of_range(Self::NAME, 0, most as i64, found as i64)
                })
            }

            #[inline]
            fn encode(&self, writer: &mut $crate::uper::Writer) -> Result<(), $crate::uper::Error> {
                writer.bits(*self as u64, $crate::uper::width(Self::ALL.len() as u64 - 1));
                Ok(())
            }
        }
    )*};
}

/// `ENUMERATED` with an extension marker: `Other` has the number of a later value among the additions, from 0.
macro_rules! extensible_enumerated {
    ($($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident),* $(,)? })*) => {$(
        $(#[$meta])*
        #[allow(missing_docs, reason = "named values of the standard")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub enum $name { $($(#[$vmeta])* $variant,)* Other(u8) }

        impl $name {
            /// Every value that this release knows, in the standard's order.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];
        }

        impl $crate::uper::Uper for $name {
            const NAME: &'static str = stringify!($name);

            fn decode(reader: &mut $crate::uper::Reader<'_>) -> Result<Self, $crate::uper::Error> {
                if reader.bit(Self::NAME)? {
                    return reader.small_number(Self::NAME).map($name::Other);
                }
                let most = Self::ALL.len() as u64 - 1;
                let found = reader.bits($crate::uper::width(most), Self::NAME)?;
                Self::ALL.get(found as usize).copied().ok_or_else(|| {
                    $crate::uper::out_of_range(Self::NAME, 0, most as i64, found as i64)
                })
            }

            fn encode(&self, writer: &mut $crate::uper::Writer) -> Result<(), $crate::uper::Error> {
                if let $name::Other(later) = *self {
                    writer.bits(1, 1);
                    return writer.small_number(later, Self::NAME);
                }
                let index = Self::ALL.iter().position(|value| value == self).unwrap_or_default();
                writer.bits(0, 1);
                writer.bits(index as u64, $crate::uper::width(Self::ALL.len() as u64 - 1));
                Ok(())
            }
        }
    )*};
}

/// `BIT STRING (SIZE (width))` with named bits. The first bit of the standard is the most significant of the `width`.
macro_rules! bit_strings {
    ($($(#[$meta:meta])* $name:ident($repr:ty) $width:literal { $($constant:ident = $bit:literal),* $(,)? })*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name(pub $repr);

        impl $name {
            $(#[allow(missing_docs, reason = "named bits of the standard")]
            pub const $constant: $name = $name(1 << ($width - 1 - $bit));)*

            /// Whether all bits of `other` are set.
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
            fn decode(reader: &mut $crate::uper::Reader<'_>) -> Result<Self, $crate::uper::Error> {
                reader.bits($width, Self::NAME).map(|bits| $name(bits as $repr))
            }

            #[inline]
            fn encode(&self, writer: &mut $crate::uper::Writer) -> Result<(), $crate::uper::Error> {
                let bits = u64::from(self.0);
                if bits >> $width != 0 {
                    return Err($crate::uper::out_of_range(Self::NAME, 0, (1 << $width) - 1, bits as i64));
                }
                writer.bits(bits, $width);
                Ok(())
            }
        }
    )*};
}

/// `SEQUENCE`. A component is optional where its type is an `Option` (or has a DEFAULT, see `Uper::OPTIONAL`).
macro_rules! sequences {
    ($($(#[$meta:meta])* $name:ident { $($(#[$fmeta:meta])* $field:ident: $type:ty),* $(,)? })*) => {$(
        $crate::uper::macros::sequences!(@one [$(#[$meta])*] $name false { $($(#[$fmeta])* $field: $type),* });
    )*};
    (@one [$($meta:tt)*] $name:ident $extensible:literal { $($(#[$fmeta:meta])* $field:ident: $type:ty),* }) => {
        $($meta)*
        #[allow(missing_docs, reason = "the components' names are the standard's; units stand at their types")]
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct $name { $($(#[$fmeta])* pub $field: $type),* }

        impl $crate::uper::Uper for $name {
            const NAME: &'static str = stringify!($name);

            fn decode(reader: &mut $crate::uper::Reader<'_>) -> Result<Self, $crate::uper::Error> {
                let additions = $extensible && reader.bit(Self::NAME)?;
                $(let $field = !<$type as $crate::uper::Uper>::OPTIONAL || reader.bit(Self::NAME)?;)*
                let value = $name {
                    $($field: <$type as $crate::uper::Uper>::decode_component(reader, $field)?),*
                };
                if additions {
                    reader.skip_additions(Self::NAME)?;
                }
                Ok(value)
            }

            fn encode(&self, writer: &mut $crate::uper::Writer) -> Result<(), $crate::uper::Error> {
                use $crate::uper::Uper;
                if $extensible {
                    writer.bits(0, 1);
                }
                $(if <$type as Uper>::OPTIONAL {
                    writer.bits(u64::from(self.$field.is_present()), 1);
                })*
                $(if self.$field.is_present() {
                    self.$field.encode(writer)?;
                })*
                Ok(())
            }
        }
    };
}

/// `SEQUENCE` with an extension marker: additions of later releases are skipped.
macro_rules! extensible_sequences {
    ($($(#[$meta:meta])* $name:ident { $($(#[$fmeta:meta])* $field:ident: $type:ty),* $(,)? })*) => {$(
        $crate::uper::macros::sequences!(@one [$(#[$meta])*] $name true { $($(#[$fmeta])* $field: $type),* });
    )*};
}

/// `CHOICE` with an extension marker: `Other` has an alternative of a later release as octets.
macro_rules! extensible_choices {
    ($($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident($type:ty)),* $(,)? })*) => {$(
        $(#[$meta])*
        #[allow(missing_docs, reason = "the alternatives' names are the standard's")]
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum $name { $($(#[$vmeta])* $variant($type),)* Other($crate::uper::OpenType) }

        impl $name {
            /// How many alternatives this release knows.
            const COUNT: u64 = [$(stringify!($variant)),*].len() as u64;
        }

        impl $crate::uper::Uper for $name {
            const NAME: &'static str = stringify!($name);

            fn decode(reader: &mut $crate::uper::Reader<'_>) -> Result<Self, $crate::uper::Error> {
                if reader.bit(Self::NAME)? {
                    return $crate::uper::OpenType::decode(reader, Self::NAME).map($name::Other);
                }
                let found = reader.bits($crate::uper::width(Self::COUNT - 1), Self::NAME)?;
                let mut index = 0;
                $(if found == index {
                    return <$type as $crate::uper::Uper>::decode(reader).map($name::$variant);
                }
                index += 1;)*
                Err($crate::uper::out_of_range(Self::NAME, 0, index as i64 - 1, found as i64))
            }

            fn encode(&self, writer: &mut $crate::uper::Writer) -> Result<(), $crate::uper::Error> {
                let mut index = 0_u64;
                $(if let $name::$variant(value) = self {
                    writer.bits(0, 1);
                    writer.bits(index, $crate::uper::width(Self::COUNT - 1));
                    return $crate::uper::Uper::encode(value, writer);
                }
                index += 1;)*
                let _ = index;
                let $name::Other(other) = self else { return Ok(()) };
                writer.bits(1, 1);
                other.encode(writer, Self::NAME)
            }
        }
    )*};
}

/// `SEQUENCE (SIZE (least..most)) OF`; `[extensible]` is the extension marker.
macro_rules! lists {
    ($($(#[$meta:meta])* $name:ident[$item:ty] $least:literal ..= $most:literal $([$extensible:ident])?;)*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct $name(pub Vec<$item>);

        impl $crate::uper::Uper for $name {
            const NAME: &'static str = stringify!($name);

            fn decode(reader: &mut $crate::uper::Reader<'_>) -> Result<Self, $crate::uper::Error> {
                let extensible = false $(|| $crate::uper::macros::extension_marker!($extensible))?;
                $crate::uper::macros::decode_list(reader, Self::NAME, ($least, $most), extensible).map($name)
            }

            fn encode(&self, writer: &mut $crate::uper::Writer) -> Result<(), $crate::uper::Error> {
                let extensible = false $(|| $crate::uper::macros::extension_marker!($extensible))?;
                $crate::uper::macros::encode_list(&self.0, writer, Self::NAME, ($least, $most), extensible)
            }
        }
    )*};
}

/// Character strings of known multipliers (X.691 30): `SIZE (least..most)`, an alphabet of `width` bits.
macro_rules! strings {
    ($($(#[$meta:meta])* $name:ident $alphabet:ident $least:literal ..= $most:literal;)*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct $name(pub String);

        impl $crate::uper::Uper for $name {
            const NAME: &'static str = stringify!($name);

            fn decode(reader: &mut $crate::uper::Reader<'_>) -> Result<Self, $crate::uper::Error> {
                use $crate::uper::macros::Alphabet;
                $crate::uper::macros::decode_string(reader, Self::NAME, ($least, $most), Alphabet::$alphabet)
                    .map($name)
            }

            fn encode(&self, writer: &mut $crate::uper::Writer) -> Result<(), $crate::uper::Error> {
                use $crate::uper::macros::Alphabet;
                $crate::uper::macros::encode_string(&self.0, writer, Self::NAME, ($least, $most), Alphabet::$alphabet)
            }
        }
    )*};
}

/// The word `extensible` where a notation allows it.
macro_rules! extension_marker {
    (extensible) => {
        true
    };
}

pub(crate) use {
    bit_strings, enumerated, extensible_choices, extensible_enumerated, extensible_sequences,
    extension_marker, integers, lists, sequences, strings,
};

use super::{Error, Reader, Uper, Writer, out_of_range, width};

/// An INTEGER without bounds (X.691 13.2.4), at most eight octets of it.
pub(crate) fn decode_unconstrained(reader: &mut Reader<'_>, what: &'static str) -> Result<i64, Error> {
    let length = reader.length(what)?;
    if !(1..=8).contains(&length) {
        return Err(out_of_range(what, 1, 8, i64::try_from(length).unwrap_or(i64::MAX)));
    }
    let mut value = 0_i64;
    for number in 0..length {
        let octet = reader.bits(8, what)? as u8;
        // The first octet has the sign.
        value = if number == 0 { i64::from(octet.cast_signed()) } else { value << 8 | i64::from(octet) };
    }
    Ok(value)
}

/// The same, in as few octets as it takes (X.691 13.2.4).
pub(crate) fn encode_unconstrained(value: i64, writer: &mut Writer) {
    let magnitude = if value < 0 { !value } else { value } as u64;
    // One bit more, for the sign.
    let octets = ((width(magnitude) + 1).div_ceil(8)) as usize;
    writer.bits(octets as u64, 8);
    writer.octets(&value.to_be_bytes()[8 - octets..]);
}

/// A count within `least..=most`, or any below 16,384 where the size is extensible.
fn decode_count(
    reader: &mut Reader<'_>,
    what: &'static str,
    (least, most): (usize, usize),
    extensible: bool,
) -> Result<usize, Error> {
    if extensible && reader.bit(what)? {
        return reader.length(what);
    }
    let count = reader.bits(width((most - least) as u64), what)? as usize + least;
    if count > most {
        return Err(out_of_range(what, least as i64, most as i64, count as i64));
    }
    Ok(count)
}

fn encode_count(
    count: usize,
    writer: &mut Writer,
    what: &'static str,
    (least, most): (usize, usize),
    extensible: bool,
) -> Result<(), Error> {
    let within = (least..=most).contains(&count);
    if extensible {
        writer.bits(u64::from(!within), 1);
        if !within {
            return writer.length(count, what);
        }
    }
    if !within {
        return Err(out_of_range(what, least as i64, most as i64, count as i64));
    }
    writer.bits((count - least) as u64, width((most - least) as u64));
    Ok(())
}

pub(crate) fn decode_list<T: Uper>(
    reader: &mut Reader<'_>,
    what: &'static str,
    size: (usize, usize),
    extensible: bool,
) -> Result<Vec<T>, Error> {
    let count = decode_count(reader, what, size, extensible)?;
    // Room for what the size allows, and not for what a count beyond it claims.
    let mut items = Vec::with_capacity(count.min(size.1));
    for _ in 0..count {
        items.push(T::decode(reader)?);
    }
    Ok(items)
}

pub(crate) fn encode_list<T: Uper>(
    items: &[T],
    writer: &mut Writer,
    what: &'static str,
    size: (usize, usize),
    extensible: bool,
) -> Result<(), Error> {
    encode_count(items.len(), writer, what, size, extensible)?;
    items.iter().try_for_each(|item| item.encode(writer))
}

/// Which characters a string has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alphabet {
    /// IA5String: seven bits as they are.
    Ia5,
    /// NumericString: space and digits, numbered from 0 in four bits.
    Numeric,
}

impl Alphabet {
    fn width(self) -> u32 {
        match self {
            Alphabet::Ia5 => 7,
            Alphabet::Numeric => 4,
        }
    }
}

pub(crate) fn decode_string(
    reader: &mut Reader<'_>,
    what: &'static str,
    size: (usize, usize),
    alphabet: Alphabet,
) -> Result<String, Error> {
    let count = decode_count(reader, what, size, false)?;
    let mut text = String::with_capacity(count);
    for _ in 0..count {
        let code = reader.bits(alphabet.width(), what)? as u8;
        let octet = match (alphabet, code) {
            (Alphabet::Ia5, _) => code,
            (Alphabet::Numeric, 0) => b' ',
            (Alphabet::Numeric, 1..=10) => b'0' + code - 1,
            _ => return Err(Error::Character { what, found: code }),
        };
        text.push(char::from(octet));
    }
    Ok(text)
}

pub(crate) fn encode_string(
    text: &str,
    writer: &mut Writer,
    what: &'static str,
    size: (usize, usize),
    alphabet: Alphabet,
) -> Result<(), Error> {
    encode_count(text.len(), writer, what, size, false)?;
    for octet in text.bytes() {
        let code = match (alphabet, octet) {
            (Alphabet::Ia5, 0..=127) => octet,
            (Alphabet::Numeric, b' ') => 0,
            (Alphabet::Numeric, b'0'..=b'9') => octet - b'0' + 1,
            _ => return Err(Error::Character { what, found: octet }),
        };
        writer.bits(u64::from(code), alphabet.width());
    }
    Ok(())
}
