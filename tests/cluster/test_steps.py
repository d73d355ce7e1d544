"""A worker that dies within a step makes the step again after its restart, and pushes only the keys that were missing."""

import json
import os
import time

import numpy as np
import pytest
import tensorkv as mx
from jobs import finish, wait_until
from tensorkv._frameworks.steps import Steps

PUSHES = """
from tensorkv._frameworks.steps import Steps

KEYS, STEPS = "abcde", 6
# Key b rests in odd steps, c in the first three, d in step 4, and e trains in every third step alone.
RESTS = {"b": lambda step: step % 2, "c": lambda step: step < 3, "d": lambda step: step == 4, "e": lambda step: step % 3}
with mx.kv.create("dist_sync", server_patience=30) as kv:
    kv.init(list(KEYS), [np.zeros(3)] * len(KEYS))
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=-1.0))
    kv.pull("a")
    steps = Steps(kv)
    first = steps.made(KEYS)
    if kv.rejoined:
        print("goes on with step", first, flush=True)
    for step in range(first, STEPS):
        keys = [key for key in KEYS if not (key in RESTS and RESTS[key](step))]
        with steps.one(keys, KEYS) as lacking:
            for place in lacking:
                kv.push(keys[place], np.full(3, 2.0 ** step * (1 + 64 * kv.rank)))
            kv.pull(keys)
        assert steps.made(KEYS) == step + 1
    print("ends", [kv.pull(key).asnumpy()[0].item() for key in KEYS], [kv.round(key) for key in KEYS], flush=True)
"""

KEYS, STEPS = "abcde", 6
RESTS = {
    "b": lambda step: step % 2,
    "c": lambda step: step < 3,
    "d": lambda step: step == 4,
    "e": lambda step: step % 3,
}


def ends():
    trained = {key: [s for s in range(STEPS) if not (key in RESTS and RESTS[key](s))] for key in KEYS}
    values = [sum(2.0**step * (1 + 65) for step in trained[key]) for key in KEYS]
    return values, [len(trained[key]) for key in KEYS]


@pytest.mark.parametrize("policy", ["fail", "wait"])
@pytest.mark.parametrize(("rank", "count"), [(0, 1), (1, 3), (0, 4), (1, 8), (1, 12), (0, 16)])
def test_each_key_is_pushed_once_in_each_step(processes, rank, count, policy):
    """Each push adds its own power of two, so that the values tell which pushes have counted, and how often."""
    options = ("--restart", "1", "--on-death", policy, "--failpoints", f"worker {rank}:sent:PUSH:{count}:kill")
    status, said = finish(processes.launch(PUSHES, *options, servers=2))
    assert status == 0 and said.count("goes on with step") >= 1, said  # under `fail` the other worker dies, too
    values, rounds = ends()
    assert said.count(f"ends {values} {rounds}") == 2, said


def test_a_worker_that_has_made_its_step_goes_on_with_the_next(processes):
    dies = "if step == 3 and kv.rank == 1 and not kv.rejoined: os.kill(os.getpid(), signal.SIGKILL)"
    text = PUSHES.replace("kv.pull(keys)", f"kv.pull(keys)\n            {dies}")
    status, said = finish(processes.launch(text, "--restart", "1"))
    values, rounds = ends()
    assert status == 0 and "goes on with step 4" in said and said.count(f"ends {values} {rounds}") == 2, said


def test_layers_that_take_turns(processes):
    """No key is pushed in every step, so that rounds do not tell how many steps there were."""
    text = PUSHES.replace(
        'RESTS = {"b": lambda step: step % 2,', 'RESTS = {"a": lambda step: step % 2 == 0, "b": lambda step: step % 2,'
    )
    text = text.replace("abcde", "ab")
    dies = "if step == 4 and kv.rank == 1 and not kv.rejoined: os.kill(os.getpid(), signal.SIGKILL)"
    text = text.replace("kv.pull(keys)", f"kv.pull(keys)\n            {dies}")
    status, said = finish(processes.launch(text, "--restart", "1"))
    values = [2.0 * 66 + 8.0 * 66 + 32.0 * 66, 66.0 + 4.0 * 66 + 16.0 * 66]
    assert status == 0 and "goes on with step 5" in said and said.count(f"ends {values} [3, 3]") == 2, said


@pytest.mark.parametrize("order", ["keys", "reversed(keys)"])
@pytest.mark.parametrize("count", [20, 28, 34])
def test_a_job_goes_on_from_a_snapshot_of_whole_steps(processes, tmp_path, order, count):
    """A key that rests in some steps is pushed before the others, so that its rounds do not tell where a step begins."""
    text = PUSHES.replace("for place in lacking:", "time.sleep(0.1)\n            for place in lacking:")
    text = text.replace(
        "if not (key in RESTS and RESTS[key](step))]",
        "if not (key in RESTS and RESTS[key](step))]\n        keys = list(ORDER)",
    )
    options = ("--restore", str(tmp_path), "--snapshot-every", "1", "--restart", "2")
    killed = ("--failpoints", f"server 0:received:PUSH:{count}:kill")
    job = processes.launch(text.replace("ORDER", order), *options, *killed, servers=1)
    status, said = finish(job)
    values, rounds = ends()
    assert status == 0 and "the job is started again" in said and said.count("goes on with step") == 2, said
    assert "goes on with step 0" not in said and said.count(f"ends {values} {rounds}") == 2, said


def test_a_job_goes_on_with_the_step_of_its_snapshot(processes, tmp_path):
    """Layers take turns, so that each has half as many rounds as there are steps."""
    text = PUSHES.replace(
        'RESTS = {"b": lambda step: step % 2,', 'RESTS = {"a": lambda step: step % 2 == 0, "b": lambda step: step % 2,'
    )
    text = text.replace("abcde", "ab")
    options = ("--restore", str(tmp_path), "--snapshot-every", "100", "--restart", "1")
    status, said = finish(processes.launch(text.replace('STEPS = "ab", 6', 'STEPS = "ab", 3'), *options))
    assert status == 0 and said.count("ends") == 2, said
    dies = "if step == 4 and kv.rank == 1 and not os.path.exists('dead'): open('dead', 'w'); os.kill(os.getpid(), signal.SIGKILL)"
    text = text.replace("kv.pull(keys)", f"kv.pull(keys)\n            {dies}")
    text = text.replace('STEPS = "ab", 6', f'STEPS = "ab", 6\nos.chdir({str(tmp_path)!r})')
    status, said = finish(processes.launch(text, *options))
    values = [2.0 * 66 + 8.0 * 66 + 32.0 * 66, 66.0 + 4.0 * 66 + 16.0 * 66]
    assert status == 0 and said.count("goes on with step 3") == 2 and "goes on with step 5" in said, said
    assert said.count(f"ends {values} [3, 3]") == 2, said


@pytest.mark.parametrize("takes_turns", [False, True])
@pytest.mark.parametrize("plain_first", [False, True])
def test_snapshots_are_made_between_steps_that_push_other_keys_too(tmp_path, plain_first, takes_turns):
    """Pushes of a step with and without its number, in either order, are in the same snapshots."""
    folder = tmp_path / "saved"
    with mx.kv.create("dist_sync", bootstrap="self", snapshots=str(folder), snapshot_every="1") as kv:
        kv.init(["a", "b", "plain"], [np.zeros(2)] * 3)
        steps = Steps(kv)
        for step in range(1, 7):
            keys = ["ab"[step % 2]] if takes_turns else ["a", "b"]
            if plain_first:
                kv.push("plain", np.ones(2))
            with steps.one(keys, "ab"):
                for key in keys:
                    kv.push(key, np.ones(2))
            if not plain_first:
                kv.push("plain", np.ones(2))
            kv.save(tmp_path / "other")  # waits for the save by itself
            if step < 2:
                continue
            names = sorted(os.listdir(folder))
            with open(folder / names[-1] / "model.safetensors.index.json") as index:
                saved = {entry["key"]: entry for entry in json.load(index)["keys"]}
            rounds = [saved[key]["round"] for key in ("a", "b", "plain")]
            assert rounds[2] == step - 1 and rounds[0] + rounds[1] == (step - 1) * len(keys), (step, rounds)
            assert max(saved[key].get("step", 0) for key in "ab") == step - 1


@pytest.mark.parametrize("every", ["5", "1s"])
def test_an_optimizer_that_takes_over_is_saved_too(tmp_path, every):
    """Its steps are fewer than those of the optimizer before, and none of its keys has had as many pushes."""
    folder = tmp_path / "saved"

    def saved(key):
        names = sorted(os.listdir(folder)) if folder.exists() else []
        if not names:
            return 0
        with open(folder / names[-1] / "model.safetensors.index.json") as index:
            return {entry["key"]: entry["round"] for entry in json.load(index)["keys"]}[key]

    with mx.kv.create("dist_sync", bootstrap="self", snapshots=str(folder), snapshot_every=every) as kv:
        kv.init(["a", "b"], [np.zeros(2)] * 2)
        for key, count in (("a", 20), ("b", 12)):
            steps = Steps(kv)
            for _ in range(count):
                with steps.one([key], [key]):
                    kv.push(key, np.ones(2))
                if every == "1s":
                    time.sleep(0.2)
                else:
                    kv.save(tmp_path / "other")  # waits for the save by itself
        wait_until(lambda: saved("b") >= 5)
        assert saved("a") == 20


def test_a_load_gives_the_step_of_the_snapshot(tmp_path):
    with mx.testing.cluster(2, 2) as job:

        def train(kv):
            kv.init(["a", "b"], [np.zeros(2)] * 2)
            steps = Steps(kv)
            for step in range(5):
                with steps.one(["ab"[step % 2]], "ab"):
                    kv.push("ab"[step % 2], np.ones(2))
                kv.pull(["a", "b"])
                if step == 2:
                    kv.save(tmp_path)
            kv.barrier()
            kv.load(tmp_path)
            steps.loaded("ab")
            return steps.made("ab"), kv.round("a"), kv.round("b")

        assert job.run(train) == [(3, 2, 1)] * 2


def test_a_key_that_the_optimizer_gets_when_the_script_knows_the_step(processes):
    """With some of its keys the optimizer cannot tell whether the last step was finished: the script makes it again."""
    text = PUSHES.replace("steps.made(KEYS)\n    if", 'steps.made("ab")\n    if').replace("abcde", "abc")
    text = text.replace('{"b": lambda step: step % 2, "c": lambda step: step < 3,', "{")
    dies = "if step == 3 and kv.rank == 0 and not kv.rejoined: os.kill(os.getpid(), signal.SIGKILL)"
    text = text.replace("kv.pull(keys)", f"kv.pull(keys)\n            {dies}")
    status, said = finish(processes.launch(text, "--restart", "1"))
    values = [66.0 * 63] * 3
    assert status == 0 and "goes on with step 3" in said and said.count(f"ends {values} [6, 6, 6]") == 2, said


def test_a_restarted_worker_of_an_asynchronous_store_is_told_to_keep_the_number():
    with mx.testing.cluster(1, 1, "dist_async") as job:
        kv = job.store(0)
        assert Steps(kv).made([]) == 0
        kv.init("w", np.zeros(1))
        kv.push("w", np.ones(1))
        kv.pull("w")
        with pytest.raises(mx.errors.FailedPreconditionError, match="keep their number in the store"):
            Steps(job.restart(0)).made([])


def test_a_job_in_one_process_counts_its_steps():
    kv = mx.kv.create("local")
    kv.init(["a", "b"], [np.zeros(2)] * 2)
    steps = Steps(kv)
    for number in range(3):
        assert steps.made("ab") == number
        with steps.one("ab") as lacking:
            assert lacking == [0, 1]
            kv.push(["a", "b"], [np.ones(2)] * 2)
    assert steps.made("ab") == 3
    steps.begin("ab")
    assert steps.made("ab") == 3 and steps.is_under_way
    steps.undo()
    assert steps.made("ab") == 3 and not steps.is_under_way
    with steps.one("ab"):
        pass
    assert steps.made("ab") == 4
    steps.loaded("ab")
    assert steps.made("ab") == 3, "as often as the keys were pushed"


def test_a_step_that_fails_before_its_pushes_does_not_count():
    kv = mx.kv.create("local")
    kv.init(["a", "b"], [np.zeros(2)] * 2)
    steps = Steps(kv)
    with pytest.raises(mx.errors.InvalidArgumentError, match="shape"), steps.one("ab"):
        kv.push(["a", "b"], [np.ones(2), np.ones(3)])
    assert steps.made("ab") == 0 and not steps.is_under_way
    with steps.one("ab") as lacking:
        assert lacking == [0, 1]
        kv.push(["a", "b"], [np.ones(2)] * 2)
    assert steps.made("ab") == 1
    with pytest.raises(mx.errors.InvalidArgumentError, match="shape"), steps.one("ab"):
        kv.push(["a", "b"], [np.ones(2)] * 2)
        kv.pull("a", out=np.zeros(3))
    assert steps.made("ab") == 2, "its pushes count"


def test_a_repeated_step_that_fails_is_repeated_again():
    """The keys that the earlier process had pushed stay known."""
    with mx.testing.cluster(1, 1, "dist_sync", on_death="wait") as job:
        kv = job.store(0)
        kv.init(["a", "b"], [np.zeros(2)] * 2)
        first = Steps(kv)
        first.begin("ab")
        with first.noted():
            kv.push("a", np.ones(2))
        kv = job.restart(0)
        kv.init(["a", "b"], [np.zeros(2)] * 2)
        steps = Steps(kv)
        assert steps.made("ab") == 0
        for _ in range(2):
            with pytest.raises(ValueError, match="mine"), steps.one("ab") as lacking:
                assert lacking == [1]
                raise ValueError("mine")
        with steps.one("ab") as lacking:
            assert lacking == [1]
            kv.push("b", np.ones(2))
        assert steps.made("ab") == 1 and kv.round("a") == kv.round("b") == 1


def test_a_load_forgets_an_unfinished_step():
    with mx.testing.cluster(1, 1, "dist_sync", on_death="wait") as job:
        kv = job.store(0)
        kv.init(["a", "b"], [np.zeros(2)] * 2)
        first = Steps(kv)
        first.begin("ab")
        with first.noted():
            kv.push("a", np.ones(2))
        kv = job.restart(0)
        kv.init(["a", "b"], [np.zeros(2)] * 2)
        steps = Steps(kv)
        steps.begin("ab")
        assert not steps.lacks("a")
        steps.loaded("ab")
        steps.begin("ab")
        assert steps.lacks("a") and steps.lacks("b")
