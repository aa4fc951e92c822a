//! libFuzzer's entry to `mizan_fuzz::client_hello`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    mizan_fuzz::client_hello::check(data);
});
