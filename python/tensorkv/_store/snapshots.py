"""Finds the counts of updates in the snapshot that a load has read."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import KVError

_INDEX = "model.safetensors.index.json"


class Place:
    """A path of `load` as this rank sees it, from before the load."""

    def __init__(self, path: str, counts_in: Callable[[str], Mapping[Any, int]] | None) -> None:
        """Look at the path.

        Args:
            path: that of the load.
            counts_in: returns the counts that the store would load from a path; None if nobody asks for them.
        """
        self._path, self._counts_in = path, counts_in
        self._folder, self._store = path, ""
        head, _, store = path.rpartition("/")
        if re.fullmatch(r"store-\d+", store) and not os.path.exists(path):  # one store of a snapshot of several
            self._folder, self._store = head, f"/{store}"
        self._before = self._counts(path)

    def counts(self, rounds: Mapping[Any, int] | None) -> Mapping[Any, int] | None:
        """Return the counts of the snapshot that a load has read, or None if this rank cannot find it.

        A snapshot may have appeared while the keys were loaded, so the newest one may not be the one.

        Args:
            rounds: those of the keys, which the load has returned; None if they do not tell snapshots apart.
        """
        now = self._counts(self._path)
        is_same = now is not None and now == self._before
        if rounds is None:
            return now if is_same else None
        found = [snapshot for snapshot in self._snapshots() if _has_rounds(snapshot, rounds)]
        if not found:
            return None
        return now if is_same else self._counts(found[0] + self._store)

    def _counts(self, path: str) -> Mapping[Any, int] | None:
        try:
            return None if self._counts_in is None else self._counts_in(path)
        except (KVError, ValueError):  # this rank cannot read it; or no path at all, as the load says
            return None

    def _snapshots(self) -> list[str]:
        """Return the paths of the snapshots that a load may read, the newest first."""
        if not os.path.isdir(self._folder) or os.path.exists(os.path.join(self._folder, _INDEX)):
            return [self._folder]
        try:
            names = os.listdir(self._folder)
        except OSError:
            return []
        numbers = sorted(
            (int(name) for name in names if re.fullmatch(r"\d{6}|[1-9]\d{6,}", name, re.ASCII)), reverse=True
        )
        paths = [os.path.join(self._folder, f"{number:06}") for number in numbers]
        return [path for path in paths if os.path.exists(os.path.join(path, _INDEX))]


def _has_rounds(snapshot: str, rounds: Mapping[Any, int]) -> bool:
    """Return whether a store of a snapshot has all of these keys at these rounds."""
    import json

    stores: dict[int, dict[Any, int]] = {}
    try:
        with open(os.path.join(snapshot, _INDEX), "rb") as file:
            for entry in json.load(file)["keys"]:
                stores.setdefault(entry.get("store", 0), {})[entry["key"]] = entry["round"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # removed meanwhile, or damaged
        return False
    return any(rounds.items() <= saved.items() for saved in stores.values())
