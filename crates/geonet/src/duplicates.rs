//! Duplicate packet detection (annex A): the last received sequence numbers of a source.
//!
//! Each location table entry has a list of `itsGnDPLLength` numbers; a new number overwrites the oldest.
//! Single-hop packets carry no sequence number and are never duplicates, because the link layer removes
//! duplicate frames.

/// Largest number of sequence numbers in an entry.
pub const MAX_LIST_LENGTH: usize = 16;

/// The duplicate packet list of one source.
#[derive(Debug, Clone, Copy, Default)]
pub struct DuplicatePacketList {
    sequence_numbers: [u16; MAX_LIST_LENGTH],
    used_count: u8,
    next_index: u8,
}

impl DuplicatePacketList {
    /// Returns whether `sequence` is in the list.
    pub fn contains(&self, sequence: u16) -> bool {
        self.sequence_numbers[..usize::from(self.used_count)].contains(&sequence)
    }

    /// Returns the numbers in the list, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        let (new, old) = self.sequence_numbers[..usize::from(self.used_count)]
            .split_at(usize::from(self.next_index.min(self.used_count)));
        old.iter().chain(new).copied()
    }

    /// Adds `sequence` to the list; `length` is `itsGnDPLLength`.
    pub fn add(&mut self, sequence: u16, length: usize) {
        let length = length.clamp(1, MAX_LIST_LENGTH) as u8;
        self.sequence_numbers[usize::from(self.next_index % length)] = sequence;
        self.next_index = (self.next_index + 1) % length;
        self.used_count = (self.used_count + 1).min(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_duplicate_list_replaces_its_oldest_sequence_number() {
        let mut list = DuplicatePacketList::default();
        assert!(!list.contains(0));
        (0..8).for_each(|sequence| list.add(sequence, 8));
        assert!((0..8).all(|sequence| list.contains(sequence)));
        list.add(8, 8);
        assert!(!list.contains(0) && list.contains(1) && list.contains(8));
        assert!(list.iter().eq(1..=8));
    }
}
