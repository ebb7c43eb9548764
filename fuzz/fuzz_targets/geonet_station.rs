#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| carnet_fuzz::stations::fuzz_geonet_station(octets));
