"""Which ops are decomposed: those of core ATen's decompositions for which kiln's ATen table has no row, and calls that a row refuses."""
from __future__ import annotations

import contextlib
import functools
import logging

import torch
from torch._guards import detect_fake_mode
from torch.fx.experimental.proxy_tensor import make_fx

from . import _kiln
from .derivatives import DERIVATIVES
from .foreach import foreach
from .graph import is_item, overload_name

log = logging.getLogger("kiln_torch")
aten = torch.ops.aten

# Decomposed although kiln has rows for them, since nothing is left of them.
NOTHING = (aten.detach.default, aten.alias.default)

# Decomposed so that a backward graph computes their results again, from the convolution's, instead of reading them: AOTAutograd's partitioner
# takes whole norms for results that have to be saved. kiln's gradients are better of whole norms.
RECOMPUTED = (aten.native_batch_norm.default, aten._native_batch_norm_legit.default, aten._native_batch_norm_legit_functional.default)

# Decomposed in a joint graph: the backward graph computes their results, in f32, again from logits of 16 bits and two numbers a row.
SOFTMAX = (aten._log_softmax.default,)

# cuDNN samples by linear interpolation with zeros around the image, and its corners are the centres of pixels.
AS_CUDNN = (0, 0, True)


def cudnn_grid_sampler(self, grid):
    return aten.grid_sampler_2d(self, grid, *AS_CUDNN)


def cudnn_grid_sampler_backward(self, grid, grad_output):
    return aten.grid_sampler_2d_backward(grad_output, self, grid, *AS_CUDNN, [True, True])


SAMPLERS = {
    aten.cudnn_grid_sampler.default: cudnn_grid_sampler,
    aten.cudnn_grid_sampler_backward.default: cudnn_grid_sampler_backward,
}


@functools.cache
def core() -> dict:
    """Core ATen's decompositions, and kiln's own."""
    from torch._decomp import core_aten_decompositions, get_decompositions

    return {**core_aten_decompositions(), **get_decompositions((*RECOMPUTED, *SOFTMAX)), **DERIVATIVES, **SAMPLERS, **foreach()}


def is_random(target) -> bool:
    """Whether an op draws from a generator."""
    return torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())


def draws(node: torch.fx.Node) -> bool:
    """Whether a node draws from PyTorch's default generator, or calls an op that does with a state that it keeps."""
    return is_random(node.target) or getattr(node.target, "__name__", "") in KEEPS_STATE


# Higher-order ops of recomputation, around an op that draws.
KEEPS_STATE = ("run_and_save_rng_state", "run_with_rng_state", "graphsafe_run_with_rng_state")


@functools.cache
def table(eager_random: bool = False, whole_norms: bool = False) -> dict:
    """AOTAutograd's decompositions. With `eager_random` none replaces an op that draws random numbers by others that draw; with `whole_norms`
    batch norms stay."""
    always = NOTHING if whole_norms else (*NOTHING, *RECOMPUTED)
    chosen = {op: made for op, made in core().items() if op in always or not _kiln.supports(overload_name(op))}
    return {op: made for op, made in chosen.items() if not (eager_random and is_random(op))}


def decompose_recomputed(graph: torch.fx.Graph):
    """Decomposes what a backward graph computes again: logarithms of softmax, and the batch norms that [`table`] left whole."""
    for target in (*RECOMPUTED, *SOFTMAX):
        for node in graph.find_nodes(op="call_function", target=target):
            decompose(node)


def conversions_as_aten(graph: torch.fx.Graph):
    """Writes conversions of prims, by which PyTorch lets tensors compute with symbolic floats, as ATen's."""
    for node in graph.find_nodes(op="call_function", target=torch.ops.prims.convert_element_type.default):
        (x, dtype), node.target = node.args, aten._to_copy.default
        node.args, node.kwargs = (x,), {"dtype": dtype}


def state_dtypes(graph: torch.fx.Graph):
    """States the dtype of `full` where the number gives it: a symbolic bool becomes an integer."""
    for node in graph.find_nodes(op="call_function", target=aten.full.default):
        if node.kwargs.get("dtype") is None:
            node.kwargs = {**node.kwargs, "dtype": node.meta["val"].dtype}


def decompose(node: torch.fx.Node) -> bool:
    """Replaces a node by core ATen's decomposition of its op; returns whether there is one."""
    made = core().get(node.target)
    if made is None or is_random(node.target):
        return False
    given = node.all_input_nodes
    values = [n.meta["val"] for n in given]

    def call(*values):
        value = dict(zip(given, values)).__getitem__
        return node.target(*torch.fx.map_arg(node.args, value), **torch.fx.map_arg(node.kwargs, value))

    try:
        with detect_fake_mode(values) or contextlib.nullcontext():
            inner = make_fx(call, decomposition_table=table() | {node.target: made})(*values).graph
    except Exception as error:  # a decomposition may refuse what its op takes
        log.info("%s is not decomposed: %s", node.target, error)
        return False
    if any(n.op == "get_attr" or n.target is node.target for n in inner.nodes):
        return False
    copies = dict(zip(inner.find_nodes(op="placeholder"), given))
    with node.graph.inserting_before(node):
        results = node.graph.graph_copy(inner, copies)
    for n, copy in copies.items():
        if n.op == "call_function":
            copy.meta["stack_trace"] = node.meta.get("stack_trace")
    for user in [*node.users]:
        if is_item(user):
            user.replace_all_uses_with(results[user.args[1]])
            node.graph.erase_node(user)
    if node.users:
        node.replace_all_uses_with(results)
    node.graph.erase_node(node)
    return True
