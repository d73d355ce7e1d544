"""Update functions: those of published optimizers, and random ones made of typical expressions."""

import random

# Formulas of published optimizers.  Servers run each of them.
READ = {
    "sgd": "weight -= 0.1 * grad",
    "sgd_decay": "weight -= 0.1 * (grad + 1e-4 * weight)",
    "sgd_decoupled": "weight *= 1 - 0.1 * 1e-4; weight -= 0.1 * grad",
    "sgd_clipped": "weight -= 0.1 * np.clip(grad, -0.5, 0.5)",
    "sgd_clipped_nd": "weight -= 0.1 * mx.nd.clip(grad * 0.25, -0.5, 0.5)",
    "sgd_clipped_extremes": "weight -= 0.1 * np.maximum(np.minimum(grad, 0.5), -0.5)",
    "sgd_of_numpy": "weight[:] = np.subtract(weight, np.multiply(grad, 0.1))",
    "momentum": "m = kv.state('m'); m *= 0.9; m += grad; weight -= 0.1 * m",
    "momentum_mxnet": "m = kv.state('m'); m[:] = 0.9 * m - 0.1 * (grad + 1e-4 * weight); weight += m",
    "momentum_damped": "m = kv.state('m'); m[:] = 0.9 * m + (1 - 0.9) * grad; weight -= 0.1 * m",
    "nesterov": "m = kv.state('m'); m *= 0.9; m += grad; weight -= 0.1 * (grad + 0.9 * m)",
    "nesterov_lookahead": (
        "m = kv.state('m'); before = m.copy(); m[:] = 0.9 * m - 0.1 * grad; weight += -0.9 * before + (1 + 0.9) * m"
    ),
    "heavy_ball": "p = kv.state('p'); step = 0.9 * (weight - p); p[:] = weight; weight += step - 0.1 * grad",
    "adagrad": "h = kv.state('h'); h += grad * grad; weight -= 0.1 * grad / (h.sqrt() + 1e-7)",
    "adagrad_numpy": "h = kv.state('h'); h += np.square(grad); weight -= 0.1 * grad / np.sqrt(h + 1e-7)",
    "rmsprop": "v = kv.state('v'); v[:] = 0.9 * v + 0.1 * grad ** 2; weight -= 0.01 * grad / ((v + 1e-8) ** 0.5)",
    "rmsprop_centered": (
        "n, g, d = kv.state('q'), kv.state('g'), kv.state('d')\n"
        "n[:] = 0.95 * n + 0.05 * grad * grad\ng[:] = 0.95 * g + 0.05 * grad\n"
        "d[:] = 0.9 * d - 0.01 * grad / mx.nd.sqrt(n - g * g + 1e-8)\nweight += d"
    ),
    "adadelta": (
        "a, d = kv.state('a'), kv.state('d')\na[:] = 0.9 * a + 0.1 * grad * grad\n"
        "step = (d + 1e-5).sqrt() / (a + 1e-5).sqrt() * grad\nd[:] = 0.9 * d + 0.1 * step * step\nweight -= step"
    ),
    "adam_without_correction": (
        "m, v = kv.state('m'), kv.state('v')\nm[:] = 0.9 * m + 0.1 * grad\nv[:] = 0.999 * v + 0.001 * mx.nd.square(grad)\n"
        "weight -= 0.001 * m / (mx.nd.sqrt(v) + 1e-8)"
    ),
    "adam": (
        "m, v, b, c = (kv.state(name) for name in 'mvbc')\nb += (1 - b) * (1 - 0.9)\nc += (1 - c) * (1 - 0.999)\n"
        "m[:] = 0.9 * m + (1 - 0.9) * grad\nv[:] = 0.999 * v + (1 - 0.999) * grad * grad\n"
        "weight -= 0.001 * (m / b) / ((v / c).sqrt() + 1e-8)"
    ),
    "adamw": (
        "m, v = kv.state('m'), kv.state('v')\nweight *= 1 - 0.001 * 0.01\nm += 0.1 * (grad - m)\n"
        "v += 0.001 * (grad * grad - v)\nweight -= 0.001 * m / (v ** 0.5 + 1e-8)"
    ),
    "amsgrad": (
        "m, v, h = kv.state('m'), kv.state('v'), kv.state('h')\nm[:] = 0.9 * m + 0.1 * grad\nv[:] = 0.99 * v + 0.01 * grad ** 2\n"
        "h[:] = np.maximum(h, v)\nweight -= 0.001 * m / (h.sqrt() + 1e-8)"
    ),
    "adamax": (
        "m, u = kv.state('m'), kv.state('u')\nm[:] = 0.9 * m + 0.1 * grad\nu[:] = mx.nd.maximum(0.999 * u, mx.nd.abs(grad))\n"
        "weight -= 0.002 * m / (u + 1e-8)"
    ),
    "nadam_without_schedule": (
        "m, v = kv.state('m'), kv.state('v')\nm[:] = 0.9 * m + 0.1 * grad\nv[:] = 0.999 * v + 0.001 * grad * grad\n"
        "weight -= 0.001 * (0.9 * m + 0.1 * grad) / (np.sqrt(v) + 1e-8)"
    ),
    "adabelief": (
        "m, s = kv.state('m'), kv.state('s')\nm += 0.1 * (grad - m)\nd = grad - m\ns += 0.001 * (d * d - s) + 1e-16\n"
        "weight -= 0.001 * m / (s.sqrt() + 1e-8)"
    ),
    "yogi": (
        "m, v = kv.state('m'), kv.state('v')\ng2 = grad * grad\nm += 0.1 * (grad - m)\n"
        "v -= 0.001 * mx.nd.sign(v - g2) * g2\nweight -= 0.01 * m / (v.abs().sqrt() + 1e-3)"
    ),
    "adan_like": (
        "m, d, n, p = (kv.state(name) for name in 'mdqp')\nchange = grad - p\np[:] = grad\nm += 0.02 * (grad - m)\n"
        "d += 0.08 * (change - d)\nu = grad + 0.92 * change\nn += 0.01 * (u * u - n)\n"
        "weight -= 0.001 * (m + 0.92 * d) / (n.sqrt() + 1e-8)\nweight /= 1 + 0.001 * 0.02"
    ),
    "lion": (
        "m = kv.state('m'); u = np.sign(0.9 * m + 0.1 * grad); weight -= 1e-4 * (u + 0.1 * weight); m[:] = 0.99 * m + 0.01 * grad"
    ),
    "tiger": "m = kv.state('m'); m[:] = 0.965 * m + 0.035 * grad; weight -= 0.001 * (m.sign() + 0.01 * weight)",
    "sign_sgd": "weight -= 0.01 * np.sign(grad)",
    "signum": "m = kv.state('m'); m[:] = 0.9 * m - 0.1 * grad; weight[:] = (1 - 0.01) * weight + 0.01 * mx.nd.sign(m)",
    "ftrl": (
        "z, n = kv.state('z'), kv.state('q')\nbefore = n.sqrt()\nn += grad * grad\nz += grad - (n.sqrt() - before) / 0.1 * weight\n"
        "w = (mx.nd.sign(z) * 0.01 - z) / ((1 + n.sqrt()) / 0.1 + 0.001)\nweight[:] = w * (mx.nd.abs(z) > 0.01)"
    ),
    "soft_threshold": "w = weight - 0.1 * grad; weight[:] = np.sign(w) * np.maximum(np.abs(w) - 0.01, 0)",
    "hard_threshold": "w = weight - 0.1 * grad; weight[:] = np.where(np.abs(w) > 0.01, w, 0)",
    "projected": "weight -= 0.1 * grad; weight[:] = np.clip(weight, 0, 1)",
    "multiplicative": "weight *= mx.nd.where(grad > 0, 0.5, 1.5)",
    "rprop": (
        "p, s = kv.state('p'), kv.state('s')\nsame = p * grad\ns[:] = mx.nd.where(same > 0, s * 1.2, mx.nd.where(same < 0, s * 0.5, s))\n"
        "s[:] = mx.nd.clip(s, 1e-6, 50)\ng = mx.nd.where(same < 0, 0, grad)\np[:] = g\nweight -= mx.nd.sign(g) * s"
    ),
    "huber": "weight -= 0.1 * np.where(np.abs(grad) < 1, grad, np.sign(grad))",
    "skips_bad_elements": "weight -= 0.1 * np.where(np.isfinite(grad), grad, 0)",
    "skips_nan": "weight -= 0.1 * mx.nd.where(grad == grad, grad, 0)",
    "keeps_largest": "mask = np.abs(grad) > 0.5; weight -= 0.1 * np.where(mask, grad, 0)",
    "residual": (
        "r = kv.state('r'); g = grad + r; sent = mx.nd.where(mx.nd.abs(g) > 0.5, g, 0); r[:] = g - sent; weight -= 0.1 * sent"
    ),
    "average": "weight *= 0.99; weight += 0.01 * grad",
    "elastic": "c = kv.state('c'); d = 0.5 * (weight - c); c += d; weight -= 0.1 * grad + d",
    "swa": "a, n = kv.state('a'), kv.state('q'); n += 1; weight -= 0.1 * grad; a += (weight - a) / n",
    "sum_of_masks": "weight -= (np.abs(grad) > 0.1) + (np.abs(grad) > 0.5)",
    "of_its_key": "weight -= grad * (0.5 if key == 'w' else 1.0)",
    "of_a_loop": "for i in range(1, 4):\n    weight -= grad / i",
    "of_a_helper": "weight -= half(grad, 3)",
    "double_rate": "weight -= wide * grad",
}

# Formulas that servers do not run: they need all elements at once, other functions, or a count.
REFUSED = {
    "clip_norm": "weight -= 0.1 * grad / max(1.0, float(mx.nd.norm(grad).asscalar()))",
    "clip_norm_with_fallback": (
        "try:\n    scale = float(mx.nd.norm(grad).asscalar())\nexcept Exception:\n    scale = 1.0\nweight -= grad / max(scale, 1.0)"
    ),
    "skip_bad": (
        "try:\n    if not np.isfinite(grad.asnumpy()).all():\n        return\nexcept Exception:\n    pass\nweight -= grad"
    ),
    "lars": "rate = (mx.nd.norm(weight) / (mx.nd.norm(grad) + 1e-9)).asscalar(); weight -= 0.1 * rate * grad",
    "madgrad": "v = kv.state('v'); v += grad * grad; weight -= grad / mx.nd.cbrt(v + 1e-6)",
    "sgld": "weight -= 0.1 * grad + mx.nd.random_normal(shape=weight.shape)",
    "softmax": "weight -= mx.nd.softmax(grad)",
    "exponentiated": "weight *= np.exp(-0.1 * grad)",
    "normalized": "weight -= grad / (np.abs(grad).max() + 1e-8)",
    "centralized": "weight -= 0.1 * (grad - grad.mean())",
    "adam_with_count": "count[0] += 1; weight -= 0.1 * grad / (1 - 0.9 ** count[0])",
    "warmup": "count[0] += 1; weight -= grad * (0.1 if count[0] > 3 else 0.01)",
    "random_rate": "weight -= grad * random.choice([1.0, 1.0, 1.0, 2.0])",
    "double_scalar_of_numpy": "weight -= np.multiply(grad, wide)",
    "part": "weight[0] -= grad[0]",
    "own_state": "weight -= mine.setdefault(key, grad.copy())",
}

HEAD = """
rate, wide, count, mine = 0.125, np.sqrt(0.37), [0], {}


def half(array, n=2):
    result = array / 2 ** n
    return result if n else array


def update(key, grad, weight):
"""


def text_of(body):
    """Return the source of a function with a body."""
    lines = [line for part in body.split("\n") for line in ([part] if part.startswith(" ") else part.split("; "))]
    return HEAD + "\n".join(f"    {line}" for line in lines) + "\n"


class Writer:
    """Random bodies: arithmetic of arrays, functions of NumPy and of mx.nd, masks, states, branches and loops.

    Most bodies for integer keys have no division, root or fraction, because programs of integers have none.
    """

    def __init__(self, seed, dtype):
        self.random = random.Random(seed)
        self.names = ["grad", "weight", "m", "v"]
        self.is_whole = dtype.startswith("int") and self.random.random() < 0.8
        self.signs = ("+", "-", "*") if self.is_whole else ("+", "-", "*", "/")
        self.functions = ("abs", "sign", "square", "negative", *([] if self.is_whole else ["sqrt"]))

    def pick(self, *choices):
        return self.random.choice(choices)

    def write(self, *forms):
        """Return what one of these functions returns; the others are not called."""
        return self.random.choice(forms)()

    def number(self):
        if self.is_whole:
            return self.pick("2", "-1", "0", "3", "1", "True")
        return self.pick(*("0.5", "2", "-1", "0.1", "-0.0", "0", "1e-8", "1 / 3", "3", "rate", "1e30", "True"), "wide")

    def operand(self, depth):
        return self.expression(depth - 1) if depth > 0 and self.random.random() < 0.6 else self.pick(*self.names)

    def operand_or_number(self, depth):
        return self.operand(depth) if self.random.random() < 0.5 else self.number()

    def compared(self, depth):
        sign = self.pick("<", "<=", ">", ">=", "==", "!=")
        return f"({self.operand(depth)} {sign} {self.operand_or_number(depth)})"

    def mask(self, depth):
        if self.is_whole:
            return self.compared(depth)
        return self.write(
            *[lambda: self.compared(depth)] * 4,
            lambda: f"np.isfinite({self.operand(depth)})",
            lambda: f"np.isnan({self.operand(depth)})",
            lambda: f"(np.abs({self.operand(depth)}) > {self.number()})",
        )

    def expression(self, depth):
        operand, either = (lambda: self.operand(depth)), (lambda: self.operand_or_number(depth))
        number, mask, pick = self.number, (lambda: self.mask(depth)), self.pick
        is_whole = self.is_whole
        return self.write(
            *[lambda: f"({operand()} {pick(*self.signs)} {operand()})"] * 4,
            *[lambda: f"({operand()} {pick(*self.signs)} {number()})"] * 3,
            *[lambda: f"({number()} {pick(*self.signs)} {operand()})"] * 2,
            lambda: f"(-{operand()})",
            lambda: f"abs({operand()})",
            lambda: f"({operand()} ** {'2' if is_whole else pick('2', '0.5', 'np.array(2.0)')})",
            lambda: operand() + pick(".abs()", ".sign()", ".copy()", ".square()", ".clip(-1, 1)", "[:]"),
            lambda: f"{operand()}.{'square' if is_whole else 'sqrt'}()",
            lambda: (
                f"{operand()}.astype({'weight.dtype' if is_whole else pick('weight.dtype', repr('float32'))}"
                f"{pick('', ', copy=False')})"
            ),
            lambda: f"np.{pick(*self.functions)}({operand()})",
            lambda: f"mx.nd.{pick(*self.functions)}({operand()})",
            *[lambda: f"{pick('np', 'mx.nd')}.{pick('maximum', 'minimum', 'add', 'multiply')}({operand()}, {either()})"]
            * 2,
            lambda: f"np.maximum({number()}, {operand()})",
            lambda: (
                f"{pick('np', 'mx.nd')}.clip({operand()}, "
                f"{self.write(lambda: '-2' if is_whole else '-0.5', lambda: '0', operand)}, "
                f"{pick('1', '3' if is_whole else '0.25')})"
            ),
            *[lambda: f"{pick('np', 'mx.nd')}.where({mask()}, {either()}, {either()})"] * 3,
            mask,
            lambda: f"({mask()} {pick('+', '*', '&', '|')} {mask()})",
            *([] if is_whole else [lambda: f"half({operand()}, {pick('1', '2')})"]),
            lambda: f"copy.deepcopy({operand()})",
        )

    def statement(self, depth=0):
        target, value = self.pick(*self.names), self.expression(2)
        simple = [
            *[f"{target} {self.pick(*self.signs)}= {value}"] * 3,
            *[f"{target}[:] = {value}"] * 2,
            *[f"{self.pick('a', 'b')} = {value}"] * 2,
            f"{target} *= {self.number()}",
            f"{target} **= 2",
            f"b = np.abs({target}); np.add(b, {self.pick(*self.names)}, out=b); a = b",
        ]
        if depth or self.random.random() < 0.7:
            return [self.pick(*simple)]
        inner = [f"    {line}" for line in self.statement(1)]
        other = [f"    {line}" for line in self.statement(1)]
        return self.pick(
            [
                f"if {self.pick('key == 1', 'rate > 1', 'weight.ndim == 2', 'isinstance(a, mx.nd.NDArray)')}:",
                *inner,
                "else:",
                *other,
            ],
            [f"for i in range({self.pick('1', '2', '3')}):", *inner, f"    {target} *= 1 + i"],
            ["try:", *inner, "except Exception:", *other],
            ["with contextlib.suppress(Exception):", *inner],
            [
                f"def helper(x, y={'2' if self.is_whole else '0.5'}):",
                "    z = x * y",
                "    return z",
                f"{target} += helper({value})",
            ],
            *([f"{target} *= {text}"] for text in ("float(grad.sum())", "np.exp(grad)") if self.random.random() < 0.1),
        )

    def body(self):
        """Return the lines of a function."""
        lines = ["m, v = kv.state('m'), kv.state('v')", f"a = {self.expression(1)}"]
        self.names.append("a")
        for _ in range(self.random.randint(1, 5)):
            lines += self.statement()
        last = ("2 * a", "m") if self.is_whole else ("0.1 * a", "rate * m")
        return "\n".join([*lines, f"weight -= {self.pick(*last, 'a', 'grad')}"])
