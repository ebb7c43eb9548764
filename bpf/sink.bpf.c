/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The end of a benchmark: counts packets and octets for each CPU and drops them, so that receiving costs next to
 * nothing; or lets everything pass, which makes a veth accept what is redirected to its peer. */
#include "helpers.h"

struct count {
	__u64 packets;
	__u64 octets;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct count);
} COUNT SEC(".maps");

SEC("xdp")
int count_and_drop(struct xdp_md *xdp)
{
	__u32 zero = 0;
	struct count *count = bpf_map_lookup_elem(&COUNT, &zero);

	if (count) {
		count->packets++;
		count->octets += xdp->data_end - xdp->data;
	}
	return XDP_DROP;
}

SEC("xdp")
int pass(struct xdp_md *xdp)
{
	(void)xdp;
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
