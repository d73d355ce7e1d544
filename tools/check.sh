#!/usr/bin/env bash
# What `./dev check` runs beside the functional tests.  A part is a function part_NAME and a line of the table below; a part that
# passed on this commit with nothing changed in the tree is not run again.  Called by ./dev, which has installed what is needed.
#
#   tools/check.sh           the parts that a submission must pass
#   tools/check.sh --all     every part but those that another one contains
#   tools/check.sh PART...   these, whether they have passed or not
#   tools/check.sh --list    the table
set -uo pipefail
cd "$(dirname "$0")/.."
. tools/lib.sh

# part               set     what
table='
lint                 both    include edges, comments, formats, types of the Python code, lines that mutants replace
tidy                 slow    clang-tidy over every file that has changed since it passed
address              quick   the C++ tests but those labelled slow, with the address and undefined-behaviour sanitizers
address-all          slow    all of them
thread               quick   the C++ tests labelled threads or edges, with the thread sanitizer
thread-all           slow    all of them
edges                quick   the Python tests marked edges, with the address sanitizer
python-address       slow    the Python tests and jobs of processes, with the address sanitizer
seeds                quick   5,000 seeds of the simulation
simulation           slow    20,000 seeds, and what they reached
exploration          slow    every scope but the large ones
mutants              quick   three broken rules
mutants-all          slow    all of them
mutants-edges        slow    waits, budgets and owners taken away, which the tests of edges have to notice
mutants-python       slow    broken rules of the Python package, which its tests have to notice
mutants-gpu          slow    broken generators of GPU kernels and a broken device layer, which their tests have to notice
gpu                  slow    10,000 random GPU kernels, and ptxas: the kernels, and the table in docs/gpu.md
fuzz                 slow    every fuzzer for five seconds
arm64                slow    kernels, codecs, messages, updates, tables, snapshots and 20 simulated jobs on 64-bit ARM, under qemu
clang                slow    the library, the command and the C++ tests compiled by Clang, each warning an error
frameworks           slow    the tests that need PyTorch, JAX, Ray or Slurm
packaging            slow    the wheel in a bare chroot, the libraries as users link them, the manifests and jobs of Kubernetes
pages                slow    the pages of the public headers and the site, without a warning or a broken link; the dashboard in a browser
bench                both    the benchmarks with --smoke
'
parts_of() { awk -v sets=" $* " 'NF && index(sets, " " $2 " ") {print $1}' <<<"$table"; }
rest_of() { awk -v part="$1" '$1 == part {$1 = $2 = ""; sub(/^ +/, ""); print}' <<<"$table"; }

logs=out/check
results=build/check-results
mkdir -p "$results" "$logs"

build_targets() {  # preset, targets...
  use_ccache
  cmake --build "build/$1" --target "${@:2}" -- --quiet
}

# ------------------------------------------------------------------------------------------------- what reads the sources
part_lint() {
  local status=0
  $python tools/tidy.py || status=1
  $python tools/words.py || status=1
  $venv/bin/ruff check -q python tests bench tools examples || status=1
  $venv/bin/ruff format -q --check python tests bench tools examples || { echo "ruff format: run ./dev format"; status=1; }
  git ls-files '*.c' '*.cc' '*.h' ':!include/tkv/dlpack/*' | xargs clang-format-19 --dry-run -Werror >"$logs/clang-format.log" 2>&1 \
    || { head -5 "$logs/clang-format.log"; echo "clang-format: run ./dev format"; status=1; }
  $venv/bin/mypy --cache-dir "$shared/mypy" python/tensorkv >"$logs/mypy.log" 2>&1 || { cat "$logs/mypy.log"; status=1; }
  $venv/bin/basedpyright --project . --pythonpath "$python" --level error python/tensorkv >"$logs/pyright.log" 2>&1 || { cat "$logs/pyright.log"; status=1; }
  return $status
}

# clang-tidy reads the build's commands, and nothing that a build makes.
part_tidy() {
  cmake --preset release -B build/tidy -DCMAKE_CXX_COMPILER_LAUNCHER= >"$logs/tidy-configure.log" 2>&1 || { cat "$logs/tidy-configure.log"; return 1; }
  $python tools/clang_tidy.py --passed "$shared/clang-tidy" --build build/tidy
}

part_pages() { write_site && run_pytest pages tests/cluster/test_dashboard.py; }

# ------------------------------------------------------------------------------------------------- sanitizers
# Builds and runs the C++ tests of a preset that arguments of ctest choose; a test program that leaves no results has crashed.
run_cpp() {  # part, preset, arguments of ctest...
  local part=$1 preset=$2 names; shift 2
  configure "$preset" || return 1
  names=$(ctest --test-dir "build/$preset" -N "$@" | awk '/Test *#/ {print $NF}')
  # shellcheck disable=SC2046
  build_targets "$preset" $(sed 's|/.*||' <<<"$names" | sort -u) || return 1
  rm -rf "build/$preset/results"
  ctest --test-dir "build/$preset" -j "$crowd" --output-on-failure "$@" >"$logs/$part-ctest.log" 2>&1 || true
  $python tools/summary.py --gtest "build/$preset/results" --expect-programs "$(wc -w <<<"$names")" || { tail -60 "$logs/$part-ctest.log"; return 1; }
}

part_address() { run_cpp address dev -LE slow; }
part_address-all() { run_cpp address-all dev; }
part_thread() { run_cpp thread tsan -L "threads|edges"; }
part_thread-all() { run_cpp thread-all tsan; }

# Runs Python tests with a package whose extension and command are built with the address sanitizer.
run_python_address() {  # part, arguments of pytest...
  local part=$1 package=build/dev/package preload status=0; shift
  preload="$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libubsan.so) $(g++ -print-file-name=libstdc++.so)"
  LD_PRELOAD="$preload" ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 PYTHONMALLOC=malloc PYTHONPATH="$PWD/$package" \
    $python -m pytest -p no:cacheprovider --timeout 400 --junitxml="$results/$part.xml" "$@" >"$logs/$part.log" 2>&1 || status=$?
  if grep -q "ERROR: AddressSanitizer\|runtime error" "$logs/$part.log"; then
    grep -n -A20 "AddressSanitizer\|runtime error" "$logs/$part.log" | head -60
    return 1
  fi
  # Status 5: nothing is marked.
  [ $status = 0 ] || [ $status = 5 ] || { tail -60 "$logs/$part.log"; return 1; }
  tail -1 "$logs/$part.log"
}

build_python_address() {
  local package=build/dev/package/tensorkv
  configure dev -DTKV_BUILD_PYTHON=ON -DTKV_BUILD_CLI=ON -DPython_EXECUTABLE="$PWD/$python" || return 1
  build_targets dev _core tkv_cli || return 1
  rm -rf "$package" && mkdir -p build/dev/package && cp -r python/tensorkv "$package" && mkdir "$package/bin"
  cp build/dev/python/_core.abi3.so "$package/" && cp build/dev/cli/tkv "$package/bin/"
}

part_edges() { build_python_address && run_python_address edges -n "$(nproc)" --dist loadfile -m "edges and not framework" tests/functions tests/python tests/cluster; }

# Of tests/python what counts memory, threads or seconds means another program than one with sanitizers.  Of tests/cluster: every
# transport and launcher once, deaths, cuts, stores that share a rank.
uncounted="not peak and not takes_no_memory and not threads_follow and not ctrl_c and not every_end and not exit_status"
jobs="every_rank or share_its_rank or restarted or second_claim or mxnets_variables or brings_processes or (transports and not limit) or cut or (dies_at and (init or round or shutdown))"
part_python-address() {
  build_python_address || return 1
  run_python_address python-address -m "not framework and not packaging" tests/python/test_{cluster,seeds,kvstore,kvstore_options,kvstore_process,ndarray,optimizer,interop,bad_calls,mxnet_name}.py -k "$uncounted" || return 1
  run_python_address cluster-address -m "not framework" tests/cluster/test_{processes,transports,deaths}.py -k "$jobs" || return 1
  part_edges
}

# ------------------------------------------------------------------------------------------------- the protocol
build_command() { configure release && build_targets release tkv_cli; }

part_seeds() {
  build_command || return 1
  build/release/cli/tkv sim --seed 100001 --count 5000 >"$logs/seeds.log" || { tail -60 "$logs/seeds.log"; return 1; }
  tail -1 "$logs/seeds.log"
}

part_simulation() {  # seeds beyond those of the tests
  build_command || return 1
  build/release/cli/tkv sim --seed 100001 --count 20000 --coverage >"$logs/simulation.log" || { tail -60 "$logs/simulation.log"; return 1; }
  $python tools/coverage.py <"$logs/simulation.log" >"$logs/coverage.txt" || { grep ^coverage: "$logs/coverage.txt"; return 1; }
  tail -1 "$logs/coverage.txt"
  tail -1 "$logs/simulation.log"
}

part_exploration() {
  build_command || return 1
  build/release/cli/tkv explore >"$logs/exploration.log" || { tail -60 "$logs/exploration.log"; return 1; }
  tail -1 "$logs/exploration.log"
}

run_mutants() { use_ccache; $python tools/mutants.py "$@"; }
part_mutants() { run_mutants acknowledge-early push-over-pulls keep-uncommitted; }
part_mutants-all() { run_mutants; }
run_edge_mutants() {  # part, arguments...
  use_ccache
  $python tools/edge_mutants.py "${@:2}" >"$logs/$1.log" 2>&1 || { tail -20 "$logs/$1.log"; return 1; }
  tail -1 "$logs/$1.log"
}
part_mutants-edges() { run_edge_mutants mutants-edges; }
part_mutants-python() { $python tools/python_mutants.py >"$logs/mutants-python.log" 2>&1 || { tail -20 "$logs/mutants-python.log"; return 1; }; tail -1 "$logs/mutants-python.log"; }
part_mutants-gpu() { run_edge_mutants mutants-gpu --folder ptx_mutants && run_edge_mutants mutants-devices --folder device_mutants; }

# The assemblers of PTX are no part of the environment: 90 MB that nothing else needs.
install_ptxas() {
  cmp -s tools/requirements/gpu.txt build/ptxas/.installed && return
  rm -rf build/ptxas
  $venv/bin/pip install -q --no-deps --target build/ptxas -r tools/requirements/gpu.txt && cp tools/requirements/gpu.txt build/ptxas/.installed
}

part_gpu() {
  install_ptxas || return 1
  configure release && build_targets release ptx_test ptx_kernels || return 1
  TKV_TEST_PTX_PROGRAMS=10000 build/release/tests/ptx_test --gtest_brief=1 >"$logs/gpu.log" || { tail -40 "$logs/gpu.log"; return 1; }
  $python tools/ptxas.py
}

part_fuzz() { configure fuzz && build_preset fuzz && tools/fuzz.sh 5; }

# ------------------------------------------------------------------------------------------------- other processors and compilers
# Unpacks the packages of Debian for 64-bit ARM that the library needs, once for all clones.
arm64_root=$shared/arm64
make_arm64_root() {
  local deb packages=libhwy-dev,libfmt-dev,libtbb-dev,libssl-dev,libxxhash-dev,libboost1.81-dev,libgtest-dev,libgmock-dev,libstdc++-12-dev
  [ ! -e "$arm64_root/complete" ] || return 0
  rm -rf "$arm64_root" && mkdir -p "$arm64_root"
  debootstrap --arch=arm64 --download-only --variant=minbase --include="$packages" bookworm "$arm64_root/downloaded" \
    >"$logs/arm64-root.log" 2>&1 || { tail "$logs/arm64-root.log"; return 1; }
  for deb in "$arm64_root"/downloaded/var/cache/apt/archives/*.deb; do dpkg -x "$deb" "$arm64_root" || return 1; done
  rm -rf "$arm64_root/downloaded" && touch "$arm64_root/complete"
}

part_arm64() {
  local test tests=(kernels_test codec_test wire_test update_test rows_test checkpoint_test simulation_test)
  make_arm64_root && configure arm64 -DTKV_SYSROOT="$arm64_root" && build_targets arm64 "${tests[@]/#/tests/}" || return 1
  for test in "${tests[@]}"; do
    qemu-aarch64 -L "$arm64_root" "build/arm64/tests/$test" --gtest_brief=1 >"$logs/arm64-$test.log" 2>&1 || { tail -40 "$logs/arm64-$test.log"; return 1; }
    tail -1 "$logs/arm64-$test.log"
  done
}

part_clang() {
  configure release -B build/clang -DCMAKE_C_COMPILER=clang-19 -DCMAKE_CXX_COMPILER=clang++-19 || return 1
  build_targets clang all || return 1
}

# ------------------------------------------------------------------------------------------------- the whole package
run_pytest() {  # part, arguments of pytest...
  local part=$1; shift
  $python -m pytest -p no:cacheprovider --junitxml="$results/$part.xml" "$@" >"$logs/$part.log" 2>&1 || { tail -60 "$logs/$part.log"; return 1; }
  $python tools/summary.py --junit "$results/$part.xml" --leaks "$logs/$part.log"
}

part_frameworks() {  # some of them on the pretended driver
  configure release && build_targets release fake_cuda || return 1
  run_pytest frameworks -m framework tests/functions tests/python tests/cluster
}
part_packaging() {  # the documents' programs beside the command
  configure release && build_targets release all || return 1
  run_pytest packaging -m slow tests/packaging
}

part_bench() {
  local name picture
  for name in local dist protocol update sparse c jvm faults scale; do
    rm -f "out/bench-$name.json"
    ./dev bench "$name" --smoke >"$logs/bench-$name.log" 2>&1 && test -s "out/bench-$name.json" || { tail -40 "$logs/bench-$name.log"; return 1; }
  done
  for picture in local dist update sparse scale; do test -s "out/bench-$picture.png" || return 1; done
}

# ------------------------------------------------------------------------------------------------- which parts, and their results
keep=1
case "${1:-}" in
  --list) printf '%s' "$table" | sed 1d; exit 0 ;;
  --all) mapfile -t parts < <(parts_of slow both) ;;
  "") mapfile -t parts < <(parts_of quick both) ;;
  *) parts=("$@"); keep=0 ;;
esac
for part in "${parts[@]}"; do
  [ -n "$(rest_of "$part")" ] || { echo "./dev check: no part '$part'; there are: $(parts_of quick slow both | paste -sd ' ')" >&2; exit 2; }
done

# The commit whose tree this is, or nothing where files have been changed.
clean_commit() { [ -z "$(git status --porcelain 2>/dev/null)" ] && git rev-parse HEAD 2>/dev/null; }

failed=0
lines=()
for part in "${parts[@]}"; do
  commit=$(clean_commit)
  result=$logs/$commit/$part
  if [ $keep = 1 ] && [ -n "$commit" ] && grep -qs ^passed "$result"; then
    lines+=("$(printf '%-16s %8s  %s' "$part" - "$(cat "$result") s, earlier on this commit")")
    continue
  fi
  phase "check: $part"
  begin=$SECONDS
  verdict=passed
  "part_$part" || { verdict=FAILED; failed=1; }
  lines+=("$(printf '%-16s %8d  %s' "$part" $((SECONDS - begin)) $verdict)")
  if [ -n "$commit" ] && [ "$(clean_commit)" = "$commit" ]; then mkdir -p "$logs/$commit" && echo "$verdict $((SECONDS - begin))" >"$result"; fi
done
printf '\n%-16s %8s\n' part seconds
printf '%s\n' "${lines[@]}"
printf '%-16s %8d\n' together $SECONDS
not_run=$(parts_of quick slow both | grep -vxF "$(printf '%s\n' "${parts[@]}")" | paste -sd ' ')
[ "${1:-}" != --all ] || not_run="$(parts_of quick | paste -sd ' ') (contained in what has run)"
printf '\nnot run: %s\nnot run: ./dev soak %s\n' "$not_run" "$(tools/soak.sh --list | awk '{print $3}' | paste -sd ' ')"
exit $failed
