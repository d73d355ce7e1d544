"""A worker of bench/scale.py: joins, makes the keys, pushes and pulls them twice, reports the times, and waits.

`scale_peer.py FOLDER` writes FOLDER/RANK.json. The worker ends when no process has the pipe FOLDER/go open for writing.
"""

import json
import pathlib
import sys
import time

KEYS, ELEMENTS = 64, 4096  # 64 keys of 16 KiB: each of up to 16 servers has some


def main():
    """Run the worker; its times are of the clock that all processes of a host share."""
    times = {"begun": time.monotonic()}
    folder = pathlib.Path(sys.argv[1])
    import tensorkv as mx

    times["imported"] = time.monotonic()
    kv = mx.kv.create("dist_sync")
    times["joined"] = time.monotonic()
    kv.barrier()
    times["all joined"] = time.monotonic()
    keys = [str(i) for i in range(KEYS)]
    kv.init(keys, [mx.nd.zeros((ELEMENTS,)) for _ in keys])
    values, outs = [mx.nd.ones((ELEMENTS,)) for _ in keys], [mx.nd.zeros((ELEMENTS,)) for _ in keys]
    kv.barrier()
    times["keys made"] = time.monotonic()
    kv.pushpull(keys, values, out=outs)
    times["first round"] = time.monotonic()
    kv.pushpull(keys, values, out=outs)
    times["second round"] = time.monotonic()
    if not all((out.asnumpy() == kv.num_workers).all() for out in outs):
        raise SystemExit("a wrong sum")
    unfinished = folder / f"{kv.rank}.unfinished"
    unfinished.write_text(json.dumps(times))
    unfinished.rename(folder / f"{kv.rank}.json")
    with open(folder / "go") as pipe:
        pipe.read()
    kv.close()


if __name__ == "__main__":
    main()
