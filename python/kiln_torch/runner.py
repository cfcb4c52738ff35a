"""How a split graph is called: AOTAutograd's boxed convention, which lets inputs be freed while the graph runs."""
from __future__ import annotations

import operator

import torch
from functorch.compile import make_boxed_func


def boxed(graph: torch.fx.GraphModule):
    """A function of a list of arguments, which it empties, that returns the graph's results as a list."""
    return direct(graph) or whole(graph)


def whole(graph: torch.fx.GraphModule):
    """The graph's own code."""
    codegen = getattr(torch.fx.graph, "_BoxedCodeGen", None)
    if codegen is None:
        return make_boxed_func(graph.forward)
    graph.graph.set_codegen(codegen())
    graph.recompile()
    run = graph.forward
    call = lambda args: list(run(args))
    call._boxed_call = True
    return call


def direct(graph: torch.fx.GraphModule):
    """The call of a graph's only program, without the graph around it; None if there is more in the graph."""
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
    # A result of the graph is one of the program's, or an argument, or None.
    slots = {**{n: (0, k) for n, k in items.items()}, **{n: (1, k) for n, k in inputs.items()}}
    if not items:
        slots[piece] = (0, 0)
    if not all(r is None or r in slots for r in returned):
        return None
    picks = [None if r is None else slots[r] for r in returned]
    takes = [inputs[a] for a in piece.args]
    plain = picks == [(0, k) for k in range(len(picks))]

    def call(args):
        values = [args[k] for k in takes]
        given = None if plain else list(args)
        args.clear()
        results = program(values)
        return results if plain else [None if p is None else (results, given)[p[0]][p[1]] for p in picks]

    call._boxed_call = True
    return call
