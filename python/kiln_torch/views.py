"""Ops that address a tensor's storage. A program's results have storages of their own, so that such an op must read the
tensor whose storage it is, and no view of it."""
from __future__ import annotations

import collections
import operator

import torch

from .graph import is_item

AS_STRIDED = torch.ops.aten.as_strided.default
# Ops that take an offset in a storage, and where among their arguments.
OFFSETS = {AS_STRIDED: 3, torch.ops.aten.as_strided_scatter.default: 4}


def is_view(node: torch.fx.Node) -> bool:
    """Whether the result of a node shares the storage of its first argument, by the op's schema."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or not schema or not schema.arguments:
        return False
    alias = schema.arguments[0].alias_info
    return alias is not None and not alias.is_write


def base(node: torch.fx.Node) -> torch.fx.Node:
    """The node that a chain of views starts at."""
    while True:
        source = node.args[0] if is_item(node) else node
        if not is_view(source):
            return node
        node = source.args[0]


def rebase(graph: torch.fx.Graph):
    """Lets each `as_strided` of a view read the view's base. Its offset, which defaults to the view's, becomes explicit; from
    an argument of the graph it is counted from where that starts in its storage, which may differ between calls."""
    for node in graph.find_nodes(op="call_function", target=AS_STRIDED):
        view, size, stride, *offset = node.args
        start = base(view)
        if start is view:
            continue
        offset = offset[0] if offset else node.kwargs.get("storage_offset")
        if offset is None:
            offset = view.meta["val"].storage_offset()
            if start.op != "call_function":
                offset = from_start(graph, node, start, offset - start.meta["val"].storage_offset())
        node.args, node.kwargs = (start, size, stride, offset), {}


def from_start(graph: torch.fx.Graph, before: torch.fx.Node, start: torch.fx.Node, apart: int):
    """A node that computes the offset of `start` plus `apart`."""
    with graph.inserting_before(before):
        offset = graph.call_function(torch.ops.aten.sym_storage_offset.default, (start,))
        offset.meta["val"] = start.meta["val"].storage_offset()
        if apart == 0:
            return offset
        moved = graph.call_function(operator.add, (offset, apart))
        moved.meta["val"] = offset.meta["val"] + apart
        return moved


def addresses_storage(node: torch.fx.Node) -> bool:
    """Whether an op takes an offset in the storage of an argument of the graph, which a program is not told."""
    k = OFFSETS.get(node.target)
    if k is None or node.args[0].op == "call_function":
        return False
    return len(node.args) > k and node.args[k] is not None


RETURNED = "is a view that the graph returns, of a tensor that the caller has"


def resize_as_strided(graph: torch.fx.Graph):
    """Writes `resize` as elements in the order of memory, and as a view of these if it gives them a memory format."""
    resize, permute = torch.ops.aten.resize.default, torch.ops.aten.permute.default
    for node in graph.find_nodes(op="call_function", target=resize):
        (x, size), val = node.args, node.meta["val"]
        given = x.meta["val"]
        order = sorted(range(given.dim()), key=given.stride().__getitem__, reverse=True)
        if not given.is_contiguous():
            with graph.inserting_before(node):
                x = graph.call_function(permute, (x, order))
            x.meta["val"] = given.permute(order)
            node.args = (x, size)
        if node.kwargs.get("memory_format") in (torch.channels_last, torch.channels_last_3d):
            with graph.inserting_before(node):
                flat = graph.call_function(resize, (x, [val.numel()]))
            flat.meta["val"] = val.new_empty(val.numel())
            node.target, node.args, node.kwargs = AS_STRIDED, (flat, size, list(val.stride()), 0), {}


def return_views(graph: torch.fx.Graph, saved: set[torch.fx.Node] = frozenset()) -> set[str]:
    """Lets results that are views of arguments, or of what other results are or view, be made by PyTorch, of copies of the ops that make
    them; gives the names of these. A program would copy the elements, and AOTAutograd, which restores aliases from a result's storage
    offset, would find the copy's. Of views that are only `saved` for a backward graph each is a result by itself.
    """
    output = next(n for n in graph.nodes if n.op == "output")
    results = [n for n in output.all_input_nodes if isinstance(n.meta.get("val"), torch.Tensor)]
    viewed = collections.Counter(base(n) for n in results if n not in saved)
    copies: dict[torch.fx.Node, torch.fx.Node] = {}

    def copied(node, start):
        if node is start:
            return node
        if node not in copies:
            source = node.args[0]
            copy = copied(source, start)
            copies[node] = graph.node_copy(node, lambda n: copy if n is source else n)
        return copies[node]

    with graph.inserting_before(output):
        for node in results:
            start = base(node)
            if start is not node and (start.op != "call_function" or start in results or node not in saved and viewed[start] > 1):
                output.replace_input_with(node, copied(node, start))
    for node in reversed(copies):
        if not node.users:
            graph.erase_node(node)
    return {n.name for n in copies.values()}
