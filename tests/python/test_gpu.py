"""Arrays on GPUs, in processes that find the pretended driver of tests/gpu/fake before NVIDIA's."""

import json
import os
import pathlib
import re
import subprocess
import sys
import textwrap
import xml.etree.ElementTree

import pytest

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
DRIVER = ROOT / "build" / "release" / "tests" / "gpu" / "fake"


IS_ON_HARDWARE = os.environ.get("TKV_TEST_DRIVER") == "system"  # `./dev gpu check` runs the suites so


def run(*arguments, **variables):
    """Run Python with four pretended GPUs; what it prints, after it has ended well and misused none of them."""
    assert IS_ON_HARDWARE or (DRIVER / "libcuda.so.1").exists(), "`./dev build` builds the pretended driver"
    driver = {} if IS_ON_HARDWARE else {"LD_LIBRARY_PATH": str(DRIVER), "FAKE_DEVICES": "4"}
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1", **driver, **variables}
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0 and "fake driver" not in done.stderr, done.stdout + done.stderr
    return done.stdout


def program(text, **variables):
    head = """
        import ctypes, os, signal, sys, threading
        import numpy as np, pytest
        import tensorkv as mx
        fake = lambda: ctypes.CDLL("libcuda.so.1")
    """
    return run("-c", textwrap.dedent(head) + textwrap.dedent(text), **variables)


# --------------------------------------------------------------------------------------------------- suites of arrays


@pytest.mark.parametrize(
    ("suite", "at_least", "chosen"),
    [
        ("ndarray", 70, ""),
        ("nd_functions", 400, ""),
        ("sparse_array", 200, ""),
        ("random", 40, ""),
        ("array_programs", 3, ""),
        ("files", 90, ""),
        ("initializer", 40, ""),
        ("metric", 80, ""),
        ("seeds", 4, ""),
        ("kvstore", 70, ""),
    ],
)
def test_suites_of_arrays_pass_on_a_gpu(suite, at_least, chosen):
    shown = run(
        *("-m", "pytest", "-v", "-p", "no:cacheprovider", str(HERE / f"test_{suite}.py"), "-k", chosen),
        TKV_TEST_GPU="1",
        FAKE_SEED=str(len(suite)),
    )
    passed = re.search(r"(\d+) passed", shown)
    assert passed is not None and int(passed[1]) >= at_least, shown[-500:]


# ------------------------------------------------------------------------------------------------------------ contexts


def test_gpus_are_counted_and_their_memory_shown():
    program("""
        assert mx.num_gpus() == mx.context.num_gpus() == 4 and mx.test_utils.list_gpus() == [0, 1, 2, 3]
        free, total = mx.context.gpu_memory_info(3)
        assert 0 < free <= total == 64 << 20
        held = mx.nd.zeros((1 << 20,), mx.gpu(3))
        assert mx.context.gpu_memory_info(3)[0] <= free - (4 << 20)
    """)


def test_a_gpu_that_is_not_there_is_a_clear_error():
    program("""
        for make in (lambda c: mx.nd.ones((2,), c), lambda c: mx.nd.ones((2,)).as_in_context(c)):
            with pytest.raises(mx.errors.InvalidArgumentError) as refused:
                make(mx.gpu(7))
            assert str(refused.value) == "context gpu(7): this machine has 4 GPUs, from gpu(0) on"
        with pytest.raises(mx.errors.InvalidArgumentError, match="has 4 GPUs"):
            mx.context.gpu_memory_info(4)
    """)


@pytest.mark.parametrize(
    ("variables", "error", "text"),
    [
        ({"FAKE_VERSION": "9020"}, "UnimplementedError", "is for CUDA 9.2, at least 10.0 is needed"),
        ({"FAKE_INIT": "100"}, "UnimplementedError", "knows no GPU"),
        ({"FAKE_INIT": "999"}, "UnavailableError", "does not start: CUDA_ERROR_UNKNOWN"),
    ],
)
def test_a_driver_that_cannot_be_used_is_none(variables, error, text):
    program(
        f"""
        assert mx.num_gpus() == 0
        with pytest.raises(mx.errors.{error}, match={text!r}):
            mx.nd.ones((2,), mx.gpu(0))
        assert mx.nd.ones((2,)).asnumpy().sum() == 2
        """,
        **variables,
    )


def test_the_driver_is_loaded_when_a_gpu_is_asked_for_and_not_before():
    program("""
        def is_loaded():
            return "libcuda.so.1" in open("/proc/self/maps").read()
        assert (mx.nd.ones((2,)) + 1).asnumpy().sum() == 4
        mx.kv.create("local").init("a", mx.nd.ones((2,), mx.cpu(1)))
        mx.gpu(0)
        assert not is_loaded()
        assert mx.num_gpus() == 4 and is_loaded()
    """)


# -------------------------------------------------------------------------------------------------------------- arrays


def test_arrays_are_copied_between_all_contexts():
    program("""
        contexts = [mx.cpu(0), mx.gpu(0), mx.gpu(3), mx.cpu(1)]
        for source in contexts:
            a = mx.nd.array([[1, 2], [3, 4]], source)
            for target in contexts:
                copies = [a.copyto(target), mx.nd.array(a, target), a.copyto(mx.nd.zeros((2, 2), target))]
                if source != target:
                    copies.append(a.as_in_context(target))
                for b in copies:
                    if b is not copies[-1] or source == target:
                        b += 1
                        b -= 1
                    assert b.context == target and b.asnumpy().tolist() == [[1, 2], [3, 4]]
            assert a.copyto(mx.nd.zeros((2, 2), mx.gpu(1), "float16")).dtype is np.float16
            assert a.as_in_context(source) is a
    """)


def test_arithmetic_is_on_one_device():
    program("""
        a, b = mx.nd.ones((2,), mx.gpu(0)), mx.nd.ones((2,), mx.gpu(1))
        assert (a + a * 3 - 1).context == mx.gpu(0)
        with pytest.raises(mx.errors.InvalidArgumentError, match=r"on gpu\\(0\\) with one on gpu\\(1\\)"):
            a + b
        with pytest.raises(mx.errors.InvalidArgumentError, match="copy one of them"):
            a += mx.nd.ones((2,))
        assert a.asnumpy().tolist() == [1, 1]
        assert (a + np.ones(2, np.float32)).asnumpy().tolist() == [2, 2]
    """)


def test_a_push_that_finds_no_room_moves_no_key():
    program(
        """
        kv = mx.kv.create("device")
        big = np.ones(300_000, np.float32)
        kv.init("big", big)
        kv.init("small", mx.nd.zeros((3,)))
        pushed = mx.nd.array(big, mx.gpu(0))
        for _ in range(2):
            with pytest.raises(mx.errors.ResourceExhaustedError, match="push 'big'"):
                kv.push(["small", "big"], [[mx.nd.ones((3,), mx.gpu(0))], [pushed]])
            assert kv.pull("small").context == mx.cpu() and kv.pull("small").asnumpy().tolist() == [0, 0, 0]
        kv.push("small", mx.nd.ones((3,), mx.gpu(0)))
        assert kv.pull("small").context == mx.gpu(0) and kv.pull("small").asnumpy().tolist() == [1, 1, 1]
        """,
        FAKE_MIB="2",
    )


def test_a_result_like_an_array_of_the_host_is_on_the_host():
    program("""
        kv = mx.kv.create("device")
        kv.init("w", mx.nd.zeros((3,)))
        kv.push("w", mx.nd.ones((3,), mx.gpu(0)))
        assert kv.pull("w").context == mx.gpu(0)
        assert kv.pull("w", like=np.empty(0)).tolist() == [1, 1, 1]
        assert kv.pull({"w": np.zeros(3, np.float32)})["w"].tolist() == [1, 1, 1]

        class Foreign(np.ndarray):  # says by DLPack alone where it is
            pass

        assert kv.pull("w", like=np.zeros(3, np.float32).view(Foreign)).tolist() == [1, 1, 1]
        torch = sys.modules.get("torch") or __import__("importlib").util.find_spec("torch") and __import__("torch")
        if torch:
            assert kv.pull("w", like=torch.zeros(3)).tolist() == [1, 1, 1]
            assert kv.pull({"w": torch.zeros(3)})["w"].tolist() == [1, 1, 1]
    """)


def test_rows_that_are_to_come_to_a_gpu_are_refused_with_the_way_out():
    program("""
        ids = mx.nd.array([1], dtype="int64")
        for type in ("local", "device", "dist_sync"):
            with mx.kv.create(type, **({"bootstrap": "self"} if type == "dist_sync" else {})) as kv:
                kv.init_table("t", 2)
                for out in (mx.nd.ones((1, 2), mx.gpu(0)),):
                    with pytest.raises(mx.errors.UnimplementedError, match=r"'t': rows on gpu\\(0\\).*as_in_context"):
                        kv.pull_rows("t", [1], out=out)
                    assert out.asnumpy().tolist() == [[1, 1]]
    """)


def test_numpy_sees_a_copy():
    program("""
        a = mx.nd.ones((2,), mx.gpu(1))
        seen = np.asarray(a)
        seen[:] = 5
        a.asnumpy()[:] = 5
        assert a.asnumpy().tolist() == [1, 1] and a.__dlpack_device__() == (2, 1)
        with pytest.raises(ValueError, match=r"gpu\\(1\\)"):
            np.array(a, copy=False)
    """)


def test_a_device_store_keeps_keys_where_their_values_are():
    program("""
        kv = mx.kv.create("device")
        kv.init(["a", "b"], [mx.nd.zeros((3,)), mx.nd.zeros((2,))])
        grads = [mx.nd.ones((3,), mx.gpu(i)) for i in (2, 1)]
        kv.set_optimizer(mx.optimizer.Adam(learning_rate=0.5))
        twin = mx.kv.create("device")
        twin.init(["a", "b"], [mx.nd.zeros((3,)), mx.nd.zeros((2,))])
        twin.set_optimizer(mx.optimizer.Adam(learning_rate=0.5))
        launches = fake().fake_launches()
        for _ in range(5):
            kv.push("a", grads)
            twin.push("a", [mx.nd.ones((3,))] * 2)
        out = mx.nd.zeros((3,), mx.gpu(3))
        kv.pull("a", out=out)
        assert out.asnumpy().tolist() == twin.pull("a").asnumpy().tolist() == kv.pull("a").asnumpy().tolist()
        kv.pushpull("a", grads, out=grads)  # what every data-parallel step does
        twin.pushpull("a", [mx.nd.ones((3,))] * 2, out=out)
        assert grads[0].asnumpy().tolist() == grads[1].asnumpy().tolist() == out.asnumpy().tolist()
        def update(key, grad, weight):
            assert grad.context == weight.context == mx.gpu(1)
            weight += grad * 2
        kv.set_updater(update)
        kv.push("a", [mx.nd.ones((3,)), mx.nd.ones((3,), mx.gpu(0))])
        assert np.allclose(kv.pull("a").asnumpy(), out.asnumpy() + 4)
    """)


def test_nccl_is_for_gpus():
    program("""
        kv = mx.kv.create("nccl")
        kv.init("a", mx.nd.zeros((3,)))
        here, there = mx.nd.ones((3,)), mx.nd.ones((3,), mx.gpu(1))
        for use in (lambda: kv.push("a", [there, here]), lambda: kv.pull("a", out=here),
                    lambda: kv.pushpull("a", there, out=here)):
            with pytest.raises(mx.errors.InvalidArgumentError, match=r"'a': an array on cpu\\(0\\); a store 'nccl' takes"):
                use()
        kv.pushpull("a", [there, there], out=there)
        assert there.asnumpy().tolist() == [2, 2, 2] and kv.type == "nccl"
        with pytest.raises(mx.errors.UnimplementedError, match="'nccl' keeps no keys by rows"):
            kv.init_table("t", (4,))
    """)


@pytest.mark.parametrize("kind", ["local", "device"])
def test_a_store_of_one_process_takes_values_and_outputs_of_all_contexts(kind):
    program(f"""
        kv = mx.kv.create({kind!r})
        contexts = [mx.gpu(0), mx.cpu(0), mx.gpu(3), mx.gpu(0)]
        kv.init(["a", "b"], [mx.nd.ones((2, 3), mx.gpu(1)), mx.nd.zeros((2, 3))])
        outs = [mx.nd.empty((2, 3), context) for context in contexts]
        kv.pull("a", out=outs)
        assert [out.asnumpy().tolist() for out in outs] == [[[1] * 3] * 2] * 4
        values = [mx.nd.full((2, 3), i + 1, context) for i, context in enumerate(contexts)]
        kv.push(["a", "b"], [values, values[2]])
        kv.pushpull("b", values[0], out=outs)
        assert all(out.asnumpy().max() == out.asnumpy().min() == 1 for out in outs)
        half = mx.nd.empty((2, 3), mx.gpu(2), "float16")
        kv.pull("a", out=half)
        assert half.asnumpy().max() == 10 and kv.pull("a").asnumpy().min() == 10
        kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.5))
        kv.push("a", values)
        kv.broadcast("c", values[2], outs[0])
        assert kv.pull("a").asnumpy().max() == 5 and outs[0].asnumpy().max() == 3
    """)


def test_a_push_of_a_lost_gpu_changes_nothing():
    program("""
        kv = mx.kv.create("local")
        kv.init(["a", "b"], [mx.nd.zeros((2,)), mx.nd.zeros((2,))])
        lost, other = mx.nd.ones((2,), mx.gpu(0)), mx.nd.ones((2,), mx.gpu(1))
        fake().fake_lose(0, 700)
        for use in (
            lambda: kv.push(["a", "b"], [other, lost]),
            lambda: kv.pushpull(["a", "b"], [other, other], out=[other, lost]),
            lambda: kv.init("c", lost),
        ):
            with pytest.raises(mx.errors.UnavailableError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
                use()
        assert kv.pull("a").asnumpy().max() == 0 and "c" not in kv
    """)


@pytest.mark.parametrize("kind", ["dist_sync", "dist_async_device"])
def test_servers_sum_and_update_what_gpus_push(kind):
    program(f"""
        here, there = mx.nd.ones((2, 3), mx.gpu(0)), mx.nd.ones((2, 3), mx.gpu(1))
        with mx.kv.create("{kind}", bootstrap="self") as kv:
            kv.init("a", here)
            kv.set_optimizer(mx.optimizer.SGD(learning_rate=1))
            kv.push("a", [here, there, mx.nd.ones((2, 3))])
            kv.pull("a", out=[here, there])
            assert here.context == mx.gpu(0) and (here.asnumpy() == -2).all() and (there.asnumpy() == -2).all()
            kv.pushpull("a", here, out=there)
            assert (there.asnumpy() == 0).all() and kv.pull("a").context == mx.cpu()
            ticket = kv.pull("a", out=here, async_op=True)
            ticket.wait()
            assert (here.asnumpy() == 0).all()
            kv.broadcast("c", mx.nd.full((4,), 7, mx.gpu(2)), out=[mx.nd.empty((4,), mx.gpu(i)) for i in range(4)])
            assert kv.pull("c").asnumpy().min() == 7
    """)


def test_rows_on_gpus_are_refused_and_what_is_there_is_kept():
    program("""
        rows = mx.nd.sparse.row_sparse_array((mx.nd.ones((2, 3), mx.gpu(0)), [0, 2]), shape=(4, 3))
        for kind in "local", "dist_sync":
            with mx.kv.create(kind, **({"bootstrap": "self"} if kind == "dist_sync" else {})) as kv:
                with pytest.raises(mx.errors.UnimplementedError, match=r"'r': rows on gpu\\(0\\)"):
                    kv.init("r", rows)
                assert "r" not in kv
    """)


def test_no_memory_is_an_error_with_the_bytes_that_are_free():
    program("""
        with pytest.raises(MemoryError, match=r"gpu\\(0\\) has no 268435456 bytes of memory: 67108864 are free"):
            mx.nd.empty((1 << 26,), mx.gpu(0))
    """)


def test_a_lost_gpu_says_why_and_the_others_go_on():
    program("""
        a, b = mx.nd.ones((2,), mx.gpu(0)), mx.nd.ones((2,), mx.gpu(1))
        fake().fake_lose(0, 700)
        for use in (a.asnumpy, lambda: a + 1, lambda: a.copyto(b), lambda: mx.nd.ones((2,), mx.gpu(0))):
            with pytest.raises(mx.errors.UnavailableError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
                use()
        assert (b + 1).asnumpy().tolist() == [2, 2] and mx.nd.ones((2,)).asnumpy().tolist() == [1, 1]
    """)


# ----------------------------------------------------------------------------------------------- threads and processes


def test_a_signal_ends_a_wait():
    program("""
        class Alarm(Exception): pass
        def ring(*_): raise Alarm
        signal.signal(signal.SIGALRM, ring)
        a = mx.nd.ones((2,), mx.gpu(0))
        fake().fake_stop(1)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(Alarm):
            a.asnumpy()
        fake().fake_stop(0)
        assert a.asnumpy().tolist() == [1, 1]
    """)


def test_others_run_while_one_waits():
    program("""
        a = mx.nd.ones((2,), mx.gpu(0))
        fake().fake_stop(1)
        thread = threading.Thread(target=a.asnumpy)
        thread.start()
        fake().fake_stop(0)  # needs the interpreter, which the thread would not give
        thread.join()
    """)


def test_whoever_waits_for_another_thread_leaves_it_the_interpreter():
    program("""
        a, b = mx.nd.ones((2,), mx.gpu(0)), mx.nd.ones((2,), mx.gpu(0), dtype="int64")
        mx.nd.waitall()
        fake().fake_stop(1)
        def reads():
            assert a.asnumpy().tolist() == [1, 1]
        def writes():  # waits for the copy that reads, and looks for signals meanwhile
            a[:] = 2
        def resumes():
            fake().fake_stop(0)
        threads = [threading.Timer(0.1 * i, use) for i, use in enumerate((reads, writes, resumes))]
        for thread in threads:
            thread.start()
        threads[1].finished.wait()
        assert (b + (2**62 + 1)).asnumpy().tolist() == [2**62 + 2] * 2  # waits for the other two
        for thread in threads:
            thread.join()
        assert a.asnumpy().tolist() == [2, 2]
    """)


def test_a_child_of_fork_has_no_gpus():
    program("""
        a = mx.nd.ones((2,), mx.gpu(0))
        child = os.fork()
        if child == 0:
            calls = fake().fake_calls()
            assert mx.num_gpus() == 0 and mx.test_utils.list_gpus() == []
            for use in (a.asnumpy, lambda: a + 1, lambda: mx.nd.ones((2,), mx.gpu(1))):
                with pytest.raises(mx.errors.FailedPreconditionError):
                    use()
            assert mx.nd.ones((2,)).asnumpy().sum() == 2
            del a
            os._exit(fake().fake_calls() - calls)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert a.asnumpy().tolist() == [1, 1]
    """)


def test_a_process_may_end_with_work_under_way():
    program("""
        kept = mx.nd.ones((2,), mx.gpu(0))
        fake().fake_stop(1)
        kept += 1
    """)


# ------------------------------------------------------------------------------------------------------------ hardware


@pytest.mark.parametrize("what", ["check", "bench"])
def test_what_is_for_hardware_runs_on_the_pretended_driver(what, tmp_path):
    tool = [sys.executable, ROOT / "tools" / "gpu.py", what, "--fake", "--out", tmp_path]
    done = subprocess.run([*map(str, tool)], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / f"gpu-{what}.json").read_text())
    assert result["passed"] and result["fake"] and len(result["machine"]["gpus"]) == 2
    if what == "check":
        assert all(step["tests"] >= 6 for step in result["steps"])
    else:
        figures = {row["name"]: row for row in result["figures"]}
        assert len(figures) == 20 and all(row["value"] > 0 for row in figures.values())
        assert {row["met"] for row in figures.values() if not row["wanted"]} == {None}
        assert figures["sum of 4 float32"]["met"] is (figures["sum of 4 float32"]["value"] >= 0.9)
    picture = xml.etree.ElementTree.parse(tmp_path / f"gpu-{what}.svg").getroot()
    assert len(picture) > 3
