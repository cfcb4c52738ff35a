"""Calls of compiled graphs without AOTAutograd's wrappers, where these would do nothing.

For each call they look for arguments to detach, views to make again and writes to repeat. A graph without gradients that has none is called by
itself, which saves a few microseconds.
"""
from __future__ import annotations

import torch
import torch._dynamo.config
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from .cache import innermost
from .runner import Direct


def is_whole(kind: str, runner, inputs: list[torch.fx.Node], dynamo_inputs) -> bool:
    """Whether a call of Dynamo's graph is a call of the compiled graph. `inputs`: of the latter; `dynamo_inputs`: of the former, by example."""
    context = torch._guards.TracingContext.try_get()
    about = context.fw_metadata if context is not None else None
    # Fewer arguments: some were one tensor, or views of one.
    if kind != "inference" or about is None or not isinstance(runner, Direct) or len(inputs) != len(dynamo_inputs):
        return False
    if any(isinstance(t, (list, tuple, dict)) or isinstance(t, torch.Tensor) and is_traceable_wrapper_subclass(t) for t in dynamo_inputs):
        return False
    after = about.num_mutated_inp_runtime_indices, about.num_outputs_aliased, about.num_intermediate_bases, about.dynamic_outputs
    state = about.is_rng_op_functionalized, about.tokens, about.grad_enabled_mutation is not None, getattr(about, "num_graphsafe_rng_states", 0)
    return not any(after) and not any(state)


def direct(fn):
    """AOTAutograd's function, or one that calls its graph directly."""
    graph = innermost(fn)
    if graph is None or not graph.whole or getattr(torch._dynamo.config, "caching_precompile", False):
        return fn
    function = graph.function

    def call(*arguments):
        return function([*arguments])

    # By this PyTorch stores what it compiled ahead of time.
    call.serialize = getattr(fn, "serialize", None)
    return call
