"""Expressions on arrays of `mx.nd` that this package and MXNet 1.9.1 evaluate to the same arrays; read by nd_oracle.py too."""

ARRAYS = {
    "a": "nd.array([[1.5, -2.5, 0.5], [2.5, -0.5, 3]])",
    "b": "nd.array([[0.5, 2, -1], [2, -0.5, 4]])",
    "p": "nd.array([[0.25, 0.5], [0.75, 0.125]])",
    "i": "nd.array([[3, 1, 2]], dtype='int32')",
    "h": "nd.array([[1.5, -2.5, 0.5], [2.5, -0.5, 3]]).astype('float16')",
    "c": "nd.array([2, 0, 5, -1])",
    "t": "nd.arange(24).reshape((2, 3, 4))",
}
UNARY = "exp expm1 sqrt cbrt sin cos tan arctan sinh cosh tanh arcsinh sigmoid softsign reciprocal degrees radians abs square sign"
UNARY += " negative relu floor ceil trunc fix round rint logical_not zeros_like ones_like"
OF_PARTS = "log log10 log2 log1p rsqrt arcsin arccos arctanh"
BINARY = "add subtract multiply divide modulo power maximum minimum equal not_equal greater greater_equal lesser lesser_equal"
BINARY += (
    " logical_and logical_or logical_xor broadcast_add broadcast_sub broadcast_mul broadcast_div broadcast_maximum"
)
BINARY += (
    " broadcast_minimum broadcast_power broadcast_equal broadcast_greater broadcast_lesser elemwise_add elemwise_mul"
)
REDUCTIONS = "sum mean max min prod norm nansum"
CASES = (
    [f"nd.{name}(a)" for name in UNARY.split()] + [f"nd.{name}(p)" for name in OF_PARTS.split()] + ["nd.arccosh(p + 1)"]
)
CASES += [f"nd.{name}(h)" for name in ("exp", "sqrt", "abs", "round", "sigmoid", "relu", "softmax")]
CASES += [f"nd.{name}(i)" for name in ("abs", "square", "sign", "negative", "max", "min", "relu")]
CASES += [f"nd.{name}(b, a)" for name in BINARY.split() if name != "broadcast_power" and name != "power"]
CASES += [
    "nd.power(p, a[:, :2])",
    "nd.broadcast_power(p, p)",
    "nd.power(a, 2)",
    "nd.power(2, a)",
    "nd.maximum(a, 0)",
    "nd.minimum(1, a)",
]
CASES += [
    "nd.add(a, 1)",
    "nd.subtract(1, a)",
    "nd.divide(a, 2)",
    "nd.multiply(i, 2)",
    "nd.modulo(a, 2)",
    "nd.equal(a, 1.5)",
]
CASES += ["nd.broadcast_add(a, nd.array([[1], [2]]))", "nd.broadcast_maximum(a, nd.array([[0, 1, 0]]))"]
for name in REDUCTIONS.split():
    CASES += [f"nd.{name}({of})" for of in ("a", "t", "t, axis=1", "t, axis=-1, keepdims=True", "t, axis=(0, 2)")]
CASES += [
    "nd.sum(t, axis=1, exclude=True)",
    "nd.max(t, axis=(0, 1), exclude=True)",
    "nd.norm(a, ord=1)",
    "nd.norm(t, ord=1, axis=1)",
]
CASES += [
    "nd.mean(h)",
    "nd.mean(h, axis=1)",
    "nd.sum(h)",
    "nd.argmax(a)",
    "nd.argmax(a, axis=1)",
    "nd.argmin(a, axis=0)",
]
CASES += ["nd.argmax(t, axis=2, keepdims=True)", "nd.cumsum(t, axis=1)", "nd.cumsum(a)"]
CASES += [
    "nd.transpose(t)",
    "nd.transpose(t, axes=(1, 0, 2))",
    "nd.transpose(t, (2, 0, 1))",
    "nd.swapaxes(t, 0, 2)",
    "nd.moveaxis(t, 0, 2)",
]
CASES += [
    "nd.expand_dims(a, 0)",
    "nd.expand_dims(a, axis=-1)",
    "nd.squeeze(nd.ones((1, 2, 1)))",
    "nd.squeeze(nd.ones((1, 2, 1)), axis=0)",
]
CASES += [
    "nd.flatten(t)",
    "nd.flip(t, axis=1)",
    "nd.tile(a, (2, 1))",
    "nd.tile(c, 2)",
    "nd.repeat(a, 2)",
    "nd.repeat(a, 2, axis=1)",
]
CASES += [
    "nd.broadcast_to(nd.ones((1, 3)), (2, 3))",
    "nd.broadcast_to(nd.array([[1], [2]]), (0, 3))",
    "nd.broadcast_like(nd.ones((1, 3)), a)",
]
CASES += [
    "nd.concat(a, b)",
    "nd.concat(a, b, dim=0)",
    "nd.concat(i, i, dim=0)",
    "nd.concatenate([a, b])",
    "nd.concatenate([a, b], axis=1)",
]
CASES += ["nd.stack(a, b)", "nd.stack(a, b, axis=1)", "nd.add_n(a, b, a)", "nd.split(t, 2, axis=2)", "nd.split(t, 3)"]
CASES += ["nd.split(t, 2, axis=0, squeeze_axis=True)", "nd.split(a, 1)", "nd.slice(t, begin=(0, 1), end=(2, 3))"]
CASES += [
    "nd.slice(t, begin=(None, 0, 3), end=(None, 3, 0), step=(None, 2, -1))",
    "nd.slice_axis(t, axis=1, begin=1, end=None)",
]
CASES += [
    "nd.slice_axis(t, axis=-1, begin=0, end=-1)",
    "nd.slice_like(t, nd.ones((1, 2, 3)))",
    "nd.slice_like(t, nd.ones((1, 2)), axes=(0, 1))",
]
CASES += [
    "nd.diag(a)",
    "nd.diag(c)",
    "nd.diag(a, k=1)",
    "nd.take(a, nd.array([0, 5, -3]))",
    "nd.take(a, nd.array([-1, 4]), mode='wrap')",
]
CASES += [
    "nd.take(t, nd.array([[0, 1], [2, 2]]), axis=1)",
    "nd.take(a, i)",
    "nd.pick(a, nd.array([0, 2]))",
    "nd.pick(a, nd.array([0, 1, 0]), axis=0)",
]
CASES += [
    "nd.pick(a, nd.array([9, 1]), keepdims=True)",
    "nd.one_hot(c, 3)",
    "nd.one_hot(i, 4)",
    "nd.one_hot(c, 3, on_value=5, off_value=-1)",
]
CASES += [
    "nd.one_hot(c, 3, dtype='int32')",
    "nd.where(a > 0, a, b)",
    "nd.where(nd.array([1, 0]), a, b)",
    "nd.clip(a, -1, 1)",
    "nd.clip(i, 2, 9)",
]
CASES += [
    "nd.sort(a)",
    "nd.sort(a, axis=0)",
    "nd.sort(a, is_ascend=False)",
    "nd.sort(t, axis=None)",
    "nd.argsort(a)",
    "nd.argsort(a, axis=0)",
]
CASES += [
    "nd.argsort(a, is_ascend=False)",
    "nd.argsort(i)",
    "nd.argsort(a, dtype='int32')",
    "nd.topk(a)",
    "nd.topk(a, k=2)",
    "nd.topk(a, axis=0, k=1)",
]
CASES += [
    "nd.topk(a, k=2, ret_typ='value')",
    "nd.topk(a, k=2, ret_typ='both')",
    "nd.topk(a, k=2, ret_typ='mask')",
    "nd.topk(a, k=1, is_ascend=True)",
]
CASES += [
    "nd.topk(a, k=2, dtype='int32')",
    "nd.dot(a, b.T)",
    "nd.dot(a, b, transpose_b=True)",
    "nd.dot(a, b, transpose_a=True)",
    "nd.dot(a[0], b[1])",
]
CASES += ["nd.dot(t, nd.ones((4, 2)))", "nd.dot(a, nd.array([1, 2, 3]))", "nd.batch_dot(t, t, transpose_b=True)"]
CASES += [
    "nd.batch_dot(t, t, transpose_a=True)",
    "nd.softmax(a)",
    "nd.softmax(a, axis=0)",
    "nd.softmax(a, temperature=2)",
    "nd.log_softmax(a)",
]
CASES += [
    "nd.log_softmax(a, axis=0)",
    "nd.linspace(0, 1, 5)",
    "nd.linspace(0, 1, 4, endpoint=False)",
    "nd.eye(2)",
    "nd.eye(2, 3, 1)",
]
CASES += [
    "nd.cast(a, 'int32')",
    "nd.cast(a, 'float16')",
    "nd.exp(a, out=nd.zeros((2, 3)))",
    "nd.sum(a, axis=1, out=nd.zeros((2,)))",
]
METHODS = "exp sqrt abs square sign mean max min prod norm argmax sigmoid relu softmax log_softmax sort argsort flatten zeros_like round"
CASES += [f"a.{name}()" for name in METHODS.split()]
CASES += [
    "a.max(axis=1)",
    "t.mean(axis=(0, 1))",
    "a.argmax(axis=1)",
    "t.transpose((1, 0, 2))",
    "a.expand_dims(0)",
    "a.clip(0, 1)",
    "a.tile((2, 1))",
]
CASES += [
    "a.repeat(2)",
    "a.slice_axis(axis=1, begin=0, end=2)",
    "a.take(nd.array([1]))",
    "a.split(3, axis=1)",
    "a.one_hot(3)",
    "a.topk(k=2)",
]
CASES += [
    "a.broadcast_to((2, 3))",
    "a.swapaxes(0, 1)",
    "a.squeeze()",
    "t.slice((0, 0), (1, 2))",
    "t.slice(begin=(0, 0), end=(1, 2))",
]
CASES += [
    *(
        "a ** 2",
        "2 ** a",
        "p ** p",
        "a ** nd.array([1, 2, 3])",
        "i ** 2",
        "2 ** i",
        "h ** 2",
        "a ** -1",
        "a ** 0.5",
        "pow(p, 2)",
    ),
    *(
        "a % 2",
        "2 % a",
        "b % a",
        "a % -2",
        "a % 0",
        "i % 0",
        "2 % nd.zeros((2,))",
        "i % 2",
        "7 % i",
        "h % 2",
        "a % c[:3]",
    ),
    *(
        "nd.modulo(a, 0)",
        "nd.reshape(t, (0, -1))",
        "nd.reshape(t, shape=(-1, 0), reverse=True)",
        "nd.reshape_like(t, nd.ones((6, 4)))",
    ),
]
OF_LEFT = "-1|0,-1|-1,0|4,0,2|0,0,0,1|0,0,-1,1|-2|2,-2|-2,1,1|-2,-2|0,-2,1|-1,0,-2|-3,4|-3,-2|0,-3|-3,-1|-1,-3|-4,1,2,-2|2,-4,-1,3,-2"
OF_LEFT += "|-4,-1,2,0,0|0,-4,3,-1,4|24|6,4"
OF_RIGHT = "-1,0|-1,0,0|-3,0|0,-3|6,0|1,-2|-1,2,0|2,3,2,2,-4|0,0,-1,2,-4|-2,2,-1,-4|-2,2,2,-4"
CASES += [f"t.reshape(({codes},))" for codes in OF_LEFT.split("|")]
CASES += [f"t.reshape(({codes},), reverse=True)" for codes in OF_RIGHT.split("|")]
CASES += ["t.reshape(0, -1)", "t.reshape(shape=(0, -1))", "t.reshape(-3, 0, reverse=True)", "nd.ones((1,)).reshape(())"]
CASES += [  # arguments, and dtypes that are computed in float32
    "nd.dot(t, a, transpose_a=True)",
    "nd.dot(a, nd.arange(18).reshape((2, 3, 3)), transpose_b=True)",
    "nd.dot(t, t.transpose((0, 2, 1)), transpose_a=True, transpose_b=False)",
    "nd.where(c > 0, c.astype('float16'), c.astype('float16'))",
    "nd.topk(a, axis=None, k=3)",
    "nd.topk(a, axis=None, k=0, ret_typ='value')",
    "nd.topk(a, axis=None, k=2, ret_typ='mask')",
    "nd.topk(a, k=0, ret_typ='both')",
    "nd.diag(t, k=1)",
    "nd.diag(t, k=-1, axis1=0, axis2=2)",
    "nd.diag(t, axis1=-1, axis2=-2)",
    "nd.softmax(a, dtype='float64')",
    "nd.log_softmax(a, dtype='float64')",
    "nd.broadcast_like(nd.ones((1, 3, 1)), a, lhs_axes=(0, 2), rhs_axes=(-1, -2))",
    "nd.cast(a, 'float16', name='half')",
    "nd.power(base=p, exp=2)",
    "nd.broadcast_power(lhs=p, rhs=p)",
    "nd.concatenate([a, b], axis=1, always_copy=False)",
    "nd.arange(1, 3, 1, 2, None, None, 'int32')",
    "a.sum(axis=0, exclude=True)",
    "a.sum(axis=())",
    "i.sign()",
]
# These cases differ from MXNet on purpose: docs/mxnet.md.
DIFFERENT = {
    "nd.exp(i)": "InvalidArgumentError",
    "nd.sqrt(i)": "InvalidArgumentError",
    "nd.mean(i)": "InvalidArgumentError",
    "nd.norm(i)": "InvalidArgumentError",
    "nd.divide(i, 2)": "InvalidArgumentError",
    "nd.add(i, 0.5)": "InvalidArgumentError",
    "nd.add(a, i)": "InvalidArgumentError",
    "nd.concat(a, i, dim=0)": "InvalidArgumentError",
    "nd.take(a, nd.array([9]), mode='raise')": "InvalidArgumentError",
    "nd.topk(a, k=4)": "InvalidArgumentError",
    "nd.topk(a, ret_typ='all')": "InvalidArgumentError",
    "nd.sum(a, axis=2)": "InvalidArgumentError",
    "nd.dot(a, a)": "InvalidArgumentError",
    "nd.batch_dot(t, a)": "InvalidArgumentError",
    "nd.split(a, 2)": "InvalidArgumentError",
    "nd.concat(a, t)": "InvalidArgumentError",
    "nd.power(i, -1)": "InvalidArgumentError",
    "nd.power(i, 0.5)": "InvalidArgumentError",
    "nd.reshape(t, (0, 0, 0, 0))": "InvalidArgumentError",
    "nd.reshape(t, (-1, -1))": "InvalidArgumentError",
    "nd.reshape(t, (5, -1))": "InvalidArgumentError",
    "nd.reshape(t, (2, 3))": "InvalidArgumentError",
    "nd.reshape(t, (-3, -3))": "InvalidArgumentError",
    "nd.reshape(t, (-4, 2))": "InvalidArgumentError",
    "nd.reshape(t, (-4, -1, -1, 0, 0))": "InvalidArgumentError",
    "nd.reshape(t, (-4, -1, 0, 3, 4))": "InvalidArgumentError",
    "nd.reshape(t, (-4, 3, 1, 0, 0))": "InvalidArgumentError",
    "nd.reshape(t, (-4, 1, 2, -2), reverse=True)": "InvalidArgumentError",
    "nd.reshape(t, (-5,))": "InvalidArgumentError",
    "nd.exp(1)": "InvalidArgumentError",
    "nd.add(1, 2)": "InvalidArgumentError",
    "nd.exp(a, out=nd.zeros((2,)))": "InvalidArgumentError",
    "nd.split(a, 3, out=a)": "InvalidArgumentError",
    "nd.norm(a, ord=3)": "InvalidArgumentError",
    "nd.where(a, a, t)": "InvalidArgumentError",
    "nd.exp(a, axis=1)": "TypeError",
    "nd.take(a)": "TypeError",
}
