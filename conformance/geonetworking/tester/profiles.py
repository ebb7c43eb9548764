"""What the station under test is configured to be, beside what `bed` says: the PICS that differ."""

PROFILES = {
    # As a user gets it: greedy, contention-based inside of areas, EN 302 636-4-1 V1.4.1.
    "default": "",
    "simple": "forwarding = { unicast = 'greedy', area = 'simple' }",
    "advanced": "forwarding = { unicast = 'greedy', area = 'advanced' }",
    "unicast-cbf": "forwarding = { unicast = 'cbf', area = 'cbf' }",
    # No parameter has its default.
    "other-values": """beacon = { interval = '500ms', jitter = '100ms' }
range = '2km'
[geonet.mib]
is_mobile = true
max_sdu_size = 100
default_hop_limit = 5
lifetime_location_entry = '2s'
location_service_max_retransmissions = 2
location_service_retransmit_timer = '300ms'
location_service_buffer_size = 300
duplicate_packet_list_length = 2
max_packet_lifetime = '5s'
max_area_size = 1
cbf_min_time = '10ms'
cbf_max_time = '300ms'""",
    # IPv6 over GeoNetworking, with the links of TS 102 859-3; the center of AREA1 is D's place.
    "ipv6": """ipv6_interface = 'tvl0'
ipv6 = { dynamic_interface = 'dgvl', learnt_links = 2 }
[[geonet.area]]
name = 'area1'
shape = 'circle'
center = [48.8385, 2.1008]
radius = '556m'
prefix = '3ffe:0:0:1::/64'
ipv6_interface = 'sgvl1'
[[geonet.area]]
name = 'area2'
shape = 'circle'
center = [48.8395, 2.1008]
radius = '167m'
group = 'ff3e::4711'""",
    # Where versions differ: TS 102 871-2 V1.3.1 tests V1.2.1.
    "simple-1.2.1": "standard = '1.2.1'\nforwarding = { unicast = 'greedy', area = 'simple' }",
    "cbf-1.2.1": "standard = '1.2.1'\nforwarding = { unicast = 'greedy', area = 'cbf' }",
    "advanced-1.2.1": "standard = '1.2.1'\nforwarding = { unicast = 'greedy', area = 'advanced' }",
}
