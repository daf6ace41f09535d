#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| highwire_fuzz_targets::call("record", input));
