"""Compiled pieces of graphs: a kiln program with the PyTorch calling convention around it."""
from __future__ import annotations

import dataclasses
import pickle
import zlib

import torch
from torch._C._dynamo.guards import _empty_strided_cpu as empty_cpu
from torch._C._dynamo.guards import _empty_strided_cuda as empty_cuda

from . import _kiln, random_order
from .donation import keeps_graph
from .graph import is_fusible, serialise
from .layout import Layout, dense_order, unpermuted
from .shared import Result, results
from .sizes import carried, carrier, floats

DTYPES = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
    "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "ui8": torch.uint8, "i1": torch.bool,
    "f8E4M3FN": torch.float8_e4m3fn, "f8E5M2": torch.float8_e5m2,
}
# PyTorch for processors alone has neither.
current_gpu, raw_stream = (getattr(torch._C, f"_cuda_get{name}", None) for name in ("Device", "CurrentRawStream"))
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def row_major(size: list[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The size, and the strides of a dense tensor as PyTorch computes them."""
    strides, step = [], 1
    for n in reversed(size):
        strides.append(step)
        step *= max(n, 1)
    return tuple(size), tuple(reversed(strides))


def real(t: torch.Tensor) -> torch.Tensor:
    """A tensor as programs take it: in memory as it is, a complex one with a last dimension of two parts."""
    return torch.view_as_real(t.resolve_conj()) if t.is_complex() else t.resolve_neg()


@dataclasses.dataclass
class Source:
    """What a program is compiled from: a graph as JSON, compressed, or a part of a joint graph."""

    graph: bytes | _kiln.Part
    options: list[tuple[str, str]]
    orders: dict[int, list[int]]
    """Of the inputs that are not row-major the dimensions, outermost in memory first."""
    donated: dict[int, int | None]
    """The inputs that a call may overwrite, each with the result that is its new value, if one is."""
    weights: list[tuple[str, str, torch.Tensor]]
    """Frozen parameters: name, dtype, value."""

    def compile(self) -> _kiln.Program:
        if isinstance(self.graph, _kiln.Part):
            return _kiln.Program.compile_part(self.graph, self.options, self.orders, self.donated)
        return _kiln.Program.compile(zlib.decompress(self.graph), self.options, self.orders, self.weights, self.donated)


class Program:
    """`nodes` of a graph, or a part of a joint graph, as one program of a device. A call takes the values of `inputs`, tensors and sizes in that order,
    and returns the tensors of `outputs`, those in `dense` without gaps in memory; those in `free` may share memory. Inputs
    in `frozen` have their values compiled in. A call may overwrite inputs in `donated`, but copies them first where the backward
    pass keeps what was `saved` for it. Of inputs in `updates` it may write the new values, which are outputs, to their memory. `eager` computes the same of the same values. `aligned`: draws continue PyTorch's generator, as eager's do.

    It can be pickled, without code: [`load`] compiles it again."""

    OF_THE_PROCESS = ("compiled", "call", "run", "generator")
    """Attributes that [`load`] sets."""

    def __init__(self, inputs, nodes, outputs, options, device: torch.device, frozen: dict[torch.fx.Node, torch.Tensor], eager, dense=frozenset(), free=frozenset(), donated=frozenset(), saved=False, updates={}, aligned=False):
        self.device, self.saved, self.aligned = device, saved, aligned
        tensors = {n: k for k, n in enumerate(inputs) if isinstance(n.meta["val"], torch.Tensor) and n not in frozen}
        stated = [outputs[k] for k in dense]
        outputs, self.results = results(tensors, outputs, free)
        # The strides of views are those that the graph states.
        bases = {outputs[r.index] for r in self.results if r.view is not None and not r.of_input}
        dense = {k for k, o in enumerate(outputs) if o in stated and o not in bases}
        self.plain = all(r == Result(k) for k, r in enumerate(self.results)) and len(self.results) == len(outputs)
        self.takes = [k for k, n in enumerate(inputs) if isinstance(n.meta["val"], torch.Tensor) and n not in frozen]
        given = [inputs[k].meta["val"] for k in self.takes]
        self.converted = [k for k, t in enumerate(given) if t.is_complex() or t.is_neg()]
        self.complex = [k for k, o in enumerate(outputs) if o.meta["val"].is_complex()]
        given = [real(t) for t in given]
        layouts = [Layout.of(o.meta["val"], gaps=k not in dense) for k, o in enumerate(outputs)]
        orders = {k: order for k, t in enumerate(given) if (order := dense_order(t)) is not None}
        # What fusion cannot permute is permuted here.
        part = nodes if isinstance(nodes, _kiln.Part) else None
        permuted = [part is None and is_fusible(o) for o in outputs]
        # Kernels take the addresses alone: these are allocated with eager's strides.
        direct = lambda k: device.type != "cpu" and permuted[k] and layouts[k].dense and k not in self.complex
        self.direct = {k: layout for k, layout in enumerate(layouts) if layout is not None and direct(k)}
        self.relaid = [(k, layout, permuted[k]) for k, layout in enumerate(layouts) if layout is not None and k not in self.direct]
        orders_out = [layout.order if layout and inside else None for layout, inside in zip(layouts, permuted)]
        # AOTAutograd compiles under its fake mode; these are real.
        with torch.utils._python_dispatch._disable_current_modes():
            weights = [(n.name, NAMES[t.dtype], t.detach().cpu().contiguous()) for n, t in frozen.items()]
        viewed = {r.index for r in self.results if r.of_input}
        overwritable = {i: None for i, k in enumerate(self.takes) if inputs[k] in donated and k not in viewed}
        for i, k in enumerate(self.takes):
            value = updates.get(inputs[k])
            if value in outputs and k not in viewed and outputs.index(value) not in (*self.direct, *(j for j, _, _ in self.relaid)):
                overwritable[i] = outputs.index(value)
        graph = part if part is not None else zlib.compress(serialise(inputs, nodes, outputs, orders_out, frozen), 1)
        self.source = Source(graph, [*options, ("device", str(device))], orders, overwritable, weights)
        self.sizes, self.floats = carried(inputs), floats(inputs)
        self.eager = eager
        static = not self.sizes and all(isinstance(n, int) for t in given for n in t.shape)
        self.shapes = [*(list(t.shape) for t in given), *([] for _ in self.floats)] if static else None
        self.load()

    def load(self):
        """Compiles the program, or takes it from kiln's cache."""
        compiled = self.compiled = self.source.compile()
        self.overwrites = compiled.overwrites() if self.saved else []
        self.aliases = compiled.aliases()
        # Between several programs tensors are row-major.
        self.orders = compiled.orders()
        self.kernels = compiled.kernels()
        described = compiled.outputs()
        self.dtypes = [DTYPES[name] for name, _ in described]
        static_sizes = all(size is not None for _, size in described)
        self.fixed = [row_major(size) for _, size in described] if static_sizes else None
        self.draws = compiled.inputs() > len(self.takes) + len(self.sizes) + len(self.floats)
        self.generator = self.increment = None
        self.moves_generator = False
        if self.aligned:
            self.align()
        on_host = self.device.type == "cpu"
        # Sizes of results, and bytes of the workspace, where the graph's shapes are those of all calls.
        placed = self.allocation(self.given_shapes()) if self.shapes is not None and not on_host else None
        self.call = self.host if on_host else (lambda inputs: self.launch(inputs, *placed)) if placed else self.cuda
        special = self.sizes or self.floats or self.converted or self.complex or self.relaid or self.draws or self.moves_generator or self.aliases or self.overwrites or not self.plain
        known = (self.fixed, 0) if on_host and self.fixed is not None else placed
        self.run = self.general if special or known is None else self.quick(*known)

    def __getstate__(self):
        if self.source.weights:
            raise pickle.PicklingError("frozen parameters are not kept")
        state = {name: value for name, value in vars(self).items() if name not in self.OF_THE_PROCESS}
        # Only a negative size needs it.
        return state if self.sizes else {**state, "eager": None}

    def __call__(self, values):
        return self.run(values)

    def quick(self, placed, workspace: int):
        """A call that allocates the results, of these sizes and strides, and launches, and nothing else."""
        takes, compiled = self.takes, self.compiled
        made = [(*place, dtype) for place, dtype in zip(placed, self.dtypes)]
        if self.device.type == "cpu":

            def on_host(values):
                outputs = [empty_cpu(size, stride, dtype) for size, stride, dtype in made]
                compiled.call([values[k] for k in takes], outputs)
                return outputs

            return on_host
        index, launch = self.device.index, compiled.launch

        def on_gpu(values):
            if current_gpu() != index:
                return self.general(values)
            outputs = [empty_cuda(size, stride, dtype) for size, stride, dtype in made]
            # PyTorch's allocator may give it to the next kernel of this stream as soon as it is dropped.
            memory = empty_cuda((workspace,), (1,), torch.uint8) if workspace else None
            misplaced = launch([values[k] for k in takes], outputs, memory.data_ptr() if workspace else 0, raw_stream(index))
            return self.general(values) if misplaced else outputs

        return on_gpu

    def general(self, values):
        inputs = [values[k] for k in self.takes]
        for k in self.converted:
            inputs[k] = real(inputs[k])
        for k in self.sizes:
            if values[k] < 0:
                # No tensor has a negative size by which it could come in.
                out = self.eager(*values)
                return list(out) if isinstance(out, (tuple, list)) else [out]
            inputs.append(carrier(values[k], self.device))
        for k in self.floats:
            inputs.append(torch.tensor(float(values[k]), dtype=torch.float64, device=self.device))
        if self.moves_generator:
            state = self.continued(inputs)
            inputs += [state] if self.draws else []
        elif self.draws:
            inputs.append(self.state())
        outputs = self.call(inputs)
        for k in self.complex:
            outputs[k] = torch.view_as_complex(outputs[k])
        for k, layout, permuted in self.relaid:
            t = outputs[k] if permuted else outputs[k].permute(layout.order).contiguous()
            outputs[k] = layout.apply(t)
        return outputs if self.plain else [r.make(outputs, values) for r in self.results]

    def given_shapes(self) -> list[list[int]]:
        """The shapes of what a call of static sizes gives, with the generator's state."""
        return [*self.shapes, [2]] if self.draws else self.shapes

    def align(self):
        """Draws continue PyTorch's default generator of the GPU, as eager's do."""
        if self.shapes is not None:
            self.increment = self.compiled.rng_increment(self.given_shapes())
        self.moves_generator = self.draws or self.compiled.moves_generator()
        self.generator = random_order.generator(self.device)

    def continued(self, inputs) -> torch.Tensor:
        """Seed and offset of PyTorch's generator, which moves on as if eager had drawn."""
        seed, offset = self.generator.initial_seed(), self.generator.get_offset()
        state = torch.tensor([seed - (seed >> 63 << 64), offset], dtype=torch.int64)
        increment = self.increment
        if increment is None:
            shapes = [list(t.shape) for t in inputs]
            increment = self.compiled.rng_increment([*shapes, [2]] if self.draws else shapes)
        if increment:
            self.generator.set_offset(offset + increment)
        return state.to(self.device, non_blocking=True)

    def state(self) -> torch.Tensor:
        """Seed and offset of a call's random numbers, from PyTorch's generator of the device. A CUDA graph draws them anew in each replay."""
        return torch.empty(2, dtype=torch.int64, device=self.device).random_()

    def host(self, inputs):
        sizes = self.fixed or [row_major(size) for size in self.compiled.output_sizes(inputs)]
        own = {k: inputs[i] for k, i in self.aliases.items() if inputs[i].is_contiguous()} if self.aliases else {}
        outputs = [own[k] if k in own else empty_cpu(*sizes[k], dtype) for k, dtype in enumerate(self.dtypes)]
        self.compiled.call(inputs, outputs)
        return outputs

    def cuda(self, inputs):
        return self.launch(inputs, *self.allocation([list(t.shape) for t in inputs]))

    def allocation(self, shapes: list[list[int]]):
        """Sizes and strides of the results, and the bytes of the workspace, for inputs of these shapes."""
        sizes, workspace = self.compiled.allocation(shapes)
        placed = [row_major(size) for size in sizes]
        for k, layout in self.direct.items():
            placed[k] = layout.placed(*placed[k])
        return placed, workspace

    def launch(self, inputs, sizes, workspace):
        index = self.device.index
        if current_gpu() != index:
            with torch.cuda.device(index):
                return self.launch(inputs, sizes, workspace)
        if self.overwrites and keeps_graph():
            for k in self.overwrites:
                inputs[k] = inputs[k].clone()
        own = {k: inputs[i] for k, i in self.aliases.items()} if self.aliases else {}
        outputs = [own[k] if k in own else empty_cuda(*sizes[k], dtype) for k, dtype in enumerate(self.dtypes)]
        # PyTorch's allocator may give it to the next kernel of this stream as soon as it is dropped.
        memory = empty_cuda((workspace,), (1,), torch.uint8) if workspace else None
        address = memory.data_ptr() if workspace else 0
        stream = raw_stream(index)
        misplaced = self.compiled.launch(inputs, outputs, address, stream)
        if misplaced:
            for k in misplaced:
                inputs[k] = self.placed(k, inputs[k])
            for k, i in self.aliases.items():
                if i in misplaced:
                    outputs[k] = empty_cuda(*sizes[k], self.dtypes[k])
            self.compiled.launch(inputs, outputs, address, stream)
        return outputs

    def placed(self, k: int, t: torch.Tensor) -> torch.Tensor:
        """A copy of input `k` as kernels read it: on the GPU, dense in the program's order, aligned."""
        order = self.orders.get(k, range(t.dim()))
        dense = t.to(self.device).permute(list(order)).clone(memory_format=torch.contiguous_format)
        return unpermuted(dense, order)
