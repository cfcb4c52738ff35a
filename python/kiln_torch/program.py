"""Compiled pieces of graphs: a kiln program with the PyTorch calling convention around it."""
from __future__ import annotations

import dataclasses

import torch

from . import _kiln
from .graph import serialise

DTYPES = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
    "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "ui8": torch.uint8, "i1": torch.bool,
    "f8E4M3FN": torch.float8_e4m3fn, "f8E5M2": torch.float8_e5m2,
}


class Program:
    """`nodes` of a graph as one program. A call takes the values of `inputs`, tensors and sizes in that order, and returns
    the tensors of `outputs`."""

    def __init__(self, inputs, nodes, outputs, options):
        self.takes = [k for k, n in enumerate(inputs) if isinstance(n.meta["val"], torch.Tensor)]
        self.compiled = _kiln.Program.compile(serialise(inputs, nodes, outputs), options)
        self.kernels = self.compiled.kernels()
        described = self.compiled.outputs()
        self.dtypes = [DTYPES[name] for name, _ in described]
        self.fixed = [size for _, size in described] if all(size is not None for _, size in described) else None
        self.shaped = [Layout.of(o.meta["val"]) for o in outputs]

    def __call__(self, values):
        inputs = [values[k] for k in self.takes]
        sizes = self.fixed or self.compiled.output_sizes([list(t.shape) for t in inputs])
        outputs = [torch.empty(size, dtype=dtype) for size, dtype in zip(sizes, self.dtypes)]
        describe = lambda t: (t.data_ptr(), list(t.shape), list(t.stride()))
        self.compiled.call([describe(t) for t in inputs], [describe(t) for t in outputs])
        return [t if layout is None else layout.apply(t) for t, layout in zip(outputs, self.shaped)]


@dataclasses.dataclass
class Layout:
    """The strides that eager gives a result, where they are not row-major."""

    order: list[int]
    """The dimensions, outermost in memory first."""
    strides: tuple[int, ...] | None
    """The strides, if they are known and the memory has gaps."""
    expanded: list[int]
    """Dimensions of stride 0."""

    @staticmethod
    def of(t: torch.Tensor) -> Layout | None:
        number = lambda n: n if isinstance(n, int) else n.node.hint if n.node.hint is not None else 2
        sizes, strides = [number(n) for n in t.shape], [number(n) for n in t.stride()]
        expanded = [d for d, (n, s) in enumerate(zip(sizes, strides)) if s == 0 and n > 1]
        order = sorted(range(t.dim()), key=lambda d: -strides[d])
        dense, span = 1, True
        for d in reversed(order):
            if sizes[d] != 1 and d not in expanded:
                span, dense = span and strides[d] == dense, dense * sizes[d]
        known = all(isinstance(n, int) for n in (*t.shape, *t.stride()))
        if span and not expanded and order == sorted(order) or t.numel() == 0:
            return None
        return Layout(order, tuple(t.stride()) if known and not span else None, expanded)

    def apply(self, t: torch.Tensor) -> torch.Tensor:
        """A copy with these strides."""
        part = t
        for d in self.expanded:
            part = part.narrow(d, 0, 1)
        if self.strides is not None:
            out = torch.empty_strided(part.shape, self.strides, dtype=t.dtype)
        else:
            inverse = sorted(range(t.dim()), key=self.order.__getitem__)
            out = torch.empty([part.shape[d] for d in self.order], dtype=t.dtype).permute(inverse)
        return out.copy_(part).expand(t.shape)
