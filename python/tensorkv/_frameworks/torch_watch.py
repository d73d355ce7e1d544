"""Notices that a script has written into parameters whose values a store has, or into gradients before they are summed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from .. import _core


class Watch:
    """The contents of parameters when a store has last written them.

    Version counters do not suffice, because a write through ``parameter.data`` does not change them. In host memory the class
    compares a digest of all bytes. On a GPU it compares the norm and the largest element of each parameter, both as float32, so
    it misses a write that changes neither. If a version counter or an address has changed, it waits for the GPU. Otherwise the
    next call of `written` reads the result, so that the host does not wait.
    """

    def __init__(self) -> None:
        """Begin without parameters."""
        self._host: dict[Any, int] = {}  # digests
        self._gpu: dict[Any, tuple[int, int, Any]] = {}  # version, address, marks
        self._late: list[tuple[Any, Any, Any]] = []  # parameters, whether each has changed, event behind it

    def note(self, params: Iterable[Any]) -> None:
        """Take the contents of parameters as those of the store."""
        host, gpu = _split(params)
        self._host.update(zip(host, _digests(host), strict=True))
        for parameter, marks in zip(gpu, _marks(gpu), strict=True):
            self._gpu[parameter] = (parameter._version, parameter.data_ptr(), marks)

    def forget(self) -> None:
        """Drop comparisons on GPUs whose results have not been read, because parameters and store are equal again."""
        self._late = []

    def drop(self, params: Iterable[Any]) -> None:
        """Drop the contents of parameters, because a call that writes them may fail when it has written some."""
        for parameter in params:
            self._host.pop(parameter, None)
            self._gpu.pop(parameter, None)

    def written(self, params: Iterable[Any]) -> list[Any]:
        """Return those parameters that have other contents than `note` has seen."""
        host, gpu = _split(params)
        host = [parameter for parameter in host if parameter in self._host]
        found = [
            parameter for parameter, digest in zip(host, _digests(host), strict=True) if digest != self._host[parameter]
        ]
        return found + self._written_on_gpus([parameter for parameter in gpu if parameter in self._gpu])

    def _written_on_gpus(self, params: list[Any]) -> list[Any]:
        """Return GPU parameters that have changed.

        First reads the comparisons that the last call started. Then starts a comparison of all `params`. Waits for it if a
        version counter or an address shows a write; otherwise the next call reads it.
        """
        late, self._late = self._late, []
        wanted = {id(parameter) for parameter in params}
        found = {}
        for parameters, flags, event in late:
            event.synchronize()
            found.update(
                {id(p): p for p, flag in zip(parameters, flags.tolist(), strict=True) if flag and id(p) in wanted}
            )
        if found or not params:
            return list(found.values())
        shows = any((p._version, p.data_ptr()) != self._gpu[p][:2] for p in params)
        by_device: dict[Any, list[Any]] = {}
        for parameter in params:
            by_device.setdefault(parameter.device, []).append(parameter)
        for device, parameters in by_device.items():
            now = torch.stack(_marks(parameters))
            before = torch.stack([self._gpu[p][2].to(device) for p in parameters])
            flags = (now.view(torch.int32) != before.view(torch.int32)).any(1)
            if shows:
                found.update({id(p): p for p, flag in zip(parameters, flags.tolist(), strict=True) if flag})
                continue
            host = torch.empty(len(parameters), dtype=torch.bool, pin_memory=True)
            with torch.cuda.device(device):
                host.copy_(flags, non_blocking=True)
                event = torch.cuda.Event()  # type: ignore[no-untyped-call,unused-ignore]
                event.record()  # type: ignore[no-untyped-call,unused-ignore]
            self._late.append((parameters, host, event))
        return list(found.values())


class Gradients:
    """The gradients that a backward pass has computed, as they were then."""

    def __init__(self) -> None:
        """Begin without gradients."""
        self._seen: dict[Any, tuple[Any, int, int | None]] = {}  # gradients, versions, digests

    def note(self, parameter: Any, has_digest: bool) -> None:
        """Take the gradient of a parameter as it is.

        Args:
            parameter: of which the backward pass has computed the gradient; nothing happens if it has none.
            has_digest: note the contents, too, because a change through ``grad.data`` or NumPy moves no version counter. Only
                gradients in host memory have digests.
        """
        grad = parameter.grad
        if grad is None:
            return
        has_digest = has_digest and not grad.is_sparse and grad.device.type == "cpu"
        self._seen[parameter] = (grad, grad._version, _digests([grad])[0] if has_digest else None)

    def changed(self) -> list[Any]:
        """Return the parameters whose gradient is another tensor now, or has other contents."""
        digested = [parameter for parameter, (_, _, digest) in self._seen.items() if digest is not None]
        digests = dict(zip(digested, _digests([self._seen[one][0] for one in digested]), strict=True))
        return [
            parameter
            for parameter, (grad, version, digest) in self._seen.items()
            if parameter.grad is not grad or grad._version != version or digest != digests.get(parameter)
        ]


def _split(params: Iterable[Any]) -> tuple[list[Any], list[Any]]:
    """Return the parameters in host memory and those on GPUs."""
    host: list[Any] = []
    gpu: list[Any] = []
    for parameter in params:
        (host if parameter.device.type == "cpu" else gpu).append(parameter)
    return host, gpu


def _digests(tensors: list[Any]) -> list[int]:
    return _core._digests([tensor.detach() for tensor in tensors])


def _marks(params: list[Any]) -> list[Any]:
    """Return for each parameter its norm and its largest element, as two float32 on its GPU."""
    if not params:
        return []
    with torch.no_grad():
        tensors = [parameter.detach() for parameter in params]
        tensors = [torch.view_as_real(t) if t.is_complex() else t for t in tensors]
        tensors = [t if t.numel() else t.new_zeros(1) for t in tensors]
        by_kind: dict[tuple[Any, Any], list[int]] = {}
        for i, tensor in enumerate(tensors):
            by_kind.setdefault((tensor.device, tensor.dtype), []).append(i)
        marks: list[Any] = [None] * len(tensors)
        for places in by_kind.values():
            some = [tensors[i] for i in places]
            largest = torch._foreach_max(some)  # type: ignore[attr-defined,unused-ignore]  # exact in every dtype
            pairs = torch.stack([torch.stack(_norms(some)).float(), torch.stack(largest).float()], 1)
            for place, pair in zip(places, pairs.unbind(), strict=True):
                marks[place] = pair
        return marks


def _norms(tensors: list[Any]) -> list[Any]:
    """Return the norms of tensors of one dtype; of 16-bit ones as float32.

    A norm in bfloat16 has 8 significant bits, and one in float16 is infinite above 65504, so an ordinary write changes neither.
    """
    norm: Any = torch._foreach_norm  # type: ignore[attr-defined,unused-ignore]
    if tensors[0].dtype not in (torch.float16, torch.bfloat16):
        return list(norm(tensors))
    try:
        return list(norm(tensors, 2, torch.float32))
    except TypeError:  # an older PyTorch, whose function takes no dtype
        return list(norm([tensor.float() for tensor in tensors]))
