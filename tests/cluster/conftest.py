import contextlib
import os
import signal
import time

import pytest
from jobs import Processes, children_of_this_test, unix_sockets


@pytest.fixture
def processes(tmp_path, monkeypatch):
    """Starts processes, and checks at the end that no process and no socket of theirs is left."""
    before = unix_sockets([os.getpid()])
    # The mark is for this test alone: processes of a later module's fixture, such as a cluster of Ray, have none.
    monkeypatch.setenv("TKV_TEST_MARK", str(os.getpid()))
    made = Processes(tmp_path)
    original = made.start
    made.start = lambda command, **variables: original(command, TKV_TEST_MARK=os.getpid(), **variables)
    yield made
    for _ in range(200):  # what a launcher leaves ends within two seconds, on a machine that is not busy
        left = {p: c for p, c in children_of_this_test().items() if p != os.getpid()}
        if not left:
            break
        time.sleep(0.05)
    sockets = unix_sockets(left)
    made.end()
    for pid in left:  # the next test finds nothing of this one
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not left, f"processes are left: {left}, with the sockets {sockets}"
    assert unix_sockets([os.getpid()]) <= before
