//! libFuzzer's entry to `mizan_fuzz::http2_convert`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    mizan_fuzz::http2_convert::check(data);
});
