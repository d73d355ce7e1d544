#!/usr/bin/env bash
# Uses the files of a release as a user would.  tools/release.sh runs it in an empty root, with the files in /made.
#
# usage: release_trial.sh VERSION
set -euo pipefail
version=$1
cd /made && sha256sum --quiet -c SHA256SUMS

echo "the wheel: a job of two workers and a server"
python3 -m venv /venv
/venv/bin/pip install -q --no-index --find-links /made tensorkv
cat >/made/job.py <<'PY'
import numpy as np
import tensorkv as tkv

with tkv.kv.create("dist_sync") as kv:
    kv.init("w", np.zeros(4, np.float32))
    kv.push("w", np.full(4, 1.5, np.float32))
    print("sum", kv.pull("w").asnumpy().tolist())
PY
said=$(/venv/bin/tkv launch -n 2 -s 1 /venv/bin/python /made/job.py 2>/dev/null)
[ "$(grep -c 'sum \[3.0, 3.0, 3.0, 3.0\]' <<<"$said")" = 2 ] || { echo "$said"; exit 1; }
[ "$(/venv/bin/tkv --version)" = "$(/venv/bin/python -c 'import tensorkv; print("tkv", tensorkv.__version__)')" ]

echo "the archive: its examples by CMake and by pkg-config"
tar -xf "/made/tensorkv-$version-linux-x86_64.tar.xz" -C /opt
prefix=/opt/tensorkv-$version-linux-x86_64
for example in cpp c; do
  cmake -S "$prefix/examples/$example" -B "/build/$example" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
  cmake --build "/build/$example" >/dev/null
  "/build/$example/hello"
done
"$prefix/bin/tkv" launch -n 2 -s 1 /build/cpp/worker >/dev/null 2>&1
PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config --cflags --libs tensorkv >/flags
# shellcheck disable=SC2046
g++ -std=c++20 -O2 "$prefix/examples/cpp/hello.cc" $(cat /flags) "-Wl,-rpath,$prefix/lib" -o /hello
strip /hello && /hello && stat -c 'hello, by pkg-config: %s bytes' /hello

echo "the sources: the same version, and the texts of the licenses"
tar -xf "/made/tensorkv-$version.tar.gz" -C /tmp
grep -q "^version = \"$version\"" "/tmp/tensorkv-$version/pyproject.toml"
cmp "/tmp/tensorkv-$version/THIRD_PARTY_NOTICES.txt" "$prefix/THIRD_PARTY_NOTICES.txt"
grep -q '"CycloneDX"' "/made/tensorkv-$version.cdx.json"
