#!/usr/bin/env bash
# Runs each fuzzer for the seconds given, two at a time, from its saved corpus; new inputs go to out/fuzz.
set -euo pipefail
cd "$(dirname "$0")/.."
export FUZZ_SECONDS=${1:-5}
fuzz_one() {
  local target=$1 name; name=$(basename "$1" _fuzz)
  mkdir -p "out/fuzz/$name"
  "$target" -max_total_time="$FUZZ_SECONDS" -timeout=10 -rss_limit_mb=4096 -artifact_prefix="out/fuzz/$name-" -print_final_stats=0 \
    "out/fuzz/$name" "tests/fuzz/corpus/$name" >"out/fuzz/$name.log" 2>&1 || { tail -40 "out/fuzz/$name.log"; echo "fuzz: $name failed"; return 1; }
  echo "fuzz: $name, $(grep -o '^Done [0-9]* runs.*' "out/fuzz/$name.log")"
}
export -f fuzz_one
printf '%s\n' build/fuzz/tests/fuzz/*_fuzz | xargs -P 2 -I{} bash -c 'fuzz_one {}'
