#!/usr/bin/env bash
# What `./dev check` runs: everything that is slower or stricter than the functional tests.  Parts: lint address thread
# python-address simulation exploration mutants fuzz frameworks packaging bench.  Called by ./dev, which has installed what is needed.
set -uo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python
results=build/check-results
logs=out/check
rm -rf "$results" && mkdir -p "$results" "$logs"
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(lint address thread python-address simulation exploration mutants fuzz frameworks packaging bench)
failed=()
declare -A seconds
export CC=${CC:-cc} CXX=${CXX:-c++} CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_DIR=${CCACHE_DIR:-$PWD/.cache/ccache} CCACHE_MAXSIZE=2G CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=$PWD

configure_and_build() {  # preset, cmake arguments...
  local preset=$1; shift
  cmake --preset "$preset" "$@" >"$logs/$preset-configure.log" 2>&1 || { tail -30 "$logs/$preset-configure.log"; return 1; }
  cmake --build --preset "$preset" -- --quiet
}

part_lint() {
  local status=0
  $python tools/tidy.py || status=1
  .venv/bin/ruff check -q python tests bench tools examples || status=1
  .venv/bin/ruff format -q --check python tests bench tools examples || { echo "ruff format: run ./dev format"; status=1; }
  git ls-files '*.cc' '*.h' ':!include/tkv/dlpack/*' | xargs clang-format-19 --dry-run -Werror 2>&1 | head -5 | grep . && { echo "clang-format: run ./dev format"; status=1; }
  .venv/bin/mypy python/tensorkv >"$logs/mypy.log" 2>&1 || { cat "$logs/mypy.log"; status=1; }
  configure_and_build release >/dev/null || return 1
  # The kernels are compiled once per instruction set by macros that clang-tidy cannot follow.
  git ls-files 'src/*.cc' 'cli/*.cc' | grep -v -e _test.cc -e kernels/cpu/ | xargs -P 2 -n 4 clang-tidy-19 -p build/release --quiet \
    --extra-arg=-Wno-unknown-warning-option >"$logs/clang-tidy.log" 2>/dev/null || { grep -E 'error|warning' "$logs/clang-tidy.log" | head -30; status=1; }
  return $status
}

run_cpp() {  # preset
  ctest --test-dir "build/$1" -j 2 --output-on-failure >"$logs/$1-ctest.log" 2>&1 || true
  mkdir -p "$results/$1" && cp build/"$1"/results/*.json "$results/$1/" 2>/dev/null
  $python tools/summary.py --gtest "$results/$1" --expect-programs "$(ctest --test-dir "build/$1" -N | awk '/Total Tests/ {print $3}')" \
    || { tail -60 "$logs/$1-ctest.log"; return 1; }
}

part_address() {
  configure_and_build dev -DTKV_BUILD_PYTHON=ON -DTKV_BUILD_CLI=ON -DPython_EXECUTABLE="$PWD/$python" && rm -rf build/dev/results && run_cpp dev
}

part_thread() { configure_and_build tsan && rm -rf build/tsan/results && run_cpp tsan; }

# What of tests/cluster runs under sanitizers: every transport and launcher once, deaths, cuts, stores that share a rank.
cluster_run="every_rank or share_its_rank or restarted or second_claim or mxnets_variables or brings_processes or (transports and not limit) or cut or (dies_at and (init or round or shutdown))"

part_python-address() {
  configure_and_build dev -DTKV_BUILD_PYTHON=ON -DTKV_BUILD_CLI=ON -DPython_EXECUTABLE="$PWD/$python" || return 1
  rm -rf build/dev/package && mkdir -p build/dev/package
  cp -r python/tensorkv build/dev/package/ && cp build/dev/python/_core.abi3.so build/dev/package/tensorkv/
  mkdir build/dev/package/tensorkv/bin && cp build/dev/cli/tkv build/dev/package/tensorkv/bin/
  local preload; preload="$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libubsan.so) $(g++ -print-file-name=libstdc++.so)"
  LD_PRELOAD="$preload" ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 PYTHONMALLOC=malloc PYTHONPATH="$PWD/build/dev/package" \
    $python -m pytest -p no:cacheprovider -m "not framework and not packaging" --timeout 400 \
    tests/python/test_{cluster,seeds,kvstore,ndarray,optimizer,interop,bad_calls,mxnet_name}.py -k "not peak and not takes_no_memory and not threads_follow and not ctrl_c and not every_end and not exit_status" \
    --junitxml="$results/python-address.xml" >"$logs/python-address.log" 2>&1 || { tail -60 "$logs/python-address.log"; return 1; }
  # Jobs of processes: what one of them says of a sanitizer's is in what the test prints, and makes it fail by its exit status.
  LD_PRELOAD="$preload" ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 PYTHONMALLOC=malloc PYTHONPATH="$PWD/build/dev/package" \
    $python -m pytest -p no:cacheprovider -m "not framework" --timeout 400 tests/cluster/test_{processes,transports,deaths}.py -k "$cluster_run" \
    --junitxml="$results/cluster-address.xml" >>"$logs/python-address.log" 2>&1 || { tail -60 "$logs/python-address.log"; return 1; }
  grep -q "ERROR: AddressSanitizer\|runtime error" "$logs/python-address.log" && { grep -n -A20 "AddressSanitizer\|runtime error" "$logs/python-address.log" | head -60; return 1; }
  tail -1 "$logs/python-address.log"
}

part_simulation() {  # seeds beyond those of the tests
  configure_and_build release >/dev/null || return 1
  build/release/cli/tkv sim --seed 100001 --count 20000 --coverage >"$logs/simulation.log" || { tail -60 "$logs/simulation.log"; return 1; }
  $python tools/coverage.py <"$logs/simulation.log" >"$logs/coverage.txt" || { grep ^coverage: "$logs/coverage.txt"; return 1; }
  tail -1 "$logs/coverage.txt"
  tail -1 "$logs/simulation.log"
}

part_exploration() {
  configure_and_build release >/dev/null || return 1
  build/release/cli/tkv explore >"$logs/exploration.log" || { tail -60 "$logs/exploration.log"; return 1; }
  tail -1 "$logs/exploration.log"
}

part_mutants() {  # all patches apply; three of them run
  CMAKE_BUILD_PARALLEL_LEVEL=2 $python tools/mutants.py acknowledge-early push-over-pulls keep-uncommitted
}

part_fuzz() { configure_and_build fuzz && tools/fuzz.sh 5; }

part_frameworks() {
  $python -m pytest -p no:cacheprovider -m framework --junitxml="$results/frameworks.xml" tests/python tests/cluster >"$logs/frameworks.log" 2>&1 \
    || { tail -60 "$logs/frameworks.log"; return 1; }
  $python tools/summary.py --junit "$results/frameworks.xml" --leaks "$logs/frameworks.log"
}

part_packaging() {
  $python -m pytest -p no:cacheprovider -m slow --junitxml="$results/packaging.xml" tests/packaging >"$logs/packaging.log" 2>&1 \
    || { tail -60 "$logs/packaging.log"; return 1; }
  $python tools/summary.py --junit "$results/packaging.xml"
}

part_bench() {
  ./dev bench local --smoke >"$logs/bench.log" 2>&1 && test -s out/bench-local.json -a -s out/bench-local.png || { tail -40 "$logs/bench.log"; return 1; }
  ./dev bench dist --smoke >"$logs/bench-dist.log" 2>&1 && test -s out/bench-dist.json -a -s out/bench-dist.png || { tail -40 "$logs/bench-dist.log"; return 1; }
  ./dev bench protocol --smoke >"$logs/bench-protocol.log" 2>&1 && test -s out/bench-protocol.json || { tail -40 "$logs/bench-protocol.log"; return 1; }
}

for part in "${parts[@]}"; do
  declare -F "part_$part" >/dev/null || { echo "./dev check: no part '$part'; there are: lint address thread python-address simulation exploration mutants fuzz frameworks packaging bench" >&2; exit 2; }
  printf '\n== check: %s\n' "$part"
  begin=$SECONDS
  "part_$part" || failed+=("$part")
  seconds[$part]=$((SECONDS - begin))
done
printf '\n%-16s %8s\n' part seconds
for part in "${parts[@]}"; do
  verdict=passed; for f in "${failed[@]:-}"; do [ "$f" = "$part" ] && verdict=FAILED; done
  printf '%-16s %8d  %s\n' "$part" "${seconds[$part]}" "$verdict"
done
[ ${#failed[@]} = 0 ]
