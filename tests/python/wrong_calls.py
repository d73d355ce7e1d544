"""Wrong calls of a user, which nobody runs: type checkers have to find each line marked with `# wrong`, and no other.

After the mark stand the error code of mypy and the rule of pyright.
"""

import asyncio

import numpy as np
import tensorkv as mx

kv = mx.kv.create("local")
a = mx.nd.ones((2, 3))
program = mx.Program("program p\nvalue <- sum\n")


def wait_for_it(text: str, grad: mx.NDArray, stored: mx.NDArray) -> None:
    """Take what an updater takes."""


def takes_two(key: int, grad: mx.NDArray) -> None:
    """Take too little for an updater."""


# Names
kv.pushh("w", a)  # wrong: attr-defined, reportAttributeAccessIssue
kv.pull("w").asnump()  # wrong: attr-defined, reportAttributeAccessIssue
mx.kv.creat("local")  # wrong: attr-defined, reportAttributeAccessIssue
mx.nd.zeroes((2,))  # wrong: attr-defined, reportAttributeAccessIssue
mx.errors.KeyNotFound  # wrong: attr-defined, reportAttributeAccessIssue
a.shap  # wrong: attr-defined, reportAttributeAccessIssue

# Arguments that are missing, or of the wrong kind
kv.push("w")  # wrong: arg-type, reportArgumentType
kv.init("w")  # wrong: arg-type, reportArgumentType
kv.init(3.5, a)  # wrong: call-overload, reportArgumentType
kv.init(3, None)  # wrong: call-overload, reportArgumentType
kv.init(3.5, None)  # wrong: call-overload, reportArgumentType
kv.init(b"w", a)  # wrong: call-overload, reportArgumentType
kv.init("w", 5)  # wrong: call-overload, reportArgumentType
kv.init("w", a, mode="sometimes")  # wrong: call-overload, reportArgumentType
kv.init(["v", "w"], a)  # wrong: call-overload, reportArgumentType
kv.push("w", [1.0, 2.0])  # wrong: list-item, reportArgumentType
kv.push("w", "text")  # wrong: arg-type, reportArgumentType
kv.push("w", a, priority="high")  # wrong: call-overload, reportArgumentType
kv.push("w", a, 0, True)  # wrong: call-overload, reportCallIssue
kv.push(["v", "w"], a)  # wrong: call-overload, reportArgumentType
kv.push({"v": a}, a)  # wrong: call-overload, reportCallIssue
kv.push([3.5], [a])  # wrong: type-var, reportArgumentType
kv.push(None, a)  # wrong: call-overload, reportArgumentType
kv.pull("w", out=5)  # wrong: call-overload, reportArgumentType
kv.pull("w", out=[[a]])  # wrong: arg-type, reportArgumentType
kv.pull(["v", "w"], out=a)  # wrong: call-overload, reportArgumentType
kv.pull("w", out=a, like=a)  # wrong: call-overload, reportCallIssue
kv.pull("w", asynchronous=True)  # wrong: call-overload, reportCallIssue
kv.pushpull("w")  # wrong: arg-type, reportArgumentType
kv.pushpull("w", None)  # wrong: call-overload, reportArgumentType
kv.pushpull(["w"], [a], out=7)  # wrong: call-overload, reportArgumentType
kv.broadcast("w", a)  # wrong: call-overload, reportCallIssue
kv.broadcast("w", a, [[a]])  # wrong: list-item, reportArgumentType
kv.delete(["v", "w"])  # wrong: arg-type, reportArgumentType
kv.barrier(5)  # wrong: call-overload, reportCallIssue

# Results of calls
name: str = kv.pull("w")  # wrong: assignment, reportAssignmentType
kv.pull(["w"]).asnumpy()  # wrong: attr-defined, reportAttributeAccessIssue
kv.pull("w", async_op=True).asnumpy()  # wrong: attr-defined, reportAttributeAccessIssue
kv.push("w", a, async_op=False).wait()  # wrong: attr-defined, reportAttributeAccessIssue
kv.pull("w", async_op=True).wait(timeout="1 s")  # wrong: arg-type, reportArgumentType
text: str = kv.round("w")  # wrong: assignment, reportAssignmentType
kv.rank = 3  # wrong: misc, reportAttributeAccessIssue

# Options
mx.kv.create("local", treads=4)  # wrong: call-overload, reportCallIssue
mx.kv.create("dist_sync", on_death="ignore")  # wrong: call-overload, reportArgumentType
mx.kv.create("dist_sync", bootstrap=5)  # wrong: call-overload, reportArgumentType
mx.kv.create("dist_sync", staleness="3")  # wrong: call-overload, reportArgumentType
mx.kv.create(5)  # wrong: call-overload, reportArgumentType
mx.KVStore("local", treads=4)  # wrong: call-arg, reportCallIssue
mx.testing.cluster(stalenes=3)  # wrong: call-arg, reportCallIssue
mx.testing.cluster(bootstrap="self")  # wrong: call-arg, reportCallIssue

# Updaters and optimizers
kv.set_updater(3)  # wrong: arg-type, reportArgumentType
kv.set_updater(takes_two)  # wrong: arg-type, reportArgumentType
kv.set_updater(wait_for_it)
kv.set_optimizer("sgd")  # wrong: arg-type, reportArgumentType
kv.set_optimizer([program])  # wrong: arg-type, reportArgumentType
mx.optimizer.SGD(learning_rat=0.1)  # wrong: call-arg, reportCallIssue
mx.optimizer.SGD(learning_rate="fast")  # wrong: arg-type, reportArgumentType
mx.optimizer.Adam(momentum=0.9)  # wrong: call-arg, reportCallIssue
mx.Program(5)  # wrong: arg-type, reportArgumentType

# Arrays and contexts
mx.nd.zeros("2")  # wrong: arg-type, reportArgumentType
mx.nd.zeros((2.5,))  # wrong: arg-type, reportArgumentType
mx.nd.zeros((2,), dtype=5)  # wrong: call-overload, reportArgumentType
mx.nd.zeros((2,), ctx="tpu")  # wrong: call-overload, reportArgumentType
mx.nd.array(None)  # wrong: arg-type, reportArgumentType
mx.nd.array({"a": 1})  # wrong: arg-type, reportArgumentType
a + "text"  # wrong: operator, reportOperatorIssue
a["row"]  # wrong: index, reportArgumentType
a.reshape("x")  # wrong: arg-type, reportArgumentType
a.copyto("cpu")  # wrong: call-overload, reportArgumentType
mx.Context("tpu", 0)  # wrong: arg-type, reportArgumentType
mx.cpu("0")  # wrong: arg-type, reportArgumentType
mx.cpu(1).device_id = 2
mx.np.zeros((2,), np.float32, ctx=0)  # wrong: arg-type, reportArgumentType


# Tickets
async def waits() -> None:
    """Await what is none."""
    await kv.push("w", a)  # wrong: misc, reportGeneralTypeIssues
    await kv.pull("w")  # wrong: misc, reportGeneralTypeIssues
    await kv.pull("w", async_op=True)
    await mx.kv.create("local")  # wrong: misc, reportGeneralTypeIssues
    value: str = await kv.pull("w", async_op=True)  # wrong: assignment, reportAssignmentType
    print(value)
    with mx.kv.create_async("local"):  # wrong: attr-defined, reportGeneralTypeIssues
        pass


asyncio.create_task(kv.pull("w"))  # wrong: arg-type, reportArgumentType
asyncio.run(kv.close())  # wrong: arg-type, reportArgumentType
