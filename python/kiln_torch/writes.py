"""Writes to arguments. AOTAutograd ends a graph with a copy for each argument that it writes, such as the statistics of batch norms. Their
values become results of the graph, and are copied in as few calls as possible after it."""
from __future__ import annotations

import torch
from torch.autograd.graph import increment_version

from .runner import as_boxed
from .views import base

COPY = torch.ops.aten.copy_.default


class Writes:
    """The copies that end a graph, taken out of it: the graph returns their values after its own results."""

    def __init__(self, module: torch.fx.GraphModule):
        graph = module.graph
        places = {n: k for k, n in enumerate(graph.find_nodes(op="placeholder"))}
        copies = [n for n in graph.find_nodes(op="call_function", target=COPY) if n.args[0] in places]
        self.targets = [places[n.args[0]] for n in copies]
        """Positions of the arguments, one for each value."""
        self.groups: list[tuple[list[int], list[int]]] = []
        """Positions of arguments and of their values among the values, of which one call copies all."""
        self.returned: dict[int, int] = {}
        """Results that are arguments after their writes, and which."""
        if not copies:
            return
        written = {n.args[0] for n in copies}
        output = next(n for n in graph.nodes if n.op == "output")
        self.returned = {k: places[n.args[0]] for k, n in enumerate(output.args[0]) if n in copies}
        output.args = ([None if k in self.returned else n for k, n in enumerate(output.args[0])],)
        for n in copies:
            n.replace_all_uses_with(n.args[1])
        values, groups = [], {}
        for k, n in enumerate(copies):
            target, value = n.args[:2]
            if base(value) in written:
                # Another write may come first.
                with graph.inserting_before(output):
                    own = graph.call_function(torch.ops.aten.clone.default, (value,))
                own.meta["val"], value = value.meta["val"], own
            values.append(value)
            targets, sources = groups.setdefault(kind(target.meta["val"], value.meta["val"]), ([], []))
            targets.append(places[target])
            sources.append(k)
        self.groups = list(groups.values())
        output.args = ((*output.args[0], *values),)
        for n in copies:
            graph.erase_node(n)
        module.recompile()

    def after(self, fn):
        """The graph with its copies, from the compiled graph without them. A value that is in its argument's memory already is not copied."""
        count = len(self.targets)
        if not count:
            return fn

        def run(arguments):
            targets = [[arguments[k] for k in of] for of, _ in self.groups]
            returned = {k: arguments[of] for k, of in self.returned.items()}
            results = list(fn(arguments))
            values = results[-count:]
            with torch.no_grad():
                for to, (_, sources) in zip(targets, self.groups):
                    pairs = [(t, values[k]) for t, k in zip(to, sources)]
                    if copied := [pair for pair in pairs if pair[0] is not pair[1]]:
                        torch._foreach_copy_(*map(list, zip(*copied)))
                    # Autograd sees no kernel but PyTorch's own write.
                    increment_version([t for t, value in pairs if t is value and not t.is_inference()])
            return [returned.get(k, result) for k, result in enumerate(results[:-count])]

        return as_boxed(run)


def writes_in_graph(example_inputs) -> bool:
    """Whether AOTAutograd may end graphs with their writes. Where it also writes arguments that have gradients, which it does by itself, PyTorch
    2.11 takes a result for an argument."""
    return not any(isinstance(t, torch.Tensor) and t.requires_grad and not t.is_leaf for t in example_inputs)


def kind(target: torch.Tensor, value: torch.Tensor):
    """What tensors have in common of which PyTorch copies several in one kernel."""
    alike = target.stride() == value.stride() and all(isinstance(n, int) for n in target.stride())
    return target.device, target.dtype, value.dtype, alike
