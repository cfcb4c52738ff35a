"""Gradients of convolutions' biases as sums, which programs compute with what is around them; the library's is a kernel of its own."""
from __future__ import annotations

import torch

from .graph import is_item

BACKWARD = torch.ops.aten.convolution_backward.default
# Where the other gradients are a library's.
DEVICES = {"cuda"}


def sum_biases(graph: torch.fx.Graph):
    """Takes the third gradient from each `convolution_backward`: the sum over all dimensions but the channels."""
    for node in graph.find_nodes(op="call_function", target=BACKWARD):
        items = [user for user in node.users if is_item(user) and user.args[1] == 2]
        *others, mask = node.args
        if not (items and mask[2]) or node.kwargs:
            continue
        grad = node.args[0].meta["val"]
        with graph.inserting_before(node):
            total = graph.call_function(torch.ops.aten.sum.dim_IntList, (node.args[0], [d for d in range(grad.dim()) if d != 1]))
        total.meta["val"] = items[0].meta["val"]
        for item in items:
            item.replace_all_uses_with(total)
            graph.erase_node(item)
        node.args = (*others, [*mask[:2], False])
        node.meta["val"] = (*node.meta["val"][:2], None)
