"""Expressions with row-sparse arrays that this package and MXNet 1.9.1 evaluate to the same; read by sparse_oracle.py too."""

SETUP = """
a = nd.sparse.row_sparse_array(([[1, 2], [3, 4]], [0, 2]), shape=(4, 2))
b = nd.sparse.row_sparse_array(([[1, 2], [3, 4]], [1, 2]), shape=(4, 2))
p = nd.sparse.row_sparse_array(([[0.25, 0.5]], [3]), shape=(4, 2))
h = nd.sparse.row_sparse_array(([[1, 2], [3, 4]], [0, 2]), shape=(4, 2), dtype='float16')
d = nd.array([[0, 1], [2, 3], [4, 5], [0, 7]])
z = nd.array([[0, 0], [1, 0], [0, 0], [0, 2]])
out = nd.sparse.zeros('row_sparse', (4, 2))
n = nd.zeros((4, 2))
kv.init('w', a)
kv.init('d', d)
kv.init('f', (d + 1).tostype('row_sparse'))
"""
UNARY = "abs arcsinh arctan cbrt ceil degrees expm1 fix floor log1p radians relu rint round sign sin sinh sqrt square tan tanh"
UNARY += " trunc exp cos cosh sigmoid zeros_like ones_like sum mean max min norm"
BINARY = "+ - * /"
CASES = [f"a {op} {other}" for op in BINARY.split() for other in ("b", "d", "2", "0.5")]
CASES += [f"{other} {op} a" for op in BINARY.split() for other in ("d", "2", "0.5")]
CASES += ["a + 0", "a - 0", "0 - a", "-a", "abs(-a)", "a ** 2", "a % 2", "h + h", "h * 2", "h + 1"]
CASES += [f"a {op} {other}" for op in ("==", "!=", ">", "<", ">=", "<=") for other in ("b", "d", "0", "1", "-1")]
CASES += [f"a.{name}()" for name in UNARY.split()] + [f"p.{name}()" for name in ("arcsin", "arctanh", "tan")]
CASES += ["nd.sparse.sum(a, axis=0)", "nd.sparse.sum(a, axis=1)", "a.clip(0, 2)", "nd.sqrt(a)", "nd.norm(a)"]
CASES += ["nd.sparse.add(a, b)", "nd.sparse.add(a, 1)", "nd.sparse.multiply(a, 2)", "nd.sparse.divide(a, 2)"]
CASES += ["nd.add(a, d)", "nd.elemwise_add(a, b)", "nd.add_n(a, b)", "nd.add_n(a, d, b)", "nd.dot(a, d.T)"]
CASES += [
    "nd.sparse.dot(d.T, a)",
    "nd.where(a, d, d)",
    "nd.concat(a, a, dim=0)",
    "a + nd.ones((1, 2))",
    "a * nd.ones((4, 1))",
]
CASES += ["a.tostype('default')", "a.tostype('row_sparse')", "d.tostype('row_sparse')", "z.tostype('row_sparse')"]
CASES += [
    "nd.sparse.cast_storage(z, 'row_sparse')",
    "nd.cast_storage(a, 'default')",
    "a.astype('int32')",
    "a.copy()",
    "a[:]",
]
CASES += ["a.copyto(nd.zeros((4, 2)))", "a.copyto(out)", "z.copyto(out)", "a.as_in_context(mx.cpu(1))"]
CASES += ["nd.sparse.retain(a, nd.array([0, 3]))", "nd.sparse.retain(a, nd.array([1, 2]))"]
CASES += [
    "nd.sparse.zeros('row_sparse', (3, 2))",
    "nd.zeros((3, 2), stype='row_sparse')",
    "nd.sparse.zeros('default', (3,))",
]
CASES += [
    "nd.empty((3, 2), stype='row_sparse')",
    "nd.sparse.empty('row_sparse', (3, 2))",
    "nd.sparse.array(a)",
    "nd.array(a)",
]
CASES += [
    "nd.sparse.row_sparse_array(np.eye(2))",
    "nd.sparse.row_sparse_array([[1, 0], [0, 0]])",
    "nd.sparse.row_sparse_array(z)",
]
CASES += [
    "nd.sparse.row_sparse_array(a)",
    "nd.sparse.row_sparse_array((3, 2))",
    "nd.sparse.row_sparse_array(([[1, 2]], [3]))",
]
CASES += [
    "nd.sparse.row_sparse_array((np.ones((1, 2)), [3]))",
    "nd.sparse.row_sparse_array((np.ones((1, 2), 'int64'), [3]))",
]
CASES += [
    "nd.sparse.row_sparse_array((np.zeros((0, 2)), []), shape=(4, 2))",
    "pickle.loads(pickle.dumps(a))",
    "copy.deepcopy(a)",
]
for change in (
    "a += b",
    "a += d",
    "a += 1",
    "a *= 2",
    "a -= b",
    "a /= 2",
    "a[:] = 3",
    "a[:] = b",
    "a[:] = z",
    "a[:] = np.eye(4, 2)",
):
    CASES.append(f"{change}; a")
CASES += ["d += a; d", "d -= a; d", "d *= a; d"]
PULL = "kv.row_sparse_pull('w', out=out, row_ids={}); out"
CASES += [PULL.format(ids) for ids in ("nd.array([2, 0, 2, 1])", "nd.array([[2, 0], [2, 3]])", "nd.array([])")]
CASES += [
    PULL.format("nd.array([3], dtype='int64')"),
    "kv.row_sparse_pull('w', out=[out, b], row_ids=nd.array([2])); b",
]
CASES += [
    "kv.row_sparse_pull('w', out=h, row_ids=nd.array([2])); h",
    "kv.pull('w', out=n); n",
    "kv.pull('w', out=b); b",
]
CASES += ["kv.pull('w', out=out, ignore_sparse=False); out", "kv.pull('d', out=out, ignore_sparse=False); out"]
CASES += ["kv.push('w', [a, b, a]); kv.row_sparse_pull('w', out=out, row_ids=nd.array([0, 1, 2, 3])); out"]
CASES += ["kv.push('d', b); kv.pull('d', out=n); n", "kv.push('d', [a, b, d]); kv.pull('d', out=n); n"]
SGD = "kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.5, momentum=0.5, wd=0.25, lazy_update={})); kv.push('f', [b, p]);"
SGD += " kv.push('f', b); kv.row_sparse_pull('f', out=out, row_ids=nd.array([0, 1, 2, 3])); out"
CASES += [SGD.format(lazy) for lazy in (True, False)]
ADAM = "kv.set_optimizer(mx.optimizer.Adam(learning_rate=0.5, wd=0.25)); kv.push('f', [b, p]); kv.push('f', b);"
CASES += [ADAM + " kv.row_sparse_pull('f', out=out, row_ids=nd.array([0, 1, 2, 3])); out"]


def result(mx, case):
    """Return storage type, dtype, shape, indices and elements of a case."""
    import copy
    import pickle

    import numpy as np

    names = {"nd": mx.nd, "mx": mx, "np": np, "kv": mx.kv.create("local"), "copy": copy, "pickle": pickle}
    exec(SETUP, names)
    *statements, last = case.split("; ")
    exec("; ".join(statements), names)
    found = eval(last, names)
    indices = found.indices.asnumpy().tolist() if found.stype == "row_sparse" else None
    with np.errstate(all="ignore"):
        elements = [repr(x) for x in found.asnumpy().astype("float64").round(6).reshape(-1).tolist()]  # nan is no JSON
    return [found.stype, np.dtype(found.dtype).name, list(found.shape), indices, elements]
