"""Gradients of convolutions that programs compute, where a library computes the others.

Gradients of biases are sums, which fuse with what is around them; the library's is a kernel of its own. Those of depthwise convolutions take 0.5 (by the input,
with stride 1) and 0.71 (by the weight) of cuDNN's time (H200, `benches/gpu/conv_gradient.py`), and each one that a library computes splits the backward graph."""
from __future__ import annotations

import operator

import torch

from .graph import is_item

BACKWARD = torch.ops.aten.convolution_backward.default
# Where the other gradients are a library's.
DEVICES = {"cuda"}
# Of depthwise gradients by the weight with a kernel of their own.
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def is_computed(node: torch.fx.Node, index: int) -> bool:
    """Whether programs compute a gradient of a `convolution_backward`: 0 by the input, 1 by the weight."""
    _, image, weight, _, stride, _, _, transposed, _, groups, _ = node.args
    image, weight = image.meta["val"], weight.meta["val"]
    if transposed or groups == 1 or weight.dim() != 4 or tuple(weight.shape[:2]) != (groups, 1):
        return False
    if index == 0:
        return all(s == 1 for s in stride)
    # Of one image, and of symbolic sizes, it would be a contraction without a kernel of its own.
    static = all(isinstance(n, int) for n in (*image.shape, *weight.shape))
    return static and image.shape[0] > 1 and weight.dtype in DTYPES


def are_computed(node: torch.fx.Node) -> bool:
    """Whether programs compute all gradients of a node."""
    if node.target is not BACKWARD or node.kwargs:
        return False
    mask = node.args[10]
    return not mask[2] and all(is_computed(node, k) for k in (0, 1) if mask[k])


def gradient(node: torch.fx.Node, index: int) -> list[torch.fx.Node]:
    """What reads a gradient that a `convolution_backward` computes, by its index."""
    if node.kwargs or not node.args[10][index]:
        return []
    return [user for user in node.users if is_item(user) and user.args[1] == index]


def take(graph: torch.fx.Graph, node: torch.fx.Node, index: int, items: list[torch.fx.Node], value: torch.fx.Node):
    """Gives those that read a gradient another value of it, and has the node compute it no longer."""
    value.meta["val"] = items[0].meta["val"]
    for item in items:
        item.replace_all_uses_with(value)
        graph.erase_node(item)
    without = lambda all, nothing: tuple(nothing if i == index else v for i, v in enumerate(all))
    node.args = (*node.args[:10], list(without(node.args[10], False)))
    node.meta["val"] = without(node.meta["val"], None)


def split_computed(graph: torch.fx.Graph):
    """Takes the gradients that programs compute from each `convolution_backward` of which a library computes the other one, as nodes of their
    own."""
    for node in graph.find_nodes(op="call_function", target=BACKWARD):
        for index in () if are_computed(node) else (0, 1):
            items = gradient(node, index)
            if not items or not is_computed(node, index):
                continue
            alone = lambda value, nothing: [value if k == index else nothing for k in range(3)]
            with graph.inserting_before(node):
                own = graph.call_function(BACKWARD, (*node.args[:10], alone(True, False)))
                item = graph.call_function(operator.getitem, (own, index))
            own.meta["val"] = tuple(alone(items[0].meta["val"], None))
            take(graph, node, index, items, item)


def sum_biases(graph: torch.fx.Graph):
    """Takes the third gradient from each `convolution_backward`: the sum over all dimensions but the channels."""
    for node in graph.find_nodes(op="call_function", target=BACKWARD):
        items = gradient(node, 2)
        if not items:
            continue
        grad = node.args[0].meta["val"]
        with graph.inserting_before(node):
            total = graph.call_function(torch.ops.aten.sum.dim_IntList, (node.args[0], [d for d in range(grad.dim()) if d != 1]))
        take(graph, node, 2, items, total)
