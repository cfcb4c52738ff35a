"""What a model's graphs become."""
from __future__ import annotations

import torch


def explain(model, *args, options: dict | None = None, **kwargs) -> str:
    """Compiles a model for these arguments, calls it once, and says in text how many graphs, programs and kernels it is, and
    which ops stay eager and why."""
    from . import backend

    before = len(backend.reports)
    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(model, backend=backend.kiln, options=options)(*args, **kwargs)
    lines = []
    for k, r in enumerate(backend.reports[before:]):
        lines.append(f"graph {k} ({r.kind}): {r.nodes} ops, {r.programs} programs, {r.kernels} kernels")
        lines += [f"  eager: {op}: {why}" for op, why in r.eager.items()]
    return "\n".join(lines) or "no graph: nothing was compiled"
