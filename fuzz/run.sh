#!/bin/sh
# Builds one fuzz target on the stable toolchain and runs it.
#
#   fuzz/run.sh TARGET SECONDS     e.g. fuzz/run.sh trace_csv 60
#   fuzz/run.sh all SECONDS        every target for so long, one after another
#   fuzz/run.sh list
#
# What it finds is in fuzz/artifacts/TARGET; give such a file instead of SECONDS to run it alone.
set -eu
cd "$(dirname "$0")"
target=${1:?target, or list, or all}
seconds=${2:-60}
targets=$(for file in fuzz_targets/*.rs; do basename "$file" .rs; done)
case $target in
list) echo "$targets"; exit ;;
all)
    for each in $targets; do "./$(basename "$0")" "$each" "$seconds"; done
    exit ;;
esac

# Coverage counters and compared values for libFuzzer: what cargo-fuzz sets, less what needs a
# nightly compiler (the sanitizers themselves; safe Rust has little use for them).
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares"
export CARGO_TARGET_DIR="${FUZZ_TARGET_DIR:-$PWD/target}"
triple=$(rustc -vV | sed -n 's/^host: //p')
# With --target the flags are not used for build scripts and procedural macros.
cargo build --release --quiet --target "$triple" --bin "$target"
run="$CARGO_TARGET_DIR/$triple/release/$target"
mkdir -p "corpus/$target" "artifacts/$target"
if [ -f "$seconds" ]; then
    exec "$run" "$seconds"
fi
seeds=seeds/$target
[ -d "$seeds" ] || seeds=
exec "$run" "corpus/$target" $seeds -max_total_time="$seconds" -max_len=65536 -timeout=20 \
    -rss_limit_mb=2048 -artifact_prefix="artifacts/$target/" -print_final_stats=1
