"""Gradients of convolutions that programs compute, where a library computes the others.

Gradients of biases are sums, which fuse with what is around them; the library's is a kernel of its own. Those of depthwise convolutions take 0.5 (by the input,
with stride 1) and 0.71 (by the weight) of cuDNN's time (H200, `benches/gpu/conv_gradient.py`), and each one that a library computes splits the backward graph."""
from __future__ import annotations

import operator

import torch

from .graph import is_hopper, is_item

BACKWARD = torch.ops.aten.convolution_backward.default
ATTENTION = torch.nn.functional.scaled_dot_product_attention
OTHERS = (torch.conv1d, torch.conv3d, torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d)
LEAST = 8
"""Dense convolutions of a network whose gradients are kiln's by default: a library's split the backward pass into as many programs. Or linear layers:
those of MLP-Mixer and ResMLP take 0.85 and 0.90 of the time with autograd's gradients, and two thirds of the memory (H200)."""
WIDEST = 64
"""Most groups that `kiln-merge-groups` and `kiln-weight-gradients` join."""
LARGEST = 128
"""Pixels of a side of images that are channels of a convolution by whole images: the offsets of TMA's im2col mode have 8 bits."""
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


def has_kernels(device: torch.device) -> bool:
    """Whether gradients of dense convolutions run on tensor cores: on Hopper."""
    return is_hopper(device)


def argument(node: torch.fx.Node, name: str, default):
    """An argument of a `conv2d` of Dynamo's."""
    return (dict(zip(("input", "weight", "bias", "stride", "padding", "dilation", "groups"), node.args)) | node.kwargs).get(name, default)


def is_narrow(node: torch.fx.Node) -> bool:
    """Whether a node's result is of 16-bit floats and of a static size, on a GPU with these kernels."""
    result = node.meta.get("example_value")
    if not isinstance(result, torch.Tensor) or not all(isinstance(n, int) for n in result.shape):
        return False
    return result.dtype in (torch.float16, torch.bfloat16) and has_kernels(result.device)


def is_fast(node: torch.fx.Node) -> bool:
    """Whether a `conv2d` of Dynamo's has gradients that kiln computes as fast as a library: depthwise ones, and others of 16-bit floats whose channels TMA
    takes (of several groups, those of some groups together), of an image of few channels, of images that TMA takes as channels, or of one pixel, as where
    channels are squeezed and excited."""
    result = node.meta.get("example_value")
    weight, groups, dilation = argument(node, "weight", None).meta["example_value"], argument(node, "groups", 1), argument(node, "dilation", 1)
    filters, channels = weight.shape[:2]
    if not is_narrow(node) or any(d != 1 for d in (dilation if isinstance(dilation, (tuple, list)) else (dilation,))):
        return False
    if groups > 1:
        return channels == 1 and filters == groups or any(groups % n == 0 and n * channels % 8 == n * filters // groups % 8 == 0 for n in range(1, WIDEST + 1))
    images = argument(node, "input", None).meta["example_value"].shape
    taken = images[0] % 8 == 0 and max(images[2:]) <= LARGEST
    return filters % 8 == 0 and (channels % 8 == 0 or channels <= 4) or taken or result.shape[2:].numel() == 1


def are_whole(module: torch.fx.GraphModule) -> bool:
    """Whether kiln's own gradients are the default for a training graph of Dynamo's: networks of convolutions, and of linear layers without attention
    and embeddings."""
    calls = [n for n in module.graph.nodes if n.op in ("call_function", "call_method")]
    found = [n for n in calls if n.target is torch.conv2d]
    linear = [n for n in calls if n.target is torch._C._nn.linear]
    names = {n.target if n.op == "call_method" else getattr(n.target, "__name__", "") for n in calls}
    if any(n.target in (*OTHERS, ATTENTION) for n in calls) or not all(map(is_fast, found)):
        return False
    mixes = len(linear) >= LEAST and all(map(is_narrow, linear)) and not names & {"softmax", "embedding"}
    return mixes or sum(argument(n, "groups", 1) == 1 for n in found) >= LEAST
