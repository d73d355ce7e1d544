# shellcheck shell=bash
# What ./dev and the scripts in tools/ share: places, the compiler's cache, builds.  Sourced in the root of the tree.
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_INPUT=1 PYTHONDONTWRITEBYTECODE=1 CTEST_PARALLEL_LEVEL=2
export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
crowd=$((2 * $(nproc)))  # test programs at a time: about half of them wait for time to pass
venv=.venv
python=$venv/bin/python
# What every clone of this user shares, and what outlives a clone: the compiler's cache, MXNet's environment, passes of clang-tidy.
shared=${XDG_CACHE_HOME:-$HOME/.cache}/tensorkv
mxnet=$shared/mxnet

phase() { printf '\n== %s  [%d s]\n' "$1" "$SECONDS"; }
have() { command -v "$1" >/dev/null 2>&1; }

# The cache sees paths relative to the tree, so that clones in different folders share what it holds.
use_ccache() {
  have ccache || return 0
  export CC=${CC:-cc} CXX=${CXX:-c++}  # one name for CMake and for pip: the cache tells compilers apart by it
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_DIR=${CCACHE_DIR:-$shared/ccache} CCACHE_MAXSIZE=${CCACHE_MAXSIZE:-8G}
  export CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=$PWD
}

configure() {  # preset, cmake arguments...
  local preset=$1 log; shift
  log=$(mktemp)
  use_ccache
  cmake --preset "$preset" "$@" >"$log" 2>&1 || { cat "$log"; rm -f "$log"; return 1; }
  rm -f "$log"
}

# Reads the output of a build and shows how many of Ninja's steps are done: in one line on a terminal, else each tenth part.
show_steps() {
  local terminal=0; [ ! -t 1 ] || terminal=1
  awk -v terminal="$terminal" '
    match($0, /\[[0-9]+\/[0-9]+\]/) {
      split(substr($0, RSTART + 1, RLENGTH - 2), step, "/")
      tenth = int(10 * step[1] / step[2])
      if (terminal) printf "\r%d of %d steps", step[1], step[2]
      else if (tenth > shown) printf "%d of %d steps\n", step[1], step[2]
      shown = tenth
      fflush()
    }
    END { if (terminal && shown) print "" }'
}

build_preset() {  # preset, cmake arguments...
  local preset=$1
  [ -f "build/$preset/build.ninja" ] || configure "$@" || return 1
  use_ccache
  # On a terminal Ninja shows its steps in one line.
  # shellcheck disable=SC2046
  cmake --build --preset "$preset" -- $([ -t 1 ] || echo --quiet)
}

# The pages of the public headers, by Doxygen.
write_pages() { mkdir -p out && rm -rf out/pages && doxygen tools/pages/Doxyfile && echo "wrote out/pages/html/index.html"; }

# The site of the documents, with those pages.  A link that leads nowhere is an error.
write_site() {
  write_pages || return 1
  rm -rf out/site
  $python tools/site/pages.py out/site-pages out/site/llms.txt \
    && $python -m sphinx -q -E -W --keep-going -c tools/site -d out/site-pages/.doctrees out/site-pages out/site \
    && cp -r out/pages/html out/site/headers \
    && $python tools/site/check.py out/site && echo "wrote out/site/index.html"
}
