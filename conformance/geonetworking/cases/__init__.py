"""The test purposes, one module per group of TS 102 871-2 (GeoNetworking) and TS 102 870-2 (BTP)."""
