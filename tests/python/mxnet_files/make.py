"""Writes the files of this folder again, in an environment with MXNet 1.9.1: `python make.py`."""

import mxnet as mx
import numpy as np

DTYPES = ["float16", "float32", "float64", "uint8", "int8", "int32", "int64"]
mx.nd.save("list.params", [mx.nd.array([1, 2, 3]), mx.nd.array([[1, 2], [3, 4]], dtype="int64")])
arrays = {f"arg:{dtype}": mx.nd.array(np.arange(6).reshape(2, 3), dtype=dtype) for dtype in DTYPES}
mx.nd.save("dict.params", {**arrays, "aux:ü": mx.nd.array([7.5])})
mx.nd.save("single.params", mx.nd.ones((2,)))
mx.nd.save("empty.params", [])
rows = mx.nd.sparse.row_sparse_array((np.full((2, 3), 2, np.float32), [1, 3]), shape=(5, 3))
mx.nd.save("rows.params", {"r": rows, "z": mx.nd.sparse.zeros("row_sparse", (4, 2))})
mx.nd.save("csr.params", {"c": mx.nd.sparse.csr_matrix(np.array([[0, 1], [2, 0]], np.float32))})
mx.npx.set_np()
ours = {
    "s": mx.np.array(3.5),
    "e": mx.np.zeros((0, 3)),
    "b": mx.np.array([True, False], dtype=bool),
    "w": mx.np.ones((2, 2)),
}
mx.npx.save("np.params", ours)
