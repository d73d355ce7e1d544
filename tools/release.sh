#!/usr/bin/env bash
# Makes the files of a release from the last commit, and tries each of them in an empty root of Debian 12.
#
# usage: tools/release.sh [--no-try]    out/release has the files; the trial needs root
#   tensorkv-VERSION.tar.gz                        the sources (sdist)
#   tensorkv-VERSION-cp310-abi3-manylinux….whl     the Python package and the command, built from the sdist alone
#   tensorkv-VERSION-linux-x86_64.tar.xz           headers, the shared library, the command and the examples, for C++ and C
#   tensorkv-VERSION.cdx.json                      the bill of materials (CycloneDX)
#   SHA256SUMS
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tools/lib.sh
. tools/lib.sh
tree=$PWD
made=$tree/out/release
version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
work=$(mktemp -d /var/tmp/tensorkv-release.XXXXXX)
cleanup() {
  if mountpoint -q "$work/root/proc"; then umount "$work/root/proc"; fi
  rm -rf --one-file-system "$work"
}
trap cleanup EXIT
export PATH=$tree/$venv/bin:$PATH  # auditwheel calls patchelf

make_sources() {
  phase "sources"
  git clone -q "$tree" "$work/tree"  # what is not committed is in no release
  (cd "$work/tree" && python -c "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])" "$made" >"$work/sdist.log" 2>&1) \
    || { tail -20 "$work/sdist.log"; return 1; }
}

make_wheel() {
  phase "wheel"
  # As deep in the file system as a clone's build, so that the compiler's cache knows the sources.
  tar -xf "$made/tensorkv-$version.tar.gz" -C "$work"
  (cd "$work/tensorkv-$version" && use_ccache && pip wheel -v --no-deps --no-build-isolation -w "$work/wheel" . --config-settings=cmake.define.TKV_WARNINGS_AS_ERRORS=ON 2>&1 | tee "$work/wheel.log" | show_steps) \
    || { tail -40 "$work/wheel.log"; return 1; }
  auditwheel repair -w "$made" "$work"/wheel/*.whl 2>"$work/audit.log" || { tail "$work/audit.log"; return 1; }
}

make_archive() {
  phase "archive for C++ and C"
  local folder=$work/tensorkv-$version-linux-x86_64 build=$work/tensorkv-$version/build/shared
  (
    cd "$work/tensorkv-$version"
    use_ccache
    # shellcheck disable=SC2016
    cmake -G Ninja -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON -DTKV_WARNINGS_AS_ERRORS=ON \
      -DCMAKE_INSTALL_LIBDIR=lib '-DCMAKE_INSTALL_RPATH=$ORIGIN' && cmake --build "$build" && cmake --install "$build" --component cpp --prefix "$folder"
  ) >"$work/shared.log" 2>&1 || { tail -40 "$work/shared.log"; return 1; }
  mkdir -p "$folder/bin" "$folder/examples" "$work/unpacked"
  python -m zipfile -e "$(ls "$made"/*.whl)" "$work/unpacked"
  install -m 644 "$work/unpacked/tensorkv/libtbb.so.12" "$folder/lib/"
  install -m 755 "$work/unpacked/tensorkv/bin/tkv" "$folder/bin/"
  # shellcheck disable=SC2016
  patchelf --set-rpath '$ORIGIN/../lib' "$folder/bin/tkv"
  strip --strip-unneeded "$folder"/lib/libtkv.so.* "$folder/bin/tkv"
  cp -r "$work"/unpacked/tensorkv-*.data/data/share "$folder/"
  (
    cd "$work/tensorkv-$version"
    cp -r examples/c examples/cpp "$folder/examples/"
    cp LICENSE THIRD_PARTY_NOTICES.txt CHANGELOG.md docs/cpp.md docs/c.md "$folder/"
  )
  python tools/notices.py "$folder"/lib/*.so* "$folder/bin/tkv"
  tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner -cJf "$made/${folder##*/}.tar.xz" "${folder##*/}"
}

# Debian 12 with a compiler and Python, and no network: the packages that the wheel needs are fetched before.
try_all() {
  phase "an empty root of Debian 12"
  local root=$work/root
  debootstrap --variant=minbase --include=python3-venv,g++,pkg-config,cmake,make,xz-utils bookworm "$root" >"$work/debootstrap.log" 2>&1 \
    || { tail "$work/debootstrap.log"; return 1; }
  mkdir "$root/made"
  cp "$made"/* "$root/made/"
  pip download -q --only-binary=:all: --python-version 3.11 --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform any \
    -d "$root/made" numpy nanobind-backend
  cp tools/release_trial.sh "$root/made/"
  mount -t proc proc "$root/proc"
  chroot "$root" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 bash /made/release_trial.sh "$version"
}

rm -rf "$made" && mkdir -p "$made"
make_sources
make_wheel
make_archive
python tools/notices.py --sbom "$made/tensorkv-$version.cdx.json"
(cd "$made" && sha256sum -- * >SHA256SUMS)
[ "${1:-}" = --no-try ] || try_all
printf '\n'
ls -l --block-size=K "$made"
