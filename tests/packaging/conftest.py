import os
import pathlib
import sys

import pytest
from pods import run

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """The wheel of this tree; ``TKV_TEST_WHEEL`` names one that exists already."""
    if "TKV_TEST_WHEEL" in os.environ:
        return pathlib.Path(os.environ["TKV_TEST_WHEEL"])
    folder = tmp_path_factory.mktemp("wheel")
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        folder,
        ROOT,
        "--config-settings=cmake.define.TKV_WARNINGS_AS_ERRORS=ON",
        cwd=ROOT,
    )
    (path,) = folder.glob("*.whl")
    return path
