#!/usr/bin/env bash
# Coverage-guided fuzzing with libFuzzer, on the pinned stable toolchain.
#
#   fuzz/run.sh [SECONDS] [TARGET...]      each target for SECONDS (60); the targets are those of targets/
#
# The instrumentation is LLVM's own pass, which rustc runs when it is named with the stable flag -C passes; only
# AddressSanitizer would need a nightly toolchain, and there is no `unsafe` here for it to watch. libFuzzer itself is
# compiled from the libfuzzer-sys crate, so a C++ compiler is needed.
#
# The seeds in corpus/ are read and never written; what the fuzzer finds stays in target/corpus. A failure leaves its
# input in target/artifacts: mend the code, then keep the input as corpus/TARGET/bad-… or ok-….
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:-60}
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(request_head response_head chunked_body proxy_header client_hello http2_convert websocket grpc_web)

if ! command -v c++ >/dev/null; then
    echo "fuzz: no C++ compiler: apt-get install g++" >&2
    exit 1
fi
export CARGO_TARGET_DIR=$PWD/target
export RUSTFLAGS="--cfg fuzzing -C passes=sancov-module \
-C llvm-args=-sanitizer-coverage-level=4 -C llvm-args=-sanitizer-coverage-inline-8bit-counters \
-C llvm-args=-sanitizer-coverage-pc-table -C llvm-args=-sanitizer-coverage-trace-compares"
# A target triple of its own keeps the instrumentation out of build scripts and macros.
triple=$(rustc -vV | sed -n 's/^host: //p')
cargo build --release --target "$triple"

for target in "${targets[@]}"; do
    mkdir -p "target/corpus/$target" target/artifacts
    echo "fuzz: $target for $seconds s"
    "target/$triple/release/$target" "target/corpus/$target" "corpus/$target" -max_total_time="$seconds" -max_len=4096 \
        -timeout=10 -dict=http.dict -artifact_prefix="target/artifacts/$target-" -print_final_stats=1 -verbosity=1 2>&1 |
        grep -E 'ERROR|SUMMARY|panicked|^Base64|Test unit|INITED|DONE|stat::number_of_executed_units|stat::average' || true
    status=${PIPESTATUS[0]}
    [ "$status" = 0 ] || exit "$status"
done
