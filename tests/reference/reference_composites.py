"""Cases of composite ops and attention, made as this file is read."""
import itertools, math
import numpy as np
import torch
import torch.nn.functional as F
from reference_prims import REGULAR, SPECIAL, words
from reference_support import *

# ---- composites
x = np.concatenate([SPECIAL, REGULAR])
case("sigmoid", x, 1 / (1 + np.exp(-x)))
case("silu", x, F.silu(T(x)))
case("relu", x, F.relu(T(x)))
for low, high in [(-1.0, 1.0), (0.0, 6.0)]:
    case("hardtanh", x, F.hardtanh(T(x), low, high), low=low, high=high)
case("hardsigmoid", x, F.hardsigmoid(T(x)))
case("hardswish", x, np.where(np.isneginf(x), NAN, F.hardswish(T(x)).numpy()))
case("gelu", x, F.gelu(T(x)), scale=1, tanh=False)
case("gelu", x, F.gelu(T(x), approximate="tanh"), scale=1, tanh=True)
for beta, threshold in [(1.0, 20.0), (2.0, 5.0), (0.5, 1.0)]:
    case("softplus", x, F.softplus(T(x), beta, threshold), beta=beta, threshold=threshold)

for shape in [(4,), (2, 4), (2, 3, 4)]:
    x, w, b = rand(*shape), rand(3, 4), rand(3)
    case("linear", (x, w), F.linear(T(x), T(w)), scale=1)
    case("linear", (x, w), F.linear(T(x), T(w), T(b)), scale=1, bias=b)
x, w, b = ints("i8", 2, 3), ints("i8", 2, 3), ints("i8", 2)
case("linear", (x, w), ((x[:, None] * w[None]).sum(2, dtype=np.int8) + b), bias=b)
for a, b in [((3,), (3,)), ((3,), (3, 2)), ((2, 3), (3,)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((3,), (5, 3, 2)), ((5, 2, 3), (3,)), ((2, 1, 2, 3), (4, 3, 2)), ((2, 0), (0, 3)), ((0, 2, 3), (3, 1))]:
    x, y = rand(*a), rand(*b)
    case("matmul", (x, y), torch.matmul(T(x), T(y)), scale=1)
x, y = ints("i32", 2, 3), ints("i32", 3, 2)
case("matmul", (x, y), torch.matmul(T(x), T(y)))
w = rand(5, 3)
for idx in [np.array([[0, 4], [2, 2]]), np.asarray(3), np.array([1, 1, 0], np.int32), np.zeros((0, 2), np.int64)]:
    case("embedding", (w, idx), w[idx])

x = rand(2, 3, 4)
for rank in [1, 2, 3]:
    shape = x.shape[3 - rank:]
    w, b = rand(*shape), rand(*shape)
    for ww, bb in [(None, None), (w, None), (None, b), (w, b)]:
        out = F.layer_norm(T(x), shape, None if ww is None else T(ww), None if bb is None else T(bb), 1e-3)
        case("layer_norm", x, out, scale=1, rank=rank, epsilon=1e-3, weight=ww, bias=bb)
    case("rms_norm", x, F.rms_norm(T(x), shape, T(w), 1e-2), scale=1, rank=rank, epsilon=1e-2, weight=w)
    case("rms_norm", x, F.rms_norm(T(x), shape, None, 1e-2), scale=1, rank=rank, epsilon=1e-2)
for shape, groups in [((2, 4, 3), 2), ((2, 4, 2, 2), 4), ((3, 6), 2), ((1, 4, 2), 1)]:
    x, w, b = rand(*shape), rand(shape[1]), rand(shape[1])
    case("group_norm", x, F.group_norm(T(x), groups, T(w), T(b), 1e-4), scale=1, groups=groups, epsilon=1e-4, weight=w, bias=b)
    case("group_norm", x, F.group_norm(T(x), groups, None, None, 1e-4), scale=1, groups=groups, epsilon=1e-4)
    m, v = rand(shape[1]), abs(rand(shape[1])) + 0.1
    case("batch_norm", (x, m, v), F.batch_norm(T(x), T(m), T(v), T(w), T(b), eps=1e-4), scale=1, epsilon=1e-4, weight=w, bias=b)
    case("batch_norm", (x, m, v), F.batch_norm(T(x), T(m), T(v), eps=1e-4), scale=1, epsilon=1e-4)
x = rand(2, 3, 4)
big = np.array([[1000.0, 1001.0, 999.0], [-INF, 0.0, 1.0], [-INF, -INF, -INF], [NAN, 1.0, 2.0], [INF, 1.0, 0.0]])
for f, safe in [("softmax", {"safe": False}), ("log_softmax", {})]:
    for axis in range(3):
        case(f, x, getattr(torch, f)(T(x), axis), axis=axis, **safe)
    case(f, big, getattr(torch, f)(T(big), 1), axis=1, **safe)
    case(f, np.zeros((2, 0)), np.zeros((2, 0)), axis=1, **safe)
case("softmax", big, torch._safe_softmax(T(big), 1), axis=1, safe=True)

for shape in [(4, 3), (2, 3, 3), (1, 3, 2, 2)]:
    x, w = rand(*shape), abs(rand(shape[1])) + 0.1
    target = rng.integers(0, shape[1], shape[:1] + shape[2:])
    ignored = target.copy()
    ignored.reshape(-1)[[0, 2 % ignored.size]] = -100
    if len(shape) == 4:
        ignored = target
    for reduction, tg, ww, s in itertools.product(["none", "mean", "sum"][:5 - len(shape)] if len(shape) > 2 else ["none", "mean", "sum"], [target, ignored][len(shape) // 4:], [None, w], [0.0, 0.2]):
        out = F.cross_entropy(T(x), T(tg), weight=None if ww is None else T(ww), reduction=reduction, label_smoothing=s)
        case("cross_entropy", (x, tg), out, scale=1, reduction=reduction, weight=ww, ignore_index=-100, label_smoothing=s)
x, tg = rand(3, 4), np.array([1, 2, 1], np.int32)
case("cross_entropy", (x, tg), F.cross_entropy(T(x), T(tg).long(), ignore_index=1), scale=1, reduction="mean", ignore_index=1, label_smoothing=0.0)
case("cross_entropy", (x, tg * 0 + 1), np.asarray(NAN), reduction="mean", ignore_index=1, label_smoothing=0.0)
x = np.array([[-INF, 0.0, 1.0]])
case("cross_entropy", (x, np.array([2])), F.cross_entropy(T(x), torch.tensor([2])), scale=1, reduction="mean", ignore_index=-100, label_smoothing=0.0)

for shape, sizes in [((1, 2, 5), [8]), ((2, 1, 4, 6), [2, 9]), ((1, 1, 3, 2, 4), [2, 4, 4]), ((1, 1, 7), [3])]:
    x = rand(*shape)
    case("interpolate", x, F.interpolate(T(x), size=sizes, mode="nearest"), sizes=sizes)
    case("adaptive_avg_pool", x, [F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d][len(sizes) - 1](T(x), sizes), scale=1, sizes=sizes)
x = rng.integers(0, 200, (1, 1, 3)).astype(np.uint8)
case("interpolate", x, x[:, :, [0, 0, 1, 1, 2, 2]], sizes=[6])

POOLS = [((1, 2, 7), [3], [2], [1], [1]), ((2, 1, 6, 5), [2, 3], [2, 2], [1, 0], [1, 1]), ((1, 1, 7, 8), [3, 2], [2, 3], [1, 1], [2, 1]),
         ((1, 1, 3, 4, 3), [2, 2, 3], [2, 3, 2], [1, 0, 1], [1, 1, 1]), ((1, 1, 5), [2], [3], [1], [1]), ((1, 1, 6), [2], [4], [1], [1])]
for (shape, win, st, pad, dil), ceil in itertools.product(POOLS, [False, True]):
    r = len(win)
    x = rand(*shape)
    out = [F.max_pool1d, F.max_pool2d, F.max_pool3d][r - 1](T(x), win, st, pad, dil, ceil)
    case("max_pool", x, out, window=win, strides=st, padding=pad, dilation=dil, ceil_mode=ceil)
    for include in [False, True]:
        out = [F.avg_pool1d, F.avg_pool2d, F.avg_pool3d][r - 1](T(x), win, st, pad, ceil, include)
        case("avg_pool", x, out, scale=1, window=win, strides=st, padding=pad, ceil_mode=ceil, count_include_pad=include)
    if r > 1:
        out = [F.avg_pool2d, F.avg_pool3d][r - 2](T(x), win, st, pad, ceil, False, 5)
        case("avg_pool", x, out, scale=1, window=win, strides=st, padding=pad, ceil_mode=ceil, count_include_pad=False, divisor_override=5)
x = np.array([[[[1.0, NAN, -INF, -INF, -INF, 2.0]]]])
case("max_pool", x, F.max_pool2d(T(x), (1, 2), 1), window=[1, 2], strides=[1, 1], padding=[0, 0], dilation=[1, 1], ceil_mode=False)
x = ints("i64", 1, 1, 4, 4)
case("max_pool", x, F.max_pool2d(T(x), 2, 1, 1), window=[2, 2], strides=[1, 1], padding=[1, 1], dilation=[1, 1], ceil_mode=False)

x = rand(2, 3, 4)
for dims, keep in itertools.product([[1], [0, 2], [2, 0, 1]], [False, True]):
    case("mean", x, T(x).mean(dims, keep), scale=1, dims=dims, keep_dims=keep)
    for c in [1.0, 0.0, 2.5]:
        case("var", x, torch.var(T(x), dims, correction=c, keepdim=keep), scale=1, dims=dims, keep_dims=keep, correction=c)
        case("std", x, torch.std(T(x), dims, correction=c, keepdim=keep), scale=1, dims=dims, keep_dims=keep, correction=c)
case("mean", x, x, dims=[], keep_dims=False)
case("mean", np.zeros((2, 0)), np.full(2, NAN), dims=[1], keep_dims=False)
y = np.array([[1.5], [2.5]])
case("var", y, torch.var(T(y), [1], correction=1), dims=[1], keep_dims=False, correction=1.0)
case("var", rand(2, 3) * 0 + np.array([1.0, 2.0, 4.0]), np.full(2, INF), dims=[1], keep_dims=False, correction=5.0)

# ---- attention
def attention(b, h, g, q, k, d, e, bias=None, causal=False, scale=None, ql=None, kl=None, key=None, p=0.0, score=None, mask=None, check=True):
    Q, K, V = T(rand(b, h, q, d)), T(rand(b, g, k, d)), T(rand(b, g, k, e))
    bias_t = None if bias is None else rand(*bias)
    ratio = h // g
    s = Q @ K.repeat_interleave(ratio, 1).transpose(2, 3) * (scale if scale is not None else d**-0.5)
    if bias_t is not None:
        s = s + T(bias_t)
    B, H, I, J = torch.meshgrid(*(torch.arange(n) for n in (b, h, q, k)), indexing="ij")
    if score == "alibi":
        s = s + 0.25 * (H + 1) * (J - I) + B
    if score == "softcap":
        s = 2 * torch.tanh(s / 2)
    seen = torch.ones_like(s, dtype=torch.bool)
    if causal:
        seen &= J <= I
    if kl is not None:
        seen &= J < torch.tensor(kl)[B]
    if mask == "window":
        seen &= (I - J).abs() <= 1 + H
    if mask == "odd":
        seen &= (B + J) % 2 == 1
    s = s.masked_fill(~seen, -INF)
    row = torch.ones(b, h, q, dtype=torch.bool) if ql is None else I[..., 0] < torch.tensor(ql)[B[..., 0]]
    lse = torch.logsumexp(s, -1).masked_fill(~row, -INF)
    w = torch.softmax(s, -1).nan_to_num(0.0)
    if key is not None:
        u = torch.tensor([(v >> 8) * 2.0**-24 for v in words(key, b * h * q * k)], dtype=torch.float64).reshape(b, h, q, k)
        w = torch.where(u >= p, w / (1 - p), 0.0)
    out = (w @ V.repeat_interleave(ratio, 1)).masked_fill(~row[..., None], 0.0)
    if score is None and mask is None and ql is None and kl is None and key is None and not (causal and bias):
        t = F.scaled_dot_product_attention(Q, K, V, attn_mask=None if bias_t is None else T(bias_t), is_causal=causal, scale=scale, enable_gqa=True)
        assert torch.allclose(t, out, atol=1e-12, rtol=1e-12)
    elif ql is None and kl is None and key is None and bias is None and not causal and e == d:
        from torch.nn.attention.flex_attention import flex_attention, create_block_mask
        score_mod = {"alibi": lambda s, b, h, i, j: s + 0.25 * (h + 1) * (j - i) + b, "softcap": lambda s, b, h, i, j: 2 * torch.tanh(s / 2), None: None}[score]
        mask_mod = {"window": lambda b, h, i, j: (i - j).abs() <= 1 + h, "odd": lambda b, h, i, j: (b + j) % 2 == 1, None: None}[mask]
        block = None if mask_mod is None else create_block_mask(mask_mod, b, h, q, k, device="cpu")
        t, l = flex_attention(Q, K, V, score_mod=score_mod, block_mask=block, scale=scale, enable_gqa=True, return_lse=True)
        assert torch.allclose(t, out, atol=1e-9, rtol=1e-9) and torch.allclose(l.double(), lse, atol=1e-6, rtol=1e-6), "flex_attention"
    integers = lambda v: None if v is None else np.array(v)
    case("attention", (Q, K, V), (out, lse), scale=1, bias=bias_t, causal=causal, softmax_scale=scale, query_lengths=integers(ql), key_lengths=integers(kl), dropout_key=key, dropout_p=p, score=score, mask=mask)


attention(2, 2, 2, 3, 4, 3, 2)
attention(1, 4, 2, 3, 3, 2, 2, causal=True)
attention(1, 4, 1, 4, 2, 2, 3, causal=True, scale=0.3)
attention(1, 2, 2, 2, 5, 2, 2, causal=True)
attention(1, 2, 1, 3, 4, 2, 2, bias=(1, 2, 3, 4))
attention(2, 2, 1, 3, 4, 2, 2, bias=(2, 1, 1, 4), scale=1.0)
attention(1, 2, 2, 3, 4, 2, 2, bias=(3, 4), causal=True)
attention(2, 2, 2, 3, 4, 2, 2, ql=[3, 1], kl=[2, 4])
attention(3, 1, 1, 2, 3, 2, 2, ql=[0, 9, 1], kl=[3, 0, 9])
attention(1, 2, 1, 3, 4, 2, 2, key=np.array([42, 7]), p=0.4)
attention(2, 2, 2, 3, 3, 2, 2, score="alibi", mask="window")
attention(2, 2, 1, 3, 3, 2, 2, score="softcap")
attention(2, 2, 1, 3, 3, 2, 2, mask="odd")
attention(1, 2, 2, 3, 1, 2, 2, mask="odd")
attention(2, 2, 1, 3, 4, 2, 2, bias=(2, 1, 3, 4), causal=True, ql=[2, 3], kl=[4, 3], key=np.array([1, 2]), p=0.25, score="alibi", mask="window")
