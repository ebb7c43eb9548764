//! Sets the link-layer address of the interface to the station's.
//!
//! The MID of a GN address is the link-layer address (EN 302 636-4-1 6.3), and an interface receives only
//! frames to its own address. So a station gives its interface its own address if the two differ, as V2X
//! stations do with a new pseudonym. First it writes the interface's former address into the undo file. The
//! station restores that address at the end, or at the next start after a crash, unless another program has
//! changed it since.

use std::path::Path;

use super::{FrameLink, MacAddress, Medium};
use crate::error::Result;
use crate::undo::{ChangedLinkAddress, UndoFile};

impl FrameLink {
    /// Restores the address after a run that crashed, and allows [`FrameLink::set_address`]. The directory of
    /// the file must exist.
    ///
    /// # Errors
    /// Fails if the kernel refuses.
    pub fn keep_undo(&mut self, path: &Path) -> Result<()> {
        self.undo = Some(UndoFile::open(path));
        self.restore_address()
    }

    /// Gives the interface this link-layer address. Waiting frames are sent first. Does nothing without an
    /// interface or without [`FrameLink::keep_undo`]. On UDP the address is the station's own anyway.
    ///
    /// # Errors
    /// Fails if the kernel or the driver refuses.
    pub fn set_address(&mut self, address: MacAddress) -> Result<()> {
        if let Medium::Udp(_) = self.medium {
            self.address = address;
            return Ok(());
        }
        self.flush();
        let (Some(follow), Some(undo)) = (&mut self.follow, &mut self.undo) else { return Ok(()) };
        let Some(link) = follow.look()? else { return Ok(()) };
        let Some(original) = link.link_address.filter(|original| *original != address) else {
            return Ok(());
        };
        let known = undo.record.link_addresses.iter_mut().find(|known| known.index == link.index);
        match known {
            Some(known) => known.ours = address,
            None => undo.record.link_addresses.push(ChangedLinkAddress {
                interface: link.name.clone(),
                index: link.index,
                original,
                ours: address,
            }),
        }
        undo.save()?;
        follow.requests.set_link_address(&link, address)?;
        self.look()?;
        Ok(())
    }

    /// Gives the interface its former link-layer address.
    ///
    /// # Errors
    /// Fails if the kernel refuses.
    pub fn restore_address(&mut self) -> Result<()> {
        let (Some(follow), Some(undo)) = (&mut self.follow, &mut self.undo) else { return Ok(()) };
        let changed = std::mem::take(&mut undo.record.link_addresses);
        for known in &changed {
            let Some(link) = follow.requests.link(&known.interface)? else { continue };
            if link.index == known.index && link.link_address == Some(known.ours) {
                follow.requests.set_link_address(&link, known.original)?;
            }
        }
        undo.delete()?;
        self.look()?;
        Ok(())
    }
}
