//! The outputs of the multicast proxy: packets for the mobile network, and subscriptions on the link of IPv6
//! over GeoNetworking.

use std::collections::VecDeque;

use carnet_geonet::multicast::{self, MulticastProxy, SourceFilter};

use crate::geonetworking::output::Output;

/// Executes the outputs of the proxy.
pub(super) fn collect_multicast_outputs(proxy: Option<&mut MulticastProxy>, outputs: &mut VecDeque<Output>) {
    let Some(proxy) = proxy else { return };
    while let Some(output) = proxy.poll_output() {
        outputs.push_back(match output {
            multicast::Output::Packet { interface, destination, packet } => {
                Output::LanPacket { interface, destination, packet }
            }
            multicast::Output::Subscription { group, filter } => {
                let (exclude, sources) = match filter {
                    SourceFilter::Include(sources) => (false, sources),
                    SourceFilter::Exclude(sources) => (true, sources),
                };
                Output::Subscription { group, exclude, sources: sources.into_iter().collect() }
            }
        });
    }
}
