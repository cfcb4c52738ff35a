"""Memory layouts of tensors, by the strides that a graph states."""
from __future__ import annotations

import dataclasses

import torch


def number(n) -> int:
    """A size, or the value that a symbolic one was traced with."""
    if isinstance(n, int):
        return n
    return n.node.hint if n.node.hint is not None else 2


def empty(t: torch.Tensor) -> bool:
    return any(number(n) == 0 for n in t.shape)


def by_stride(t: torch.Tensor) -> list[int]:
    """The dimensions, outermost in memory first."""
    strides = [number(n) for n in t.stride()]
    return sorted(range(t.dim()), key=lambda d: -strides[d])


def places(order) -> list[int]:
    """For each dimension its place in an order."""
    return sorted(range(len(order)), key=order.__getitem__)


def unpermuted(t: torch.Tensor, order) -> torch.Tensor:
    """A tensor whose dimensions are in this order, seen in their own."""
    return t.permute(places(order))


def is_dense(t: torch.Tensor, order: list[int], expanded=()) -> bool:
    """Whether the elements fill their memory in this order of the dimensions, but for those that are expanded."""
    size = 1
    for d in reversed(order):
        if number(t.shape[d]) != 1 and d not in expanded:
            if number(t.stride(d)) != size:
                return False
            size *= number(t.shape[d])
    return True


def dense_order(t: torch.Tensor) -> list[int] | None:
    """The order of the dimensions of an input that is dense but not row-major; None for any other. Of the sizes only the
    outermost may be symbolic."""
    order = by_stride(t)
    if order == sorted(order) or empty(t) or not is_dense(t, order):
        return None
    return order if all(isinstance(t.shape[d], int) for d in order[1:]) else None


@dataclasses.dataclass
class Layout:
    """The layout that eager gives a result, where it is not row-major. The program writes it row-major in `order`."""

    order: list[int]
    """The dimensions, outermost in memory first."""
    strides: tuple[int, ...] | None
    """The strides, if they are known and the memory has gaps."""
    expanded: list[int]
    """Dimensions of stride 0."""

    @staticmethod
    def of(t: torch.Tensor, gaps: bool = True) -> Layout | None:
        """The layout of a result. Without `gaps` it is dense, in the same order."""
        expanded = [d for d in range(t.dim()) if number(t.stride(d)) == 0 and number(t.shape[d]) > 1]
        order = by_stride(t)
        dense = is_dense(t, order, expanded)
        if empty(t) or dense and not expanded and order == sorted(order):
            return None
        known = all(isinstance(n, int) for n in (*t.shape, *t.stride()))
        return Layout(order, tuple(t.stride()) if gaps and known and not dense else None, expanded)

    @property
    def dense(self) -> bool:
        """Whether it has neither gaps nor expanded dimensions."""
        return self.strides is None and not self.expanded

    def placed(self, size: tuple[int, ...], strides: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Sizes and strides in the order of the tensor's dimensions, of those in the order in which the program writes them."""
        own = places(self.order)
        return tuple(size[k] for k in own), tuple(strides[k] for k in own)

    def apply(self, t: torch.Tensor) -> torch.Tensor:
        """The program's result, of which `order` are the dimensions, with eager's strides."""
        shape = [0] * t.dim()
        for d, n in zip(self.order, t.shape):
            shape[d] = n
        t = unpermuted(t, self.order)
        for d in self.expanded:
            t = t.narrow(d, 0, 1)
        if self.strides is not None:
            t = torch.empty_strided(t.shape, self.strides, dtype=t.dtype, device=t.device).copy_(t)
        elif self.expanded:
            t = unpermuted(t.permute(self.order).contiguous(), self.order)
        return t.expand(shape)
