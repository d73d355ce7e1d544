"""Finds the snapshot that a load has read."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from typing import Any

_INDEX = "model.safetensors.index.json"


class Place:
    """A path of `load` as this rank sees it, from before the load."""

    def __init__(self, path: str) -> None:
        """Look at the path."""
        self._folder, self._store = path, ""
        head, _, store = path.rpartition("/")
        if re.fullmatch(r"store-\d+", store) and not os.path.exists(path):  # one store of a snapshot of several
            self._folder, self._store = head, f"/{store}"
        self._before = self._newest()

    def loaded(self, rounds: Mapping[Any, int] | None) -> str | None:
        """Return the path of the snapshot that a load has read, or None if this rank cannot find it.

        A snapshot may have appeared while the keys were loaded, so the newest one may not be the one.

        Args:
            rounds: those of the keys, which the load has returned; None if they do not tell snapshots apart.
        """
        if rounds is None:
            newest = self._newest()
            return None if newest is None or newest != self._before else newest[0] + self._store
        for snapshot in self._snapshots():
            if _has_rounds(snapshot, rounds):
                return snapshot + self._store
        return None

    def _newest(self) -> tuple[str, int, int] | None:
        """Return the path of the newest snapshot, and an identity that changes when its file is replaced."""
        for snapshot in self._snapshots():
            index = os.path.join(snapshot, _INDEX)
            with contextlib.suppress(OSError, ValueError):  # no path at all: the load says so
                found = os.stat(index if os.path.isdir(snapshot) else snapshot)
                return snapshot, found.st_ino, found.st_mtime_ns
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
