"""Functions of `tkv.nd` that give the elements of arrays another shape, order or extent."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import InvalidArgumentError
from .host import axis_in, host
from .reshape import of_codes

_slice = slice


@host("tkv.nd.transpose(tkv.nd.ones((2, 3))).shape", "(3, 2)")
def transpose(data: Any, axes: Any = None, *more: int) -> Any:
    """Return the array with its axes in another order, by default the last one first; a tuple or several numbers."""
    return np.transpose(data, (axes, *more) if isinstance(axes, int) else axes or None)


@host("tkv.nd.swapaxes(tkv.nd.ones((2, 3, 4)), 0, 2).shape", "(4, 3, 2)")
def swapaxes(data: Any, dim1: int = 0, dim2: int = 0) -> Any:
    """Return the array with two axes exchanged."""
    return np.swapaxes(data, dim1, dim2)


@host("tkv.nd.moveaxis(tkv.nd.ones((2, 3, 4)), 0, 2).shape", "(3, 4, 2)")
def moveaxis(tensor: Any, source: Any, destination: Any) -> Any:
    """Return the array with some axes at other places."""
    return np.moveaxis(tensor, source, destination)


@host("tkv.nd.expand_dims(tkv.nd.ones((2,)), 0).shape", "(1, 2)")
def expand_dims(data: Any, axis: int) -> Any:
    """Return the array with an axis of extent 1 at `axis`."""
    return np.expand_dims(data, axis)


@host("tkv.nd.squeeze(tkv.nd.ones((1, 2, 1))).shape", "(2,)")
def squeeze(data: Any, axis: Any = None) -> Any:
    """Return the array without its axes of extent 1, or without those of `axis`; an array of one element keeps one axis."""
    return np.atleast_1d(np.squeeze(data, axis if axis is None or isinstance(axis, int) else tuple(axis)))


@host("tkv.nd.reshape(tkv.nd.zeros((2, 3, 4)), (0, -1)).shape", "(2, 12)")
def reshape(data: Any, shape: Any, reverse: bool = False) -> Any:
    """Return the elements with another shape, in which MXNet's codes may stand: see `NDArray.reshape`."""
    return data.reshape(of_codes(data.shape, shape if isinstance(shape, (list, tuple)) else (shape,), reverse))


@host("tkv.nd.reshape_like(tkv.nd.ones((6,)), tkv.nd.ones((2, 3))).shape", "(2, 3)")
def reshape_like(lhs: Any, rhs: Any) -> Any:
    """Return the elements of `lhs` with the shape of `rhs`."""
    return lhs.reshape(rhs.shape)


@host("tkv.nd.flatten(tkv.nd.ones((2, 3, 4))).shape", "(2, 12)")
def flatten(data: Any) -> Any:
    """Return the array as a matrix: the first axis stays."""
    return data.reshape(data.shape[0], -1)


@host("tkv.nd.flip(tkv.nd.array([1, 2]), axis=0).asnumpy()", "array([2., 1.], dtype=float32)")
def flip(data: Any, axis: Any) -> Any:
    """Return the array with the order along some axes turned round."""
    return np.flip(data, axis)


@host("tkv.nd.tile(tkv.nd.array([1, 2]), (2,)).asnumpy()", "array([1., 2., 1., 2.], dtype=float32)")
def tile(data: Any, reps: Any) -> Any:
    """Return the array repeated as a whole, so often along each axis."""
    return np.tile(data, reps)


@host("tkv.nd.repeat(tkv.nd.array([1, 2]), 2).asnumpy()", "array([1., 1., 2., 2.], dtype=float32)")
def repeat(data: Any, repeats: int, axis: int | None = None) -> Any:
    """Return the array with each slice of an axis repeated; without an axis, the flat array with each element repeated."""
    return np.repeat(data, repeats, axis)


@host("tkv.nd.broadcast_to(tkv.nd.ones((1, 2)), (3, 2)).shape", "(3, 2)")
def broadcast_to(data: Any, shape: Any) -> Any:
    """Return the array with its extents of 1 as large as in `shape`; 0 keeps an extent."""
    wanted = (
        tuple(old if n == 0 else n for n, old in zip(shape, data.shape, strict=True)) if 0 in shape else tuple(shape)
    )
    return np.broadcast_to(data, wanted)


@host("tkv.nd.broadcast_like(tkv.nd.ones((1, 2)), tkv.nd.ones((3, 2))).shape", "(3, 2)")
def broadcast_like(lhs: Any, rhs: Any, lhs_axes: Any = None, rhs_axes: Any = None) -> Any:
    """Return the first array with the shape of the second one.

    Args:
        lhs: an array.
        rhs: an array.
        lhs_axes: axes of extent 1, which alone are made larger; None takes all.
        rhs_axes: axes of `rhs`, as many, whose extents those get.
    """
    if (lhs_axes is None) != (rhs_axes is None):
        raise InvalidArgumentError("lhs_axes without rhs_axes; both or none are needed")
    if lhs_axes is None:
        return np.broadcast_to(lhs, rhs.shape)
    wanted = list(lhs.shape)
    for ours, theirs in zip(lhs_axes, rhs_axes, strict=True):
        if axis_in(lhs, ours) and axis_in(rhs, theirs) and lhs.shape[ours] != 1:
            raise InvalidArgumentError(f"axis {ours} of shape {lhs.shape}; an extent of 1 is needed")
        wanted[ours] = rhs.shape[theirs]
    return np.broadcast_to(lhs, wanted)


@host("tkv.nd.concat(tkv.nd.ones((2, 1)), tkv.nd.zeros((2, 2)), dim=1).shape", "(2, 3)", ("data",))
def concat(*data: Any, dim: int = 1) -> Any:
    """Return arrays concatenated along an axis."""
    return np.concatenate(data, axis=dim)


@host(
    "tkv.nd.concatenate([tkv.nd.ones((2,)), tkv.nd.zeros((1,))]).asnumpy()",
    "array([1., 1., 0.], dtype=float32)",
    ("arrays",),
)
def concatenate(arrays: Any, axis: int = 0, always_copy: bool = True) -> Any:
    """Return the arrays of a list concatenated along an axis; it is always a copy."""
    return np.concatenate(arrays, axis=axis)


@host("tkv.nd.stack(tkv.nd.ones((2,)), tkv.nd.zeros((2,))).shape", "(2, 2)", ("data",))
def stack(*data: Any, axis: int = 0) -> Any:
    """Return arrays of one shape along a new axis; as arguments or as one list."""
    return np.stack(data[0] if len(data) == 1 and isinstance(data[0], (list, tuple)) else data, axis=axis)


@host("[part.shape for part in tkv.nd.split(tkv.nd.ones((2, 4)), 2)]", "[(2, 2), (2, 2)]")
def split(data: Any, num_outputs: int, axis: int = 1, squeeze_axis: bool = False) -> Any:
    """Return a list of equal parts along an axis, without the axis with `squeeze_axis`; one part as an array."""
    parts = np.split(data, num_outputs, axis)
    parts = [np.squeeze(part, axis) for part in parts] if squeeze_axis else parts
    return parts[0] if num_outputs == 1 else parts


@host("tkv.nd.slice(tkv.nd.arange(6).reshape((2, 3)), begin=(0, 1), end=(2, 3)).shape", "(2, 2)")
def slice(data: Any, begin: Any, end: Any, step: Any = ()) -> Any:
    """Return the part from `begin` to before `end` along the first axes, with `step`; None is the begin or the end of an axis."""
    steps = [*step, *[None] * (len(begin) - len(step))]
    return data[tuple(_slice(*bounds) for bounds in zip(begin, end, steps, strict=True))]


@host("tkv.nd.slice_axis(tkv.nd.ones((2, 3)), axis=1, begin=0, end=-1).shape", "(2, 2)")
def slice_axis(data: Any, axis: int, begin: int, end: int | None) -> Any:
    """Return the part from `begin` to before `end` (None: to the end) along an axis."""
    axis_in(data, axis)
    bounds: list[Any] = [_slice(None)] * data.ndim
    bounds[axis] = _slice(begin, end)
    return data[tuple(bounds)]


@host("tkv.nd.slice_like(tkv.nd.ones((4, 3)), tkv.nd.ones((2, 2))).shape", "(2, 2)")
def slice_like(data: Any, shape_like: Any, axes: Any = ()) -> Any:
    """Return the first part of the array that has the shape of another one, along some axes or all."""
    bounds: list[Any] = [_slice(None)] * data.ndim
    for axis in axes or range(data.ndim):
        bounds[axis] = _slice(0, shape_like.shape[axis])
    return data[tuple(bounds)]


@host("tkv.nd.diag(tkv.nd.array([1, 2])).asnumpy()", "array([[1., 0.],\n               [0., 2.]], dtype=float32)")
def diag(data: Any, k: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Return the diagonal of two axes, as the last axis of the result; of one axis, a matrix with that diagonal."""
    if data.ndim == 1:
        return np.diag(data, k)
    return np.diagonal(data, k, axis1, axis2)
