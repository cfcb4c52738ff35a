"""Parts of the gradients of convolutions that programs compute, where a library computes the others.

Gradients of biases are sums, which fuse with what is around them; the library's is a kernel of its own. The gradient of a depthwise convolution by its
input is a depthwise convolution. For ConvNeXt-T's windows of 7x7 (batch 64, H200) cuDNN takes 2.4 ms of the 14.3 of a step's kernels; with kiln's these take
12.1. With smaller windows a step took longer, though its kernels did not: MobileNetV3's (batch 128) 23.8 ms instead of 18.0, of kernels of 12.0 ms instead of 12.8."""
from __future__ import annotations

import math
import operator

import torch

from .graph import is_item

BACKWARD = torch.ops.aten.convolution_backward.default
# Where the other gradients are a library's.
DEVICES = {"cuda"}
# Fewest elements of a window whose gradient by the input programs compute.
WINDOW = 49


def is_depthwise_by_input(node: torch.fx.Node) -> bool:
    """Whether a node is a gradient by the input alone, as `split_depthwise` makes it."""
    return node.target is BACKWARD and is_depthwise(node) and list(node.args[10]) == [True, False, False]


def is_depthwise(node: torch.fx.Node) -> bool:
    """Whether a `convolution_backward` is of a depthwise convolution of stride 1 with a large window."""
    if node.kwargs:
        return False
    _, _, weight, _, stride, _, _, transposed, _, groups, _ = node.args
    shape = weight.meta["val"].shape
    large = math.prod(shape[2:]) >= WINDOW
    return large and not transposed and groups > 1 and shape[0] == groups and shape[1] == 1 and all(s == 1 for s in stride)


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


def split_depthwise(graph: torch.fx.Graph):
    """Takes the first gradient from each `convolution_backward` of a depthwise convolution, as a node of its own."""
    for node in graph.find_nodes(op="call_function", target=BACKWARD):
        items = gradient(node, 0)
        if not items or not is_depthwise(node) or is_depthwise_by_input(node):
            continue
        with graph.inserting_before(node):
            own = graph.call_function(BACKWARD, (*node.args[:10], [True, False, False]))
            item = graph.call_function(operator.getitem, (own, 0))
        own.meta["val"] = (items[0].meta["val"], None, None)
        take(graph, node, 0, items, item)


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
