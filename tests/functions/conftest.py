"""Tests of functions of `set_updater` that servers run as programs.

They are a run of their own: reading a function looks at all objects of the process, and pytest makes many for each test that it
knows.
"""

import pytest
import tensorkv as mx

mx._core._warn_of_leaks(True)


@pytest.fixture
def kv():
    """A local store that the test need not close."""
    with mx.kv.create("local") as store:
        yield store
