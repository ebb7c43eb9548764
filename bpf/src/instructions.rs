//! Extracts the instructions of a program from its ELF object, for a program that loads it with the system
//! call alone.
//!
//! For `steering.bpf.c` the build script does the work of a loader. It finds the section and replaces the
//! address of each map with a number. Left out: calls of functions, global data and types, because this
//! program has none.

/// Maps of the steering program, in the order of their numbers in the instructions.
pub const STEERING_MAPS: [&str; 3] = ["KNOWN", "PLACES", "READ"];

/// Types of ELF sections: `SHT_SYMTAB` and `SHT_REL`.
const SYMBOL_SECTION_TYPE: u32 = 2;
const RELOCATION_SECTION_TYPE: u32 = 9;
/// Type of relocation `R_BPF_64_64`: an address of 64 bits in two instructions.
const RELOCATION_TYPE_ADDRESS: u64 = 1;
/// Source register `BPF_PSEUDO_MAP_FD` of an instruction: its value names a map.
const PSEUDO_MAP_FD: u8 = 1;
/// Lengths in octets of an entry of the symbol table (`Elf64_Sym`) and of a relocation (`Elf64_Rel`).
const SYMBOL_LENGTH: usize = 24;
const RELOCATION_LENGTH: usize = 16;

/// An ELF file of 64 bits.
pub struct Elf<'a> {
    octets: &'a [u8],
    is_little_endian: bool,
}

/// An entry of the table of sections.
pub struct Section {
    name: usize,
    kind: u32,
    pub start: usize,
    size: usize,
    link: usize,
    info: usize,
}

impl Elf<'_> {
    /// Returns the file, or `None` if the octets are no ELF file of 64 bits.
    pub fn read(octets: &[u8]) -> Option<Elf<'_>> {
        // An ELF file begins with the magic number and EI_CLASS, here 2 for 64 bits. EI_DATA follows, the
        // byte order.
        let is_elf = octets.starts_with(b"\x7fELF\x02");
        is_elf.then_some(Elf { octets, is_little_endian: *octets.get(5)? == 1 })
    }

    /// Returns the number in these octets of the file; `None` if the file is too short.
    pub fn number(&self, at: usize, length: usize) -> Option<u64> {
        let octets = self.octets.get(at..at.checked_add(length)?)?.iter();
        let join = |number: u64, octet: &u8| number << 8 | u64::from(*octet);
        Some(if self.is_little_endian { octets.rev().fold(0, join) } else { octets.fold(0, join) })
    }

    fn size(&self, at: usize) -> Option<usize> {
        self.number(at, 8)?.try_into().ok()
    }

    /// Returns the table of sections.
    pub fn sections(&self) -> Option<Vec<Section>> {
        let start = self.size(40)?;
        let (each, count) = (self.number(58, 2)? as usize, self.number(60, 2)? as usize);
        (0..count)
            .map(|number| {
                let at = start.checked_add(number * each)?;
                Some(Section {
                    name: self.number(at, 4)? as usize,
                    kind: self.number(at + 4, 4)? as u32,
                    start: self.size(at + 24)?,
                    size: self.size(at + 32)?,
                    link: self.number(at + 40, 4)? as usize,
                    info: self.number(at + 44, 4)? as usize,
                })
            })
            .collect()
    }

    /// Returns the index of the section with this name; `None` if the file has no such section.
    pub fn index_of(&self, sections: &[Section], name: &[u8]) -> Option<usize> {
        let names = sections.get(self.number(62, 2)? as usize)?;
        sections.iter().position(|section| self.name(names, section.name) == Some(name))
    }

    /// Returns a name in a section of names.
    fn name(&self, names: &Section, at: usize) -> Option<&[u8]> {
        let from = self.octets.get(names.start.checked_add(at)?..names.start.checked_add(names.size)?)?;
        from.split(|octet| *octet == 0).next()
    }
}

/// Returns the instructions in a section, with the number of each map in `maps` in place of its address.
/// `None` if the section needs other relocations.
#[allow(dead_code, reason = "the program has the result")]
pub fn link_instructions(object: &[u8], section: &str, maps: &[&str]) -> Option<Vec<u8>> {
    let elf = Elf::read(object)?;
    let sections = elf.sections()?;
    let index = elf.index_of(&sections, section.as_bytes())?;
    let found = &sections[index];
    let mut code = object.get(found.start..found.start.checked_add(found.size)?)?.to_vec();
    for relocations in sections.iter().filter(|it| it.kind == RELOCATION_SECTION_TYPE && it.info == index) {
        let symbols = sections.get(relocations.link).filter(|it| it.kind == SYMBOL_SECTION_TYPE)?;
        let names = sections.get(symbols.link)?;
        for at in
            (relocations.start..relocations.start.checked_add(relocations.size)?).step_by(RELOCATION_LENGTH)
        {
            let (offset, info) = (elf.size(at)?, elf.number(at + 8, 8)?);
            let symbol = symbols.start.checked_add((info >> 32) as usize * SYMBOL_LENGTH)?;
            let name = elf.name(names, elf.number(symbol, 4)? as usize)?;
            let number = maps.iter().position(|map| map.as_bytes() == name)? as u32;
            let instruction = code.get_mut(offset..offset.checked_add(8)?)?;
            if info & 0xffff_ffff != RELOCATION_TYPE_ADDRESS {
                return None;
            }
            // The source register is the upper half of the octet in little endian, and the lower half in big
            // endian.
            instruction[1] |= if elf.is_little_endian { PSEUDO_MAP_FD << 4 } else { PSEUDO_MAP_FD };
            let immediate = if elf.is_little_endian { number.to_le_bytes() } else { number.to_be_bytes() };
            instruction[4..].copy_from_slice(&immediate);
        }
    }
    Some(code)
}
