"""Sizes of a graph: numbers that no tensor argument of a program has, which come in as the size of one more argument, without elements; and sizes of
intermediate values, which are computed from the arguments."""
from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable

import sympy
import torch
from torch.fx.proxy import GraphAppendingTracer
from torch.utils._sympy import functions
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

NUMBERS = itertools.count()
ROUNDED = tuple(getattr(functions, name) for name in ("TruncToInt", "FloorToInt", "CeilToInt", "RoundToInt", "IntTrueDiv", "FloatTrueDiv", "ToFloat"))


@functools.cache
def opaque(expr: sympy.Expr) -> sympy.Symbol:
    """A symbol in place of an expression."""
    return sympy.Symbol(f"opaque_{next(NUMBERS)}", integer=True)


def expression(val: torch.SymInt) -> sympy.Expr:
    """A size as kiln has it: an expression of integers. One that is rounded from a float is a symbol, whose value Python computes."""
    expr = val.node.expr
    return opaque(expr) if expr.has(sympy.Float, *ROUNDED) else expr


def symbol_of(val) -> sympy.Symbol | None:
    """The symbol that a SymInt is; None for other values and for expressions of symbols."""
    expr = expression(val) if isinstance(val, torch.SymInt) else None
    return expr if isinstance(expr, sympy.Symbol) else None


def symbols_in(val) -> set[sympy.Symbol]:
    """The symbols in a SymInt, or in the sizes of tensors."""
    if isinstance(val, torch.SymInt):
        return set(expression(val).free_symbols)
    if isinstance(val, torch.Tensor):
        return set().union(*(symbols_in(n) for n in val.shape))
    return set().union(*map(symbols_in, val)) if isinstance(val, (tuple, list)) else set()


def bound_by(inputs: list[torch.fx.Node]) -> set[sympy.Symbol]:
    """The symbols that are a whole size of a tensor argument."""
    return {symbol_of(n) for node in inputs if isinstance(node.meta["val"], torch.Tensor) for n in node.meta["val"].shape}


def carried(inputs: list[torch.fx.Node]) -> list[int]:
    """Which inputs are symbols that no tensor among the inputs binds."""
    bound, found = bound_by(inputs), []
    for k, node in enumerate(inputs):
        symbol = symbol_of(node.meta["val"])
        if symbol is not None and symbol not in bound:
            bound.add(symbol)
            found.append(k)
    return found


def is_float(val) -> bool:
    return isinstance(val, (float, torch.SymFloat))


def floats(inputs: list[torch.fx.Node]) -> list[int]:
    """Which inputs are floats: each comes in as one more argument, float64[]."""
    return [k for k, node in enumerate(inputs) if is_float(node.meta["val"])]


def carrier(value, device):
    """An argument of no elements that has `value` as a size: int8[value, 0]."""
    return torch.empty((value, 0), dtype=torch.int8, device=device)


def supply(call: torch.fx.Node, part: torch.fx.GraphModule):
    """Adds to a piece, and to its call in the graph around it, inputs for the symbols that its sizes have and its inputs do
    not bind. A symbol comes from a node of the graph whose value it is, or from a size of a tensor."""
    inputs = [n for n in part.graph.nodes if n.op == "placeholder"]
    wanted = set().union(*(symbols_in(n.meta.get("val")) for n in part.graph.nodes if n.op != "output"))
    wanted -= bound_by(inputs) | {symbol_of(n.meta["val"]) for n in inputs}
    for symbol in sorted(wanted, key=str):
        found = find(itertools.takewhile(lambda n: n is not call, call.graph.nodes), symbol, call)
        if found is None:
            continue
        call.args = (*call.args, found)
        with part.graph.inserting_after(inputs[-1]) if inputs else part.graph.inserting_before():
            inputs.append(part.graph.placeholder(f"size_{symbol}"))
        inputs[-1].meta["val"] = found.meta["val"]
    part.recompile()


def find(nodes: Iterable[torch.fx.Node], symbol: sympy.Symbol, before: torch.fx.Node) -> torch.fx.Node | None:
    """The first of these nodes whose value is the symbol, or has it as a size, which becomes a node in front of `before`."""
    for node in nodes:
        val = node.meta.get("val")
        if symbol_of(val) == symbol:
            return node
        for k, n in enumerate(val.shape if isinstance(val, torch.Tensor) else []):
            if symbol_of(n) == symbol:
                with before.graph.inserting_before(before):
                    size = before.graph.call_function(torch.ops.aten.sym_size.int, (node, k))
                size.meta["val"] = n
                return size
    return None


def compute_from_arguments(graph: torch.fx.Graph):
    """Computes sizes of intermediate values from the graph's arguments where the symbols of these suffice: Python would ask a program for
    its result to know them, and the next program would wait for it."""
    arguments = [n for n in graph.nodes if n.op == "placeholder"]
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.sym_size.int):
        val = node.meta.get("val")
        if node.args[0].op == "placeholder" or not isinstance(val, torch.SymInt):
            continue
        with graph.inserting_before(node):
            known = {symbol: find(arguments, symbol, node) for symbol in val.node.expr.free_symbols}
            if None in known.values() or expression(val) != val.node.expr:
                continue
            before, tracer = set(graph.nodes), GraphAppendingTracer(graph)
            try:
                size = sympy_interp(PythonReferenceAnalysis, {symbol: torch.fx.Proxy(n, tracer) for symbol, n in known.items()}, val.node.expr)
            except (AttributeError, KeyError, NotImplementedError, TypeError):
                # A function that PyTorch cannot write down as calls.
                size = None
        made = [n for n in graph.nodes if n not in before]
        if not isinstance(size, torch.fx.Proxy):
            for n in reversed(made):
                graph.erase_node(n)
            continue
        for n in made:
            n.meta["val"] = n.target(*(a.meta["val"] if isinstance(a, torch.fx.Node) else a for a in n.args))
        node.replace_all_uses_with(size.node)
        graph.erase_node(node)
