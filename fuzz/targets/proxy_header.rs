//! libFuzzer's entry to `mizan_fuzz::proxy_header`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    mizan_fuzz::proxy_header::check(data);
});
