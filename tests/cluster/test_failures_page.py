"""Rehearses every row of the tables of docs/failures.md with a job of real processes, and compares it with the page.

A row without a rehearsal fails, and so does a rehearsal without a row.  The rehearsals run side by side.
"""

import concurrent.futures
import contextlib
import os
import re
import threading

import pytest
import rehearsals_of_limits  # noqa: F401 - it registers its functions
import rehearsals_of_workers  # noqa: F401 - it registers its functions
from hosts import hosts  # noqa: F401 - a fixture
from jobs import children_of_this_test
from page import DOCS, SLACK, Row, Seen, compare, failures, tables
from rehearsals_of_servers import CABLE
from stage import REHEARSALS, Stage, wait_until_soon

AT_ONCE = 7  # rehearsals side by side

pytestmark = pytest.mark.timeout(600)  # on a busy machine many wait for their turn

SURVIVORS = 7  # the status of a worker that ends because of another process
ENDS = """
kv = create(patience=15)
kv.init("w", np.zeros(4, np.float32))
try:
    while kv.round("w") < 6:
        if rank == 1 and kv.round("w") == 3 and not kv.rejoined:
            EARLY
        step(kv)
except mx.KVError as error:
    print(f"{type(error).__name__}: {error}", flush=True)
    os._exit(7)
kv.close()
if rank == 1:
    LATE
"""
# The code that worker 1 runs in the middle or at the end, or the launcher's options, by the first cell of a row.
EARLY = {
    "none": "pass",
    "a worker is killed by signal 9": "die()",
    "a worker ends with status 3": "os._exit(3)",
    "a script ends by an exception": "raise ValueError('a bad batch')",
    "a script ends with status 0 before the others": "sys.exit(0)",
    "a worker is stopped, and ended after `--grace`": "die(signal.SIGSTOP)",
}
LATE = {"a worker ends with status 3 after it has closed its stores": "os._exit(3)"}
OPTIONS = {"a server is killed by signal 9": ("--failpoints", "server 0:received:PUSH:7:kill")}
POLICIES = {
    "`fail`": ("--on-death", "fail"),
    "`continue`": ("--on-death", "continue"),
    "`wait`": ("--on-death", "wait"),
    "`--restart N`": ("--restart", 1),
}


def exit_statuses():
    """Return {(failure, policy): cell} of the table of exit statuses."""
    (table,) = [table for table in tables("launching.md") if table[0][0] == "the first process that fails"]
    return {(row[0], policy): cell for row in table[1:] for policy, cell in zip(table[0][1:], row[1:], strict=True)}


def exit_status(stage, failure, policy):
    text = ENDS.replace("EARLY", EARLY.get(failure, "pass")).replace("LATE", LATE.get(failure, "pass"))
    known = {*EARLY, *LATE, *OPTIONS}
    assert failure in known, f"no rehearsal of this row: {failure}"
    words = ("--silence-ms", 1500, "--grace", 1) if "stopped" in failure else ("--grace", 9)
    return stage.run(text, *words, *OPTIONS.get(failure, ()), *POLICIES[policy])


# ---- the tests ----------------------------------------------------------------------------------

ROWS = {row.what: row for row in failures()}
STATUSES = exit_statuses()


@pytest.fixture(scope="module")
def outcomes(request, tmp_path_factory):
    """Start the rehearsals of all selected tests, some at a time; return {name of the test: future}."""
    folder = tmp_path_factory.mktemp("rehearsals")
    stages = []
    lock = threading.Lock()

    def on_stage(function, *arguments):
        with lock:
            stages.append(Stage(folder / str(len(stages))))
            stage = stages[-1]
        return function(stage, *arguments)

    def submit(item):
        parameters = item.callspec.params
        if "what" in parameters:
            return pool.submit(on_stage, REHEARSALS.get(parameters["what"], no_rehearsal))
        return pool.submit(on_stage, exit_status, parameters["failure"], parameters["policy"])

    mine = [one for one in request.session.items if one.path == request.path and hasattr(one, "callspec")]
    chosen = [one for one in mine if {"what", "failure"} & set(one.callspec.params)]
    if any("what" in one.callspec.params and needs_hosts(one.callspec.params["what"]) for one in chosen):
        with contextlib.suppress(pytest.skip.Exception):
            CABLE.hosts = request.getfixturevalue("hosts")
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        yield {item.name: submit(item) for item in chosen}
        pool.shutdown(cancel_futures=True)  # a test has failed, and the run ends with it
    for stage in stages:
        stage.processes.end()
    wait_until_soon(lambda: set(children_of_this_test()) <= {os.getpid()}, 10)


def needs_hosts(what):
    return what in REHEARSALS and "CABLE" in REHEARSALS[what].__code__.co_names


def no_rehearsal(stage):
    raise LookupError("no function of this file rehearses this row")


@pytest.mark.parametrize("what", ROWS, ids=range(len(ROWS)))
def test_a_row_says_the_truth(outcomes, request, what):
    compare(ROWS[what], outcomes[request.node.name].result())


@pytest.mark.parametrize(("failure", "policy"), STATUSES, ids=lambda cell: cell.replace("`", ""))
def test_the_exit_status_is_that_of_the_table(outcomes, request, failure, policy):
    status, said = outcomes[request.node.name].result()
    known = {int(word) for word in re.findall(r"\d+", STATUSES[failure, policy])}
    if "survivor" in STATUSES[failure, policy]:
        known.add(SURVIVORS)
    assert status in known, f"status {status}; the page says {STATUSES[failure, policy]!r}\n{said}"


def test_every_rehearsal_has_a_row_and_every_failure_a_status():
    assert set(REHEARSALS) == set(ROWS)
    assert {failure for failure, _ in STATUSES} == {*EARLY, *LATE, *OPTIONS}
    assert {policy for _, policy in STATUSES} == set(POLICIES)


@pytest.mark.parametrize(("option", "seconds"), [("patience", 600), ("server_patience", 30), ("silence", 5)])
def test_the_times_of_the_page_are_the_defaults(option, seconds):
    rows = [row for table in tables("options.md") for row in table if f"`{option}_ms`" in row[0]]
    assert [int(row[4]) for row in rows] == [1000 * seconds], rows
    assert f"- `{option}` ({seconds} s" in (DOCS / "failures.md").read_text()


TRUE = Row("it dies", "`UnavailableError: pull 'w': worker 1 is dead; round 7 needs it`", "after 5 s", "`--restart N`")
SEEN = Seen(
    "it of 0 met UnavailableError: pull 'key': worker 3 is dead; round 12 needs it", (("5 s", 5.1, 1),), ("`--restart",)
)


@pytest.mark.parametrize(
    "change",
    [
        {"seen": TRUE.seen.replace("Unavailable", "DeadlineExceeded")},
        {"seen": TRUE.seen.replace("is dead", "has left")},
        {"seen": "nothing"},
        {"when": "at once"},
        {"when": "after 50 s"},
        {"when": ""},
        {"remedy": ""},
        {"remedy": "start it again"},
    ],
    ids=str,
)
def test_a_false_row_is_found(change):
    compare(TRUE, SEEN)
    with pytest.raises(AssertionError):
        compare(TRUE._replace(**change), SEEN)


def test_a_wait_that_is_far_too_short_or_too_long_is_found():
    for seconds in (2.0, 5.0 + SLACK + 1):
        with pytest.raises(AssertionError):
            compare(TRUE, SEEN._replace(times=(("5 s", seconds, 1),)))
