"""How a split graph is called: AOTAutograd's boxed convention, which lets inputs be freed while the graph runs."""
from __future__ import annotations

import dataclasses
import operator
import pickle

import torch
from functorch.compile import make_boxed_func
from torch.fx import graph_module
from torch.utils._python_dispatch import _disable_current_modes

from .program import Program


class Piece(torch.nn.Module):
    """A program in place of a part of a graph."""

    def __init__(self, program: Program):
        super().__init__()
        self.program = program

    def forward(self, *values):
        out = self.program(values)
        return out[0] if len(out) == 1 else tuple(out)


def as_boxed(run):
    """`run`, marked as a function of a list of arguments, which it empties, that returns a list."""
    run._boxed_call = True
    return run


class Direct:
    """A graph of one program, called without the graph around it."""

    def __init__(self, program: Program, takes: list[int], picks: list[tuple[int, int] | None]):
        self.programs, self.takes, self.picks = [program], takes, picks
        """The program's arguments among the graph's; each result of the graph: one of the program's, (0, index), or an argument, (1, index),
        or None."""

    @staticmethod
    def of(graph: torch.fx.GraphModule) -> Direct | None:
        """None if there is more in the graph than one program."""
        nodes = list(graph.graph.nodes)
        inputs = {n: k for k, n in enumerate(n for n in nodes if n.op == "placeholder")}
        pieces = [n for n in nodes if n.op == "call_module"]
        items = {n: n.args[1] for n in nodes if n.target is operator.getitem and n.args[0] in pieces}
        if len(pieces) != 1 or len(nodes) != len(inputs) + len(items) + 2:
            return None
        piece, returned = pieces[0], nodes[-1].args[0]
        program = getattr(graph.get_submodule(piece.target), "program", None)
        if program is None or piece.kwargs or not all(a in inputs for a in piece.args):
            return None
        slots = {**{n: (0, k) for n, k in items.items()}, **{n: (1, k) for n, k in inputs.items()}}
        if not items:
            slots[piece] = (0, 0)
        if not all(r is None or r in slots for r in returned):
            return None
        return Direct(program, [inputs[a] for a in piece.args], [None if r is None else slots[r] for r in returned])

    def function(self):
        (program,), takes, picks = self.programs, self.takes, self.picks
        plain = picks == [(0, k) for k in range(len(picks))]

        def call(args):
            values = [args[k] for k in takes]
            given = None if plain else list(args)
            args.clear()
            results = program(values)
            return results if plain else [None if p is None else (results, given)[p[0]][p[1]] for p in picks]

        return as_boxed(call)


@dataclasses.dataclass
class Constant:
    """A tensor of a graph as bytes: AOTAutograd writes and reads entries under its fake mode, in which no tensor is real."""

    data: bytes
    dtype: torch.dtype
    size: tuple[int, ...]
    device: torch.device

    @staticmethod
    def of(t: torch.Tensor) -> Constant:
        with _disable_current_modes():
            return Constant(bytes(t.detach().cpu().contiguous().clone().untyped_storage()), t.dtype, tuple(t.shape), t.device)

    def tensor(self) -> torch.Tensor:
        with _disable_current_modes():
            if not self.data:
                return torch.empty(self.size, dtype=self.dtype, device=self.device)
            return torch.frombuffer(bytearray(self.data), dtype=self.dtype).reshape(self.size).to(self.device)


class Code:
    """A graph of programs and ops of PyTorch, called by the code that PyTorch writes for it. It can be pickled where its modules are programs."""

    def __init__(self, graph: torch.fx.GraphModule):
        codegen = getattr(torch.fx.graph, "_BoxedCodeGen", None)
        self.boxed = codegen is not None
        if self.boxed:
            graph.graph.set_codegen(codegen())
            graph.recompile()
        self.module = graph

    @property
    def programs(self) -> list[Program]:
        return [piece.program for piece in self.module.children() if isinstance(piece, Piece)]

    def function(self):
        if not self.boxed:
            return make_boxed_func(self.module.forward)
        run = self.module.forward
        return as_boxed(lambda args: list(run(args)))

    def __getstate__(self):
        graph = self.module.graph
        values = {n.target: operator.attrgetter(n.target)(self.module) for n in graph.nodes if n.op in ("call_module", "get_attr")}
        if other := [name for name, value in values.items() if "." in name or not isinstance(value, (Piece, torch.Tensor))]:
            raise pickle.PicklingError(f"{other[0]} is no program")
        if any(isinstance(n.target, torch._ops.HigherOrderOperator) for n in graph.nodes):
            # Some name an entry in a table of the process.
            raise pickle.PicklingError("the graph has a higher-order op")
        code = graph.python_code("self")
        imports = graph_module._format_import_block(code.globals, graph_module.sys_importer)
        return {"boxed": self.boxed, "values": {k: v.program if isinstance(v, Piece) else Constant.of(v) for k, v in values.items()}, "code": imports + code.src}

    def __setstate__(self, state):
        self.boxed = state["boxed"]
        self.module = torch.nn.Module()
        for name, value in state["values"].items():
            setattr(self.module, name, Piece(value) if isinstance(value, Program) else value.tensor())
        forward = graph_module._forward_from_src(state["code"], {})
        self.module.forward = forward.__get__(self.module)


def runner(graph: torch.fx.GraphModule) -> Direct | Code:
    """How a split graph is called."""
    return Direct.of(graph) or Code(graph)
