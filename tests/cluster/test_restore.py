"""A job continues from a snapshot: its workers begin with the saved keys, values, states and rounds, on any number of
servers.

Worker r pushes (r + 1) * step in step `step`, so that a step that is done twice, or left out, changes the result. Store n gets
2**n times as much, so that a value that goes into another store does.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import sys

import numpy as np
import pytest
import tensorkv as mx
from jobs import finish, pids_of, read_until, restorer_of, start_by_hand, wait_until

WORK = """
KEYS = ["a", "b", "c"]
STEPS = int(os.environ["STEPS"])
stores = [mx.kv.create(os.environ.get("KV", "dist_sync"), server_patience=20, patience=60)
          for _ in range(int(os.environ.get("STORES", 1)))]
for kv in stores:
    kv.init(KEYS, [mx.nd.zeros((n,)) for n in (1, 300_000, 17)])
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=-1.0, momentum=0.5))
rounds = {kv.round(key) for kv in stores for key in KEYS}
begin = min(rounds)
print(f"rank {kv.rank} begins behind round {begin}, rejoined {kv.rejoined}, rounds {sorted(rounds)}", flush=True)
for step in range(begin + 1, STEPS + 1):
    for factor, kv in zip((1, 2, 4, 8), stores):
        for key in KEYS:
            if kv.round(key) < step:
                kv.push(key, mx.nd.full(kv.pull(key).shape, factor * (kv.rank + 1) * step))
    if step == int(os.environ.get("SAVE_AT", 0)):
        kv.save(os.environ["FOLDER"])
values = [kv.pull(key).asnumpy() / factor for factor, kv in zip((1, 2, 4, 8), stores) for key in KEYS]
assert all(value.min() == value.max() == values[0][0] for value in values), values
for kv in stores:
    kv.barrier()
for kv in stores:
    kv.close()
print(f"rank {kv.rank} has {values[0][0]:.1f}", flush=True)
"""

WAIT = """
    while step == 6 and not glob.glob(os.environ["FOLDER"] + "/00000*"):
        time.sleep(0.01)
    if step == 9:
        time.sleep(1)  # the thread that has written it ends
"""


def result(steps, workers=2):
    """Return the value of every element after so many steps."""
    weight = momentum = 0.0
    for step in range(1, steps + 1):
        momentum = 0.5 * momentum + step * workers * (workers + 1) / 2
        weight += momentum
    return weight


def run(processes, folder, *options, servers=2, steps=12, work=WORK, **variables):
    job = processes.launch(work, *options, servers=servers, STEPS=steps, FOLDER=folder, TKV_LOG="info", **variables)
    return finish(job, timeout=100)


def check_rank(said, rank, steps=12):
    assert f"rank {rank} has {result(steps):.1f}" in said, said


def check_whole(said, steps=12, workers=2):
    for rank in range(workers):
        check_rank(said, rank, steps)


ROWS = (
    WORK.replace("kv.init(KEYS, [mx.nd.zeros((n,)) for n in (1, 300_000, 17)])", "[kv.init_table(k, 2) for k in KEYS]")
    .replace(
        "kv.push(key, mx.nd.full(kv.pull(key).shape, factor * (kv.rank + 1) * step))",
        "kv.push_rows(key, IDS, full(step))",
    )
    .replace("kv.pull(key).asnumpy()", "kv.pull_rows(key, IDS).ravel()")
    .replace(
        "STEPS =",
        "IDS = np.arange(5000) * 2**50\ndef full(n): return np.full((5000, 2), (kv.rank + 1.0) * n, 'f')\nSTEPS =",
        1,
    )
)
ON_DISK = ROWS.replace("init_table(k, 2)", "init_table(k, 2, memory=40_000)").replace(
    "kv.barrier()", "assert kv.table_stats('a')['disk_rows'] > 3000\n    kv.barrier()"
)


@pytest.mark.parametrize("servers", [1, 3])
def test_tables_go_on_where_another_job_has_been_saved(processes, tmp_path, servers):
    folder = tmp_path / "saved"
    status, said = run(processes, folder, SAVE_AT=7, steps=9, work=ROWS)
    assert status == 0, said
    status, said = run(processes, folder, "--restore", str(folder), servers=servers, work=ROWS)
    assert status == 0 and "goes on from the snapshot" in said, said
    for rank in range(2):
        assert f"rank {rank} begins behind round 7, rejoined True" in said, said
    check_whole(said)


def test_a_job_of_tables_starts_again_by_itself_when_a_server_has_died(processes, tmp_path):
    (tmp_path / "disk").mkdir()
    options = (
        "--rows-dir",
        str(tmp_path / "disk"),
        "--restore",
        str(tmp_path / "saved"),
        "--snapshot-every",
        "3",
        "--restart",
        "1",
    )
    killed = {"SAVE_AT": 4, "TKV_FAILPOINTS": "server 1:received:PUSH:100:kill"}
    status, said = run(processes, tmp_path / "saved", *options, work=ON_DISK, **killed)
    assert status == 0, said
    assert re.search(r"server 1 was killed by signal 9; the job is started again \(1 of 1\)", said), said
    check_whole(said)
    assert not list((tmp_path / "disk").iterdir()), "a server that is killed leaves nothing on its disk"


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_a_job_goes_on_where_another_one_has_been_saved(processes, tmp_path, servers):
    folder = tmp_path / "saved"
    status, said = run(processes, folder, SAVE_AT=7, steps=9)
    assert status == 0, said
    status, said = run(processes, folder, "--restore", str(folder), servers=servers)
    assert status == 0 and "goes on from the snapshot" in said, said
    for rank in range(2):
        assert f"rank {rank} begins behind round 7, rejoined True" in said, said
    check_whole(said)


def test_a_store_saves_by_itself_and_a_job_begins_anew_where_nothing_is_saved(processes, tmp_path):
    folder = tmp_path / "saved"
    # A snapshot that is due while the previous one is still being written is made later.
    waiting = "import glob\n" + WORK.replace("    if step ==", WAIT + "    if step ==")
    job = processes.launch(
        waiting, "--restore", str(folder), "--snapshot-every", "5", STEPS=12, FOLDER=folder, TKV_LOG="info"
    )
    status, said = finish(job, timeout=100)
    assert status == 0 and "begins behind round 0, rejoined False" in said, said
    check_whole(said)
    kv = mx.kv.create("local")
    kv.init(["a", "b", "c"], [mx.nd.zeros((n,)) for n in (1, 300_000, 17)])
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=-1.0, momentum=0.5))
    names = sorted(os.listdir(folder))
    assert len(names) == 2 and set(kv.load(folder / names[1]).values()) == {12}, said  # the end of the job
    rounds = set(kv.load(folder / names[0]).values())
    assert len(rounds) == 1 and rounds <= {10, 11}, said
    assert kv.pull("b").asnumpy().tolist() == [result(*rounds)] * 300_000


def test_a_relative_folder_is_that_of_the_launcher(processes, tmp_path):
    folder = tmp_path / "saved"
    elsewhere = f"os.chdir({str(tmp_path)!r})\n" + WORK
    job = processes.launch(
        elsewhere, "--snapshots", os.path.relpath(folder), "--snapshot-every", "5", STEPS=12, FOLDER=folder
    )
    status, said = finish(job, timeout=100)
    assert status == 0 and list(folder.glob("00000*")), said


def test_seconds_count_too(processes, tmp_path):
    folder = tmp_path / "saved"
    slow = WORK.replace("    if step ==", "    time.sleep(0.3)\n    if step ==")
    job = processes.launch(
        slow, "--snapshots", str(folder), "--snapshot-every", "1s", STEPS=10, FOLDER=folder, TKV_LOG="info"
    )
    status, said = finish(job)
    assert status == 0, said
    check_whole(said, 10)
    assert list(folder.glob("00000*")), said


@pytest.mark.parametrize(("transport", "stores"), [("auto", 1), ("tcp", 1), ("auto", 2), ("auto", 4)])
def test_a_job_starts_again_by_itself_when_a_server_has_died(processes, tmp_path, transport, stores):
    folder = tmp_path / "saved"
    status, said = run(
        processes,
        folder,
        "--restore",
        str(folder),
        "--snapshot-every",
        "3",
        "--restart",
        "1",
        SAVE_AT=4 if stores == 1 else 0,  # a save of one store is none of all
        STORES=stores,
        TKV_TRANSPORT=transport,
        TKV_FAILPOINTS=f"server 1:received:PUSH:{40 * stores}:kill",
    )
    assert status == 0, said
    assert re.search(r"server 1 was killed by signal 9; the job is started again \(1 of 1\)", said), said
    begun = set(re.findall(r"begins behind round \d+, rejoined True, rounds \[(.*)\]", said))
    if stores == 1:  # the snapshot of one round, whichever was written last
        assert len(begun) == 1 and 4 <= int(min(begun)) <= 13, said
    else:  # with several stores there may be none yet
        assert len(begun) <= 1 and not any("," in rounds for rounds in begun), said
    check_whole(said)


def test_a_job_starts_again_by_itself_when_a_server_hangs(processes, tmp_path):
    """All workers fail at once, and again at their restarts: no restart of theirs may be used up before the job's."""
    folder = tmp_path / "saved"
    options = ("--restore", str(folder), "--snapshot-every", "3", "--restart", "1", "--silence-ms", "1500")
    status, said = run(processes, folder, *options, TKV_FAILPOINTS="server 1:received:PUSH:16:stop")
    assert status == 0, said
    assert "server 1 is silent and counts as dead; the job is started again (1 of 1)" in said, said
    check_whole(said)


def save_all(processes, folder, stores):
    """Run a job whose last round, the seventh, is in a snapshot of all of its stores."""
    status, said = run(processes, folder, "--snapshots", str(folder), "--snapshot-every", "100", steps=7, STORES=stores)
    assert status == 0, said


@pytest.mark.parametrize("stores", [1, 2, 4])
def test_a_worker_that_is_started_again_goes_on_in_a_job_that_was_restored(processes, tmp_path, stores):
    folder = tmp_path / "saved"
    save_all(processes, folder, stores)
    dies = {"TKV_FAILPOINTS": f"worker 1:sent:PUSH:{5 * stores}:kill", "STORES": stores}
    status, said = run(processes, folder, "--restore", str(folder), "--restart", "1", **dies)
    assert status == 0 and "it is started again (1 of 1)" in said, said
    assert said.count("begins behind round 7, rejoined True") >= 2, said
    check_whole(said)


@pytest.mark.parametrize("stores", [1, 2, 4])
def test_a_server_that_dies_while_a_snapshot_is_put_back_starts_the_job_again(processes, tmp_path, stores):
    folder = tmp_path / "saved"
    save_all(processes, folder, stores)
    killed = {"TKV_FAILPOINTS": f"server 1:received:INIT:{stores}:kill", "STORES": stores}
    status, said = run(processes, folder, "--restore", str(folder), "--restart", "2", "--grace", "1", **killed)
    assert status == 0 and "server 1 was killed by signal 9; the job is started again (1 of 2)" in said, said
    check_whole(said)


def test_an_asynchronous_job_goes_on(processes, tmp_path):
    folder = tmp_path / "saved"
    status, said = run(processes, folder, SAVE_AT=3, steps=3, KV="dist_async", workers=1)
    assert status == 0, said
    status, said = run(processes, folder, "--restore", str(folder), KV="dist_async", steps=0)
    assert status == 0 and f"rank 1 has {result(3, workers=1):.1f}" in said, said


def test_a_store_that_cannot_save_by_itself_says_so_and_goes_on(processes, tmp_path):
    folder = tmp_path / "saved"
    folder.write_text("a file")
    status, said = run(processes, folder, "--snapshots", str(folder), "--snapshot-every", "5")
    assert status == 0 and "no snapshot was saved by itself" in said, said
    check_whole(said)


def test_what_cannot_be_restored_is_said(processes, tmp_path):
    status, said = run(processes, tmp_path, "--restore", str(tmp_path / "none"))
    assert status == 2 and "there is no snapshot" in said, said
    status, said = run(processes, tmp_path, "--snapshot-every", "5")
    assert status == 2 and "--restore PATH or --snapshots PATH says where to" in said, said
    status, said = run(processes, tmp_path, "--restore", str(tmp_path), "--snapshot-every", "often")
    assert status == 2 and "a number of rounds, such as 100, or of seconds, such as 30s" in said, said
    folder = tmp_path / "saved"
    status, said = run(processes, folder, SAVE_AT=2, steps=2)
    assert status == 0, said
    (damaged,) = folder.glob("000001/*.safetensors")
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    status, said = run(processes, folder, "--restore", str(folder))
    assert status != 0 and damaged.name in said and "begins" not in said, said


@pytest.mark.parametrize("damaged", ["model-00001-of-00001.safetensors", "model.safetensors.index.json"])
def test_damage_is_named_with_the_options_that_take_an_older_snapshot(processes, tmp_path, damaged):
    folder = tmp_path / "saved"
    status, said = run(processes, folder, "--snapshots", str(folder), "--snapshot-every", "100", SAVE_AT=2, steps=4)
    assert status == 0, said
    path = folder / "000002" / damaged
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)
    saving, other = ["--snapshot-every", "100"], ["--snapshots", str(tmp_path / "other")]
    older = f"{folder}/000001"
    for restored, options, advice in (
        (folder, [], f"`--restore {older}` goes on"),
        (folder, saving, f"`--restore {older} --snapshots OTHER` goes on"),
        (folder, saving + other, f"`--restore {older}` goes on"),
        (folder / "000002", saving + other, f"`--restore {older}` goes on"),
    ):
        status, said = run(processes, folder, "--restore", str(restored), *options, "--grace", "1", steps=6)
        assert status == 2 and damaged in said and said.count(advice) == 1 and "begins" not in said, said
    status, said = run(processes, folder, "--restore", older, *saving, *other, steps=6)
    assert status == 0 and said.count("begins behind round 2") == 2, said
    path = folder / "000001" / "model.safetensors.index.json"
    path.write_bytes(b"{}")
    status, said = run(processes, folder, "--restore", str(folder), "--grace", "1", steps=6)
    assert status == 2 and damaged in said and "goes on" not in said.replace("goes on from the snapshot in", ""), said


def test_options_of_a_store():
    with pytest.raises(mx.errors.InvalidArgumentError, match="both are needed"):
        mx.kv.create("dist_sync", bootstrap="self", snapshots="x")
    with pytest.raises(mx.errors.InvalidArgumentError, match="such as 30s"):
        mx.kv.create("dist_sync", bootstrap="self", snapshots="x", snapshot_every="0")


def test_a_store_in_one_process_saves_by_itself_between_two_steps(tmp_path):
    with mx.kv.create("dist_sync", bootstrap="self", snapshots=str(tmp_path), snapshot_every="2") as kv:
        kv.init(["a", "b"], [mx.nd.zeros((4,))] * 2)
        for step in range(1, 8):
            for key in ("a", "b"):
                kv.push(key, mx.nd.full((4,), step))
        saved = kv.save(tmp_path)  # waits for the one that is under way
    later = mx.kv.create()
    later.init(["a", "b"], [mx.nd.zeros((4,))] * 2)
    assert later.load(saved) == {"a": 7, "b": 7}
    (earlier,) = [path for path in tmp_path.glob("00*") if str(path) != saved]
    rounds = later.load(earlier)  # one that was due while another was under way has been left out
    assert rounds["a"] == rounds["b"] and rounds["a"] in (2, 4, 6)
    assert np.array_equal(later.pull("b").asnumpy(), np.full(4, rounds["a"], np.float32))


@pytest.mark.parametrize("async_op", [False, True])
def test_the_schedule_counts_from_the_scripts_own_save_on(tmp_path, async_op):
    with mx.kv.create("dist_sync", bootstrap="self", snapshots=str(tmp_path), snapshot_every="4") as kv:
        kv.init("w", mx.nd.zeros((4,)))
        for step in range(1, 7):
            kv.push("w", mx.nd.ones((4,)))
            if step == 3:
                saved = kv.save(tmp_path, async_op=async_op)
                assert (saved.wait() if async_op else saved) == str(tmp_path / "000001")
        kv.pull("w")
        assert [path.name for path in tmp_path.iterdir()] == [
            "000001"
        ]  # the next one is due with the push after step 7


def rounds_by_key(folder):
    """Return the rounds of the keys in each snapshot."""
    indexes = {path.parent.name: json.loads(path.read_text()) for path in folder.glob("*/*.index.json")}
    return {name: {key["key"]: key["round"] for key in index["keys"]} for name, index in indexes.items()}


def test_a_close_waits_for_the_save_that_the_script_has_begun_and_saves_the_end(tmp_path):
    kv = mx.kv.create("dist_sync", bootstrap="self", snapshots=str(tmp_path), snapshot_every="100")
    kv.init(["z", "w"], [np.zeros(10_000_000, np.float32), np.zeros(4, np.float32)])
    kv.push("w", np.ones(4, np.float32))
    saving = kv.save(tmp_path, async_op=True)
    kv.push("w", np.ones(4, np.float32))
    kv.close()
    assert saving.wait() == str(tmp_path / "000001")
    assert rounds_by_key(tmp_path) == {"000001": {"z": 0, "w": 1}, "000002": {"z": 0, "w": 2}}


def test_a_close_saves_once_more_behind_a_key_that_was_deleted(tmp_path):
    with mx.kv.create("dist_sync", bootstrap="self", snapshots=str(tmp_path), snapshot_every="100") as kv:
        kv.init(["w", "v"], [np.zeros(4, np.float32)] * 2)
        kv.push(["w", "v"], [np.ones(4, np.float32)] * 2)
        kv.save(tmp_path)
        kv.delete("v")
    assert rounds_by_key(tmp_path) == {"000001": {"w": 1, "v": 1}, "000002": {"w": 1}}


SHARE = """
F = os.environ["FOLDER"]
stores = [mx.kv.create("dist_sync", patience=25) for _ in range(3)]
for number, kv in enumerate(stores):
    kv.init("w", np.full(2, number + 1.0, np.float32))
    kv.barrier()
saved = [kv.save(F) for kv in stores]
for kv in stores:
    kv.barrier()
for number, kv in enumerate(stores):
    kv.push("w", np.zeros(2, np.float32))
    kv.load(F)
    print("loaded", kv.pull("w").asnumpy().tolist(), flush=True)
    kv.load(saved[number] or f"{F}/00000{number + 1}")
for name in ("000002", "000003/store-2", "store-1"):
    stores[0].load(f"{F}/{name}")
    print("taken", stores[0].pull("w").asnumpy().tolist(), flush=True)
fourth = mx.kv.create("dist_sync", patience=25)
fourth.init("w", np.zeros(2, np.float32))
try:
    fourth.load(F)
except mx.errors.InvalidArgumentError as error:
    print("refused", error, flush=True)
if stores[0].rank == 0:
    print("folder", sorted(os.listdir(F)), flush=True)
"""


def test_stores_that_save_into_one_folder_one_after_the_other_keep_and_load_their_own(processes, tmp_path):
    status, said = finish(processes.launch(SHARE, workers=2, FOLDER=tmp_path / "saved"))
    assert status == 0, said
    for number in (1, 2, 3):
        assert said.count(f"loaded [{number}.0, {number}.0]") == 2, said
    assert said.count("taken [2.0, 2.0]") == 4 and said.count("taken [3.0, 3.0]") == 2, said
    assert said.count("there are no keys of store 3") == 2, said
    assert "folder ['000001', '000002', '000003']" in said, said


def test_a_store_loads_its_own_values_before_the_next_store_is_created(processes, tmp_path):
    """The newest snapshot of the folder is that of the other store."""
    text = """
    F = os.environ["FOLDER"]
    begun = []
    for number in (1, 2):
        begun.append(mx.kv.create("dist_sync"))
        begun[-1].init("w", np.full(2, number, np.float32))
        if os.path.isdir(F):
            begun[-1].load(F)
            print(f"loaded {begun[-1].pull('w').asnumpy()[0]:.0f}", flush=True)
    for kv in begun:
        kv.assign("w", kv.pull("w") + 10)
        kv.save(F)
    """
    for loaded in ([], ["11", "12"], ["21", "22"]):
        status, said = finish(processes.launch(text, workers=1, servers=1, FOLDER=tmp_path / "saved"))
        assert status == 0 and re.findall(r"loaded (\d+)", said) == loaded, said


def test_what_one_store_has_saved_goes_into_another_one(processes, tmp_path):
    text = """
    F = os.environ["FOLDER"]
    def new():
        kv = mx.kv.create("dist_sync")
        kv.init("w", np.zeros(2, np.float32))
        kv.set_optimizer(mx.optimizer.SGD(learning_rate=-1.0, momentum=0.5))
        return kv
    a, b = new(), new()
    a.push("w", np.ones(2, np.float32))
    a.save(F + "/all")
    a.save_optimizer_states(F + "/states")
    b.load_optimizer_states(F + "/states")
    b.push("w", np.ones(2, np.float32))
    print("states", b.pull("w").asnumpy()[0], flush=True)
    print("rounds", b.load(F + "/all"), b.load(F + "/all/000001"), b.pull("w").asnumpy()[0], flush=True)
    """
    status, said = finish(processes.launch(text, workers=1, servers=1, FOLDER=tmp_path))
    assert status == 0 and "states 1.5" in said and "rounds {'w': 1} {'w': 1} 1.0" in said, said


def saving_store(folder):
    kv = mx.kv.create("dist_sync", bootstrap="self", snapshots=str(folder), snapshot_every="100")
    kv.init("w", mx.nd.zeros((4,)))
    kv.init_table("t", 2)
    return kv


def pushed(kv, value, rounds=3):
    for _ in range(rounds):
        kv.push("w", mx.nd.full((4,), value))
        kv.push_rows("t", [1, 2], np.full((2, 2), value, np.float32))


def saved_values(folder):
    with mx.kv.create("local") as kv:
        kv.init("w", mx.nd.zeros((4,)))
        kv.init_table("t", 2)
        kv.load(folder)
        return kv.pull("w").asnumpy()[0], *np.asarray(kv.pull_rows("t", [1, 2]))[:, 0]


def import_a_row(kv):
    kv.import_rows("t", [1], np.full((1, 2), 77, np.float32))


def delete_and_push_as_often(kv):
    kv.delete("w")
    kv.init("w", mx.nd.zeros((4,)))
    for _ in range(3):
        kv.push("w", mx.nd.full((4,), 9))


def load_an_older_one_and_push_as_often(kv):
    kv.load(kv.snapshot_folder + "/000001")
    pushed(kv, 8)


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (import_a_row, (5, 77, 5)),
        (delete_and_push_as_often, (9, 5, 5)),
        (load_an_older_one_and_push_as_often, (8, 8, 8)),
        (lambda kv: kv.assign("w", mx.nd.full((4,), 7)), (7, 5, 5)),
    ],
)
def test_the_end_of_a_job_is_saved_if_the_newest_snapshot_has_as_many_rounds(tmp_path, change, wanted):
    with saving_store(tmp_path) as kv:
        kv.snapshot_folder = str(tmp_path)
        kv.save(tmp_path)
        pushed(kv, 5)
        kv.save(tmp_path)
        change(kv)
    assert saved_values(tmp_path) == wanted


def test_another_job_of_as_many_rounds_saves_its_end_and_equal_values_are_saved_once(tmp_path):
    for value, names in ((5, ["000001"]), (6, ["000001", "000002"]), (6, ["000001", "000002"])):
        with saving_store(tmp_path) as kv:
            pushed(kv, value)
        assert sorted(os.listdir(tmp_path)) == names
        assert saved_values(tmp_path) == (value,) * 3


def test_imported_rows_are_saved_if_nothing_was_pushed(tmp_path):
    with saving_store(tmp_path / "none"):
        pass
    assert not (tmp_path / "none").exists()
    with saving_store(tmp_path) as kv:
        import_a_row(kv)
    assert saved_values(tmp_path)[1] == 77


def test_the_example_goes_on_after_a_kill_with_the_weights_of_a_run_without_one(processes, tmp_path):
    example = str(pathlib.Path(__file__).parents[2] / "examples" / "goes_on.py")
    command = [sys.executable, "-m", "tensorkv", "launch", "-n", "2", "-s", "2"]
    saves = ["--restore", str(tmp_path / "run"), "--snapshot-every", "10", "--restart", "1"]
    weights = []
    for failpoints in ("", "server 0:received:RELEASE:1:kill"):  # when the first snapshot has been written
        job = processes.start(
            [*command, *saves, sys.executable, "-u", example, "--steps", "2000"], TKV_FAILPOINTS=failpoints
        )
        status, said = finish(job, timeout=100)
        assert status == 0, said
        assert ("the job is started again" in said and "goes on behind step" in said) == bool(failpoints), said
        (line,) = re.findall(r"weights (.*)", said)
        weights.append(line)
        shutil.rmtree(tmp_path / "run")
    assert weights[0] == weights[1]


def test_a_restored_job_says_why_nothing_is_to_be_loaded(processes, tmp_path):
    folder = tmp_path / "saved"
    text = f"""
    kv = mx.kv.create("dist_sync")
    kv.init("w", mx.nd.zeros((4,)))
    kv.set_optimizer(mx.optimizer.Adam())
    if not kv.rejoined:
        kv.push("w", mx.nd.ones((4,)))
        kv.save({str(folder)!r})
        sys.exit(0)
    for load in (kv.load, kv.load_optimizer_states):
        try:
            load({str(folder)!r})
        except mx.errors.FailedPreconditionError as error:
            print(error, flush=True)
    """
    status, said = finish(processes.launch(text), timeout=60)
    assert status == 0, said
    status, said = finish(processes.launch(text, "--restore", str(folder)), timeout=60)
    assert status == 0 and said.count("or a snapshot was restored before its script began") == 4, said
    assert "the values and states on the servers count until its first push" in said, said


TWO = """
program = mx.Program("program add\\ny = add value sum\\nvalue <- y\\n")
a, b = mx.kv.create("dist_sync"), mx.kv.create("dist_sync")
for kv, begin in ((a, 100), (b, 200)):
    kv.init("w", np.full(4, begin, np.float32))
    kv.set_optimizer(program)
print(f"begins {a.round('w')} {b.round('w')}", flush=True)
for step in range(1, int(os.environ["STEPS"]) + 1):
    for kv, factor in ((b, 10), (a, 1)):
        if kv.round("w") < step:
            kv.push("w", np.full(4, factor * step, np.float32))
    a.pull("w"), b.pull("w")
    if step == int(os.environ.get("SAVE_AT", 0)):
        for kv, name in ((a, "a"), (b, "b")):
            kv.save(os.path.join(os.environ["FOLDER"], name))
    time.sleep(0.05)
print(f"ends {a.pull('w').asnumpy()[0]:.0f} {b.pull('w').asnumpy()[0]:.0f}", flush=True)
a.close()
b.close()
"""


@pytest.mark.parametrize("every", ["4", "1s"])
def test_a_snapshot_has_all_stores_of_the_job_and_each_gets_its_own(processes, tmp_path, every):
    folder = tmp_path / "saved"
    options = ("--restore", str(folder), "--snapshot-every", every, "--restart", "1")
    # Each of 2 workers pushes to 2 stores in a step: the server dies in step 18, of which one store may have its part.
    killed = {"TKV_FAILPOINTS": "server 0:received:PUSH:71:kill"} if every == "4" else {}
    status, said = run(processes, folder, *options, steps=30, servers=1, work=TWO, **killed)
    assert status == 0 and said.count("ends 1030 9500") == 2, said
    begun = set(re.findall(r"begins (\d+) (\d+)", said))
    assert ("the job is started again" in said) == bool(killed)
    assert {rounds for rounds in begun if rounds[0] != rounds[1]} == set() and len(begun) == 1 + bool(killed), said
    if killed:
        assert max(int(rounds[0]) for rounds in begun) >= 4, said

    # Another job continues from the end of this one, on other servers; a store of one process finds each store's keys.
    status, said = run(processes, folder, *options, steps=32, servers=2, work=TWO)
    assert status == 0 and said.count("begins 30 30") == 2 and said.count("ends 1156 10760") == 2, said
    for store, value in ((0, 1156), (1, 10760)):
        later = mx.kv.create()
        later.init("w", mx.nd.zeros((4,)))
        later.set_optimizer(mx.Program("program add\ny = add value sum\nvalue <- y\n"))
        assert later.load(folder / f"store-{store}") == {"w": 32}
        assert later.pull("w").asnumpy().tolist() == [value] * 4
    with pytest.raises(mx.errors.SnapshotNotFoundError, match="there are no keys of store 2"):
        later.load(folder / "store-2")


def test_a_snapshot_of_a_second_store_alone_is_put_back_into_that_store(processes, tmp_path):
    status, said = run(processes, tmp_path, SAVE_AT=5, steps=5, servers=1, work=TWO)
    assert status == 0, said
    status, said = run(processes, tmp_path, "--restore", str(tmp_path / "b"), steps=5, servers=1, work=TWO)
    assert status == 0 and said.count("begins 0 5") == 2 and said.count("ends 130 500") == 2, said


# Two stores that load before they begin; a job that was restored has nothing to load.
LOADS = TWO.replace(
    'print(f"begins',
    """
for number, kv in enumerate((a, b)):
    for name in os.environ["LOAD"].split(","):
        try:
            print(f"store {number} from '{name}'", kv.load(os.path.join(os.environ["FOLDER"], name)), flush=True)
        except mx.errors.FailedPreconditionError as error:
            print(f"store {number} from '{name}': {error}", flush=True)
print(f"begins""",
)


def test_variables_set_by_hand_save_all_stores_and_each_store_loads_its_own(processes, tmp_path):
    by_hand = {"TKV_SNAPSHOTS": tmp_path, "TKV_SNAPSHOT_EVERY": "4"}
    status, said = run(processes, tmp_path, steps=8, servers=1, work=TWO, **by_hand)
    assert status == 0 and said.count("ends 172 920") == 2, said

    # Each store finds its own keys in the folder of both; a part of it gives those of that part.
    status, said = run(processes, tmp_path, steps=10, servers=2, work=LOADS, LOAD=",store-1")
    assert status == 0 and said.count("begins 8 8") == 2 and said.count("ends 958 1300") == 2, said

    status, said = run(
        processes, tmp_path, "--restore", str(tmp_path), steps=10, servers=2, work=LOADS, LOAD=",store-0,store-1"
    )
    assert status == 0 and said.count("begins 8 8") == 2 and said.count("ends 210 1300") == 2, said
    for number in (0, 1):
        for name in ("", "store-0", "store-1"):
            refused = rf"store {number} from '{name}': load \S+: .*a snapshot was restored before its script began"
            assert len(re.findall(refused, said)) == 2, said


COUNTS = """
stores = [mx.kv.create("dist_sync") for _ in range(2)]
optimizers = [mx.optimizer.SGD(learning_rate=-1.0) for _ in stores]
for kv, optimizer, key in zip(stores, optimizers, "ab"):
    kv.init(key, np.zeros(3, np.float32))
    kv.set_optimizer(optimizer)
    if "LOAD" in os.environ:
        kv.load(os.environ["LOAD"])
print("counts", *(optimizer.num_update for optimizer in optimizers), flush=True)
for kv, key, steps in zip(stores, "ab", (5, 3)):
    for _ in range(steps):
        kv.push(key, np.ones(3, np.float32))
        kv.pull(key)
for kv in stores:
    kv.close()
"""


def test_each_store_counts_on_from_its_own_updates(processes, tmp_path):
    options = ("--snapshots", str(tmp_path), "--snapshot-every", "100")
    status, said = finish(processes.launch(COUNTS, *options, workers=1, servers=1))
    assert status == 0 and "counts 0 0" in said, said
    status, said = finish(processes.launch(COUNTS, workers=1, servers=1, LOAD=tmp_path))
    assert status == 0 and "counts 5 3" in said, said


@pytest.mark.parametrize("kind", ["dist_sync", "dist_async"])
def test_each_store_counts_on_from_its_own_snapshot(processes, tmp_path, kind):
    """The newest snapshot of the folder is that of the other store, with the same key and another count."""
    text = COUNTS.replace('"dist_sync"', repr(kind)).replace('"ab"', '"ww"')
    text = text.replace("for kv in stores:\n", "for kv in stores:\n    kv.save(os.environ['FOLDER'])\n")
    status, said = finish(processes.launch(text, workers=1, servers=1, FOLDER=tmp_path / "saved"))
    assert status == 0 and "counts 0 0" in said, said
    text = text.replace("SGD(learning_rate=-1.0)", "SGD(lr_scheduler=lambda count: 1.0)")
    variables = {"LOAD": tmp_path / "saved", "FOLDER": tmp_path / "other"}
    status, said = finish(processes.launch(text, workers=1, servers=1, **variables))
    assert status == 0 and "counts 5 3" in said, said


def test_stores_that_save_into_one_folder_save_as_often(processes, tmp_path):
    text = f"""
    first = mx.kv.create("dist_sync", snapshots={str(tmp_path)!r}, snapshot_every="5")
    try:
        mx.kv.create("dist_sync", snapshots={str(tmp_path)!r}, snapshot_every="6")
    except mx.errors.InvalidArgumentError as error:
        print(error, flush=True)
    first.close()
    """
    status, said = finish(processes.launch(text, workers=1, servers=1))
    assert status == 0 and "another store of this process saves into" in said, said


GOES = """
kv = mx.kv.create("dist_sync")
kv.init("w", np.zeros(4, np.float32))
kv.set_optimizer(mx.Program("program add\\ny = add value sum\\nvalue <- y\\n"))
print(f"begins {kv.round('w')}", flush=True)
while kv.round("w") < int(os.environ["STEPS"]):
    kv.push("w", np.full(4, kv.round("w") + 1, np.float32))
    kv.pull("w")
    time.sleep(0.05)
print(f"ends {kv.pull('w').asnumpy()[0]:.0f}", flush=True)
kv.close()
"""
KILLED = {"TKV_FAILPOINTS": "server 0:received:PUSH:22:kill"}


def goes(processes, folder, *options, steps=30, **variables):
    """Return (rounds at which a job has begun, what it said); its sum is that of a job that nothing stops."""
    job = processes.launch(
        GOES, "--snapshot-every", "5", *options, workers=1, servers=1, STEPS=steps, FOLDER=folder, **variables
    )
    status, said = finish(job)
    assert status == 0 and f"ends {steps * (steps + 1) // 2}" in said, said
    return [int(found) for found in re.findall(r"begins (\d+)", said)], said


def test_a_job_goes_on_from_where_it_saves(processes, tmp_path):
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    places = ("--restore", old, "--snapshots", new, "--restart", "3")
    begun, said = goes(processes, tmp_path, *places, **KILLED)
    assert begun[0] == 0 and begun[1] in (5, 10, 15, 20), said
    assert not os.path.exists(old), said
    # The same command continues from there.
    begun, said = goes(processes, tmp_path, *places, steps=40)
    assert begun == [30] and f"goes on from the snapshot in {new}" in said, said


def test_the_first_snapshot_is_left_as_it_is(processes, tmp_path):
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    goes(processes, tmp_path, "--restore", old, steps=12)
    first, last = sorted(os.listdir(old))
    for path, at in ((old, 12), (os.path.join(old, first), 10)):
        places = ("--restore", path, "--snapshots", new, "--restart", "3")
        begun, said = goes(processes, tmp_path, *places, steps=40, **KILLED)
        assert begun[0] == at and begun[1] > at, said
        assert sorted(os.listdir(old)) == [first, last]
        shutil.rmtree(new)


def test_a_place_that_a_job_could_not_go_on_from_is_refused(processes, tmp_path):
    folder = str(tmp_path / "saved")
    goes(processes, tmp_path, "--restore", folder, steps=6)
    first = sorted(os.listdir(folder))[0]
    one = os.path.join(folder, first)
    for options, why in (
        (("--restore", one), f"--restore {one}: one snapshot takes no later ones; --snapshots PATH says where they go"),
        (("--restore", one + "/"), "one snapshot takes no later ones"),
        (("--restore", one, "--snapshots", folder), "the job goes on from the newest snapshot there"),
        (("--restore", one, "--snapshots", folder + "/"), "the job goes on from the newest snapshot there"),
        (
            ("--restore", folder + "/store-1"),
            f"names one store of a snapshot; a job goes on with all of them: give {folder}",
        ),
        (("--restore", one + "/store-0"), f"names one store of a snapshot; a job goes on with all of them: give {one}"),
    ):
        status, said = run(processes, folder, "--snapshot-every", "5", *options, work=GOES, steps=3)
        assert status == 2 and why in said and "begins" not in said, said


def test_a_new_folder_may_have_the_name_of_a_store(processes, tmp_path):
    folder = str(tmp_path / "store-3")
    for steps, at in ((6, 0), (9, 6)):
        begun, said = goes(processes, tmp_path, "--restore", folder, steps=steps)
        assert begun == [at], said


@pytest.mark.parametrize("saves", [False, True])
def test_a_job_whose_snapshots_are_gone_does_not_begin_anew(processes, tmp_path, saves):
    """A server dies after the folder was moved: a snapshot that the job began from, or one that it has saved itself."""
    folder = tmp_path / "saved"
    options = ["--restore", str(folder), "--restart", "2", "--log", str(tmp_path / "logs")]
    if saves:
        options += ["--snapshot-every", "5"]
    else:
        goes(processes, tmp_path, "--restore", str(folder), steps=6)
    job = processes.launch(GOES, *options, workers=1, servers=1, STEPS=100_000)
    said = read_until(job, "begins")
    if saves:
        seen = f"there is a snapshot in {folder}"
        wait_until(lambda: seen in (tmp_path / "logs" / "launcher.log").read_text())
    os.kill(pids_of(job, "worker")[0], signal.SIGSTOP)  # another save would make the folder again
    folder.rename(tmp_path / "elsewhere")
    os.kill(pids_of(job, "server")[0], signal.SIGKILL)
    status, rest = finish(job)
    said += rest
    assert status == 2 and said.count("worker 0] begins") == 1, said
    assert f"the job cannot go on: there is no snapshot in {folder} any more; put it back and give the same" in said


def test_a_link_that_leads_nowhere_is_refused(processes, tmp_path):
    link, loop, target = tmp_path / "link", tmp_path / "loop", tmp_path / "missing"
    link.symlink_to(target)
    loop.symlink_to(loop)
    saving = ["--snapshot-every", "5"]
    dangling = f"is a link to {target}, which does not exist; create that folder, or name another"
    for options, why in (
        (["--restore", str(link)], f"--restore {link} {dangling}"),
        (["--restore", f"{link}/", *saving], f"--restore {link} {dangling}"),
        (["--restore", str(link / "run"), *saving], f"--restore {link}/run: {link} {dangling}"),
        (["--restore", str(tmp_path), "--snapshots", f"{link}/", *saving], f"--snapshots {link} {dangling}"),
        (["--snapshots", str(link), *saving], f"--snapshots {link} {dangling}"),
        (["--restore", str(loop), *saving], f"--restore {loop}: Too many levels of symbolic links"),
    ):
        status, said = run(processes, tmp_path, *options, work=GOES, steps=3)
        assert status == 2 and f"launch: {why}" in said and "begins" not in said, said
    target.mkdir()
    begun, said = goes(processes, tmp_path, "--restore", str(link), steps=6)
    assert begun == [0] and list(target.glob("00*")), said


@pytest.mark.parametrize("stores", [1, 2, 4])
def test_the_end_of_a_job_is_saved(processes, tmp_path, stores):
    folder = tmp_path / "saved"
    options = ("--restore", str(folder), "--snapshot-every", "10")
    status, said = run(processes, folder, *options, steps=12, STORES=stores)
    assert status == 0, said
    check_whole(said)
    for newest in (12, 12):  # a job that has nothing to do leaves it
        names = sorted(os.listdir(folder))
        assert rounds_in(folder, stores) == {newest}
        status, said = run(processes, folder, *options, steps=12, STORES=stores)
        assert status == 0 and said.count("begins behind round 12") == 2, said
        assert sorted(os.listdir(folder)) == names


def rounds_in(snapshot, stores=1):
    """Return the rounds of the keys of WORK in a snapshot, of all stores."""
    rounds = set()
    for store in range(stores):
        with mx.kv.create("local") as kv:
            kv.init(["a", "b", "c"], [mx.nd.zeros((n,)) for n in (1, 300_000, 17)])
            kv.set_optimizer(mx.optimizer.SGD(learning_rate=-1.0, momentum=0.5))
            rounds |= set(kv.load(snapshot if stores == 1 else snapshot / f"store-{store}").values())
    return rounds


@pytest.mark.parametrize("stores", [1, 4])
def test_the_end_of_a_job_is_saved_by_a_life_that_has_pushed_nothing(processes, tmp_path, stores):
    """Rank 0 dies after its last push, and its next incarnation has no step left."""
    folder = tmp_path / "saved"
    dies = WORK.replace(
        "values = [", "if kv.rank == 0 and begin == 0: os.kill(os.getpid(), signal.SIGKILL)\nvalues = ["
    )
    options = ("--restore", str(folder), "--snapshot-every", "10", "--restart", "3")
    status, said = run(processes, folder, *options, work=dies, STORES=stores)
    assert status == 0 and "rank 0 begins behind round 12, rejoined True" in said, said
    check_whole(said)
    assert rounds_in(folder, stores) == {12}


@pytest.mark.parametrize("stores", [1, 4])
def test_the_end_of_a_job_is_saved_when_rank_0_is_dead_for_good(processes, tmp_path, stores):
    """Rank 0 dies after its last push, and is not restarted."""
    folder = tmp_path / "saved"
    dies = WORK.replace(
        "values = [",
        """if kv.rank == 0:
    os.kill(os.getpid(), signal.SIGKILL)
while kv.status()["workers"][0]["state"] not in ("dead", "lost"):
    time.sleep(0.01)
values = [""",
    )
    options = ("--restore", str(folder), "--snapshot-every", "10", "--on-death", "continue")
    status, said = run(processes, folder, *options, work=dies, STORES=stores)
    assert status == 128 + signal.SIGKILL, said
    check_rank(said, 1)
    assert rounds_in(folder, stores) == {12}


def test_a_store_goes_on_saving_when_the_key_or_store_with_the_most_rounds_has_gone(processes, tmp_path):
    folder = tmp_path / "saved"
    work = """
    import json
    kv, other = mx.kv.create("dist_sync"), mx.kv.create("dist_sync")
    kv.init(["a", "b"], [mx.nd.zeros((1,))] * 2)
    other.init("c", mx.nd.zeros((1,)))
    def saved_round(key):
        names = [name for name in os.listdir(folder) if name[0] == "0"] if os.path.isdir(folder) else []
        if not names:
            return 0
        with open(os.path.join(folder, max(names), "model.safetensors.index.json")) as index:
            return max([entry["round"] for entry in json.load(index)["keys"] if entry["key"] == key], default=0)
    folder = os.environ["FOLDER"]
    def trained(store, key, rounds):
        for step in range(rounds):
            if step >= 10:
                time.sleep(0.02)  # no save begins while another is written
            store.push(key, mx.nd.ones((1,)))
            store.pull(key)
        # Other snapshots may appear meanwhile: rank 0 saves at close what no snapshot has.
        end = time.monotonic() + 60
        while saved_round(key) < 10:
            assert time.monotonic() < end, f"round 10 of {key} was not saved"
            time.sleep(0.01)
        print(f"saved by {key}", flush=True)
    trained(other, "c", 34)
    other.close()
    trained(kv, "a", 32)
    kv.barrier()  # a key that one worker deletes while another still reads it is an error there
    kv.delete("a")
    trained(kv, "b", 31)
    """
    status, said = run(processes, folder, "--restore", str(folder), "--snapshot-every", "10", work=work)
    assert status == 0 and all(said.count(f"saved by {key}") == 2 for key in "cab"), said


@pytest.mark.parametrize("stores", [1, 2, 4])
def test_a_step_that_a_later_life_ends_is_not_saved_in_part(processes, tmp_path, stores):
    """Rank 0 dies between two keys of a step, in its last store; later saves have all keys at one round."""
    folder = tmp_path / "saved"
    dies = WORK.replace(
        "            if kv.round(key) < step:",
        "            if kv.rank == 0 and begin == 0 and step == 5 and key == 'b' and kv is stores[-1]:\n"
        "                os.kill(os.getpid(), signal.SIGKILL)\n"
        "            if kv.round(key) < step:",
    )
    options = ("--restore", str(folder), "--snapshot-every", "4", "--restart", "3")
    status, said = run(processes, folder, *options, steps=22, work=dies, STORES=stores)
    assert status == 0 and "rank 0 begins behind round 4, rejoined True" in said, said
    snapshots = sorted(folder.glob("0*"))
    assert len(snapshots) > 1 and all(len(rounds_in(snapshot, stores)) == 1 for snapshot in snapshots), said


def test_rounds_behind_the_leave_of_rank_0_are_saved(processes, tmp_path):
    work = """
    kv = mx.kv.create("dist_async")
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=-1.0))
    kv.init("w", np.zeros(1, np.float32))
    kv.barrier()
    print(f"rank {kv.rank} begins at {kv.pull('w').asnumpy()[0]}", flush=True)
    kv.barrier()  # nobody pushes before both have looked
    if kv.rank == 1:
        until_marked("left")
    for _ in range(5 + kv.rank):
        kv.push("w", np.ones(1, np.float32))
    kv.close()
    mark("left")
    """
    options = ("--restore", str(tmp_path / "saved"), "--snapshot-every", "10")
    status, said = finish(processes.launch(work, *options))
    assert status == 0, said
    (tmp_path / "mark-left").unlink()
    status, said = finish(processes.launch(work, *options))
    assert status == 0 and said.count("begins at 11.0") == 2, said


STATISTICS = """
with mx.kv.create("dist_async") as stats, mx.kv.create("dist_sync") as kv:
    add = mx.optimizer.SGD(learning_rate=-1.0)
    stats.set_optimizer(add)
    kv.set_optimizer(add)
    stats.init("loss", np.zeros(1, np.float32))
    kv.init("w", np.zeros(1, np.float32))
    begin = kv.round("w")
    print(f"rank {kv.rank} begins behind {begin} with {kv.pull('w').asscalar()}, {stats.pull('loss').asscalar()}", flush=True)
    kv.barrier()  # nobody pushes before both have looked
    for _ in range(begin, int(os.environ["STEPS"])):
        kv.push("w", np.ones(1, np.float32))
        stats.push("loss", np.ones(1, np.float32))
        kv.pull("w")
    kv.barrier()
    if kv.rank == 0:
        kv.close()  # saves both stores
        mark("closed")
        until_marked("pushed")
    else:
        until_marked("closed")
        stats.push("loss", np.ones(1, np.float32), async_op=True).wait()
        if os.environ["FIRST"] == "1":
            kv.close()
        mark("pushed")
        if os.environ["FIRST"] == "1":
            until_marked("left")
if kv.rank == 0:
    mark("left")
"""


@pytest.mark.parametrize("first", [0, 1])
def test_the_end_of_a_job_is_saved_with_all_stores_if_another_rank_pushes_between_two_closes(
    processes, tmp_path, first
):
    """The rank that closes a store first has the other one open until that rank has left, or closes both behind it."""
    options = ("--restore", str(tmp_path / "saved"), "--snapshot-every", "10")
    for begin, steps in ((0, 12), (12, 15), (15, 15)):
        status, said = finish(processes.launch(STATISTICS, *options, STEPS=steps, FIRST=first))
        assert status == 0 and said.count(f"begins behind {begin} with {2.0 * begin}, ") == 2, said
        for mark in tmp_path.glob("mark-*"):
            mark.unlink()


ONE_AFTER_THE_OTHER = """
stores = [mx.kv.create("dist_sync") for _ in range(2)]
for store in stores:
    store.init("w", np.zeros(1, np.float32))
    store.set_optimizer(mx.optimizer.SGD(learning_rate=-1.0))
print(f"rank {store.rank} begins at {[float(store.pull('w').asscalar()) for store in stores]}", flush=True)
for store, rounds in zip(stores, (2, 3)):
    for _ in range(rounds):
        store.push("w", np.ones(1, np.float32))
    store.save(os.environ["FOLDER"])
"""


def test_stores_that_have_saved_one_after_the_other_are_all_restored(processes, tmp_path):
    """The newest snapshot is that of the second store alone."""
    folder = tmp_path / "saved"
    for begins in ("[0.0, 0.0]", "[2.0, 3.0]", "[4.0, 6.0]"):
        options = ("--restore", str(folder)) if folder.exists() else ()
        status, said = finish(processes.launch(ONE_AFTER_THE_OTHER, *options, workers=1, FOLDER=folder))
        assert status == 0 and f"begins at {begins}" in said, said


def test_a_store_begins_anew_if_the_index_of_its_only_snapshot_is_damaged(processes, tmp_path):
    folder = tmp_path / "saved"
    status, said = finish(processes.launch(ONE_AFTER_THE_OTHER, FOLDER=folder))
    assert status == 0 and said.count("begins at [0.0, 0.0]") == 2, said
    index = folder / "000001" / "model.safetensors.index.json"
    index.write_bytes(b"{}")
    options = ("--restore", str(folder))
    status, said = finish(processes.launch(ONE_AFTER_THE_OTHER, *options, FOLDER=folder))
    assert status == 0 and said.count("begins at [0.0, 6.0]") == 2, said
    assert (
        said.count("an older snapshot is not read, and a store that no other one has begins anew")
        == said.count(str(index))
        == 1
    ), said


def test_no_older_snapshot_is_named_if_it_lacks_a_store_of_the_damaged_one(processes, tmp_path):
    folder = tmp_path / "saved"
    status, said = finish(processes.launch(ONE_AFTER_THE_OTHER, workers=1, FOLDER=folder))
    assert status == 0, said
    for name in ("000001", "000002"):  # of the first store, then of the second
        (damaged,) = (folder / name).glob("*.safetensors")
        content = damaged.read_bytes()
        damaged.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        options = ("--restore", str(folder), "--grace", "1")
        status, said = finish(processes.launch(ONE_AFTER_THE_OTHER, *options, workers=1, FOLDER=folder))
        assert status == 2 and f"{damaged}: key 'w'" in said and "it is damaged" in said, said
        assert "goes on from the snapshot before it" not in said, said
        damaged.write_bytes(content)


def test_stores_are_restored_beside_folders_that_have_the_names_of_stores(processes, tmp_path):
    folder = tmp_path / "saved"
    for place in (folder, folder / "store-1"):
        status, said = finish(processes.launch(ONE_AFTER_THE_OTHER, workers=1, FOLDER=place))
        assert status == 0, said
    for begins in ("[2.0, 3.0]", "[4.0, 6.0]"):  # the other folder has the values of one job
        options = ("--restore", str(folder))
        status, said = finish(processes.launch(ONE_AFTER_THE_OTHER, *options, workers=1, FOLDER=folder))
        assert status == 0 and f"begins at {begins}" in said, said


def test_a_store_that_goes_on_is_saved_without_one_that_was_closed_before(processes, tmp_path):
    work = """
    early, kv = mx.kv.create("dist_sync"), mx.kv.create("dist_sync")
    for store in (early, kv):
        store.init("w", np.zeros(1, np.float32))
    print(f"rank {kv.rank} begins behind {early.round('w')}, {kv.round('w')}", flush=True)
    for store, rounds in ((early, 3), (kv, 5)):
        for _ in range(rounds):
            store.push("w", np.ones(1, np.float32))
        store.close()
    """
    options = ("--restore", str(tmp_path / "saved"), "--snapshot-every", "10")
    for begins in ("0, 0", "3, 5", "6, 10"):
        status, said = finish(processes.launch(work, *options))
        assert status == 0 and said.count(f"begins behind {begins}") == 2, said


BEHIND_THE_LAST_CUT = """
kv = mx.kv.create(os.environ["KV"], silence=60)
kv.init("w", np.zeros(1, np.float32))
kv.set_optimizer(mx.optimizer.SGD(learning_rate=-1.0))
if kv.rank == 0:
    with open(os.environ["FOLDER"] + "/pid.new", "w") as file:
        file.write(str(os.getpid()))
    os.rename(os.environ["FOLDER"] + "/pid.new", os.environ["FOLDER"] + "/pid")
print(f"rank {kv.rank} begins behind {kv.round('w')} at {kv.pull('w').asscalar()}", flush=True)
kv.barrier()  # nobody pushes before both have looked
if os.environ["STEPS"] == "0":
    sys.exit()
for _ in range(int(os.environ["STEPS"])):
    kv.push("w", np.ones(1, np.float32))
kv.barrier()
if kv.rank == 0:
    kv.close()  # stops when it has cut the key
    sys.exit()
def is_stopped():
    with open(f"/proc/{rank_0}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"
with open(os.environ["FOLDER"] + "/pid") as file:
    rank_0 = int(file.read())
while not is_stopped():
    time.sleep(0.01)
kv.push("w", np.ones(1, np.float32))
if os.environ["KV"] == "dist_async":
    kv.close()
os.kill(rank_0, signal.SIGCONT)
if os.environ["KV"] == "dist_sync":
    kv.pull("w")
    kv.close()
print("END", flush=True)
"""


# The messages behind which rank 0 stops: the end of its save, and the cut, which follows a pull and two barriers.
@pytest.mark.parametrize(("kind", "message"), [("dist_sync", "RELEASE:1"), ("dist_async", "PULL:4")])
def test_pushes_during_the_last_save_of_rank_0_are_saved(processes, tmp_path, kind, message):
    """Rank 1 pushes when rank 0 has cut the key; it leaves behind rank 0, or before it where rounds need no other worker."""
    options = ("--on-death", "continue", "--restore", str(tmp_path / "saved"), "--snapshot-every", "100")
    variables = {"KV": kind, "FOLDER": tmp_path, "TKV_SILENCE_MS": 60_000}
    stop = {"TKV_FAILPOINTS": f"worker 0:sent:{message}:stop"}
    status, said = finish(processes.launch(BEHIND_THE_LAST_CUT, *options, STEPS=3, servers=1, **variables, **stop))
    assert status == 0 and "END" in said, said
    status, said = finish(processes.launch(BEHIND_THE_LAST_CUT, *options, STEPS=0, servers=1, **variables))
    assert status == 0 and said.count(" at 7.0") == 2, said


def test_a_note_on_a_push_is_never_saved_ahead_of_the_push(processes, tmp_path):
    """Rank 0 stops when one server has its first cuts. Rank 1 then pushes, and notes that in the store that was created later."""
    work = """
    folder = os.path.dirname(os.path.abspath(__file__))
    kv, notes = mx.kv.create("dist_async"), mx.kv.create("dist_async")
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=-1.0))
    keys = [str(n) for n in range(8)]  # on both servers
    kv.init(keys, [np.zeros(1, np.float32)] * 8)
    notes.init(keys, [np.zeros(1, np.float32)] * 8)
    if kv.rank == 0:
        with open(folder + "/pid.new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(folder + "/pid.new", folder + "/pid")
    kv.barrier()
    if kv.rank == 0:
        path = kv.save(os.environ["SAVED"])
        kv.barrier()
    else:
        with open(folder + "/pid") as file:
            rank_0 = int(file.read())
        def is_stopped():
            with open(f"/proc/{rank_0}/stat") as file:
                return file.read().rpartition(")")[2].split()[0] == "T"
        while not is_stopped():
            time.sleep(0.01)
        for store in (kv, notes):
            store.push(keys, [np.ones(1, np.float32)] * 8, async_op=True).wait()
        os.kill(rank_0, signal.SIGCONT)
        kv.barrier()
    kv.close()
    notes.close()
    """
    options = ("--snapshots", str(tmp_path / "saved"), "--snapshot-every", "100", "--silence-ms", "60000")
    variables = {
        "SAVED": tmp_path / "saved",
        "TKV_FAILPOINTS": "worker 0:sent:PULL:2:stop",
    }  # the first one is a barrier's
    status, said = finish(processes.launch(work, *options, **variables))
    assert status == 0, said
    values = []
    for store in (0, 1):
        with mx.kv.create("local") as kv:
            keys = [str(n) for n in range(8)]
            kv.init(keys, [np.zeros(1, np.float32)] * 8)
            if store == 0:
                kv.set_optimizer(mx.optimizer.SGD(learning_rate=-1.0))
            kv.load(tmp_path / "saved" / "000001" / f"store-{store}")
            values.append([value.asscalar() for value in kv.pull(keys)])
    assert min(values[0]) >= max(values[1]), values


def test_rows_imported_behind_the_leave_of_rank_0_are_saved(processes, tmp_path):
    work = """
    kv = mx.kv.create("dist_sync")
    kv.init_table("t", 2)
    print(f"rank {kv.rank} begins at {np.asarray(kv.pull_rows('t', [1]))[0, 0]}", flush=True)
    kv.push_rows("t", [1], np.ones((1, 2), np.float32))
    kv.barrier()  # nobody changes rows before both have looked
    if kv.rank == 1:
        until_marked("left")
        kv.import_rows("t", [1], np.full((1, 2), 7, np.float32))
    kv.close()
    mark("left")
    """
    options = ("--restore", str(tmp_path / "saved"), "--snapshot-every", "10")
    for begins in (0.0, 7.0):
        status, said = finish(processes.launch(work, *options))
        assert status == 0 and said.count(f"begins at {begins}") == 2, said
        (tmp_path / "mark-left").unlink()


def test_an_assign_behind_the_last_save_is_saved(processes, tmp_path):
    work = """
    with mx.kv.create("dist_sync") as kv:
        kv.init("w", np.zeros(1, np.float32))
        print(f"rank {kv.rank} begins at {kv.pull('w').asnumpy()[0]}", flush=True)
        kv.push("w", np.ones(1, np.float32))
        kv.barrier()
        if kv.rank == 0:
            kv.save(os.environ["FOLDER"])
        kv.assign("w", np.full(1, 7, np.float32))
    """
    options = ("--restore", str(tmp_path / "saved"), "--snapshot-every", "10")
    for begins in (0.0, 7.0):
        status, said = finish(processes.launch(work, *options, FOLDER=tmp_path / "saved"))
        assert status == 0 and said.count(f"begins at {begins}") == 2, said


@pytest.mark.parametrize("spelling", ["", "/", "/../saved"])
def test_an_explicit_save_into_the_folder_of_the_schedule_has_all_stores(processes, tmp_path, spelling):
    """A job goes on from the newest snapshot, so that one without a store would begin that store anew."""
    work = """
    import json
    folder = os.environ["FOLDER"]
    a, b = mx.kv.create("dist_sync"), mx.kv.create("dist_sync")
    def rounds_in(path):
        with open(os.path.join(path, "model.safetensors.index.json")) as index:
            return {entry.get("store", 0): entry["round"] for entry in json.load(index)["keys"]}
    for kv in (a, b):
        kv.init("w", np.zeros(4, np.float32))
    for step in range(1, 4):
        for kv in (a, b):
            kv.push("w", np.ones(4, np.float32))
        path = a.save(folder + "SPELLING") if step < 3 else b.save(folder, async_op=True)
        if kv.rank == 0:
            path = path if step < 3 else path.wait()
            assert rounds_in(path) == {0: step, 1: step}, rounds_in(path)
    other = a.save(folder + "-other")
    if other:
        assert rounds_in(other) == {0: 3}, "another folder takes the store alone"
    for kv in (a, b):
        kv.close()
    print("all is well", flush=True)
    """
    status, said = run(
        processes,
        tmp_path / "saved",
        *("--snapshots", str(tmp_path / "saved"), "--snapshot-every", "100"),
        work=work.replace("SPELLING", spelling),
    )
    assert status == 0 and said.count("all is well") == 2, said


def test_stores_that_spell_their_folder_otherwise_save_together(processes, tmp_path):
    text = """
    import json
    saves = {"snapshot_every": "1"}
    with mx.kv.create("dist_sync", snapshots=FOLDER, **saves) as a, mx.kv.create("dist_sync", snapshots=FOLDER + "/", **saves) as b:
        for kv in (a, b):
            kv.init("w", np.zeros(4, np.float32))
        for step in range(3):
            for kv in (a, b):
                kv.push("w", np.ones(4, np.float32))
    newest = max(name for name in os.listdir(FOLDER) if name.isdigit())
    with open(os.path.join(FOLDER, newest, "model.safetensors.index.json")) as index:
        assert {entry.get("store", 0): entry["round"] for entry in json.load(index)["keys"]} == {0: 3, 1: 3}
    print("all is well", flush=True)
    """
    status, said = finish(
        processes.launch(text.replace("FOLDER", repr(str(tmp_path / "saved"))), workers=1), timeout=60
    )
    assert status == 0 and "all is well" in said, said


def test_a_worker_that_is_started_again_saves_while_the_one_in_its_place_saves(processes, tmp_path):
    """Rank 1 is the lowest living rank when it calls save; rank 0 comes back, ends the round and saves, too."""
    work = """
    with mx.kv.create("dist_sync") as kv:
        kv.init("w", np.zeros(8_000_000, np.float32))
        while kv.round("w") < 15:
            if kv.rank == 0 and not kv.rejoined and kv.round("w") == 9:
                os.kill(os.getpid(), signal.SIGKILL)
            kv.push("w", np.ones(8_000_000, np.float32))
            if kv.round("w") % 5 == 0:
                kv.save(os.environ["FOLDER"])
        print("ends at", kv.pull("w").asnumpy()[0], flush=True)
    """
    options = ("--restart", "2", "--on-death", "wait")
    status, said = run(processes, tmp_path / "saved", *options, servers=1, work=work)
    assert status == 0 and said.count("ends at 2.0") == 2 and said.count("is started again") == 1, said


@pytest.mark.parametrize("given", ["script", "launcher"])
def test_a_job_that_may_run_ahead_goes_on(processes, tmp_path, given):
    work = """
    with mx.kv.create("dist_sync", **({"staleness": 2} if GIVEN == "script" else {})) as kv:
        kv.init("w", np.zeros(4, np.float32))
        print("begins at", kv.round("w"), flush=True)
        for _ in range(3):
            kv.push("w", np.ones(4, np.float32))
        kv.barrier()
    """.replace("GIVEN", repr(given))
    options = ["--restore", str(tmp_path), "--snapshot-every", "100"]
    if given == "launcher":
        options += ["--staleness", "2"]
    for begins in (0, 3):
        status, said = run(processes, tmp_path, *options, work=work)
        assert status == 0 and said.count(f"begins at {begins}") == 2, said


def test_a_job_without_the_options_of_the_job_that_has_saved_is_told_so(processes, tmp_path):
    work = """
    with mx.kv.create("dist_sync") as kv:
        kv.init("w", np.zeros(4, np.float32))
        kv.push("w", np.ones(4, np.float32))
        kv.barrier()
    """
    options = ("--restore", str(tmp_path / "saved"), "--snapshot-every", "100")
    for given, saved in (("--deterministic", "deterministic"), ("--staleness=2", "staleness 2")):
        status, said = run(processes, tmp_path, *options, given, work=work)
        assert status == 0, said
        status, said = run(processes, tmp_path, *options, work=work)
        assert status != 0 and f"init 'w': sync here, sync, {saved} in the store" in said, said
        assert "goes on from a snapshot needs the options of the job that saved it, such as --deterministic and" in said
        shutil.rmtree(tmp_path / "saved")


@pytest.mark.parametrize("late", [True, False])
def test_keys_that_a_snapshot_lacks_because_the_script_has_not_inited_them_are_named(processes, tmp_path, late):
    work = """
    with mx.kv.create("dist_sync") as kv:
        for key in ["a"] if LATE and kv.rejoined else ["a", "b"]:
            kv.init(key, mx.nd.zeros((1,)))
        for _ in range(3):
            kv.push("a", mx.nd.ones((1,)))
            kv.pull("a")
    """.replace("LATE", str(late))
    warning = "the snapshot will lack them: 'b' of store 0; init all keys before the first push"
    for again in (False, True):
        status, said = run(processes, tmp_path, "--restore", str(tmp_path), "--snapshot-every", "2", work=work)
        assert status == 0 and said.count(warning) == (late and again), said


@pytest.mark.parametrize("stores", [1, 4])
def test_a_worker_that_fails_saves_no_end(processes, tmp_path, stores):
    folder = tmp_path / "saved"
    fails = WORK.replace("values = [", "assert False, 'a bad batch'\nvalues = [")
    status, said = run(
        processes, folder, "--restore", str(folder), "--snapshot-every", "100", work=fails, STORES=stores
    )
    assert status != 0 and "a bad batch" in said and not list(folder.glob("00*")), said


def test_a_job_whose_restorer_dies_starts_again(processes, tmp_path):
    folder = tmp_path / "saved"
    goes(processes, tmp_path, "--restore", str(folder), steps=6)
    for _ in range(4):  # a restorer may be done before it is found
        options = ("--restore", str(folder), "--restart", "2")
        job = processes.launch(GOES, *options, workers=2, servers=1, STEPS=6, FOLDER=folder)
        os.kill(wait_until(lambda job=job: restorer_of(job)), signal.SIGKILL)
        status, said = finish(job)
        assert status == 0 and said.count("begins 6") == 2 and said.count("ends 21") == 2, said
        if re.search(r"has not restored .*: status 137; the job is started again \(1 of 2\)", said):
            return
    pytest.fail(f"no restorer was killed in time: {said}")


# Rank 1 takes its rank from its restorer only when it is told to.
LATE = """
if os.environ["RESTORES"] and os.environ["TKV_RANK"] == "1":
    {rank_1}
with mx.kv.create("dist_sync") as kv:
    kv.init("w", np.zeros(4, np.float32))
    if not os.environ["RESTORES"] or kv.rank == 0:
        kv.init("small", np.zeros(1, np.float32))
    if os.environ["RESTORES"] and kv.rank == 0:
        {rank_0}
    end = kv.round("w") + 4
    while kv.round("w") < end:
        kv.push("w", np.ones(4, np.float32))
        if not os.environ["RESTORES"]:
            kv.push("small", np.ones(1, np.float32))
        print(f"round {{kv.round('w')}} has {{kv.pull('w').asnumpy()[0]:.0f}}", flush=True)
"""


def late(processes, folder, *options, rank_0="pass", rank_1="pass"):
    """Restore a job of four rounds, and return its exit status and what it said."""
    work = LATE.format(rank_0=rank_0, rank_1=rank_1)
    saves = ("--snapshots", str(folder), "--snapshot-every", "4")
    status, said = finish(processes.launch(work, *saves, servers=1, RESTORES=""))
    assert status == 0, said
    return finish(processes.launch(work, "--restore", str(folder), *options, servers=1, RESTORES="1"))


def test_a_worker_that_ends_well_before_it_joins_a_restored_job_has_left(processes, tmp_path):
    status, said = late(processes, tmp_path / "saved", rank_1="sys.exit(0)")
    assert status != 0 and "worker 1 left after round 4; round 5 needs it" in said and "is dead" not in said, said


def test_a_worker_that_fails_before_it_joins_a_restored_job_is_dead(processes, tmp_path):
    status, said = late(processes, tmp_path / "saved", rank_1="sys.exit(3)")
    assert status == 3 and "worker 1 is dead; round 5 needs it" in said, said


def test_rounds_wait_for_a_worker_whose_restorer_outlives_its_keys(processes, tmp_path):
    delete = 'kv.delete("small"); mark("deleted"); time.sleep(1)'
    said = late(
        processes,
        tmp_path / "saved",
        "--on-death",
        "continue",
        rank_0=delete,
        rank_1='until_marked("deleted"); time.sleep(2)',
    )[1]
    values = [re.findall(rf"round {n} has (\d+)", said) for n in range(5, 9)]
    assert values == [["2", "2"]] * 4, said


SCHEDULED = """
class Schedule(mx.lr_scheduler.LRScheduler):
    def __call__(self, count):
        return 1 / count if count else 1.0

stores, optimizers = [], []
for _ in range(2):
    stores.append(mx.kv.create("dist_sync"))
    optimizers.append(mx.optimizer.SGD(lr_scheduler=Schedule()))
    stores[-1].init("w", np.zeros(4, np.float32))
    stores[-1].set_optimizer(optimizers[-1])
if os.path.isdir(sys.argv[1]):
    for kv, optimizer in zip(stores, optimizers):
        rounds = kv.load(sys.argv[1])["w"]
        print(f"loaded {rounds}, counts {optimizer.num_update}", flush=True)
        before = kv.pull("w").asnumpy()[0]
        kv.push("w", np.ones(4, np.float32))
        print(f"rate {before - kv.pull('w').asnumpy()[0]:.4f}, wanted {1 / (rounds + 1):.4f}", flush=True)
else:
    for step in range(12):
        for number, kv in enumerate(stores):
            if step % (number + 1) == 0:
                kv.push("w", np.ones(4, np.float32))
                kv.pull("w")
        time.sleep(0.05)
for kv in stores:
    kv.close()
"""


def test_a_schedule_in_python_goes_on_from_the_counts_of_its_own_store(processes, tmp_path):
    """Both stores of the snapshot have the key, with another count each."""
    folder = tmp_path / "saved"
    command = [sys.executable, "-m", "tensorkv", "launch", "-n", "1", "-s", "1"]
    worker = [sys.executable, processes.script(SCHEDULED), str(folder)]
    saving = ["--snapshots", str(folder), "--snapshot-every", "6"]
    status, said = finish(processes.start([*command, *saving, *worker]))
    assert status == 0, said
    status, said = finish(processes.start([*command, *worker]))
    assert status == 0, said
    loaded = re.findall(r"loaded (\d+), counts (\d+)", said)
    assert len(set(loaded)) == 2 and all(rounds == counts for rounds, counts in loaded), said
    rates = re.findall(r"rate (\S+), wanted (\S+)", said)
    assert len(rates) == 2 and all(rate == wanted for rate, wanted in rates), said


SAVES_ONCE = """
kv = mx.kv.create("dist_sync")
kv.init("w", np.zeros(4, np.float32))
kv.push("w", np.ones(4, np.float32))
kv.save(os.environ["FOLDER"])
kv.close()
"""


def test_a_process_that_puts_a_snapshot_back_outlives_its_head_by_the_patience_at_most(processes, tmp_path):
    folder = tmp_path / "run"
    saved = start_by_hand(processes, SAVES_ONCE, workers=1, FOLDER=folder)
    assert [finish(saved[name])[0] for name in ("worker 0", "server", "head")] == [0, 0, 0]
    command = [sys.executable, "-u", "-m", "tensorkv"]
    head = processes.start([*command, "head", "--workers", "1", "--servers", "1"], TKV_JOB="again")
    address = read_until(head, "head listens at").split()[-1]
    variables = {"TKV_HEAD": address, "TKV_JOB": "again"}
    server = processes.start([*command, "server", "--rank", "0"], **variables)
    worker = {"TKV_RANK": 0, "TKV_ROLE": "worker", "TKV_PATIENCE_MS": 1000}
    restorer = processes.start([*command, "restorer", str(folder)], **worker, **variables)
    read_until(restorer, "restored")
    head.kill()
    assert finish(restorer, timeout=20)[0] == 0
    server.terminate()
    finish(server)
