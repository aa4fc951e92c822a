//! libFuzzer's entry to `mizan_fuzz::websocket`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    mizan_fuzz::websocket::check(data);
});
