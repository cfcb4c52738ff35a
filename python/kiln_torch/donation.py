"""Tensors that a program may overwrite: those that nothing reads after it. On a GPU its intermediate values may lie in them, and the new value of
an argument that the graph writes lies in the argument's memory.

A backward graph is given most of its memory by the forward graph, which saved activations for it. A gradient of logits, say, takes the place of
the logits. PyTorch's own list of donated buffers refuses `retain_graph`; here a call that keeps the graph copies what would be overwritten.
"""
from __future__ import annotations

import torch

from .graph import bytes_of, is_item

LEAST = 4 << 20
"""Bytes of a tensor that is donated: smaller values may stay in L2."""


def keeps_graph() -> bool:
    """Whether the backward pass that is running keeps what was saved for it."""
    return torch._C._autograd._get_current_graph_task_keep_graph()


def allow_kept_graphs():
    """Lets the backward graph that is being compiled run with `retain_graph`, which AOTAutograd refuses where it has donated buffers itself."""
    context = torch._guards.TracingContext.try_get()
    if context is not None and getattr(context.fw_metadata, "bw_donated_idxs", None):
        context.fw_metadata.bw_donated_idxs = []


def is_large(node: torch.fx.Node) -> bool:
    val = node.meta.get("val")
    if not isinstance(val, torch.Tensor) or val.is_complex() or val.is_neg() or not all(isinstance(n, int) for n in val.shape):
        return False
    return bytes_of(node) >= LEAST


def program_of(node: torch.fx.Node):
    """The program that a node calls, if it does."""
    owner = node.graph.owning_module
    module = owner.get_submodule(node.target) if node.op == "call_module" and owner is not None else None
    return getattr(module, "program", None)


def gives_view(user: torch.fx.Node, value: torch.fx.Node) -> bool:
    """Whether a result of a call may share memory with a value that it is given."""
    if user.op == "output":
        return False
    program = program_of(user)
    if program is not None:
        return any(r.of_input and user.args[r.index] is value for r in program.results)
    schema = getattr(user.target, "_schema", None)
    return schema is None or any(r.alias_info is not None for r in schema.returns)


def has_own_memory(value: torch.fx.Node) -> bool:
    """Whether a value is the result of a program that gives no other result in its memory."""
    call, k = (value.args[0], value.args[1]) if is_item(value) else (value, 0)
    program = program_of(call)
    if program is None:
        return False
    own = program.results[k]
    same = [r for r in program.results if not r.of_input and r.index == own.index]
    return own.view is None and not own.of_input and len(same) == 1


class Donation:
    """Of one compiled frame: what its forward graph saves for its backward graph in memory that nothing else shares."""

    def __init__(self, enabled: bool):
        self.enabled = enabled
        """Whether the backward graph may overwrite it."""
        self.saved: set[str] = set()
        """By name."""

    def tell(self, names: list[str], graph: torch.fx.Graph, saved: set[torch.fx.Node]):
        """After a forward graph is compiled. `names`: those of its results, as AOTAutograd gave them; `saved`: the results that are saved."""
        results = next(n for n in graph.nodes if n.op == "output").args[0]
        if self.enabled:
            self.saved = {name for name, n in zip(names, results) if n in saved and is_large(n) and self.is_private(n)}

    def is_private(self, value: torch.fx.Node) -> bool:
        """Whether nothing shares the memory of a value."""
        return has_own_memory(value) and not any(gives_view(user, value) for user in value.users)

    def of(self, call: torch.fx.Node, kind: str) -> tuple[set[torch.fx.Node], bool]:
        """The values that a call, which is to be a program, reads last; and whether a forward graph has saved some of them."""
        place = {n: k for k, n in enumerate(call.graph.nodes)}
        found, saved = set(), False
        for value in set(call.all_input_nodes):
            given = kind == "backward" and value.op == "placeholder" and value.name in self.saved
            returned = any(user.op == "output" for user in value.users)
            if is_large(value) and not returned and reads_last(call, value, place) and (given or has_own_memory(value)):
                found.add(value)
                saved |= given
        return found, saved

    def updates(self, call: torch.fx.Node, written: list[int]) -> dict[torch.fx.Node, torch.fx.Node]:
        """The arguments of the graph that a call, which is to be a program, reads last, each with its new value, which the call computes. `written`: the
        positions of the arguments whose values the graph's last results are. One that the graph returns or saves has its new value there, too."""
        if not self.enabled or not written:
            return {}
        place = {n: k for k, n in enumerate(call.graph.nodes)}
        arguments = [n for n in place if n.op == "placeholder"]
        results = list(next(n for n in place if n.op == "output").args[0])
        found = {}
        for at, value in zip(written, results[-len(written) :]):
            argument = arguments[at]
            own = value is call or is_item(value) and value.args[0] is call
            if own and results.count(value) == 1 and argument in call.all_input_nodes and reads_last(call, argument, place) and are_alike(argument, value):
                found[argument] = value
        return found


def reads_last(call: torch.fx.Node, value: torch.fx.Node, place: dict[torch.fx.Node, int]) -> bool:
    """Whether a call reads a value once, and no op reads it or a view of it later. `place`: of nodes in the graph."""
    others = [user for user in value.users if user is not call and user.op != "output"]
    last = all(place[user] < place[call] and not gives_view(user, value) for user in others)
    return last and list(call.args).count(value) == 1


def are_alike(argument: torch.fx.Node, value: torch.fx.Node) -> bool:
    """Whether a value can lie in an argument's memory: both are row-major, and of one dtype and static sizes."""
    a, b = argument.meta["val"], value.meta["val"]
    plain = all(isinstance(t, torch.Tensor) and not t.is_complex() and not t.is_neg() for t in (a, b))
    if not plain or a.dtype != b.dtype or not all(isinstance(n, int) for n in (*a.shape, *b.shape)):
        return False
    return a.shape == b.shape and a.is_contiguous() and b.is_contiguous()
