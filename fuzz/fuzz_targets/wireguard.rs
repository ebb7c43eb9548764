#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| carnet_fuzz::wireguard::fuzz_wireguard(octets));
