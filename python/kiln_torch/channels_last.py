"""Channels-last memory for what cuDNN's convolutions read and write in training.

cuDNN computes the gradients of convolutions on channels-last tensors; of others it makes copies. kiln's own kernels compute channels last, too.
Gradients of grouped convolutions it computes on contiguous tensors: of 576 channels in 24 groups, 64x14x14, in 227 us instead of 466 (H100).
"""
from __future__ import annotations

import torch

from .graph import is_fusible, is_item

aten = torch.ops.aten
CONVOLUTION, BACKWARD = aten.convolution.default, aten.convolution_backward.default
# Where the gradients are a library's.
DEVICES = {"cuda"}
# Ops besides the pointwise ones that compute channels last what they are given channels last.
KEEP = {
    aten._to_copy, aten.clone, aten.cat, aten.constant_pad_nd, aten.max_pool2d_with_indices, aten.avg_pool2d, aten.native_batch_norm,
    aten._native_batch_norm_legit, aten._native_batch_norm_legit_functional, aten.upsample_nearest2d, aten.upsample_bilinear2d,
}


def is_image(node) -> bool:
    """Whether a value has images whose layout matters: channels and more than one pixel."""
    val = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    if not isinstance(val, torch.Tensor) or val.dim() != 4 or not all(isinstance(n, int) for n in val.shape):
        return False
    return val.shape[1] > 1 and val.shape[2] * val.shape[3] > 1


def grouped(node: torch.fx.Node) -> bool:
    """Whether a convolution has several groups, of several channels each."""
    backward = node.target is BACKWARD
    image, groups = (node.args[1], node.args[9]) if backward else (node.args[0], node.args[8])
    return 1 < groups < image.meta["val"].shape[1]


def keeps(node: torch.fx.Node) -> bool:
    target = node.args[0].target if is_item(node) else node.target
    return getattr(target, "overloadpacket", None) in KEEP or torch.Tag.pointwise in getattr(target, "tags", ())


def around_convolutions(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """The images that convolutions read or write, and those that pointwise ops, norms and pools compute from or to these."""
    found, waiting = set(), []
    for node in graph.find_nodes(op="call_function", target=CONVOLUTION):
        waiting += [node, *node.all_input_nodes]
    while waiting:
        node = waiting.pop()
        if node in found:
            continue
        several = isinstance(node.meta.get("val"), (tuple, list))
        if not several and not is_image(node):
            continue
        found.add(node)
        waiting += [user for user in node.users if user.op == "call_function" and (is_item(user) or keeps(user))]
        if is_item(node) or keeps(node):
            waiting += node.all_input_nodes
    return found


def relay(graph: torch.fx.Graph, programs: set[torch.fx.Node], saved: set[torch.fx.Node]):
    """Lets programs write channels last what a forward graph saves around convolutions, and what the library's gradients of convolutions
    read; `programs` are the nodes that programs compute. A program checks the strides of what it is given, so that these are never wrong,
    at worst slow."""
    read = {n for node in graph.find_nodes(op="call_function", target=CONVOLUTION) if grouped(node) for n in node.all_input_nodes}
    written = {n for n in (saved & around_convolutions(graph)) - read if n in programs}
    for node in graph.nodes:
        if node.target is BACKWARD and node not in programs and not grouped(node):
            written.update(n for n in node.args[:3] if isinstance(n, torch.fx.Node) and n in programs)
    for node in written:
        if is_image(node) and node.meta["val"].is_contiguous() and is_fusible(node):
            node.meta["val"] = node.meta["val"].to(memory_format=torch.channels_last)
    for node in graph.find_nodes(op="call_function", target=BACKWARD):
        if node not in programs:
            restate(node)


def restate(node: torch.fx.Node):
    """States the strides of a call's results for the strides that its operands have now."""
    value = lambda n: n.meta["val"]
    node.meta["val"] = node.target(*torch.fx.node.map_arg(node.args, value), **torch.fx.node.map_arg(node.kwargs, value))
    for item in node.users:
        if is_item(item):
            item.meta["val"] = node.meta["val"][item.args[1]]


def tell_backward(graph: torch.fx.Graph, saved: set[torch.fx.Node], written: int):
    """Tells AOTAutograd the strides of what a forward graph saves; it compiles the backward graph for these. It does not know of the last
    results, which are `written` to arguments."""
    context = torch._guards.TracingContext.try_get()
    if not saved or context is None or context.output_strides is None:
        return
    results = next(n for n in graph.nodes if n.op == "output").args[0]
    for node in results[: len(results) - written]:
        val = node.meta.get("val") if node in saved else None
        static = isinstance(val, torch.Tensor) and all(isinstance(n, int) for n in val.stride())
        context.output_strides.append(tuple(val.stride()) if static else None)


def listen(graph: torch.fx.Graph, inputs):
    """States the strides of a backward graph's inputs that the forward graph told; AOTAutograd gives them in the example inputs alone."""
    for node, given in zip(graph.find_nodes(op="placeholder"), inputs):
        val = node.meta.get("val")
        if isinstance(val, torch.Tensor) and isinstance(given, torch.Tensor) and val.dim() == 4 and tuple(val.stride()) != tuple(given.stride()):
            node.meta["val"] = given
