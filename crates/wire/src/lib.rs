//! Octets to values and back: IPv6, ICMPv6, Neighbor Discovery, Mobility Header
