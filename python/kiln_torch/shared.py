"""Results of a program that are views: made by PyTorch of what the program computes or is given, instead of stored once more.

Queries, keys and values are slices of one product; what a forward graph saves is often the transpose of what a later op reads.
"""
from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable

import torch

from .graph import is_item, overload
from .views import base


@dataclasses.dataclass(frozen=True)
class ViewOp:
    """An op on one tensor that gives a view of it."""

    name: str
    """Of the overload, such as `aten.view.default`; empty for the result at index `arguments[0]` of an op with several."""
    arguments: tuple
    keywords: tuple

    @staticmethod
    def of(node: torch.fx.Node) -> ViewOp:
        name = "" if is_item(node) else overload(node)
        return ViewOp(name, tuple(node.args[1:]), tuple(node.kwargs.items()))

    def __call__(self, t):
        if not self.name:
            return t[self.arguments[0]]
        namespace, op, kind = self.name.split(".")
        return getattr(getattr(getattr(torch.ops, namespace), op), kind)(t, *self.arguments, **dict(self.keywords))


@dataclasses.dataclass(frozen=True)
class Result:
    """A result of a program: a value that it computes, or a view of one, or of an input."""

    index: int
    """Of the computed value, or of the input."""
    of_input: bool = False
    view: tuple[tuple[int, ...], tuple[int, ...], int] | None = None
    """Size, strides and offset in elements; None for the value itself."""
    strides: tuple[int, ...] = ()
    """The strides of the input for which `view` holds."""
    ops: tuple[ViewOp, ...] = ()
    """The view ops, for an input with others."""

    def make(self, computed: list[torch.Tensor], inputs: list[torch.Tensor]) -> torch.Tensor:
        t = inputs[self.index] if self.of_input else computed[self.index]
        if self.view is None:
            return t
        if self.of_input and t.stride() != self.strides:
            return viewed(t, self.ops)
        size, stride, offset = self.view
        return torch.as_strided(t, size, stride, t.storage_offset() + offset)


def is_static(t: torch.Tensor) -> bool:
    return all(isinstance(n, int) for n in (*t.shape, *t.stride(), t.storage_offset()))


def ops_from(node: torch.fx.Node, start: torch.fx.Node) -> tuple[torch.fx.Node, ...]:
    """The ops between a value and its view, the first one first."""
    ops = []
    while node is not start:
        ops.append(node)
        node = node.args[0]
    return tuple(reversed(ops))


def viewed(t: torch.Tensor, ops: Iterable[ViewOp]) -> torch.Tensor:
    """A tensor after view ops."""
    return functools.reduce(lambda t, op: op(t), ops, t)


def shares(node: torch.fx.Node) -> torch.fx.Node | None:
    """The value whose memory a view can be given in, if there is one."""
    start = base(node)
    view, whole = node.meta["val"], start.meta.get("val")
    if start is node or not isinstance(whole, torch.Tensor) or not (is_static(view) and is_static(whole)):
        return None
    ops = ops_from(node, start)
    if any(len(op.all_input_nodes) > 1 for op in ops) or view.dtype != whole.dtype or view.is_complex() or view.is_neg() or view.numel() == 0:
        return None
    # A value may have been given other strides than its views know of.
    found = viewed(whole, map(ViewOp.of, ops))
    return start if (found.stride(), found.storage_offset()) == (view.stride(), view.storage_offset()) else None


def results(inputs: dict[torch.fx.Node, int], outputs: list[torch.fx.Node], free: set[torch.fx.Node]) -> tuple[list[torch.fx.Node], list[Result]]:
    """What a program computes for `outputs`, and which of it each one is. Those in `free` may share memory: no user sees them.
    `inputs` are the tensors that a call gives, with their places among its values."""
    starts = {o: start for o in outputs if o in free and (start := shares(o)) is not None}
    elements: dict[torch.fx.Node, int] = {}
    for o, start in starts.items():
        elements[start] = elements.get(start, 0) + o.meta["val"].numel()

    def pays(start):
        # A value of which only a part is read is not stored whole.
        stored = start in inputs or start in outputs
        return stored or start.op == "call_function" and elements[start] >= start.meta["val"].numel()

    starts = {o: start for o, start in starts.items() if pays(start)}
    computed = [o for o in dict.fromkeys(starts.get(o, o) for o in outputs) if o not in inputs]
    if not computed:
        return outputs, [Result(k) for k in range(len(outputs))]
    made = []
    for o in outputs:
        start = starts.get(o)
        if start is None:
            made.append(Result(computed.index(o)))
            continue
        view, whole = o.meta["val"], start.meta["val"]
        at = (tuple(view.shape), tuple(view.stride()), view.storage_offset() - whole.storage_offset())
        if start in inputs:
            made.append(Result(inputs[start], True, at, tuple(whole.stride()), tuple(map(ViewOp.of, ops_from(o, start)))))
        else:
            made.append(Result(computed.index(start), view=at))
    return computed, made
