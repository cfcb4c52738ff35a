"""Parts of the gradients of convolutions that programs compute, where a library computes the others.

Gradients of biases are sums, which fuse with what is around them; the library's is a kernel of its own. The gradient of a depthwise convolution by its
input is a depthwise convolution. For ConvNeXt-T's windows of 7x7 (batch 64, H200) cuDNN takes 2.4 ms of the 14.3 of a step's kernels; with kiln's these take
12.1. MobileNetV3's kernels, of smaller windows, took 27 ms instead of 12.7: kiln's compute derivatives of norms and activations, too."""
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
    """Whether a node is the gradient by the input alone that `split_depthwise` makes."""
    return node.target is BACKWARD and list(node.args[10]) == [True, False, False] and is_depthwise(node)


def is_depthwise(node: torch.fx.Node) -> bool:
    """Whether a `convolution_backward` is of a depthwise convolution of stride 1 with a large window."""
    _, _, weight, _, stride, _, _, transposed, _, groups, _ = node.args
    shape = weight.meta["val"].shape
    large = math.prod(shape[2:]) >= WINDOW
    return large and not transposed and groups > 1 and shape[0] == groups and shape[1] == 1 and all(s == 1 for s in stride)


def split_depthwise(graph: torch.fx.Graph):
    """Takes the first gradient from each `convolution_backward` of a depthwise convolution, as a node of its own."""
    for node in graph.find_nodes(op="call_function", target=BACKWARD):
        items = [user for user in node.users if is_item(user) and user.args[1] == 0]
        if node.kwargs or not is_depthwise(node):
            continue
        *others, mask = node.args
        if not (items and mask[0] and any(mask[1:])):
            continue
        with graph.inserting_before(node):
            own = graph.call_function(BACKWARD, (*others, [True, False, False]))
            item = graph.call_function(operator.getitem, (own, 0))
        item.meta["val"] = items[0].meta["val"]
        own.meta["val"] = (item.meta["val"], None, None)
        for old in items:
            old.replace_all_uses_with(item)
            graph.erase_node(old)
        node.args = (*others, [False, *mask[1:]])
        node.meta["val"] = (None, *node.meta["val"][1:])


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
