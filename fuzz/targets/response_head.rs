//! libFuzzer's entry to `mizan_fuzz::response_head`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    mizan_fuzz::response_head::check(data);
});
