"""Ops on lists of tensors, such as optimizers call for all weights at once: each becomes an op on each tensor of the list."""
from __future__ import annotations

import functools

import torch

aten = torch.ops.aten


def scaled(fn):
    """`addcdiv` or `addcmul` whose last argument is the scale."""
    return lambda x, a, b, value=1: fn(x, a, b, value=value)


# On one tensor; others have the name of a function of `torch`.
FUNCTIONS = {
    "addcdiv": scaled(torch.addcdiv),
    "addcmul": scaled(torch.addcmul),
    "copy": aten.copy.default,
    "norm": lambda x, ord=2, dtype=None: torch.linalg.vector_norm(x, ord, dtype=dtype),
    "zero": torch.zeros_like,
}
SCALARS = {"maximum": torch.clamp_min, "minimum": torch.clamp_max}
"""Where the second argument is a number."""
OMITTED = {"powsum", "addcdiv.Tensor", "addcmul.Tensor"}
"""Sums of powers, whose dtype between the steps is not documented; scales that are one tensor of numbers."""


def on_each(op: torch._ops.OpOverload, name: str):
    """The op's decomposition: `name` of each tensor, with the list's elements of arguments that are lists."""
    lists = {k for k, a in enumerate(op._schema.arguments) if isinstance(a.type, torch.ListType)}
    numbers = any("number" in str(a.type) for a in op._schema.arguments[1:2])
    fn = (SCALARS.get(name) if numbers else None) or FUNCTIONS.get(name) or getattr(torch, name)

    def each(*args, **kwargs):
        count = next(len(args[k]) for k in lists)
        return [fn(*(a[k] if i in lists else a for i, a in enumerate(args)), **kwargs) for k in range(count)]

    return each


@functools.cache
def foreach() -> dict:
    """Decompositions of the functional ops on lists."""
    found = {}
    for qualified in torch._C._dispatch_get_all_op_names():
        name, _, kind = qualified.removeprefix("aten::_foreach_").partition(".")
        whole = f"{name}.{kind}" if kind else name
        if qualified.startswith("aten::_foreach_") and not name.endswith("_") and not kind.endswith("out") and not {name, whole} & OMITTED:
            op = getattr(getattr(aten, f"_foreach_{name}"), kind or "default")
            found[op] = on_each(op, name)
    return found
