#!/usr/bin/env bash
# Runs each fuzzer for the seconds given, from its saved corpus; new inputs go to out/fuzz.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-5}
for target in build/fuzz/tests/fuzz/*_fuzz; do
  name=$(basename "$target" _fuzz)
  mkdir -p "out/fuzz/$name"
  "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 -artifact_prefix="out/fuzz/$name-" -print_final_stats=0 \
    "out/fuzz/$name" "tests/fuzz/corpus/$name" >"out/fuzz/$name.log" 2>&1 || { tail -40 "out/fuzz/$name.log"; echo "fuzz: $name failed"; exit 1; }
  echo "fuzz: $name, $(grep -o '^Done [0-9]* runs.*' "out/fuzz/$name.log")"
done
