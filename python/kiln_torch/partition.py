"""Splits a graph where an op is not in kiln's ATen table: supported runs become programs, the rest stays eager."""
from __future__ import annotations

import torch
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from . import _kiln
from .graph import DTYPES, SYMBOLIC, is_item, overload


def reason_against(node: torch.fx.Node, refused: set[str]) -> str | None:
    """Why a node stays eager; None if a program can have it."""
    if node.op != "call_function":
        return f"{node.op} is no call"
    values = [n.meta.get("val") for n in (node, *node.all_input_nodes)]
    flat = [v for value in values for v in (value if isinstance(value, (tuple, list)) else [value])]
    for v in flat:
        if isinstance(v, torch.Tensor):
            if v.dtype not in DTYPES:
                return f"tensors of {v.dtype}"
            if v.device.type != "cpu":
                return f"tensors on {v.device.type}"
            if v.layout is not torch.strided:
                return f"tensors of layout {v.layout}"
        elif not isinstance(v, (int, float, type(None), *SYMBOLIC)):
            return f"values of type {type(v).__name__}"
    if isinstance(node.meta.get("val"), (int, *SYMBOLIC)):
        return "computes sizes, which Python does"
    if is_item(node):
        return reason_against(node.args[0], refused)
    name = overload(node)
    if name in refused or node.name in refused:
        return f"{name} with these arguments"
    if not _kiln.supports(name):
        return f"{name} is not in the ATen table"
    return None


class Support(OperatorSupportBase):
    """What the partitioner asks."""

    def __init__(self, refused: set[str]):
        self.refused = refused
        self.reasons: dict[str, str] = {}

    def is_node_supported(self, submodules, node) -> bool:
        why = reason_against(node, self.refused)
        if why:
            self.reasons[node.name] = why
        return why is None


def runs_of(module: torch.fx.GraphModule, refused: set[str]) -> tuple[list[list[torch.fx.Node]], dict[str, str]]:
    """The runs of supported nodes, each in topological order, and why the other nodes stay eager, by name."""
    support = Support(refused)
    found = CapabilityBasedPartitioner(module, support, allows_single_node_partition=True).propose_partitions()
    owner = {n: k for k, p in enumerate(found) for n in p.nodes}
    # Results of one op stay together with it.
    for n in module.graph.nodes:
        if is_item(n) and n.args[0] in owner:
            owner[n] = owner[n.args[0]]
    runs = [[] for _ in found]
    for n in module.graph.nodes:
        if n in owner:
            runs[owner[n]].append(n)
    left = {n.name: support.reasons.get(n.name, "") for n in module.graph.nodes if n.op == "call_function" and n not in owner}
    return [r for r in runs if r], left
