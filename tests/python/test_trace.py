"""Traces: `KVStore.trace` and ``mx.profiler``."""

import json
import os
import subprocess
import sys
import threading

import pytest
import tensorkv as mx


def events(path):
    return [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]


def names_of(path):
    document = json.loads(path.read_text())
    return {e["pid"]: e["args"]["name"] for e in document["traceEvents"] if e["name"] == "process_name"}


@pytest.fixture
def profiler(monkeypatch):
    from tensorkv.mxnet import profiler as module

    monkeypatch.setattr(module, "_files", dict(module._files))
    monkeypatch.setattr(module, "_traced", {})
    return mx.profiler


class TestOneProcess:
    def test_a_relative_file_is_that_of_the_call(self, tmp_path, monkeypatch):
        (tmp_path / "other").mkdir()
        monkeypatch.chdir(tmp_path)
        with mx.kv.create() as kv:
            kv.init("a", mx.nd.ones((4,)))
            trace = kv.trace("t.json")
            kv.push("a", mx.nd.ones((4,)))
            monkeypatch.chdir(tmp_path / "other")
            trace.stop()
        assert len(events(tmp_path / "t.json")) == 1
        assert os.listdir(tmp_path / "other") == []

    def test_each_call_is_a_span_of_its_key(self, tmp_path):
        kv = mx.kv.create()
        kv.init(["a", "b"], [mx.nd.ones((4,)), mx.nd.ones((8,))])
        out = mx.nd.zeros((4,))
        kv.push("a", mx.nd.ones((4,)))  # before it begins
        with kv.trace(tmp_path / "t.json") as trace:
            kv.push("a", mx.nd.ones((4,)))
            kv.pull("a", out=out)
            kv.push(["a", "b"], [mx.nd.ones((4,)), mx.nd.ones((8,))])
            trace.pause()
            kv.push("a", mx.nd.ones((4,)))
            trace.resume()
            kv.pushpull("b", mx.nd.ones((8,)), out=mx.nd.zeros((8,)))
        found = events(tmp_path / "t.json")
        assert [e["name"] for e in found] == ["push 'a'", "pull 'a'", "push of 2 keys", "push 'b'", "pull 'b'"]
        assert found[0]["args"]["bytes"] == 16
        begins = [e["ts"] for e in found]
        assert begins == sorted(begins)
        assert all(e["dur"] >= 0 for e in found)
        kv.push("a", mx.nd.ones((4,)))  # after it has ended
        assert len(events(tmp_path / "t.json")) == 5

    def test_a_call_that_fails_is_no_span_of_work(self, tmp_path):
        kv = mx.kv.create()
        kv.init("a", mx.nd.ones((4,)))
        trace = kv.trace(tmp_path / "t.json")
        with pytest.raises(mx.KVError):
            kv.push("a", mx.nd.ones((5,)))
        assert trace.stop() == {"spans": 0, "lost": 0}

    def test_two_traces_one_after_the_other_have_their_own_spans(self, tmp_path):
        kv = mx.kv.create()
        kv.init("a", mx.nd.ones((4,)))
        for name in ("one.json", "two.json"):
            with kv.trace(str(tmp_path / name)):
                kv.push("a", mx.nd.ones((4,)))
            assert len(events(tmp_path / name)) == 1

    def test_the_newest_spans_are_kept_and_the_others_counted(self, tmp_path):
        kv = mx.kv.create()
        kv.init(3, mx.nd.ones((1,)))
        value = mx.nd.ones((1,))
        trace = kv.trace(tmp_path / "t.json")
        for _ in range(262_144 + 100):
            kv.push(3, value)
        assert trace.stop() == {"spans": 262_144, "lost": 100}
        assert json.loads((tmp_path / "t.json").read_text())["otherData"]["lost_spans"] == {
            "store of this process": 100
        }

    def test_threads_may_push_while_a_trace_begins_and_ends(self, tmp_path):
        kv = mx.kv.create()
        kv.init(list(range(4)), [mx.nd.ones((4,))] * 4)
        stop = threading.Event()

        def work(key):
            value = mx.nd.ones((4,))
            while not stop.is_set():
                kv.push(key, value)

        threads = [threading.Thread(target=work, args=(key,)) for key in range(4)]
        for thread in threads:
            thread.start()
        for i in range(20):
            with kv.trace(tmp_path / f"{i}.json"):
                kv.push(0, mx.nd.ones((4,)))
            assert events(tmp_path / f"{i}.json")
        stop.set()
        for thread in threads:
            thread.join()


class TestMistakes:
    def test_a_folder_that_is_not_there_is_told_at_once(self, tmp_path):
        kv = mx.kv.create()
        with pytest.raises(mx.errors.FolderNotFoundError, match="no folder"):
            kv.trace(tmp_path / "no" / "t.json")

    @pytest.mark.parametrize("path", ["", b"t.json", 3, None])
    def test_what_is_no_path_is_refused(self, path):
        with pytest.raises((mx.errors.InvalidArgumentError, TypeError)):
            mx.kv.create().trace(path)

    def test_a_file_that_cannot_be_written_loses_nothing(self, tmp_path):
        kv = mx.kv.create()
        kv.init("a", mx.nd.ones((4,)))
        trace = kv.trace(tmp_path / "t.json")
        kv.push("a", mx.nd.ones((4,)))
        (tmp_path / "t.json").mkdir()
        (tmp_path / "t.json" / "file").touch()
        with pytest.raises(mx.KVError, match="trace"):
            trace.stop()
        assert sorted(os.listdir(tmp_path)) == ["t.json"]
        (tmp_path / "t.json" / "file").unlink()
        (tmp_path / "t.json").rmdir()
        assert trace.stop() == {"spans": 1, "lost": 0}
        assert len(events(tmp_path / "t.json")) == 1

    def test_a_trace_ends_once(self, tmp_path):
        kv = mx.kv.create()
        trace = kv.trace(tmp_path / "t.json")
        assert "under way" in repr(trace)
        trace.stop()
        assert "ended" in repr(trace)
        for call in (trace.stop, trace.pause, trace.resume):
            with pytest.raises(mx.errors.FailedPreconditionError, match="has ended"):
                call()

    def test_a_store_that_is_closed_has_no_trace(self, tmp_path):
        kv = mx.kv.create()
        trace = kv.trace(tmp_path / "t.json")
        kv.close()
        for call, why in ((trace.stop, "has ended"), (lambda: kv.trace(tmp_path / "t.json"), "closed")):
            with pytest.raises(mx.errors.FailedPreconditionError, match=why):
                call()

    def test_an_error_inside_is_not_hidden_by_one_of_the_trace(self, tmp_path):
        kv = mx.kv.create()
        with pytest.raises(ZeroDivisionError), kv.trace(tmp_path / "t.json"):
            kv.close()
            raise ZeroDivisionError


class TestNobodyHasEndedIt:
    SCRIPT = """
import os, sys
import tensorkv as mx
kv = mx.kv.create(*{create!r}[0], **{create!r}[1])
kv.init("a", mx.nd.ones((4,)))
{begin}
kv.push("a", mx.nd.ones((4,)))
"""
    STORES = ((("local",), {}), (("dist_sync",), {"bootstrap": "self"}))

    def end_of(self, folder, create, begin, end=""):
        """Run a script in a folder; return its output."""
        script = self.SCRIPT.format(create=create, begin=begin) + end
        return subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, timeout=90)

    @pytest.mark.parametrize("create", STORES, ids=["local", "dist"])
    @pytest.mark.parametrize("end", ["", "kv.close()", "del kv", "raise SystemExit(3)"])
    def test_a_trace_is_written_with_its_store(self, tmp_path, create, end):
        run = self.end_of(tmp_path, create, "kv.trace('t.json')", end)
        assert (run.returncode, run.stderr) == (3 if "3" in end else 0, "")
        assert "push 'a'" in [e["name"] for e in events(tmp_path / "t.json")]

    def test_the_profiler_writes_the_file_of_each_process(self, tmp_path):
        begin = """
for process in ("worker", "server"):
    mx.profiler.set_state("run", process)
mx.profiler.set_config(filename="late.json")
mx._core._warn_of_leaks(True)
"""
        for end in ("", "kv.close()"):
            run = self.end_of(tmp_path, self.STORES[0], begin, end)
            assert (run.returncode, run.stderr) == (0, "")
            for name in ("late.json", "server_profile.json"):
                assert [e["name"] for e in events(tmp_path / name)] == ["push 'a'"]
                (tmp_path / name).unlink()

    def test_what_cannot_be_written_at_the_end_is_said(self, tmp_path):
        end = "os.mkdir('t.json'); os.mkdir('t.json/x')"
        run = self.end_of(tmp_path, self.STORES[0], "kv.trace('t.json')", end)
        assert run.returncode == 1
        assert f"trace: {tmp_path}/t.json: rename: Is a directory" in run.stderr

    def test_a_child_of_fork_leaves_the_file_to_its_parent(self, tmp_path):
        end = "if os.fork() == 0: sys.exit(0)\nassert os.wait()[1] == 0 and not os.path.exists('t.json')"
        run = self.end_of(tmp_path, self.STORES[0], "kv.trace('t.json')", end)
        assert (run.returncode, run.stderr) == (0, "")
        assert len(events(tmp_path / "t.json")) == 1

    def test_the_next_trace_of_a_store_ends_it(self, tmp_path):
        kv = mx.kv.create()
        kv.init("a", mx.nd.ones((4,)))
        kv.trace(tmp_path / "one.json")
        kv.push("a", mx.nd.ones((4,)))
        second = kv.trace(tmp_path / "two.json")
        kv.push("a", mx.nd.ones((4,)))
        assert second.stop() == {"spans": 1, "lost": 0}
        assert len(events(tmp_path / "one.json")) == 1


class TestServers:
    def test_pushes_pulls_and_updates_of_all_workers_with_one_clock(self, tmp_path):
        with mx.testing.cluster(workers=2, servers=2) as cluster:

            def work(kv):
                kv.init("w", mx.nd.zeros((4,)))
                kv.init("big", mx.nd.zeros((100,)))
                kv.barrier()
                trace = kv.trace(tmp_path / "t.json") if kv.rank == 0 else None
                kv.barrier()
                out = mx.nd.zeros((4,))
                for _ in range(3):
                    kv.push("w", mx.nd.ones((4,)))
                    kv.pull("w", out=out)
                kv.pushpull("big", mx.nd.ones((100,)), out=mx.nd.zeros((100,)))
                kv.barrier()
                return trace.stop() if trace else None

            result = cluster.run(work)[0]
        found = events(tmp_path / "t.json")
        assert result == {"spans": len(found), "lost": 0}
        who = names_of(tmp_path / "t.json")
        assert list(who.values()) == ["worker 0", "server 0", "server 1"]
        mine = [e for e in found if who[e["pid"]] == "worker 0" and e["args"]["key"] == "'w'"]
        assert [e["name"] for e in sorted(mine, key=lambda e: e["ts"])] == ["push 'w'", "pull 'w'"] * 3
        theirs = [e for e in found if who[e["pid"]] != "worker 0" and e["args"]["key"] == "'w'"]
        for rank in (0, 1):
            assert sum(e["cat"] == "push" and e["args"]["rank"] == rank for e in theirs) == 3
        updates = [e for e in theirs if e["cat"] == "update"]
        assert [e["args"]["number"] for e in sorted(updates, key=lambda e: e["ts"])] == [1, 2, 3]
        assert all(e["args"]["bytes"] == 16 for e in updates)
        # A server's span for a push of this worker lies within the worker's span, up to the clocks' error.
        document = json.loads((tmp_path / "t.json").read_text())
        error = max(document["otherData"]["clock_error_us"].values())
        pushes = sorted((e for e in mine if e["cat"] == "push"), key=lambda e: e["ts"])
        received = sorted((e for e in theirs if e["cat"] == "push" and e["args"]["rank"] == 0), key=lambda e: e["ts"])
        for push, inner in zip(pushes, received, strict=True):
            assert inner["ts"] >= push["ts"] - error
            assert inner["ts"] + inner["dur"] <= push["ts"] + push["dur"] + error

    def test_what_is_under_way_at_the_end_is_there(self, tmp_path):
        with mx.testing.cluster(workers=2, servers=1) as cluster:
            for rank in (0, 1):
                cluster.store(rank).init("w", mx.nd.zeros((4,)))
            kv = cluster.store(0)
            with kv.trace(tmp_path / "t.json"):
                kv.push("w", mx.nd.ones((4,)))
                waiting = kv.pull("w", async_op=True)
            cluster.store(1).push("w", mx.nd.ones((4,)))
            assert waiting.wait().asnumpy()[0] == 2
            (pull,) = (e for e in events(tmp_path / "t.json") if e["pid"] == 1 and e["cat"] == "pull")
            assert pull["args"]["state"] == "under way"

    def test_a_trace_costs_the_servers_nothing_when_it_has_ended(self, tmp_path):
        with mx.testing.cluster(workers=1, servers=1) as cluster:
            kv = cluster.store(0)
            kv.init("w", mx.nd.zeros((4,)))
            for i in range(3):
                with kv.trace(tmp_path / f"{i}.json"):
                    kv.push("w", mx.nd.ones((4,)))
                kv.push("w", mx.nd.ones((4,)))
                kinds = [e["cat"] for e in events(tmp_path / f"{i}.json")]
                assert sorted(kinds) == ["push", "push", "update"], i

    def test_an_expired_call_is_a_span_that_failed(self, tmp_path):
        with mx.testing.cluster(workers=2, servers=1, patience=2) as cluster:
            for rank in (0, 1):
                cluster.store(rank).init("w", mx.nd.zeros((4,)))
            kv = cluster.store(0)
            with kv.trace(tmp_path / "t.json"):
                kv.push("w", mx.nd.ones((4,)))
                with pytest.raises(mx.errors.DeadlineExceededError):
                    kv.pull("w")
            mine = [e for e in events(tmp_path / "t.json") if e["pid"] == 1]
            assert [(e["cat"], e["args"]["state"]) for e in mine] == [("push", "done"), ("pull", "failed")]

    def test_a_trace_that_cannot_begin_leaves_nothing_behind(self, tmp_path):
        with mx.testing.cluster(workers=1, servers=2, server_patience=1) as cluster:
            kv = cluster.store(0)
            kv.init([f"w{i}" for i in range(8)], [mx.nd.zeros((4,))] * 8)
            cluster.kill_server(1)
            with pytest.raises(mx.errors.UnavailableError, match="server 1"):
                kv.trace(tmp_path / "t.json")
            with pytest.raises(mx.errors.FailedPreconditionError, match="no trace has begun"):
                kv._trace_write(str(tmp_path / "t.json"))

    def test_a_server_that_has_died_is_left_out(self, tmp_path):
        with mx.testing.cluster(workers=1, servers=2, server_patience=2) as cluster:
            kv = cluster.store(0)
            kv.init([f"w{i}" for i in range(8)], [mx.nd.zeros((4,))] * 8)
            trace = kv.trace(tmp_path / "t.json")
            kv.pushpull([f"w{i}" for i in range(8)], [mx.nd.ones((4,))] * 8, out=[mx.nd.zeros((4,)) for _ in range(8)])
            cluster.kill_server(1)
            trace.stop()
            assert list(names_of(tmp_path / "t.json").values()) == ["worker 0", "server 0", "server 1 (out of reach)"]
            assert any(e["cat"] == "update" for e in events(tmp_path / "t.json"))


class TestMxnetsNames:
    def test_run_stop_and_dump(self, profiler, tmp_path):
        kv = mx.kv.create()
        kv.init("a", mx.nd.ones((4,)))
        profiler.set_config(profile_all=True, filename=str(tmp_path / "p.json"), profile_process="server")
        profiler.set_state("run", profile_process="server")
        kv.push("a", mx.nd.ones((4,)))
        profiler.pause(profile_process="server")
        kv.push("a", mx.nd.ones((4,)))
        profiler.resume(profile_process="server")
        kv.push("a", mx.nd.ones((4,)))
        profiler.set_state("stop", profile_process="server")
        profiler.dump(profile_process="server")
        assert len(events(tmp_path / "p.json")) == 2

    def test_worker_and_server_share_one_trace_and_write_two_files(self, profiler, tmp_path):
        kv = mx.kv.create()
        kv.init("a", mx.nd.ones((4,)))
        for process in ("worker", "server"):
            profiler.set_config(filename=tmp_path / f"{process}.json", profile_process=process)
            profiler.set_state("run", process)
        kv.push("a", mx.nd.ones((4,)))
        for process in ("worker", "server"):
            profiler.dump(profile_process=process)
            assert len(events(tmp_path / f"{process}.json")) == 1

    def test_what_is_not_here_is_an_error(self, profiler):
        with pytest.raises(mx.errors.UnimplementedError, match="aggregate_stats"):
            profiler.set_config(aggregate_stats=True)
        with pytest.raises(mx.errors.InvalidArgumentError, match="'filname'"):
            profiler.set_config(filname="x")
        with pytest.raises(mx.errors.InvalidArgumentError, match="'walk'"):
            profiler.set_state("walk")
        with pytest.raises(mx.errors.InvalidArgumentError, match="'head'"):
            profiler.set_state("run", "head")
        with pytest.raises(mx.errors.FailedPreconditionError, match="nothing was noted"):
            profiler.dump()
        with pytest.raises(mx.errors.UnimplementedError, match="finished"):
            profiler.dump(finished=False)
        with pytest.raises(mx.errors.UnimplementedError, match="kv.stats"):
            profiler.dumps()
        with pytest.raises(AttributeError, match=r"torch\.profiler"):
            profiler.Task  # noqa: B018

    def test_the_older_names_and_a_store_of_the_users_choice(self, profiler, tmp_path):
        first, second = mx.kv.create(), mx.kv.create()
        for kv in (first, second):
            kv.init("a", mx.nd.ones((4,)))
        with pytest.raises(mx.errors.InvalidArgumentError, match="no open store"):
            profiler.set_kvstore_handle(3)
        profiler.set_kvstore_handle(first)
        profiler.profiler_set_config("all", str(tmp_path / "p.json"))
        profiler.profiler_set_state("run")
        first.push("a", mx.nd.ones((4,)))
        second.push("a", mx.nd.ones((4,)))
        profiler.dump_profile()
        assert len(events(tmp_path / "p.json")) == 1
