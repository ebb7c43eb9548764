//! Sets the link-layer address of the interface to the station's.
//!
//! The MID field of a GN address is the station's link-layer address (EN 302 636-4-1 6.3). An interface
//! receives only frames to its own link-layer address. So a station sets the address of its interface to the
//! MID if the two differ, as V2X stations do with a new pseudonym. First it writes the interface's former
//! address into the undo file. The station restores that address at the end, or at the next start after a
//! crash, unless another program has changed it since.

use std::path::Path;

use super::{FrameLink, LinkMedium, MacAddress};
use crate::error::Result;
use crate::undo_file::{ChangedLinkAddress, UndoFile};

impl FrameLink {
    /// Restores the address of the interface if the previous run crashed, and allows
    /// [`FrameLink::set_address`]. `path` is the undo file; its directory must exist.
    ///
    /// # Errors
    /// Fails if the kernel refuses the file or the address.
    pub fn record_address_in_undo_file(&mut self, path: &Path) -> Result<()> {
        self.undo_file = Some(UndoFile::open(path));
        self.restore_link_address()
    }

    /// Sets the link-layer address of the interface, after sending the waiting frames. Does nothing without
    /// an interface or without [`FrameLink::record_address_in_undo_file`]. With UDP, only the address in the
    /// datagrams changes.
    ///
    /// # Errors
    ///
    /// Fails if the kernel or the driver refuses the address.
    pub fn set_address(&mut self, address: MacAddress) -> Result<()> {
        if let LinkMedium::Udp(_) = self.link_medium {
            self.address = address;
            return Ok(());
        }
        self.flush();
        let (Some(follow), Some(undo)) = (&mut self.followed_interface, &mut self.undo_file) else {
            return Ok(());
        };
        let Some(link) = follow.read_state()? else { return Ok(()) };
        let Some(original) = link.link_address.filter(|original| *original != address) else {
            return Ok(());
        };
        let known = undo.recorded_changes.link_addresses.iter_mut().find(|known| known.index == link.index);
        match known {
            Some(known) => known.carnet_address = address,
            None => undo.recorded_changes.link_addresses.push(ChangedLinkAddress {
                interface: link.name.clone(),
                index: link.index,
                original_address: original,
                carnet_address: address,
            }),
        }
        undo.save()?;
        follow.requests.link_requests().set_address(&link, address)?;
        self.read_interface_state()?;
        Ok(())
    }

    /// Gives the interface its former link-layer address.
    ///
    /// # Errors
    /// Fails if the kernel refuses the address.
    pub fn restore_link_address(&mut self) -> Result<()> {
        let (Some(follow), Some(undo)) = (&mut self.followed_interface, &mut self.undo_file) else {
            return Ok(());
        };
        let changed = std::mem::take(&mut undo.recorded_changes.link_addresses);
        for known in &changed {
            let Some(link) = follow.requests.link_requests().find_link(&known.interface)? else { continue };
            if link.index == known.index && link.link_address == Some(known.carnet_address) {
                follow.requests.link_requests().set_address(&link, known.original_address)?;
            }
        }
        undo.delete()?;
        self.read_interface_state()?;
        Ok(())
    }
}
