"""A walk through the store: init, push, aggregate, update, pull, and lists of keys. Each step checks what it shows."""

import numpy as np
import tensorkv as tkv

shape = (2, 3)


def shows(what: str, array: tkv.NDArray, expected: float) -> None:
    """Print an array and check it."""
    print(f"{what}:\n{np.asarray(array)}\n")
    assert (np.asarray(array) == np.float32(expected)).all()


# A store belongs to this process until it is closed; `with` closes it.
with tkv.kv.create("local") as kv:
    # A key gets its shape and dtype from the value it starts with. Keys are ints or strings.
    kv.init(3, tkv.nd.ones(shape) * 2)
    a = tkv.nd.zeros(shape)
    kv.pull(3, out=a)
    shows("a key starts with its initial value", a, 2)

    # A push replaces the value, unless an updater says otherwise. The store has its own copy.
    kv.push(3, tkv.nd.ones(shape) * 8)
    shows("a push replaces it; pull without `out` returns a new array", kv.pull(3), 8)

    # Several workers: the values of one push are summed first.
    workers = [tkv.cpu(i) for i in range(4)]
    kv.push(3, [tkv.nd.ones(shape, ctx) for ctx in workers])
    shows("four values are summed", kv.pull(3), 4)

    # Arrays of NumPy, PyTorch and JAX are values too, read where they are.
    kv.push(3, [np.full(shape, 1, np.float32), np.full(shape, 3, np.float32)])
    shows("so are NumPy's arrays", kv.pull(3), 4)

    # An updater combines the sum with what is stored, by changing `stored` in place.
    def update(key: int | str, input: tkv.NDArray, stored: tkv.NDArray) -> None:
        """Add twice the sum."""
        print(f"update on key: {key}")
        stored += input * 2

    kv.set_updater(update)
    kv.push(3, tkv.nd.ones(shape))
    shows("stored + 2 * sum", kv.pull(3), 6)

    # The same update as a program: no Python at each push, and servers can run it, too.
    kv.set_updater(tkv.Program("program twice\ndouble = mul sum 2\nw = add value double\nvalue <- w\n"))
    kv.push(3, tkv.nd.ones(shape))
    shows("a program does the same", kv.pull(3), 8)

    # An optimizer treats the stored value as a weight and the sum as its gradient.
    kv.set_optimizer(tkv.optimizer.SGD(learning_rate=0.5))
    kv.push(3, tkv.nd.ones(shape))
    shows("one step of SGD", kv.pull(3), 7.5)

    # A pull may fill several arrays.
    outs = [tkv.nd.zeros(shape, ctx) for ctx in workers]
    kv.pull(3, out=outs)
    shows("every output gets the value", outs[2], 7.5)

    # Lists of keys, with an array or a list of arrays for each.
    kv.set_updater(None)
    keys = [5, 7, 9]
    kv.init(keys, [tkv.nd.zeros(shape)] * 3)
    kv.push(keys, [[tkv.nd.ones(shape, ctx) * key for ctx in workers] for key in keys])
    for key, value in zip(keys, kv.pull(keys), strict=True):
        shows(f"key {key}", value, 4 * key)

    # pushpull does both in one pass over memory; without `out` the values receive the result.
    grads = [tkv.nd.ones(shape), tkv.nd.ones(shape)]
    kv.pushpull(5, grads)
    shows("pushpull in place", grads[0], 2)

    # A mistake raises an error that names the key, and changes nothing.
    try:
        kv.push(5, tkv.nd.ones((3, 2)))
    except tkv.KVError as error:
        print(f"refused: {error}\n")
    shows("and key 5 is as it was", kv.pull(5), 2)

print("done")
