"""Compiled pieces of graphs: a kiln program with the PyTorch calling convention around it."""
from __future__ import annotations

import torch

from . import _kiln
from .graph import serialise
from .layout import Layout, dense_order

DTYPES = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
    "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "ui8": torch.uint8, "i1": torch.bool,
    "f8E4M3FN": torch.float8_e4m3fn, "f8E5M2": torch.float8_e5m2,
}
# Addresses that a GPU's kernels take in place are multiples of this many bytes.
ALIGNMENT = 16


class Program:
    """`nodes` of a graph as one program of a device. A call takes the values of `inputs`, tensors and sizes in that order,
    and returns the tensors of `outputs`."""

    def __init__(self, inputs, nodes, outputs, options, device: torch.device):
        self.device = device
        self.takes = [k for k, n in enumerate(inputs) if isinstance(n.meta["val"], torch.Tensor)]
        given = [inputs[k].meta["val"] for k in self.takes]
        self.layouts = [Layout.of(o.meta["val"]) for o in outputs]
        self.orders = {k: order for k, t in enumerate(given) if (order := dense_order(t)) is not None}
        orders_out = [layout.order if layout else None for layout in self.layouts]
        self.compiled = _kiln.Program.compile(serialise(inputs, nodes, outputs, orders_out), [*options, ("device", str(device))], self.orders)
        self.kernels = self.compiled.kernels()
        described = self.compiled.outputs()
        self.dtypes = [DTYPES[name] for name, _ in described]
        self.fixed = [size for _, size in described] if all(size is not None for _, size in described) else None
        static = all(isinstance(n, int) for t in given for n in t.shape)
        self.call = self.host if device.type == "cpu" else self.static_cuda(given) if static else self.cuda

    def __call__(self, values):
        outputs = self.call([values[k] for k in self.takes])
        return [t if layout is None else layout.apply(t) for t, layout in zip(outputs, self.layouts)]

    def host(self, inputs):
        sizes = self.fixed or self.compiled.output_sizes([list(t.shape) for t in inputs])
        outputs = [torch.empty(size, dtype=dtype) for size, dtype in zip(sizes, self.dtypes)]
        describe = lambda t: (t.data_ptr(), list(t.shape), list(t.stride()))
        self.compiled.call([describe(t) for t in inputs], [describe(t) for t in outputs])
        return outputs

    def placed(self, k: int, t: torch.Tensor) -> torch.Tensor:
        """Input `k` as kernels read it: on the GPU, dense in the program's order, aligned."""
        if t.device != self.device:
            t = t.to(self.device)
        order = self.orders.get(k)
        if not (t if order is None else t.permute(order)).is_contiguous():
            t = t.contiguous() if order is None else t.permute(order).contiguous()
        return t.clone(memory_format=torch.contiguous_format) if t.data_ptr() % ALIGNMENT else t

    def cuda(self, inputs):
        shapes = [list(t.shape) for t in inputs]
        sizes, workspace = self.compiled.allocation(shapes)
        return self.launch([self.placed(k, t) for k, t in enumerate(inputs)], shapes, sizes, workspace)

    def static_cuda(self, given):
        """A call whose shapes are the graph's."""
        shapes = [list(t.shape) for t in given]
        sizes, workspace = self.compiled.allocation(shapes)
        return lambda inputs: self.launch([self.placed(k, t) for k, t in enumerate(inputs)], shapes, sizes, workspace)

    def launch(self, inputs, shapes, sizes, workspace):
        outputs = [torch.empty(size, dtype=dtype, device=self.device) for size, dtype in zip(sizes, self.dtypes)]
        # PyTorch's allocator may give it to the next kernel of this stream as soon as it is dropped.
        memory = torch.empty(workspace, dtype=torch.uint8, device=self.device) if workspace else None
        stream = torch._C._cuda_getCurrentRawStream(self.device.index)
        address = memory.data_ptr() if memory is not None else 0
        self.compiled.launch(stream, shapes, [t.data_ptr() for t in inputs], [t.data_ptr() for t in outputs], address)
        return outputs
