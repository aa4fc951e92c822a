//! libFuzzer's entry to `mizan_fuzz::grpc_web`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    mizan_fuzz::grpc_web::check(data);
});
