"""Attention stays one op: kiln's in inference; in training kiln's where it has kernels for the derivatives, else one of PyTorch's.

PyTorch decomposes `scaled_dot_product_attention` before a backend sees the graph: to the op of one of its kernels, or, for masks that none of these
takes while it traces, to matmuls and a softmax. Dynamo's graph still has it whole.
"""
from __future__ import annotations

import operator

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from . import masks
from .graph import is_hopper

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


def by_rows(heads: torch.Tensor) -> torch.Tensor:
    """`[B, H, S, D]` in memory as `[B, S, H, D]`, as models read it next."""
    return heads.transpose(1, 2).contiguous().transpose(1, 2)


def scores_of(query, key, is_causal, scale):
    """Scaled, masked scores in float32 or float64, and the keys, with a head for each of the queries'."""
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    key = key.to(wide).repeat_interleave(query.shape[1] // key.shape[1], 1)
    scores = query.to(wide) @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1), -torch.inf)
    return scores, key


@torch.library.custom_op("kiln::attention_with_lse", mutates_args=())
def attention_with_lse(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, is_causal: bool = False, scale: float | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of query `[B, H, Q, D]`, key `[B, G, K, D]` and value `[B, G, K, E]`, and the log-sum-exp `[B, H, Q]` of its scores. It has
    derivatives. What follows runs where kiln does not compile it."""
    scores, _ = scores_of(query, key, is_causal, scale)
    lse = scores.logsumexp(-1)
    value = value.to(scores.dtype).repeat_interleave(query.shape[1] // value.shape[1], 1)
    return by_rows((torch.exp(scores - lse.unsqueeze(-1)) @ value).to(query.dtype)), lse


@attention_with_lse.register_fake
def _(query, key, value, is_causal=False, scale=None):
    b, h, q, _ = query.shape
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    return query.new_empty((b, q, h, value.shape[-1])).transpose(1, 2), query.new_empty((b, h, q), dtype=wide)


@torch.library.custom_op("kiln::attention_gradients", mutates_args=())
def attention_gradients(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    is_causal: bool = False,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The derivatives of `attention_with_lse` by query, key and value."""
    scores, keys = scores_of(query, key, is_causal, scale)
    weights = torch.exp(scores - lse.unsqueeze(-1))
    grad, times = grad_out.to(scores.dtype), query.shape[1] // key.shape[1]
    values = value.to(scores.dtype).repeat_interleave(times, 1)
    delta = (grad * out).sum(-1, keepdim=True)
    by_scores = weights * (grad @ values.mT - delta) * (query.shape[-1] ** -0.5 if scale is None else scale)
    summed = lambda x: x.unflatten(1, (-1, times)).sum(2).to(query.dtype)
    return (by_scores @ keys).to(query.dtype), summed(by_scores.mT @ query.to(scores.dtype)), summed(weights.mT @ grad)


@attention_gradients.register_fake
def _(grad_out, query, key, value, out, lse, is_causal=False, scale=None):
    return tuple(t.new_empty(t.shape) for t in (query, key, value))


def save(ctx, inputs, output):
    query, key, value, ctx.is_causal, ctx.scale = inputs
    out, lse = output
    ctx.mark_non_differentiable(lse)
    ctx.save_for_backward(query, key, value, out, lse)


def backward(ctx, grad_out, _):
    grads = torch.ops.kiln.attention_gradients(grad_out, *ctx.saved_tensors, ctx.is_causal, ctx.scale)
    return (*grads, None, None)


attention_with_lse.register_autograd(backward, setup_context=save)


HEAD_SIZES = range(16, 129, 8)
"""Those of kiln's kernels for derivatives of attention."""


def has_kernels(device: torch.device) -> bool:
    """Whether kiln has kernels for derivatives of attention on a device."""
    return is_hopper(device)


def has_gradient(query, key, value, attn_mask, dropout_p, enable_gqa) -> bool:
    """Whether kiln has kernels for an attention and its derivatives."""
    if attn_mask is not None or dropout_p != 0 or not has_kernels(query.device):
        return False
    # Transforms of torch.func differentiate and batch no custom op that registers its derivative.
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    tensors = (query, key, value)
    if query.dtype not in (torch.bfloat16, torch.float16) or not all(t.dtype == query.dtype and t.dim() == 4 for t in tensors):
        return False
    if not all(isinstance(n, int) for t in tensors for n in (t.shape[1], t.shape[3])):
        return False
    if not all(statically_known_true(t.shape[0] == query.shape[0]) for t in tensors):
        return False
    heads, groups = query.shape[1], key.shape[1]
    shared = groups == value.shape[1] and (heads == groups or enable_gqa and groups > 0 and heads % groups == 0)
    return shared and query.shape[3] in HEAD_SIZES and value.shape[3] in HEAD_SIZES


KEYS = 128
"""Of a tile of the derivatives by keys and values."""


def fills(key: torch.Tensor) -> bool:
    """Whether there are nearly two tiles of these keys for each SM: a tile sums over all queries that read it. Repeated keys have more tiles."""
    tiles = key.shape[0] * key.shape[1] * ((key.shape[2] + KEYS - 1) // KEYS)
    if key.device.type != "cuda" or not isinstance(tiles, int):
        return True
    return 4 * tiles >= 7 * torch.cuda.get_device_properties(key.device).multi_processor_count


def as_pytorch(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """Attention with gradients, as PyTorch has it. Its fused kernels for GPUs take no mask whose last dimension is expanded, as
    one that is made of the keys' padding alone."""
    if attn_mask is not None and query.device.type == "cuda" and attn_mask.stride(-1) != 1:
        attn_mask = attn_mask.contiguous()
    return sdpa(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)


def with_gradients(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False, shared=None):
    """Attention with gradients: kiln's where it has kernels for these. `shared` are keys and values of fewer heads, which `key` and `value`
    repeat. Autocast casts its arguments first."""
    if shared is not None and not fills(shared[0]):
        shared = None
    own = query, *(shared or (key, value))
    if query.device.type == "cuda" and torch.is_autocast_enabled("cuda"):
        dtype = torch.get_autocast_dtype("cuda")
        own = [t.to(dtype) if t.is_floating_point() and t.dtype != torch.float64 else t for t in own]
    if has_gradient(*own, attn_mask, dropout_p, enable_gqa or shared is not None):
        return torch.ops.kiln.attention_with_lse(*own, is_causal, scale)[0]
    return as_pytorch(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


def repeated(node) -> torch.fx.Node | None:
    """The keys or values `[B, G, K, D]` that a node repeats to `[B, G R, K, D]`, each head R times in a row, as transformers' `repeat_kv`."""
    reshape = isinstance(node, torch.fx.Node) and node.op == "call_method" and node.target in ("reshape", "view")
    expand = node.args[0] if reshape else None
    expand = expand if isinstance(expand, torch.fx.Node) and (expand.op, expand.target) == ("call_method", "expand") else None
    item = expand.args[0] if expand else None
    if not isinstance(item, torch.fx.Node) or item.target is not operator.getitem or not isinstance(item.args[1], tuple):
        return None
    everything = slice(None, None, None)
    if [i for i in item.args[1] if i is not Ellipsis] != [everything, everything, None, everything, everything]:
        return None
    source = item.args[0]
    # A repeated tensor is a copy: neither it nor what it copies may be written to.
    if any(getattr(n.meta.get("example_value"), "_version", 1) != 0 for n in (source, item, expand, node)):
        return None
    shapes = [n.meta["example_value"].shape if isinstance(n.meta.get("example_value"), torch.Tensor) else () for n in (source, expand, node)]
    if [len(s) for s in shapes] != [4, 5, 4]:
        return None
    (b, g, *own), (_, _, times, *_), (b2, heads, *given) = shapes
    same = isinstance(g, int) and isinstance(times, int) and isinstance(heads, int) and heads == g * times
    return source if same and all(statically_known_true(x == y) for x, y in zip((b, *own), (b2, *given))) else None


def share_heads(call: torch.fx.Node):
    """Gives attention also keys and values with fewer heads than queries that the ones it has repeat."""
    given = masks.arguments(call)
    sources = [repeated(given.get("key")), repeated(given.get("value"))]
    if all(sources) and not given.get("enable_gqa", False):
        call.args, call.kwargs = (), {**given, "shared": tuple(sources)}


def keep_whole(module: torch.fx.GraphModule, own_gradients: bool) -> torch.fx.GraphModule:
    """Dynamo's graph with its attention as kiln's op. Under autograd and autocast another function, which AOTAutograd traces."""
    found = [n for n in module.graph.nodes if n.op == "call_function" and n.target is sdpa]
    whole = not torch.is_grad_enabled() and not any(map(torch.is_autocast_enabled, ("cpu", "cuda")))
    other = with_gradients if own_gradients else as_pytorch
    kinds = {}
    for node in found:
        if not whole:
            masks.simplify(node, kinds)
            if own_gradients:
                share_heads(node)
        node.target = torch.ops.kiln.scaled_dot_product_attention.default if whole else other
    if found:
        module.recompile()
    return module
