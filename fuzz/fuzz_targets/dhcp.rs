#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| carnet_fuzz::hosts::fuzz_dhcp(octets));
