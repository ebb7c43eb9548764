//! The inner addresses of a tunnelled packet belong to the binding of its tunnel (RFC 3963 6.2 and 9).
//!
//! * A home agent takes a packet only if its inner source belongs to the sender's binding.
//! * A direct route also demands that the destination is in a mobile network of this station.
//! * A mobile router takes a packet from the home agent only if the destination belongs to its own binding.
//! * A mobile router refuses a source address of its own mobile network: packets from outside cannot have
//!   one.

use carnet_wire::ipv6::Header;

use super::tunnel_table::TunnelPath;
use super::{BindingKey, ErrorSource, SortedPrefixes, TunnelDropReason, TunnelEnd};

/// Returns the binding to which a tunnelled packet belongs: the role of this end, and the home address.
/// `served` are the mobile networks of this station.
///
/// # Errors
///
/// Returns [`TunnelDropReason::InnerSource`] or [`TunnelDropReason::InnerDestination`] if the address does
/// not belong to the binding.
pub(super) fn binding_of(
    path: &TunnelPath,
    served: &SortedPrefixes<ErrorSource>,
    inner: &Header,
) -> Result<BindingKey, TunnelDropReason> {
    let sender = path.binding_of(inner.source);
    match path.tunnels_of_bindings.as_slice().first().map(|tunnel| tunnel.end) {
        Some(end @ (TunnelEnd::HomeAgent | TunnelEnd::Direct)) => match sender {
            None => Err(TunnelDropReason::InnerSource),
            Some(_) if end == TunnelEnd::Direct && served.lookup(inner.destination).is_none() => {
                Err(TunnelDropReason::InnerDestination)
            }
            Some(sender) => Ok((end, sender.home_address)),
        },
        _ if sender.is_some() => Err(TunnelDropReason::InnerSource),
        _ => match path.binding_of(inner.destination) {
            Some(receiver) => Ok((TunnelEnd::MobileRouter, receiver.home_address)),
            None => Err(TunnelDropReason::InnerDestination),
        },
    }
}
