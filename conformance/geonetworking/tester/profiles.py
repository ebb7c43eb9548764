"""What the station under test is configured to be, beside what `bed` says: the PICS that differ."""

PROFILES = {
    # As a user gets it: greedy, contention-based inside of areas, EN 302 636-4-1 V1.4.1.
    "default": "",
    "simple": "forwarding = { unicast = 'greedy', area = 'simple' }",
    "advanced": "forwarding = { unicast = 'greedy', area = 'advanced' }",
    "unicast-cbf": "forwarding = { unicast = 'cbf', area = 'cbf' }",
    # Where versions differ: TS 102 871-2 V1.3.1 tests V1.2.1.
    "simple-1.2.1": "standard = '1.2.1'\nforwarding = { unicast = 'greedy', area = 'simple' }",
    "cbf-1.2.1": "standard = '1.2.1'\nforwarding = { unicast = 'greedy', area = 'cbf' }",
    "advanced-1.2.1": "standard = '1.2.1'\nforwarding = { unicast = 'greedy', area = 'advanced' }",
}
