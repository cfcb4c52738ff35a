"""Memory of training: what a forward graph saves, and when a backward graph frees it.

A program's inputs live until it returns. PyTorch frees what the forward graph saved as soon as no later program or eager op reads it, so
that the programs of a backward graph are split."""
from __future__ import annotations

import collections
import dataclasses
import itertools

import torch
from functorch.compile import min_cut_rematerialization_partition
from torch._functorch import partitioners

from . import loss_heads
from .decompositions import decompose_recomputed
from .graph import bytes_of, is_item
from .shared import ops_from, shares
from .views import is_view

aten = torch.ops.aten
# Gradients that kiln fuses with what computes their operands, which need not be saved therefore.
FUSIBLE = {
    aten.native_layer_norm_backward, aten.native_group_norm_backward, aten.native_batch_norm_backward, aten._softmax_backward_data,
    aten._log_softmax_backward_data, aten.nll_loss_backward, aten.nll_loss2d_backward,
}

LEAST = 128 << 20
"""Bytes that each program but the last has to free."""
PROGRAMS = 8
"""Programs that a graph may be split into."""


def partition(joint: torch.fx.GraphModule, inputs, *, limit: int = 0, own=None, **options):
    """AOTAutograd's partition into a forward and a backward graph, which knows what kiln fuses. `limit`: bytes of a product from which on the
    gradients of a loss over it are computed by the forward graph; 0 for never. `own`: makes both graphs where it can, else None."""
    returned = options["num_fwd_outputs"]
    ahead = loss_heads.compute_ahead(joint, returned, limit)
    if own is not None and not ahead and (parts := own(joint, returned)) is not None:
        return parts
    decompose_recomputed(joint.graph)
    widen_statistics(joint.graph)
    options["num_fwd_outputs"] = returned + ahead
    default = partitioners.get_default_op_list
    known = dataclasses.replace(default(), fusible_ops=default().fusible_ops | FUSIBLE)
    # It has no parameter for this.
    partitioners.get_default_op_list = lambda: known
    try:
        forward, backward = min_cut_rematerialization_partition(joint, inputs, **options)
    finally:
        partitioners.get_default_op_list = default
    if ahead:
        loss_heads.drop_results(forward, returned, ahead)
    save_bases(forward, backward, returned)
    return forward, backward


WEIGHTS = {
    aten.native_layer_norm.default: 2, aten.native_group_norm.default: 1, aten.native_batch_norm.default: 1, aten._native_batch_norm_legit.default: 1,
    aten._native_batch_norm_legit.no_stats: 1, aten._native_batch_norm_legit_functional.default: 1, aten._native_batch_norm_legit_no_training.default: 1,
    aten._batch_norm_no_update.default: 1, aten._batch_norm_with_update_functional.default: 1,
}
"""Where norms with statistics have their weight."""


def widen_statistics(graph: torch.fx.Graph):
    """States the dtype of statistics on processors, where PyTorch's metadata has another. Those of norms of 16-bit floats with weights in f32 are in
    f32, as under autocast; those of attention in f64 are in f64."""
    for target, at in WEIGHTS.items():
        for node in graph.find_nodes(op="call_function", target=target):
            x, weight = node.args[0].meta["val"], node.args[at]
            if x.device.type == "cpu" and x.dtype.itemsize == 2 and weight is not None and weight.meta["val"].dtype == torch.float32:
                y, mean, scale, *others = node.meta["val"]
                state(node, (y, mean.float(), scale.float(), *others))
    for node in graph.find_nodes(op="call_function", target=aten._scaled_dot_product_flash_attention_for_cpu.default):
        y, logsumexp = node.meta["val"]
        if y.dtype == torch.float64:
            state(node, (y, logsumexp.double()))


def state(node: torch.fx.Node, val: tuple):
    """Gives a node, its results and their aliases these values."""
    node.meta["val"] = val
    stated = {user: val[user.args[1]] for user in node.users}
    while stated:
        same, val = stated.popitem()
        same.meta["val"] = val
        stated.update({user: val for user in same.users if user.target in (aten.alias.default, aten.detach.default)})


def placeholder(graph: torch.fx.Graph, name: str) -> torch.fx.Node:
    """A placeholder of this name; a node that has it gets another. Under another name than its target a placeholder would overwrite, in the graph's
    code, the argument that has the name."""
    for node in graph.nodes:
        if node.name == name:
            node._rename(f"{name}_0")
    made = graph.placeholder(name)
    made.name = name
    return made


def save_bases(forward: torch.fx.GraphModule, backward: torch.fx.GraphModule, returned: int):
    """Saves a tensor instead of views that are all of it, and views it in the backward graph: the queries, keys and values that are
    slices of one product are dense as a whole. `returned`: the results of the forward graph that are not saved."""
    output = next(iter(forward.graph.find_nodes(op="output")))
    results = list(output.args[0])
    saved = [n for n in results[returned:] if isinstance(n, torch.fx.Node) and not n.meta.get("saved_tensor_with_no_vc_check")]
    views = collections.defaultdict(list)
    for node in saved:
        if isinstance(node.meta.get("val"), torch.Tensor) and (start := shares(node)) is not None and not start.meta.get("saved_tensor_with_no_vc_check"):
            views[start].append(node)
    elements = lambda nodes: sum(n.meta["val"].numel() for n in nodes)
    views = {start: of for start, of in views.items() if start in saved or elements(of) >= elements([start])}
    given = {n.name: n for n in backward.graph.find_nodes(op="placeholder")}
    if not all(n.name in given for start, of in views.items() for n in of):
        return
    dropped = {}
    for start, of in views.items():
        if start not in saved:
            results[results.index(of[0], returned)] = start
            with backward.graph.inserting_before(given[of[0].name]):
                given[start.name] = placeholder(backward.graph, start.name)
            given[start.name].meta = {**start.meta}
        dropped.update(dict.fromkeys(of))
        for node in of:
            # A view for each reader, next to it: it does not keep programs apart.
            for user in [*given[node.name].users]:
                copy = given[start.name]
                with backward.graph.inserting_before(user):
                    for op in ops_from(node, start):
                        copy = backward.graph.node_copy(op, lambda n, copy=copy: copy)
                user.replace_input_with(given[node.name], copy)
            backward.graph.erase_node(given[node.name])
    kept = [k for k, n in enumerate(results) if k < returned or n not in dropped]
    output.args = (tuple(results[k] for k in kept),)
    if "desc" in output.meta:
        output.meta["desc"] = [output.meta["desc"][k] for k in kept]
    for node in reversed([n for n in forward.graph.nodes if n in dropped]):
        while not node._erased and not node.users and is_view(node.args[0] if is_item(node) else node):
            node, unused = node.args[0], node
            forward.graph.erase_node(unused)
    forward.recompile()
    backward.recompile()


def freed_at(run: list[torch.fx.Node]) -> list[int]:
    """For each node the bytes of activations whose last reader it is. Parameters, which are inputs too, stay alive."""
    place, freed = {n: k for k, n in enumerate(run)}, [0] * len(run)
    inputs = {i for n in run for i in n.all_input_nodes if i.op == "placeholder"}
    for i in inputs:
        if not i.name.startswith("primals") and all(user in place for user in i.users):
            freed[max(place[user] for user in i.users)] += bytes_of(i)
    return freed


def crossing_at(run: list[torch.fx.Node]) -> list[int]:
    """For each node the bytes that a split behind it stores for later nodes, beside results of the graph."""
    place, steps = {n: k for k, n in enumerate(run)}, [0] * (len(run) + 1)
    for k, n in enumerate(run):
        last = max((place[user] for user in n.users if user in place), default=k)
        if last > k and all(user.op != "output" for user in n.users):
            steps[k] += bytes_of(n)
            steps[last] -= bytes_of(n)
    total, crossing = 0, []
    for step in steps[:-1]:
        total += step
        crossing.append(total)
    return crossing


def separable(run: list[torch.fx.Node]) -> list[bool]:
    """For each node whether a split behind it leaves no result of an op without the op."""
    place = {n: k for k, n in enumerate(run)}
    ends = [max((place[user] for user in n.users if is_item(user) and user in place), default=k) for k, n in enumerate(run)]
    return [last <= k for k, last in enumerate(itertools.accumulate(ends, max))]


def split(run: list[torch.fx.Node]) -> list[list[torch.fx.Node]]:
    """A run of nodes in topological order as several, where that frees activations early: each frees a share of them, and is split off
    where least is stored for the next."""
    freed, crossing, allowed = freed_at(run), crossing_at(run), separable(run)
    share, left = max(LEAST, sum(freed) // PROGRAMS), sum(freed)
    parts, start, done, enough, candidates = [], 0, 0, share, []
    for k in range(len(run)):
        done, left = done + freed[k], left - freed[k]
        if left < share // 2:
            break
        if done < share or not allowed[k] or 2 * crossing[k] > done:
            continue
        # What frees as much again as half a share may be split at a better place.
        enough = enough if candidates else done + share // 2
        candidates.append((crossing[k], k))
        if done >= enough:
            cut = min(candidates)[1]
            parts.append(run[start : cut + 1])
            start, done, candidates = cut + 1, sum(freed[cut + 1 : k + 1]), []
    return [*parts, run[start:]]


def shorter(runs: list[list[torch.fx.Node]]) -> list[list[torch.fx.Node]]:
    """The runs of a backward graph, each split where that frees activations early."""
    return [part for run in runs for part in split(run)]
