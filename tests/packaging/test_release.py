"""`./dev release` makes its files, and each of them works in an empty root of Debian 12."""

import hashlib
import os
import pathlib
import re
import subprocess
import tarfile

import pytest
import tensorkv as tkv

ROOT = pathlib.Path(__file__).parents[2]
ARCHIVE_MAX, SOURCES_MAX, WHEEL_MAX = 9_000_000, 4_000_000, 11_000_000  # bytes


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_files_of_a_release_are_made_and_tried():
    assert os.geteuid() == 0, "making a chroot needs root"
    result = subprocess.run([ROOT / "tools" / "release.sh"], capture_output=True, text=True, timeout=1100)
    assert result.returncode == 0, result.stdout + result.stderr
    made = {path.name: path for path in (ROOT / "out" / "release").iterdir()}
    named = f"tensorkv-{tkv.__version__}"
    (wheel,) = [name for name in made if name.endswith(".whl")]
    assert re.fullmatch(rf"{named}-cp310-abi3-manylinux_2_\d+_x86_64\.whl", wheel)
    archive = f"{named}-linux-x86_64.tar.xz"
    assert set(made) == {wheel, archive, f"{named}.tar.gz", f"{named}.cdx.json", "SHA256SUMS"}
    sums = dict(reversed(line.split()) for line in made.pop("SHA256SUMS").read_text().splitlines())
    assert sums == {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in made.items()}
    sizes = [(archive, ARCHIVE_MAX), (f"{named}.tar.gz", SOURCES_MAX), (wheel, WHEEL_MAX)]
    for name, most in sizes:
        assert made[name].stat().st_size < most, name
    with tarfile.open(made[f"{named}.tar.gz"]) as sources:
        inside = {name.partition("/")[2] for name in sources.getnames()}
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert {"LICENSE", "README.md", "pyproject.toml", "src/server/shard.cc"} <= inside & set(tracked)
    assert inside - set(tracked) - {"", "PKG-INFO"} <= {os.path.dirname(name) for name in inside}, "files of nobody"
    for line in ("the wheel:", "hello, by pkg-config:", "the sources:"):
        assert line in result.stdout
