"""Attention stays one op in inference.

PyTorch decomposes `scaled_dot_product_attention` before a backend sees the graph: to the op of one of its kernels, or, for masks that none of these
takes, to matmuls and a softmax. Dynamo's graph still has it whole.
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


def keep_whole(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Dynamo's graph with its attention as the op above. Not where gradients are recorded, since it has none, nor under autocast, which
    would not cast its arguments."""
    if torch.is_grad_enabled() or any(map(torch.is_autocast_enabled, ("cpu", "cuda"))):
        return module
    found = [n for n in module.graph.nodes if n.op == "call_function" and n.target is sdpa]
    for node in found:
        node.target = torch.ops.kiln.scaled_dot_product_attention.default
    if found:
        module.recompile()
    return module
