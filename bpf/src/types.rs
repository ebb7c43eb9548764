//! Removes the line numbers from the types of an ELF object.
//!
//! The section `.BTF.ext` contains types of functions, which the kernel needs to verify a global function
//! once, and line numbers. Loader and kernel would keep the line numbers in their memory.

use crate::instructions::Elf;

/// Offsets in the header of `.BTF.ext` (`struct btf_ext_header`): length of the header, then offset and
/// length of the line numbers.
const HEADER_LENGTH_OFFSET: usize = 4;
const LINES_OFFSET: usize = 16;
const LINES_LENGTH_OFFSET: usize = 20;

/// Overwrites the line numbers with zeros, and sets their length to 0. `None` if the object has no types of
/// functions.
pub fn remove_line_numbers(object: &mut [u8]) -> Option<()> {
    let elf = Elf::read(object)?;
    let sections = elf.sections()?;
    let found = sections.get(elf.index_of(&sections, b".BTF.ext")?)?;
    let number = |at: usize| Some(elf.number(found.start + at, 4)? as usize);
    let start = found.start + number(HEADER_LENGTH_OFFSET)? + number(LINES_OFFSET)?;
    let (from, length) = (found.start + LINES_LENGTH_OFFSET, number(LINES_LENGTH_OFFSET)?);
    object.get_mut(start..start.checked_add(length)?)?.fill(0);
    object.get_mut(from..from + 4)?.fill(0);
    Some(())
}
