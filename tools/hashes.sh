#!/usr/bin/env bash
# Writes the hashes of the first 20 seeds, after a change of the protocol or of the simulation that is meant.
set -euo pipefail
cd "$(dirname "$0")/.."
build/release/cli/tkv sim --count 20 --hashes | awk '{printf "    0x%sU,\n", $2}' >src/simulation/hashes.inc
