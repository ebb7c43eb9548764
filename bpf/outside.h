/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Outer headers of IPv4 and of UDP in IPv4 (RFC 4213, RFC 5555).
 *
 * The programs decide by addresses, traffic class and length. For this, they convert an outer IPv4 header to
 * an IPv6 header with IPv4-mapped addresses. On the wire an outer IPv4 header equals that of the slow path's
 * sockets (crates/linux/src/datagrams): TTL 64, DF, no Identification (RFC 6864 4.1), the inner DSCP and ECN
 * (RFC 6040 4.1).
 *
 * The UDP checksum is zero, which IPv4 allows (RFC 768): the inner packet has its own. So every interface can
 * segment a super packet. The fast path accepts a packet with a checksum only if the card has verified it;
 * otherwise the slow path's socket verifies it. UDP in IPv6, where zero is an exception (RFC 6935), is left
 * to the slow path.
 */
#pragma once

#include "state.h"

#define DONT_FRAGMENT 0x4000
/* Mask of all bits of the IPv4 fragment field except DF: reserved, more fragments, offset. */
#define IS_FRAGMENT 0xbfff

struct ipv4 {
	__u8 version; /* version and header length */
	__u8 class;
	__be16 length;
	__be16 identification;
	__be16 fragment;
	__u8 hop_limit;
	__u8 protocol;
	__u16 checksum;
	__be32 source;
	__be32 destination;
};

struct udp {
	__be16 source;
	__be16 destination;
	__be16 length;
	__u16 checksum;
};

/* Room for an outer header of any kind. The header is at the end of the room, directly before the inner
 * packet. */
union outer {
	struct ipv6 ipv6;
	struct {
		__u8 before[IPV6_HEADER - IPV4_HEADER];
		struct ipv4 ipv4;
	} in_ipv4;
	struct {
		__u8 before[IPV6_HEADER - IPV4_HEADER - UDP_HEADER];
		struct ipv4 ipv4;
		struct udp udp;
	} in_udp;
};

inline_always __u32 outside_length(__u32 outside)
{
	/* This expression has no branch, so that the verifier has fewer branches to follow. */
	return outside == IN_IPV6 ? IPV6_HEADER : IPV4_HEADER + (outside - IN_IPV4) * UDP_HEADER;
}

inline_always int is_mapped(const struct address *address)
{
	return !address->word[0] && !address->word[1] && address->word[2] == cpu_to_be32(0xffff);
}

inline_always void map(struct address *address, __be32 ipv4)
{
	address->word[0] = 0;
	address->word[1] = 0;
	address->word[2] = cpu_to_be32(0xffff);
	address->word[3] = ipv4;
}

inline_always enum outside outside_of(const struct path *path)
{
	if (!is_mapped(&path->local))
		return IN_IPV6;
	return path->ports ? IN_UDP : IN_IPV4;
}

/* Returns the sum of a header (RFC 1071); 0xffff if its checksum is right. */
inline_always __u16 sum_of(const struct ipv4 *header)
{
	const half *words = (const half *)header;
	__u32 sum = 0;

#pragma unroll
	for (int i = 0; i < IPV4_HEADER / 2; i++)
		sum += words[i];
	sum = (sum & 0xffff) + (sum >> 16);
	return sum + (sum >> 16);
}

/* Writes an IPv4 header for `length` octets that follow: the inner packet, and other outer headers if any. */
inline_always void write_ipv4(struct ipv4 *header, const struct path *path, __u8 protocol, __u8 class,
			      __u32 length)
{
	header->version = 0x45;
	header->class = class;
	header->length = cpu_to_be16(IPV4_HEADER + length);
	header->identification = 0;
	header->fragment = cpu_to_be16(DONT_FRAGMENT);
	header->hop_limit = TUNNEL_HOP_LIMIT;
	header->protocol = protocol;
	header->checksum = 0;
	header->source = path->local.word[3];
	header->destination = path->remote.word[3];
	header->checksum = ~sum_of(header);
}

/* Writes the outer header of an inner packet of `length` octets. `protocol` is that of the inner packet. */
inline_always void write_outside(union outer *outer, __u32 outside, const struct path *path, __u8 protocol,
				 __u8 class, __u32 length)
{
	if (outside == IN_IPV4)
		return write_ipv4(&outer->in_ipv4.ipv4, path, protocol, class, length);
	outer->in_udp.udp.source = ((const __be16 *)&path->ports)[0];
	outer->in_udp.udp.destination = ((const __be16 *)&path->ports)[1];
	outer->in_udp.udp.length = cpu_to_be16(UDP_HEADER + length);
	outer->in_udp.udp.checksum = 0;
	write_ipv4(&outer->in_udp.ipv4, path, PROTOCOL_UDP, class, UDP_HEADER + length);
}

/* Converts the IPv4 headers of a received packet to the IPv6 form on which the decisions are based. `room` is
 * the number of octets that are present, and `length` that of the whole packet. `protocol` is that of the
 * inner packet. Returns the encapsulation of the inner packet; IN_IPV6 if the packet is no tunnel. */
inline_always enum outside read_outside(const struct ipv4 *header, const struct udp *udp, __u32 length,
					__u8 protocol, struct ipv6 *outer, __u32 *ports)
{
	/* The protocol is 41, 4 or 17 (UDP). This bit is set only in 17. So the verifier sees only two possible
	 * values. */
	__u32 outside = IN_IPV4 + (header->protocol >> 4 & 1);
	__u32 rest = length - IPV4_HEADER - (outside - IN_IPV4) * UDP_HEADER;

	if (header->protocol != PROTOCOL_UDP && header->protocol != protocol)
		return IN_IPV6;
	/* Leave headers with options, and fragments, to the kernel. */
	if (header->version != 0x45 || (header->fragment & cpu_to_be16(IS_FRAGMENT)) ||
	    be16_to_cpu(header->length) != length || sum_of(header) != 0xffff)
		return IN_IPV6;
	*ports = 0;
	if (outside == IN_UDP) {
		if (udp->source != cpu_to_be16(HOME_AGENT_PORT) && udp->destination != cpu_to_be16(HOME_AGENT_PORT))
			return IN_IPV6;
		if (be16_to_cpu(udp->length) != length - IPV4_HEADER)
			return IN_IPV6;
		((__be16 *)ports)[0] = udp->destination;
		((__be16 *)ports)[1] = udp->source;
	}
	outer->first = cpu_to_be32(6 << 28 | (__u32)header->class << 20);
	outer->payload_length = cpu_to_be16(rest);
	outer->next_header = protocol;
	outer->hop_limit = header->hop_limit;
	map(&outer->source, header->source);
	map(&outer->destination, header->destination);
	return outside;
}

/* Returns whether the fast path handles an inner IPv4 packet: no options, no fragment, a right checksum. The
 * slow path handles all others. */
inline_always int is_common_ipv4(const struct ipv4 *header)
{
	return header->version == 0x45 && !(header->fragment & cpu_to_be16(IS_FRAGMENT)) &&
	       be16_to_cpu(header->length) >= IPV4_HEADER && sum_of(header) == 0xffff;
}

/* Converts an inner IPv4 header to the IPv6 form on which the decisions are based. */
inline_always void read_inside(struct ipv6 *inner, const struct ipv4 *header)
{
	inner->first = cpu_to_be32(6 << 28 | (__u32)header->class << 20);
	inner->payload_length = cpu_to_be16(be16_to_cpu(header->length) - IPV4_HEADER);
	inner->next_header = header->protocol;
	inner->hop_limit = header->hop_limit;
	map(&inner->source, header->source);
	map(&inner->destination, header->destination);
}

/* Decrements the TTL of an inner IPv4 header as a router does, and sets the traffic class. `first` is the
 * first word of an IPv6 header with this class. */
inline_always void forward_ipv4(struct ipv4 *header, __be32 first)
{
	header->class = be32_to_cpu(first) >> 20;
	header->hop_limit--;
	header->checksum = 0;
	header->checksum = ~sum_of(header);
}

/* Returns whether an IPv4 address is no routed unicast address (is_unicast_routable in Rust): 0.0.0.0/8,
 * loopback, link-local, multicast, reserved or broadcast. */
inline_always int is_special_ipv4(const struct address *mapped)
{
	__u32 address = be32_to_cpu(mapped->word[3]);
	__u32 first = address >> 24;

	return !first || first == 127 || first >= 224 || address >> 16 == 0xa9fe;
}

/* Returns whether an IPv4 address is private (RFC 1918) or shared (RFC 6598). */
inline_always int is_private(const struct address *mapped)
{
	__u32 address = be32_to_cpu(mapped->word[3]);

	return address >> 24 == 10 || address >> 20 == 0xac1 || address >> 16 == 0xc0a8 || address >> 22 == 0x191;
}
