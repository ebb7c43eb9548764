//! The link-layer address of the interface, where it follows the station's.
//!
//! The MID of a GN address is the link-layer address (EN 302 636-4-1 6.3), and an interface hears frames to
//! its own address only. A station with another address than its interface's therefore gives it to the
//! interface, as V2X stations do with a new pseudonym. What the interface had before is written down first,
//! and put back at the end, or by the next run after a crash; unless somebody else has changed it since.

use std::path::Path;

use super::{FrameLink, MacAddress, Medium};
use crate::error::Result;
use crate::undo::{ChangedLinkAddress, UndoFile};

impl FrameLink {
    /// Puts back what a run that crashed has left, and allows [`FrameLink::set_address`]. The directory of
    /// the file must exist.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn keep_undo(&mut self, path: &Path) -> Result<()> {
        self.undo = Some(UndoFile::open(path));
        self.restore_address()
    }

    /// Gives the interface this link-layer address. Frames that wait go out before. Nothing happens where
    /// there is no interface, nor without [`FrameLink::keep_undo`]; on UDP the address is the station's own
    /// anyway.
    ///
    /// # Errors
    /// When the kernel or the driver refuses.
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

    /// Gives the interface the link-layer address that it had before.
    ///
    /// # Errors
    /// When the kernel refuses.
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
