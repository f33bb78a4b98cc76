#!/bin/sh
# Fuzzes each parser for $1 seconds (60), the log's recovery too. Needs a nightly toolchain and cargo-fuzz.
set -eu
seconds=${1:-60}
here=$(cd "$(dirname "$0")" && pwd)
target=${FUZZ_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice/fuzz}
for place in "$here" "$here/../../engine/fuzz"; do
    cd "$place"
    for name in $(cargo +nightly fuzz list); do
        echo "== $name"
        mkdir -p "corpus/$name"
        set -- "corpus/$name"
        if [ -d "seeds/$name" ]; then set -- "$@" "seeds/$name"; fi
        CARGO_BUILD_JOBS=${CARGO_BUILD_JOBS:-1} cargo +nightly fuzz run --fuzz-dir . --target-dir "$target" "$name" "$@" -- \
            -max_total_time="$seconds" -max_len=8192 -malloc_limit_mb=64 -rss_limit_mb=2048 -print_final_stats=1
    done
done
