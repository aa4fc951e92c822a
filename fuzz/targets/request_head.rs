//! libFuzzer's entry to `mizan_fuzz::request_head`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    mizan_fuzz::request_head::check(data);
});
