"""Descriptions of updaters in words, for `KVStore.explain`."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

from .. import _core
from .functions import Called, Read

if TYPE_CHECKING:
    from .._store.kvstore import KVStore
    from .._types import Key

# How strongly an operation binds, and how a person writes it.
_INFIX = {"add": (1, "+"), "sub": (1, "-"), "mul": (2, "×"), "div": (2, "/")}
_COMPARED = {"lt": "<", "le": "≤", "gt": ">", "ge": "≥", "eq": "=", "ne": "≠"}
_ATOM = 9
_LEGEND = {
    "sum": "the sum of what was pushed",
    "value": "the stored value",
    "t": "the number of the update, from 1",
    "n": "the number of workers that pushed",
}


def _numbers(prefix: str) -> set[str]:
    return {f"{prefix}{i}" for i in range(_core.Program.INSTRUCTIONS_MAX + 1)}


class _Words:
    """A program in which each name that is used once is replaced by its expression."""

    def __init__(self, text: str) -> None:
        """Read a text that a Program has verified."""
        self.states: list[str] = []
        self.scalars: dict[str, str] = {}
        self.params: dict[str, str] = {}
        self.made: dict[str, list[str]] = {}
        self.stores: list[tuple[str, str]] = []
        for line in text.splitlines():
            words = line.split()
            if words[0] == "param":
                self.params[words[1]] = words[2]
            elif words[0] == "state":
                self.states.append(words[1])
            elif words[0] == "scalar":
                self.scalars[words[1]] = words[2]
            elif words[1] == "<-":
                self.stores.append((words[0], words[2]))
            elif words[0] != "program":
                self.made[words[0]] = words[2:]
        self._join_extremes()
        self.uses = Counter(word for words in self.made.values() for word in words[1:])
        self.uses.update(source for _, source in self.stores)
        self.seen: set[str] = set()
        named = {*self.states, *self.scalars, *self.params}
        # Numbered results get names that nothing else has.
        self.prefix = next(one for one in ("x" + "_" * i for i in itertools.count()) if not _numbers(one) & named)

    def _join_extremes(self) -> None:
        """Write what lets a NaN of the first operand through, too, as the min or max that it is."""
        for name, made in self.made.items():
            if made[0] != "select":
                continue
            condition, a, other = made[1:]
            inner = self.made.get(other, ["", ""])
            if self.made.get(condition) == ["ne", a, a] and inner[0] in ("min", "max") and inner[1] == a:
                self.made[name] = inner
        used = {word for made in self.made.values() for word in made[1:]} | {source for _, source in self.stores}
        self.made = {name: made for name, made in self.made.items() if name in used}

    def number(self, word: str) -> str:
        """Return a number without a needless fraction."""
        return word.removesuffix(".0")

    def of(self, name: str, binding: int = 0, is_top: bool = False) -> str:
        """Return an operand, in brackets if the operation around it binds more strongly."""
        if name not in self.made:
            self.seen.add(name)
            return self.number(name)
        if self.uses[name] > 1 and not is_top:
            return name.removeprefix("_") if not name[1:].isdigit() else f"{self.prefix}{name[1:]}"
        own, text = self.expression(*self.made[name])
        return f"({text})" if own < binding else text

    def expression(self, op: str, *operands: str) -> tuple[int, str]:
        """Return how strongly an operation binds, and its words."""
        if op in _INFIX:
            own, sign = _INFIX[op]
            right = own + (op in ("sub", "div"))
            return own, f"{self.of(operands[0], own)} {sign} {self.of(operands[1], right)}"
        if op in _COMPARED:
            return 0, f"{self.of(operands[0], 1)} {_COMPARED[op]} {self.of(operands[1], 1)}"
        if op == "neg":
            return 2, f"-{self.of(operands[0], 3)}"
        if op == "select":
            condition, yes, no = operands
            return 0, f"{self.of(yes, 1)} where {self.of(condition, 1)} else {self.of(no, 1)}"
        if op == "pow":
            return 3, f"{self.of(operands[0], 4)}^{self.of(operands[1], 4)}"
        name = {"sqrt": "√", "reduce_sum": "Σ"}.get(op, op)
        return _ATOM, f"{name}({', '.join(self.of(one) for one in operands)})"

    def lines(self) -> list[str]:
        """Return first the expressions that are used more than once, then the new value and states."""
        shared = [name for name in self.made if self.uses[name] > 1]
        result = [f"  with {self.of(name)} = {self.of(name, is_top=True)}" for name in shared]
        return result + [f"  {target} becomes {self.of(source)}" for target, source in self.stores]

    def legend(self, params: dict[str, float]) -> str:
        """Return the meanings of the names."""
        parts = [f"{name} is {meaning}" for name, meaning in _LEGEND.items() if name in self.seen or name == "value"]
        parts += [f"{name} is {params[name]:g}" for name in self.params if name in self.seen]
        if self.states:
            parts.append(
                f"{', '.join(self.states)} {'is' if len(self.states) == 1 else 'are'} kept between updates, zeros at first"
            )
        parts += [f"{name} is kept between updates, {start} at first" for name, start in self.scalars.items()]
        return f"where {', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else f"where {parts[0]}"


def in_words(program: _core.Program, params: dict[str, float] | None = None) -> str:
    """Return a program as a person reads it, line by line."""
    words = _Words(program.text)
    lines = words.lines()
    return "\n".join([*lines, words.legend(program.params if params is None else params), ""])


_ASSIGNMENT = "assignment\n  value becomes sum\nwhere sum is the sum of what was pushed, and value the stored value\n"


def explanation(store: KVStore, key: Key) -> str:
    """Return a description of the effect of a push of the key."""
    head = f"key {key!r}"
    function, running, updater = store._function, store._running, store._updater
    own = store._own.get(key)
    if own is not None:
        own.look(key)
        program = own.native.program
        text = f"{in_words(program, own.native.params_for(key))}in its text form\n{program.text}"
        return f"{head}: the program {program.name}, its own\n{text}"
    if isinstance(function, Called):
        return f"{head}: {function.explain(key)}"
    if store.rank != 0:
        return _of_servers(head, store, key)
    if isinstance(function, Read) and function.program is not None:
        return f"{head}: a program, read from a Python function\n{in_words(function.program)}in its text form\n{function.program.text}"
    native: Any = running.native if running is not None else store._native
    if native is not None:
        program = native.program
        if running is not None:
            running.look(key)
        params = native.params_for(key)
        return f"{head}: the program {program.name}\n{in_words(program, params)}in its text form\n{program.text}"
    if updater is not None:
        return f"{head}: each push calls {type(updater).__name__}, which is Python\n"
    return _of_servers(head, store, key) if store.rejoined else f"{head}: {_ASSIGNMENT}"


def _of_servers(head: str, store: KVStore, key: Key) -> str:
    """The same of a store whose updater another process, or another life of this one, has set."""
    native: Any = store._update_of(key)
    if native is None:
        return f"{head}: {_ASSIGNMENT}"
    program = native.program
    return f"{head}: the program {program.name}\n{in_words(program, native.params_for(key))}in its text form\n{program.text}"
