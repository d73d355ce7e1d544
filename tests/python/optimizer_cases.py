"""Optimizers with arguments, gradients, and each formula in float64 as it is published or as MXNet 1.9.1 has it."""

import math

import numpy as np

STEPS = 120
COUNT = 24
COMMON = {"wd": 0.01, "rescale_grad": 0.5, "clip_gradient": 0.8}
# MXNet fails with it, and no other library has it.
FORMULA_ONLY = {"dcasgd_momentum"}
# Class name and arguments.
CASES = {
    "sgd": ("SGD", {"learning_rate": 0.1, **COMMON}),
    "momentum": ("SGD", {"learning_rate": 0.05, "momentum": 0.9, **COMMON}),
    "nag": ("NAG", {"learning_rate": 0.05, "momentum": 0.8, **COMMON}),
    "nag_plain": ("NAG", {"learning_rate": 0.05, **COMMON}),
    "signum": ("Signum", {"learning_rate": 0.01, "momentum": 0.7, "wd_lh": 0.02, **COMMON}),
    "signsgd": ("Signum", {"learning_rate": 0.01, "momentum": 0.0, **COMMON}),
    "adam": ("Adam", {"learning_rate": 0.01, "beta1": 0.8, "beta2": 0.99, **COMMON}),
    "adamw": ("AdamW", {"learning_rate": 0.01, "beta1": 0.8, "beta2": 0.99, **COMMON}),
    "adamax": ("Adamax", {"learning_rate": 0.01, **COMMON}),
    "nadam": ("Nadam", {"learning_rate": 0.01, "beta1": 0.8, "schedule_decay": 0.01, **COMMON}),
    "adagrad": ("AdaGrad", {"learning_rate": 0.1, **COMMON}),
    "adadelta": ("AdaDelta", {"rho": 0.8, **COMMON}),
    "rmsprop": ("RMSProp", {"learning_rate": 0.01, "gamma1": 0.8, "clip_weights": 1.5, **COMMON}),
    "rmsprop_centered": ("RMSProp", {"learning_rate": 0.002, "gamma2": 0.7, "centered": True, **COMMON}),
    "ftrl": ("Ftrl", {"lamda1": 0.2, "learning_rate": 0.2, "beta": 0.5, **COMMON}),
    "lamb": ("LAMB", {"learning_rate": 0.02, **COMMON}),
    "lamb_bounded": (
        "LAMB",
        {"learning_rate": 0.02, "lower_bound": 2.5, "upper_bound": 3.0, "bias_correction": False, **COMMON},
    ),
    "lars": ("LARS", {"learning_rate": 1.0, "momentum": 0.9, "eta": 0.05, "eps": 0.01, **COMMON}),
    "lars_plain": ("LARS", {"learning_rate": 2.0, "eta": 0.02, **COMMON}),
    "lbsgd": ("LBSGD", {"learning_rate": 0.05, "momentum": 0.8, "warmup_strategy": "lars", **COMMON}),
    "lbsgd_linear": ("LBSGD", {"learning_rate": 0.05, "momentum": 0.8, **COMMON}),
    "dcasgd": ("DCASGD", {"learning_rate": 0.1, "lamda": 0.5, **COMMON}),
    "dcasgd_momentum": ("DCASGD", {"learning_rate": 0.1, "momentum": 0.7, "lamda": 0.5, **COMMON}),
    "ftml": ("FTML", {"learning_rate": 0.01, "beta1": 0.5, **COMMON}),
}


# Optimizers that need a value whole: their programs have reduce_sum.
WHOLE = [name for name, (kind, _) in CASES.items() if kind in ("LAMB", "LARS", "LBSGD")]
CLIP = """program clip_by_norm
squares = mul sum sum
total = reduce_sum squares
norm = sqrt total
bound = max norm 1
scaled = div sum bound
w = sub value scaled
value <- w
"""


def whole_steps(workers, steps=2):
    """Return the first values of keys, of which one would be stored in several parts, and gradients by [step][worker]."""
    rng = np.random.default_rng(5)
    shapes = {"wide.weight": (600_000,), "narrow.weight": (3, 4)}

    def draw():
        return {name: rng.normal(size=shape).astype("float32") for name, shape in shapes.items()}

    return draw(), [[draw() for _ in range(workers)] for _ in range(steps)]


def whole_truth(case, first, gradients):
    """Return the values in float64 after some steps with the mean of the workers' gradients; of CLIP with their sum.

    A KVOptimizer makes the mean by `rescale_grad`, which the norm of a gradient in LBSGD is free of, as in MXNet.
    """
    found = {}
    for name, value in first.items():
        scale = COMMON["rescale_grad"] / len(gradients[0])
        update = None if case == "clip" else formula(case, rescale_grad=scale)
        weight = value.astype("float64")
        for step, workers in enumerate(gradients, 1):
            total = np.sum([one[name] for one in workers], axis=0, dtype="float64")
            if update is None:
                weight = weight - total / max(np.sqrt((total**2).sum()), 1)
            else:
                weight = update(weight, total, step)
        found[name] = weight
    return found


def start(count=COUNT):
    """Return weights, the same with every library."""
    return [math.sin(1.7 * i + 0.3) for i in range(count)]


def gradient(step, count=COUNT):
    """Return the gradient of a step from 1, the same with every library; rounded, so that float32 holds it."""
    return [round(2 * math.sin(0.61 * i + 1.3 * step) + 0.25 * math.cos(i), 4) for i in range(count)]


def formula(case, **changes):
    """Return a function (weights, gradient, step from 1) -> weights, which keeps its states."""
    name, arguments = CASES[case]
    a = {
        "learning_rate": 0.01,
        "momentum": 0.0,
        "wd_lh": 0.0,
        "beta1": 0.9,
        "beta2": 0.999,
        "epsilon": 1e-8,
        **arguments,
        **changes,
    }
    lr, wd, bound = a["learning_rate"], a["wd"], a["clip_gradient"]
    s = {}

    def state(key):
        return s.setdefault(key, 0.0)

    sign = np.sign  # of a NaN a NaN; in MXNet 0

    def clipped(w, g, decays):
        g = a["rescale_grad"] * g + (wd * w if decays else 0)
        return np.clip(g, -bound, bound)

    def decayed(key, keep, fresh):
        s[key] = keep * state(key) + (1 - keep) * fresh
        return s[key]

    def sgd(w, g, t):
        g = clipped(w, g, False) + wd * w
        if a["momentum"] == 0:
            return w - lr * g
        s["mom"] = a["momentum"] * state("mom") - lr * g
        return w + (a["momentum"] * s["mom"] - lr * g if name == "NAG" else s["mom"])

    def signum(w, g, t):
        if a["momentum"] == 0:
            return (1 - lr * (wd + a["wd_lh"])) * w - lr * sign(a["rescale_grad"] * g)
        s["mom"] = a["momentum"] * state("mom") - (1 - a["momentum"]) * (clipped(w, g, False) + wd * w)
        return (1 - lr * a["wd_lh"]) * w + lr * sign(s["mom"])

    def adam(w, g, t):
        g = clipped(w, g, True)
        m, v = decayed("m", a["beta1"], g), decayed("v", a["beta2"], g * g)
        return w - lr * np.sqrt(1 - a["beta2"] ** t) / (1 - a["beta1"] ** t) * m / (np.sqrt(v) + a["epsilon"])

    def adamw(w, g, t):
        g = clipped(w, g, False)
        m = decayed("m", a["beta1"], g) / (1 - a["beta1"] ** t)
        v = decayed("v", a["beta2"], g * g) / (1 - a["beta2"] ** t)
        return w - lr * wd * w - lr * m / (np.sqrt(v) + a["epsilon"])

    def adamax(w, g, t):
        g = clipped(w, g, True)
        m = decayed("m", a["beta1"], g)
        s["u"] = np.maximum(a["beta2"] * state("u"), np.abs(g))
        return w - np.where(s["u"] == 0, 0, lr / (1 - a["beta1"] ** t) * m / np.where(s["u"] == 0, 1, s["u"]))

    def nadam(w, g, t):
        def momentum(step):
            return a["beta1"] * (1 - 0.5 * 0.96 ** (step * a["schedule_decay"]))

        g = clipped(w, g, True)
        s["product"] = s.get("product", 1.0) * momentum(t)
        m, v = decayed("m", a["beta1"], g), decayed("v", a["beta2"], g * g)
        bar = (1 - momentum(t)) * g / (1 - s["product"])
        bar = bar + momentum(t + 1) * m / (1 - s["product"] * momentum(t + 1))
        return w - lr * bar / (np.sqrt(v / (1 - a["beta2"] ** t)) + a["epsilon"])

    def adagrad(w, g, t):
        g = clipped(w, g, False)
        s["h"] = state("h") + g * g
        return w - lr * (g / np.sqrt(s["h"] + 1e-7) + wd * w)

    def adadelta(w, g, t):
        g = clipped(w, g, False)
        squares = decayed("g", a["rho"], g * g)
        delta = np.sqrt(state("d") + 1e-5) / np.sqrt(squares + 1e-5) * g
        decayed("d", a["rho"], delta * delta)
        return w - (delta + wd * w)

    def rmsprop(w, g, t):
        keep = a.get("gamma1", 0.9)
        g = clipped(w, g, True)
        squares = decayed("n", keep, g * g)
        if a.get("centered"):
            mean = decayed("m", keep, g)
            s["delta"] = a["gamma2"] * state("delta") - lr * g / np.sqrt(squares - mean * mean + a["epsilon"])
            return w + s["delta"]
        w = w - lr * g / np.sqrt(squares + a["epsilon"])
        return np.clip(w, -a["clip_weights"], a["clip_weights"])

    def ftrl(w, g, t):
        g = clipped(w, g, False)
        before = state("n")
        s["n"] = before + g * g
        s["z"] = state("z") + g - (np.sqrt(s["n"]) - np.sqrt(before)) * w / lr
        z, bottom = s["z"], (a["beta"] + np.sqrt(s["n"])) / lr + wd
        return (np.sign(z) * a["lamda1"] - z) / bottom * (np.abs(z) > a["lamda1"])

    def ftml(w, g, t):
        g = clipped(w, g, True)
        v = decayed("v", a["beta2"], g * g)
        before = state("d")
        s["d"] = (1 - a["beta1"] ** t) / lr * (np.sqrt(v / (1 - a["beta2"] ** t)) + a["epsilon"])
        s["z"] = a["beta1"] * state("z") + (1 - a["beta1"]) * g - (s["d"] - a["beta1"] * before) * w
        return -s["z"] / s["d"]

    def lamb(w, g, t):
        corrects = a.get("bias_correction", True)
        g = clipped(w, g, False)
        m = decayed("m", a["beta1"], g) / (1 - a["beta1"] ** t if corrects else 1)
        v = decayed("v", a["beta2"], g * g) / (1 - a["beta2"] ** t if corrects else 1)
        u = m / (np.sqrt(v) + 1e-6) + wd * w
        size = min(max(norm(w), a.get("lower_bound", 0)), a.get("upper_bound", np.inf))
        return w - lr * (size / norm(u) if size != 0 and norm(u) != 0 else 1) * u

    def dcasgd(w, g, t):
        g = clipped(w, g, False)
        s["mom"] = a["momentum"] * state("mom") - lr * (g + wd * w + a["lamda"] * g * g * (w - s.get("previous", w)))
        s["previous"] = w
        return w + s["mom"]

    def norm(x):
        return np.sqrt(np.sum(x * x))

    def lars(w, g, t):
        size, other = norm(w), norm(a["rescale_grad"] * g)
        rate = lr * (a["eta"] * size / (other + wd * size + a.get("eps", 0)) if size > 0 and other > 0 else 1)
        s["mom"] = a["momentum"] * state("mom") - rate * (clipped(w, g, False) + wd * w)
        return w + s["mom"]

    def lbsgd(w, g, t):
        if a.get("warmup_strategy") != "lars":
            return sgd(w, g, t)
        trust = norm(w) / np.sqrt(norm(g) ** 2 + wd * norm(w) ** 2 + 1e-18)
        trust = min(max(trust, 0.01), 100) if trust == trust else trust
        s["mom"] = a["momentum"] * state("mom") - lr * trust * (clipped(w, g, False) + wd * w)
        return w + s["mom"]

    families = {
        "DCASGD": dcasgd,
        "LAMB": lamb,
        "LARS": lars,
        "LBSGD": lbsgd,
        "SGD": sgd,
        "NAG": sgd,
        "Signum": signum,
        "Adam": adam,
        "AdamW": adamw,
        "Adamax": adamax,
        "Nadam": nadam,
    }
    families |= {"AdaGrad": adagrad, "AdaDelta": adadelta, "RMSProp": rmsprop, "Ftrl": ftrl, "FTML": ftml}
    return families[name]
