"""Attention stays one op: kiln's in inference, one of PyTorch's in training.

PyTorch decomposes `scaled_dot_product_attention` before a backend sees the graph: to the op of one of its kernels, or, for masks that none of these
takes while it traces, to matmuls and a softmax. Dynamo's graph still has it whole.
"""
from __future__ import annotations

import torch

sdpa = torch.nn.functional.scaled_dot_product_attention


@torch.library.custom_op("kiln::scaled_dot_product_attention", mutates_args=())
def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """PyTorch's op, which runs where kiln does not compile it. Its result must alias no input."""
    return sdpa(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa).contiguous()


@attention.register_fake
def _(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    batch = query.shape[:-2] if enable_gqa else torch.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    return query.new_empty((*batch, query.shape[-2], value.shape[-1]))


def with_contiguous_mask(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """Attention with gradients, as PyTorch has it. Its fused kernels for GPUs take no mask whose last dimension is expanded, as
    one that is made of the keys' padding alone."""
    if attn_mask is not None and query.device.type == "cuda" and attn_mask.stride(-1) != 1:
        attn_mask = attn_mask.contiguous()
    return sdpa(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)


def keep_whole(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Dynamo's graph with its attention as kiln's op. PyTorch's own under autograd, since kiln's has no gradient, and under autocast,
    which would not cast its arguments."""
    found = [n for n in module.graph.nodes if n.op == "call_function" and n.target is sdpa]
    whole = not torch.is_grad_enabled() and not any(map(torch.is_autocast_enabled, ("cpu", "cuda")))
    for node in found:
        node.target = torch.ops.kiln.scaled_dot_product_attention.default if whole else with_contiguous_mask
    if found:
        module.recompile()
    return module
