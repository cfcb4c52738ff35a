"""Masks of attention that a graph computes from sizes alone, as decoders do: they are computed once, by PyTorch, to see which are
causal or hide nothing. Kernels of attention need no such mask in memory, and skip what it hides."""
from __future__ import annotations

import logging
import operator

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

log = logging.getLogger("kiln_torch")

MOST = 1 << 27
"""Elements of a mask that is computed."""
IN_PLACE = {getattr(operator, f"i{name}") for name in ("add", "and", "floordiv", "lshift", "matmul", "mod", "mul", "or", "pow", "rshift", "sub", "truediv", "xor")} | {operator.setitem, operator.delitem}


PRODUCTS = {"mm", "bmm", "mv", "dot", "addmm", "addbmm", "addmv", "baddbmm", "addr", "convolution", "_convolution"}
"""What autocast rounds."""
UNINITIALISED = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}


class Exact(TorchDispatchMode):
    """Refuses ops whose results another call may not have, and ops from elsewhere."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if func.namespace not in ("aten", "prims") or name in PRODUCTS | UNINITIALISED or torch.Tag.nondeterministic_seeded in func.tags:
            raise RuntimeError(f"{func} is not computed ahead")
        return func(*args, **(kwargs or {}))


def schemas(target) -> list:
    """Those of an op, or of its overloads."""
    if isinstance(target, torch._ops.OpOverloadPacket):
        return [getattr(target, name)._schema for name in target.overloads()]
    return [target._schema] if hasattr(target, "_schema") else []


def writes(node: torch.fx.Node) -> bool:
    """Whether a node may write to its arguments."""
    if node.op not in ("call_function", "call_method") or isinstance(node.target, torch._ops.HigherOrderOperator):
        return True
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    named = name.endswith("_") and not name.endswith("__") or name.startswith("__i") or node.target in IN_PLACE or "out" in node.kwargs
    # Norms update statistics, and no counter tells.
    named = named or "norm" in name
    # Ops of `torch.nn.functional` write to their input with `inplace=True`.
    flag = getattr(node.target, "__module__", "") == "torch.nn.functional" and node.target is not torch.nn.functional.scaled_dot_product_attention
    return named or flag and any(a is True for a in (*node.args, *node.kwargs.values())) or any(s.is_mutable for s in schemas(node.target))


def storage(node: torch.fx.Node) -> int | None:
    """What views of a tensor share."""
    val = node.meta.get("example_value")
    return val.untyped_storage()._cdata if isinstance(val, torch.Tensor) and val.layout is torch.strided else None


def computed_from(node: torch.fx.Node) -> list[torch.fx.Node] | None:
    """What a value is computed from, in the graph's order; None if that includes an input of the graph, or something else may write to it."""
    found, stack = {node}, [node]
    while stack:
        n = stack.pop()
        if n.op not in ("call_function", "call_method"):
            return None
        new = set(n.all_input_nodes) - found
        found |= new
        stack.extend(new)
    memory = {storage(n) for n in found} - {None}
    for n in node.graph.nodes:
        if n not in found and n.op != "output" and writes(n) and any(i in found or storage(i) in memory for i in n.all_input_nodes):
            return None
    return [n for n in node.graph.nodes if n in found]


def on_processor(value):
    return torch.device("cpu") if isinstance(value, torch.device) else value


def constant(node: torch.fx.Node) -> torch.Tensor | None:
    """The value of a node that depends on no input of the graph, on the processor."""
    val = node.meta.get("example_value")
    if not isinstance(val, torch.Tensor) or not all(isinstance(n, int) for n in val.shape) or val.numel() > MOST:
        return None
    nodes = computed_from(node)
    if nodes is None:
        return None
    values = {}
    # Without a default device.
    with _disable_current_modes(), torch._C.DisableTorchFunction(), Exact(), torch.no_grad():
        for n in nodes:
            args, kwargs = torch.fx.node.map_aggregate((n.args, n.kwargs), lambda a: values[a] if isinstance(a, torch.fx.Node) else on_processor(a))
            values[n] = n.target(*args, **kwargs) if n.op == "call_function" else getattr(args[0], n.target)(*args[1:], **kwargs)
        # What the trace has written to more often, something else has written to.
        traced = {n: n.meta.get("example_value") for n in nodes}
        if any(isinstance(t, torch.Tensor) and t._version != values[n]._version for n, t in traced.items()):
            return None
        return values[node].to("cpu")


def visible(mask: torch.Tensor) -> torch.Tensor | None:
    """Which keys a mask shows, if it only shows and hides."""
    if mask.dtype == torch.bool:
        return mask
    if mask.dtype not in (torch.float32, torch.bfloat16, torch.float64):
        return None
    shown = mask == 0
    # Scores plus the least number underflow as those of -inf do, beside another that is seen.
    return shown if bool((shown | (mask <= torch.finfo(mask.dtype).min)).all()) else None


def kind(node: torch.fx.Node, queries: int, keys: int) -> str | None:
    """`"causal"` for the mask that `is_causal` stands for, `"none"` for one that hides nothing, None for any other."""
    try:
        mask = constant(node)
    except Exception as error:  # any op may refuse, and tensors of transforms have no storage
        log.debug("mask %s is not computed: %s", node, error)
        return None
    shown = visible(mask) if mask is not None else None
    if shown is None or shown.dim() < 2 or shown.numel() == 0:
        return None
    if bool(shown.all()):
        return "none"
    triangle = torch.ones(queries, keys, dtype=torch.bool, device="cpu").tril()
    return "causal" if shown.shape[-2:] == triangle.shape and bool((shown == triangle).all()) else None


def arguments(call: torch.fx.Node) -> dict:
    """Those that a call of `scaled_dot_product_attention` gives, by name."""
    return dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), call.args)) | call.kwargs


def simplify(call: torch.fx.Node, kinds: dict):
    """Gives attention `is_causal` or nothing for a mask of its that means that. `kinds`: those of masks that were seen."""
    given = arguments(call)
    mask = given.get("attn_mask")
    vals = [n.meta.get("example_value") if isinstance(n, torch.fx.Node) else None for n in (given.get("query"), given.get("key"))]
    if not isinstance(mask, torch.fx.Node) or given.get("is_causal", False) is not False or not all(isinstance(v, torch.Tensor) and v.dim() >= 2 for v in vals):
        return
    queries, keys = (v.shape[-2] for v in vals)
    if not isinstance(queries, int) or not isinstance(keys, int):
        return
    of = (mask, queries, keys)
    if of not in kinds:
        kinds[of] = kind(*of)
    if kinds[of] is not None:
        call.args, call.kwargs = (), {**given, "attn_mask": None, "is_causal": kinds[of] == "causal"}
