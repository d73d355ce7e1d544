"""Compressed pushes over cut connections: arrived values and residuals contain each gradient exactly once."""

import pytest
from jobs import finish

TYPES = {
    "none": {"type": "none"},
    "fp16": {"type": "fp16"},
    "bf16": {"type": "bf16"},
    "int8": {"type": "int8"},
    "2bit": {"type": "2bit", "threshold": 2.0},
    "1bit": {"type": "1bit"},
    "topk": {"type": "topk", "ratio": 0.05},
    "large": {"type": "2bit", "threshold": 4.0},
}
STEPS = 1500
# With a learning rate of -1, values are the sums of all arrived pushes; a push of type none sends the residuals.
WORK = f"""
TYPES, STEPS = {TYPES!r}, {STEPS}
keys = list(TYPES)
sizes = dict([(key, 1100) for key in keys], large=262_144 + 17)  # in two chunks
random = np.random.default_rng(int(os.environ["TKV_RANK"]))
given = {{key: np.zeros(size) for key, size in sizes.items()}}
magnitude = {{key: np.zeros(size) for key, size in sizes.items()}}
with mx.kv.create(os.environ["STORE"]) as kv:
    kv.init(keys, [mx.nd.zeros((size,)) for size in sizes.values()])
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=-1))
    kv.barrier()  # in dist_async nobody pushes before rank 0 has set it
    for key, params in TYPES.items():
        kv.set_gradient_compression(params, keys=key)
    for step in range(STEPS):
        for key, size in sizes.items():
            if key == "large" and step % 50:
                continue
            gradient = random.normal(size=size).astype(np.float32)
            given[key] += gradient
            magnitude[key] += np.abs(gradient)
            kv.push(key, gradient)
    kv.set_gradient_compression({{"type": "none"}})
    kv.push(keys, [np.zeros(size, np.float32) for size in sizes.values()])
    kv.barrier()
    for key, size in sizes.items():
        for name, part in [("given", given), ("magnitude", magnitude)]:
            kv.init(f"{{name}} {{key}}", mx.nd.zeros((size,), dtype="float64"))
            kv.push(f"{{name}} {{key}}", part[key])
    kv.barrier()
    for key in keys:
        arrived = kv.pull(key).asnumpy().astype(np.float64)
        lost = np.abs(arrived - kv.pull(f"given {{key}}").asnumpy())
        error = (lost / kv.pull(f"magnitude {{key}}").asnumpy()).max()
        assert error < 1e-6, f"{{key}}: {{error}}"
    print("all has arrived", flush=True)
"""
CUTS = [
    f"{who}:{moment}:{count}:cut"
    for who, moment, first in [
        ("worker 0", "sent:PUSH", 300),
        ("worker 1", "received:ACCEPTED", 500),
        ("server 0", "received:PUSH", 700),
        ("server 1", "sent:ACCEPTED", 900),
    ]
    for count in range(first, 9000, 800)
]


@pytest.mark.parametrize("store", ["dist_sync", "dist_async"])
@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_what_arrives_and_what_is_owed_are_all_gradients_over_connections_that_are_cut(processes, transport, store):
    job = processes.launch(WORK, STORE=store, TKV_TRANSPORT=transport, TKV_FAILPOINTS=",".join(CUTS))
    status, said = finish(job)
    assert status == 0 and said.count("all has arrived") == 2, said
    assert said.count("resumed the session") > 10, said
