"""Every public member of MXNet that scripts with a KVStore meet is here, with its parameters, and stands in docs/mxnet.md."""

import inspect
import json
import operator
import os
import pathlib
import re
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorkv as mx

HERE = pathlib.Path(__file__).parent
MEMBERS = json.loads((HERE / "mxnet_members.json").read_text())
OWNERS = json.loads((HERE / "mxnet_names.json").read_text())
DOCUMENT = (HERE.parents[1] / "docs" / "mxnet.md").read_text()
ELSEWHERE = {  # that are not here, and why
    "kv.KVStore": "made by create; MXNet's takes a handle",
    "kv.KVStore.handle": "there is none",
    "init.FusedRNN": "of networks",
    "random.Context": "mx.Context",
    **{
        f"profiler.{name}": "what a script notes by itself" for name in "Counter Domain Event Frame Marker Task".split()
    },
    "metric.PCC.sum_metric": "no sum",
    "metric.PCC.global_sum_metric": "no sum",
    "metric.PearsonCorrelation.reset_micro": "of its own computation",
    "metric.PearsonCorrelation.update_cov": "of its own computation",
    "metric.PearsonCorrelation.update_variance": "of its own computation",
}
NAMES = {"labels": "label", "preds": "pred", "_": "labels"}  # of parameters, by MXNet's other ones


def is_elsewhere(name):
    return any(name == other or name.startswith(other + ".") for other in ELSEWHERE if other != "kv.KVStore")


@pytest.mark.parametrize("name", [name for name in MEMBERS if not is_elsewhere(name) and name != "kv.KVStore"])
def test_each_member_is_here_with_its_parameters(name):
    member = operator.attrgetter(name)(mx)
    wanted = MEMBERS[name]
    if wanted is None:
        return
    found = (
        inspect.signature(member.__init__ if inspect.isclass(member) else member).parameters
        if name != "kv.KVStore._barrier"
        else {}
    )
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in found.values()):
        return
    missing = [p for p in wanted if not p.startswith("*") and p not in found and NAMES.get(p) not in found]
    assert missing == []


OF_ITSELF = {  # which no script asks for
    "mx.torch",  # is tensorkv.torch
    *(
        "mx.nd.get_indexing_dispatch_code",
        "mx.nd.get_oshape_of_gather_nd_op",
        "mx.nd.indexing_key_expand_implicit_axes",
    ),
}


@pytest.mark.parametrize("owner", OWNERS)
def test_each_name_is_here_or_says_what_to_use(owner):
    arrays = {
        "NDArray": mx.nd.ones((2,)),
        "ndarray": mx.np.ones((2,)),
        "RowSparseNDArray": mx.nd.sparse.zeros("row_sparse", (2, 1)),
    }
    found = arrays[owner] if owner in arrays else eval(owner, {"mx": mx})
    kind = "NDArray" if owner == "ndarray" else owner
    for name in OWNERS[owner]:
        if hasattr(found, name) or f"{owner}.{name}" in OF_ITSELF:
            continue
        with pytest.raises(AttributeError, match=rf"^{kind}\.{name} is not here: .+ \(docs/mxnet\.md\)") as error:
            getattr(found, name)
        for ours in re.findall(r"mx\.[\w.]*\w", str(error.value).partition(": ")[2]):
            operator.attrgetter(ours.removeprefix("mx."))(mx)


def test_a_store_says_that_it_has_no_handle():
    with pytest.raises(
        AttributeError, match="^KVStore.handle is not here: there is none; a store is the object itself"
    ):
        mx.kv.create("local").handle
    with pytest.raises(AttributeError, match="'KVStore' object has no attribute 'nothing'"):
        mx.kv.create("local").nothing


def test_dtypes_and_numbers_have_names():
    assert mx.np.ones((2,), dtype=mx.np.int32).dtype_name == "int32"
    assert mx.np.zeros((2,), dtype=mx.np.bool_).dtype_name == "bool" and mx.np.pi == np.pi and mx.np.inf == np.inf
    assert mx.np.ones((2,))[mx.np.newaxis].shape == (1, 2) and mx.np.isnan(mx.np.full((1,), mx.np.nan)).item()
    assert mx.Context.devtype2str[mx.Context.devstr2type["gpu"]] == "gpu"


def test_the_switch_to_numpy_does_nothing():
    assert mx.npx.set_np() is mx.npx.reset_np() is None and mx.npx.is_np_array() and mx.npx.is_np_shape()
    with pytest.raises(mx.errors.UnimplementedError, match="dtype=True"):
        mx.npx.set_np(dtype=True)


def test_a_name_that_mxnet_does_not_have_is_missing_as_any():
    for found, kind in (
        (mx, "tensorkv"),
        (mx.nd, "tensorkv.ndarray"),
        (mx.np, "tensorkv.numpy"),
        (mx.optimizer, "tensorkv.optimizer"),
        (mx.nd.ones((2,)), "NDArray"),
    ):
        with pytest.raises(AttributeError, match=f"'{kind}'.* has no attribute 'nothing'"):
            found.nothing


def test_a_module_that_is_not_imported_yet_says_how_to():
    with pytest.raises(AttributeError, match="mx.torch is there from `import tensorkv.torch` on"):
        mx.__getattr__("torch")  # as where nothing has imported it


def test_the_optimizer_of_contrib_has_one_that_is_nearest():
    with pytest.raises(
        AttributeError, match=r"^mx\.optimizer\.contrib is not here: its GroupAdaGrad.*mx\.optimizer\.AdaGrad"
    ):
        mx.optimizer.contrib.GroupAdaGrad


def test_an_array_is_of_mx_nd_or_of_mx_np_as_asked():
    a = mx.nd.ones((2,))
    x = a.as_np_ndarray()
    x[0] = 5
    assert type(x) is mx.np.ndarray and type(x.as_nd_ndarray()) is mx.nd.NDArray
    assert a.asnumpy().tolist() == [5, 1]


def rows():
    """Return the names in the first column of the tables of members."""
    part = DOCUMENT[DOCUMENT.index("## Member by member") : DOCUMENT.index("## Optimizers")]
    cells = [line.split("|")[1] for line in part.splitlines() if line.startswith("| `")]
    names = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    return [name for name in names if not re.match(r"[A-Z]+_", name)]  # variables of the environment


def test_the_table_has_every_member_and_no_other():
    wanted = set()
    for name in MEMBERS:
        prefix, _, member = name.partition(".")
        if prefix == "kv":
            wanted.add(name if "." not in member else member)
        elif prefix == "optimizer" and member.startswith(("Optimizer", "Updater.", "create", "register", "get_")):
            wanted.add(member if "." in member else name)
    wanted.add("LRScheduler.get_warmup_lr")
    wanted -= {"kv.KVStore", "kv.KVStoreBase", "kv.KVStoreServer"}
    assert wanted - set(rows()) == set()
    assert set(rows()) - wanted == {"KVStore.handle"}  # an attribute of each store
    for optimizer in (name for name in MEMBERS if re.fullmatch(r"optimizer\.[A-Z]\w+", name)):
        assert optimizer.partition(".")[2] in DOCUMENT or optimizer.endswith((".Test", ".Updater")), optimizer


def store(**options):
    kv = mx.kv.create("local", **options)
    kv.init(3, mx.nd.zeros((2,)))
    return kv


class TestMembers:
    """Members of the table that have no suite of their own."""

    @pytest.mark.parametrize(
        "name", ["p3", "dist_p3", "dist_sync_p3", "dist_async_p3", "p3store_dist", "DIST_SYNC_DEVICE"]
    )
    def test_names_of_distributed_stores(self, name):
        with mx.kv.create(name, bootstrap="self") as kv:
            kv.init("w", mx.nd.ones((2,)))
            kv.push("w", mx.nd.ones((2,)) * 2)
            assert kv.pull("w").asnumpy().tolist() == [2, 2] and kv.type == name.lower()

    @pytest.mark.parametrize(("name", "use"), [("horovod", "'dist_sync'"), ("byteps", "'dist_sync'")])
    def test_stores_of_others_say_what_to_use(self, name, use):
        with pytest.raises(mx.errors.UnimplementedError, match=f"create '{name}'.*{use}"):
            mx.kv.create(name)

    def test_a_store_of_gpus_says_what_to_use_without_one(self):
        if mx.num_gpus() > 0:
            pytest.skip("here it is a store")
        with pytest.raises(mx.errors.UnimplementedError, match="create 'nccl'.*'device' sums on the host"):
            mx.kv.create("nccl")

    def test_registries_and_the_server(self):
        assert mx.kv.KVStore.kv_registry is mx.kv.KVStoreBase.kv_registry

        @mx.kv.KVStore.register
        class Mine(mx.kv.KVStoreBase):
            pass

        assert isinstance(mx.kv.create("MINE"), Mine) and mx.kv.KVStore.kv_registry.pop("mine") is Mine
        assert mx.kv.KVStoreServer is mx.kvstore.kvstore_server.KVStoreServer
        assert isinstance(mx.kv.create("local"), mx.kv.KVStoreBase)

    @pytest.mark.parametrize("head", ["optimizer", 0])
    def test_a_command_sets_an_optimizer(self, head):
        kv = store()
        kv._send_command_to_servers(head, mx.optimizer.SGD(learning_rate=0.5))
        kv.push(3, mx.nd.ones((2,)))
        assert kv.pull(3).asnumpy().tolist() == [-0.5, -0.5]

    def test_commands_that_are_none(self):
        kv = store()
        with pytest.raises(mx.errors.UnimplementedError, match="pickle"):
            kv._send_command_to_servers(0, b"cos\nsystem\n")
        for head, use in ((1, "multi_precision=True"), (2, "end by themselves"), (3, "mode='async'"), (5, "kv.trace")):
            with pytest.raises(mx.errors.UnimplementedError, match=use):
                kv.send_command_to_servers(head, "")
        with pytest.raises(mx.errors.FailedPreconditionError, match="compression"):
            kv.send_command_to_servers(4, {"type": "2bit"})
        for head in (6, -1, "restart", None, True):
            with pytest.raises(mx.errors.InvalidArgumentError, match=r"no command .*optimizer \(0\)"):
                kv.send_command_to_servers(head, "")

    def test_dead_processes_are_counted(self):
        assert store().num_dead_node(7) == 0
        with mx.testing.cluster(2, 2, on_death="continue") as job:
            first, second = job
            end = time.monotonic() + 30  # until the head has told the first of the second
            while first.stats()["workers"] != ["alive", "alive"] and time.monotonic() < end:
                time.sleep(0.01)
            assert [first.num_dead_node(n) for n in (1, 2, 4, 7, 8, 9)] == [0] * 6
            assert first.stats()["workers"] == ["alive", "alive"] and first.stats()["servers"] == ["alive"] * 2
            job.kill_server(1)
            end = time.monotonic() + 30
            while first.num_dead_node(2) == 0 and time.monotonic() < end:
                time.sleep(0.01)
            assert [first.num_dead_node(n) for n in (1, 2, 4, 7, 8, 10, 11)] == [0, 1, 0, 1, 0, 1, 0]
            for wrong in (0, 12, -1, True, "7"):
                with pytest.raises(mx.errors.InvalidArgumentError, match="num_dead_node"):
                    second.num_dead_node(wrong)

    def test_a_barrier_before_the_exit(self):
        def work(kv):
            kv.init("w", mx.nd.zeros((2,)))
            kv.set_barrier_before_exit()
            if kv.rank == 1:
                kv.push("w", mx.nd.ones((2,)))  # whoever closed without it would have left before this round
            else:
                kv.push("w", mx.nd.ones((2,)))
            kv.close()
            assert kv._waits_at_close is False

        with mx.testing.cluster(2) as job:
            job.run(work)
        kv = store()
        kv.set_barrier_before_exit(False)
        kv.close()

    def test_states_of_an_updater_are_data(self):
        updater = mx.optimizer.Updater(mx.optimizer.Adam(multi_precision=True))
        for key, dtype in ((0, "float32"), ("w", "float16"), (2, "bfloat16")):
            updater(key, mx.nd.ones((2, 3), dtype=dtype), mx.nd.ones((2, 3), dtype=dtype))
        updater.states["more"] = {"a": [1, 2.5, None, "x", True], "b": mx.nd.array(np.zeros((0, 3)))}
        content = updater.get_states()
        other = mx.optimizer.Updater(mx.optimizer.Adam())
        other.set_states(content)
        assert other.states.keys() == updater.states.keys() and other.states["more"]["a"] == [1, 2.5, None, "x", True]
        for key in (0, "w", 2):
            assert type(other.states[key]) is type(updater.states[key])
        assert other.get_states() == content
        moved = other.sync_state_context(other.states[0], mx.cpu(1))
        assert all(array.context == mx.cpu(1) for array in moved) and type(moved) is type(other.states[0])

    def test_bytes_that_are_no_states_change_nothing(self):
        updater = mx.optimizer.Updater(mx.optimizer.SGD(momentum=0.9))
        updater(0, mx.nd.ones((2,)), mx.nd.ones((2,)))
        content = updater.get_states()
        wrong = [b"", b"\x80\x04N.", content[:-1], content + b"x", b"\xff" * 40, "text"]
        text = b'{"format": "tensorkv-states 1", "states": [["a", {"dict": [1]}]]}'
        wrong += [len(text).to_bytes(8, "little") + text]
        wrong += [content[:at] + bytes([content[at] ^ 64]) + content[at + 1 :] for at in range(len(content) - 8)]
        before = updater.states[0]
        for one in wrong:
            try:
                updater.set_states(one)
            except mx.errors.InvalidArgumentError as error:
                assert "set_states" in str(error)
                assert updater.states[0] is before
            else:  # another key, or another number in it
                updater.states = {0: before}
        with pytest.raises(mx.errors.UnimplementedError, match="dump_optimizer"):
            updater.get_states(dump_optimizer=True)
        updater.states[0] = object()
        with pytest.raises(mx.errors.UnimplementedError, match="object"):
            updater.get_states()

    def test_what_mxnet_has_given_up_says_what_to_use(self):
        with pytest.raises(mx.errors.UnimplementedError, match="set_lr_mult"):
            mx.optimizer.SGD().set_lr_scale({})

    def test_warm_ups(self):
        for mode, wanted in (("linear", [0.2, 0.4, 0.6, 0.8]), ("constant", [0.2] * 4)):
            schedule = mx.lr_scheduler.LRScheduler(1.0, warmup_steps=4, warmup_begin_lr=0.2, warmup_mode=mode)
            assert [schedule.get_warmup_lr(n) for n in range(4)] == pytest.approx(wanted)
            with pytest.raises(mx.errors.InvalidArgumentError, match="4 steps"):
                schedule.get_warmup_lr(4)

    def test_initializers_tell_and_load(self, tmp_path, caplog):
        caplog.set_level("INFO", "tensorkv")
        w = mx.nd.zeros((2, 2))
        mx.init.Constant(3).set_verbosity(True)("fc_weight", w)
        mx.init.One().set_verbosity(True, print_func=lambda x: f"sum {x.sum().asscalar():.0f}")("fc_bias", w)
        assert caplog.messages == ["Initialized fc_weight as weight: 3.0", "Initialized fc_bias as bias: sum 0"]
        mx.nd.save(tmp_path / "w", {"arg:fc_weight": w + 5})
        load = mx.init.Load(str(tmp_path / "w"), default_init=mx.init.One(), verbose=True)
        load("fc_weight", w)
        assert w.asnumpy().tolist() == [[5, 5], [5, 5]]
        load("other_weight", w)
        assert w.asnumpy().tolist() == [[1, 1], [1, 1]]
        assert caplog.messages[2:] == ["Initialized fc_weight by loading", "Initialized other_weight by default"]
        with pytest.raises(mx.errors.InvalidArgumentError, match=r"shape \(2, 2\)"):
            load("fc_weight", mx.nd.zeros((3,)))
        with pytest.raises(mx.errors.InvalidArgumentError, match="no 'x_weight'"):
            mx.init.Load({})("x_weight", w)


VARIABLES = {
    "MXNET_KVSTORE_REDUCTION_NTHREADS": "TKV_THREADS",
    "MXNET_KVSTORE_BIGARRAY_BOUND": "chunks",
    "PS_VERBOSE": "TKV_LOG",
    "PS_RESEND": "sent again",
    "DMLC_PS_VAN_TYPE": "TKV_TRANSPORT",
    "PS_HEARTBEAT_TIMEOUT": "TKV_SILENCE_MS",
}


def test_variables_of_mxnet_that_have_no_effect_are_warned_of():
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TKV_")} | dict.fromkeys(VARIABLES, "4")
    script = "import tensorkv as mx; mx.kv.create('local'); mx.kv.create('local')"
    run = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0
    for name, instead in VARIABLES.items():
        (line,) = [line for line in run.stderr.splitlines() if f"the variable {name} of MXNet has no effect" in line]
        assert instead in line
