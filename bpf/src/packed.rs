//! Packs objects, so that they take less room in the program and in its memory.
//!
//! A packed object begins with the object's length in four octets. Pieces follow. A piece has a number of
//! literal octets, and a number of octets that repeat earlier ones at a distance. The numbers are in groups
//! of seven bits, the lowest first; the eighth bit says that another group follows. The build script packs
//! the objects, and the program unpacks them.

/// Length in octets of the shortest repetition.
#[allow(dead_code, reason = "the program only unpacks")]
const SHORTEST_REPETITION: usize = 4;
/// Maximum number of earlier places at which the packer looks for the longest repetition.
#[allow(dead_code, reason = "the program only unpacks")]
const MAX_TRIED_PLACES: usize = 512;

/// Packs an object.
#[allow(dead_code, reason = "the program only unpacks")]
pub fn pack(octets: &[u8]) -> Vec<u8> {
    let mut packed = (octets.len() as u32).to_le_bytes().to_vec();
    // For each group of [`SHORTEST_REPETITION`] octets, the places in the object at which the group begins.
    let mut places: std::collections::HashMap<[u8; SHORTEST_REPETITION], Vec<usize>> =
        std::collections::HashMap::new();
    let group = |at: usize| octets.get(at..at + SHORTEST_REPETITION).and_then(|group| group.try_into().ok());
    let (mut at, mut literals) = (0, 0);
    while at < octets.len() {
        let known = group(at).and_then(|group: [u8; SHORTEST_REPETITION]| places.get(&group));
        let lengths = known.into_iter().flatten().rev().take(MAX_TRIED_PLACES).map(|before| {
            let same = octets[at..].iter().zip(&octets[*before..]).take_while(|(a, b)| a == b).count();
            (same, *before)
        });
        let (length, before) = lengths.max().unwrap_or((0, 0));
        let step = if length >= SHORTEST_REPETITION { length } else { 1 };
        for place in at..at + step {
            if let Some(group) = group(place) {
                places.entry(group).or_default().push(place);
            }
        }
        if length >= SHORTEST_REPETITION {
            write_number(&mut packed, at - literals);
            packed.extend(&octets[literals..at]);
            write_number(&mut packed, length);
            write_number(&mut packed, at - before);
            literals = at + length;
        }
        at += step;
    }
    write_number(&mut packed, octets.len() - literals);
    packed.extend(&octets[literals..]);
    packed
}

#[allow(dead_code, reason = "the program only unpacks")]
fn write_number(packed: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        packed.push(number as u8 | 0x80);
        number >>= 7;
    }
    packed.push(number as u8);
}

/// Appends an unpacked object to `octets`; stops at invalid input.
#[allow(dead_code, reason = "the build script only packs")]
pub fn unpack(packed: &[u8], octets: &mut Vec<u8>) {
    let Some((length, mut rest)) = packed.split_first_chunk() else { return };
    octets.reserve(u32::from_le_bytes(*length) as usize);
    while let Some(count) = read_number(&mut rest)
        && let Some((literals, behind)) = rest.split_at_checked(count)
    {
        octets.extend(literals);
        rest = behind;
        let (Some(length), Some(distance)) = (read_number(&mut rest), read_number(&mut rest)) else { return };
        let Some(from) = octets.len().checked_sub(distance).filter(|_| distance > 0) else { return };
        // Copy octet by octet, because a repetition may overlap its own result.
        for at in from..from + length {
            octets.push(octets[at]);
        }
    }
}

#[allow(dead_code, reason = "the build script only packs")]
fn read_number(rest: &mut &[u8]) -> Option<usize> {
    let mut number = 0;
    for shift in (0..usize::BITS).step_by(7) {
        let (octet, behind) = rest.split_first()?;
        *rest = behind;
        number |= usize::from(octet & 0x7f) << shift;
        if octet & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}
