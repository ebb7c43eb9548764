#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| carnet_fuzz::parsers::fuzz_envelope(octets));
