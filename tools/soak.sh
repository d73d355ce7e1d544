#!/usr/bin/env bash
# What `./dev soak NAME` runs: hours of one kind of trial.  A new soak is one function soak_NAME and one line of `what`.
# Called by ./dev.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/lib.sh
declare -A what=(
  [seeds]="seeds of the simulation [FIRST [COUNT]], 1 to 1,000,000, in blocks"
  [explore]="every scope of the exploration, the large ones too"
  [hazards]="100,000 random programs of array operations and calls of stores"
  [surface]="random calls of mx.np beside NumPy's, and of mx.nd, mx.random and mx.metric beside those of MXNet 1.9.1 [COUNT]"
  [functions]="random functions of set_updater [FIRST [COUNT]], called and read for servers, in blocks of 2,000"
  [pauses]="each process of a job stopped for 1 to 20 s, in jobs of 2, 8 and 50 workers"
  [kills]="1,000 jobs whose processes are killed at random"
  [chaos]="1,000 jobs whose lives end and come again by a random plan [COUNT [FIRST]]"
  [resume]="1,000 runs that are stopped at random and go on [COUNT], compared bit for bit with those that were not"
)
mkdir -p out/soak
commit=$(git rev-parse --short HEAD 2>/dev/null || echo none)
[ -z "$(git status --porcelain 2>/dev/null)" ] || commit=$commit-changed

# A line of a table: commit, what ran, result.  What stands there with this commit is not run again.
is_done() { grep -q "^$commit	$2	0 failed" "out/soak/$1.tsv" 2>/dev/null; }
record() { printf '%s\t%s\t%s\n' "$commit" "$2" "$3" | tee -a "out/soak/$1.tsv"; }

soak_seeds() {
  local first=${1:-1} count=${2:-1000000} block=20000 begin last end line status
  end=$((first + count - 1))
  for ((begin = first; begin <= end; begin += block)); do
    last=$((begin + block - 1)); [ $last -le $end ] || last=$end
    is_done seeds "$begin-$last" && continue
    status=0
    build/release/cli/tkv sim --seed "$begin" --count $((last - begin + 1)) >out/soak/seeds.log 2>&1 || status=$?
    line=$(tail -1 out/soak/seeds.log)
    record seeds "$begin-$last" "$([ $status = 0 ] && echo "0 failed" || echo FAILED): $line"
    [ $status = 0 ] || { head -3 out/soak/seeds.log; return 1; }
  done
}

# Each scope in a process of its own; one that has more states than memory can hold is given up, and says so.
soak_explore() {
  local scope status
  for scope in $(build/release/cli/tkv explore --list --large); do
    is_done explore "$scope" && continue
    status=0
    build/release/cli/tkv explore --states-max 5000000 "$scope" >out/soak/explore.log 2>&1 || status=$?
    case $status in
      0) record explore "$scope" "0 failed: $(sed -n 2p out/soak/explore.log | tr -s ' ')" ;;
      2) record explore "$scope" "0 failed: given up: $(tail -1 out/soak/explore.log)" ;;
      *) head -60 out/soak/explore.log; return 1 ;;
    esac
  done
}

# Tests that a variable makes long; a test that is not there is no success.
soak_tests() {  # name, variable=value, arguments of pytest...
  local name=$1 setting=$2 status=0; shift 2
  is_done "$name" "$setting" && return 0
  env "$setting" $python -m pytest -p no:cacheprovider --timeout 0 "$@" >"out/soak/$name.log" 2>&1 || status=$?
  record "$name" "$setting" "$([ $status = 0 ] && echo "0 failed" || echo FAILED): $(tail -1 "out/soak/$name.log")"
  [ $status = 0 ] || { tail -60 "out/soak/$name.log"; return 1; }
}

soak_hazards() { soak_tests hazards TKV_TEST_HAZARD_PROGRAMS="${1:-100000}" tests/python/test_hazards.py; }
soak_surface() {
  local kind count=${1:-20000}
  for kind in nd random metric; do
    "$mxnet/bin/python" -W ignore "tests/python/${kind}_programs.py" "$count" "out/soak/${kind}_programs.json" || return 1
    export "TKV_TEST_${kind^^}_PROGRAMS=$PWD/out/soak/${kind}_programs.json"
  done
  soak_tests surface "TKV_TEST_NP_CALLS=$count" tests/python/test_{function,random,metric}_programs.py
}
soak_functions() {
  local first=${1:-1000} count=${2:-100000} begin
  for ((begin = first; begin < first + count; begin += 2000)); do
    export TKV_TEST_FUNCTION_COUNT=2000
    soak_tests functions "TKV_TEST_FUNCTION_SEED=$begin" tests/functions/test_function_corpus.py || return 1
  done
}
soak_pauses() { soak_tests pauses TKV_TEST_PAUSES=all tests/cluster/test_pauses.py; }
soak_kills() { soak_tests kills TKV_TEST_KILL_RUNS="${1:-1000}" tests/cluster/test_random_kills.py; }
soak_chaos() {
  export TKV_TEST_CHAOS_FIRST="${2:-0}"
  soak_tests "chaos-$TKV_TEST_CHAOS_FIRST" TKV_TEST_CHAOS_RUNS="${1:-1000}" tests/cluster/test_chaos.py
}
soak_resume() { soak_tests resume TKV_TEST_STOPS="${1:-1000}" tests/cluster/test_stop_anywhere.py; }

list() { for known in $(printf '%s\n' "${!what[@]}" | sort); do printf '  ./dev soak %-10s %s\n' "$known" "${what[$known]}"; done; }

name=${1:-none}
case "$name" in
  none) list; exit 2 ;;
  --list) list; exit 0 ;;
esac
[ -n "${what[$name]:-}" ] || { echo "./dev soak: no soak '$name'; there are:" >&2; list >&2; exit 2; }
shift
begin=$SECONDS
"soak_$name" "$@"
printf '\nsoak %s passed in %d s; results in out/soak/%s.tsv; not run: %s\n' "$name" $((SECONDS - begin)) "$name" \
  "$(printf '%s\n' "${!what[@]}" | sort | grep -vx "$name" | paste -sd ' ')"
