"""Reductions, scans, sorts and norms, by the names of PyTorch's tests."""

import math

import torch
import torch.nn.functional as F
from torch._higher_order_ops.associative_scan import associative_scan

from .case import arange, bools, case, cast, channels_last, full, integers, laid, linspace, normal, ones, tensor, uniform, zeros

aten, inf, nan = torch.ops.aten, math.inf, math.nan
f64, f16, bf16, i32, i64 = torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64
EXTREMA = (aten.argmax, aten.argmin)


def chained(a):
    b = a + 1
    d = b.sum(-1) + 3
    return d.sum(-1) + 5, d, b


def small(x):
    found = [*x.min(-1), *x.max(-1), x.sum(-1), (x > 1).any(-1), (x > 0).all(-1), x.argmin(-1), x.argmax(-1), x.amin(-1), x.amax(-1)]
    return found, tuple(x.aminmax())


def positions(x):
    return [op(x, d) for op in EXTREMA for d in (0, 1)]


def column(*values):
    """A matrix with columns of NaN."""

    def make():
        x = torch.randn(9, 9)
        x[:, list(values)] = nan
        return x

    return make


def sorts(x):
    return [x.sort(dim=-1, stable=True, descending=d) for d in (False, True)]


def repeated(*shape):
    def make():
        x = torch.rand(shape)
        x[:, 2:5] = 1.0
        x[:, 7:9] = 1.0
        return x

    return make


def variances(x):
    return (
        torch.var(x),
        torch.var(x, -1),
        torch.var(x, -1, correction=0),
        torch.std(x, correction=0),
        torch.std(x, [0, 1]),
        torch.std(x, -2, keepdim=True),
    )


def with_counts(x):
    v = torch.var(x, [2], correction=0)
    return v, x.sum(2), v.reshape(1, -1, 1) + 1e-5


def layer(x, w, b):
    return F.layer_norm(x, x.shape[-1:], w, b)


def scan(combine, xs):
    return associative_scan(combine, xs, 0, combine_mode="generic")


def log_add(a, b):
    low, high = torch.minimum(a, b), torch.maximum(a, b)
    return high + (low - high).exp().log1p()


def greater(a, b):
    (x, i), (y, j) = a, b
    first = (x > y) | (x == y) & (i > j)
    return torch.where(first, x, y), torch.where(first, i, j)


def recurrence(left, right):
    (x, f), (y, g) = left, right
    return x * g + y, f * g


REDUCTIONS = {
    "sum1": case(lambda a, b: (a + b).sum(-1), [(8, 8), (8, 8)], rtol=1e-5, atol=1e-5),
    "sum2": case(lambda a, b: ((a + b).sum([1, 2]), (a + b).sum(-1)), [(4, 9, 3, 21), (4, 9, 3, 21)], rtol=1e-5, atol=1e-4),
    "sum3": case(lambda a, b: (r := a + b, r.sum(-1), b.squeeze() + 10), [(10, 10), (1, 10)], rtol=1e-5, atol=1e-5),
    "sum4": case(chained, [(1, 16, 8, 8)], rtol=1e-5, atol=1e-4),
    "sum5": case(lambda a: chained(a)[0], [(1, 17, 8, 9)], rtol=1e-5, atol=1e-4),
    "sum_keepdims": case(lambda a, b: (a + b).sum(-1, keepdim=True), [(8, 8), (8, 8)], rtol=1e-5, atol=1e-5),
    "reduction1": case(lambda a: (a.sum(), a.max(), a.min(), a.argmax(), a.argmin()), [tensor([-inf, 0.0, inf])]),
    "reduction2": case(lambda a: (a.sum(), a.max(), a.min()), [full((4,), inf)]),
    "reduction3": case(lambda a: (a.sum(), a.max(), a.min()), [full((4,), -inf)]),
    "reduction4": case(lambda a: (a.argmax(-1), a.argmin(-1)), [ones(128)], [ones(4, 4, 1)]),
    "reduction5": case(lambda a: (a.sum(), a.max(), a.min(), a.argmax()), [full((4,), -inf)]),
    "custom_scan_op": case(lambda x: (scan(torch.add, x), scan(log_add, x)), [(4, 7)], rtol=1e-5, atol=1e-5, alone=True),
    "custom_scan_op_compiled": case(lambda a, b: scan(torch.add, (a - b).abs()).sum(0), [(4, 7), (4, 7)], rtol=1e-4, atol=1e-4, alone=True),
    "custom_scan_op_multi_input": case(lambda x: scan(greater, (x, torch.arange(4).view(4, 1).expand(4, 7))), [(4, 7)], alone=True),
    "custom_scan_would_split": case(lambda x, f: scan(recurrence, (x, f)), [(5, 2), (5, 2)], rtol=1e-4, atol=1e-4, alone=True),
    "prod": case(lambda a: (a.prod(0), a.prod(1), a.prod()), [uniform(10, 10)], [lambda: torch.rand(1, 250) + 0.5], rtol=1e-5),
    "unroll_small_reduction": case(small, [(8, 3)]),
    "multilayer_sum_low_prec": case(torch.mean, [lambda: torch.rand(3, 52, 52).half()]),
    "multilayer_prime_size": case(lambda a: (a.max(), a.sum()), [lambda: torch.eye(1, 39971, dtype=i64)[0]]),
    "multilayer_var": case(torch.var, [uniform(3, 52, 52)], [uniform(4923)], rtol=1e-4),
    "multilayer_var_lowp": case(torch.var, [lambda: torch.rand(6, 52, 52).half()], [lambda: torch.rand(4923).half()]),
    "multilayer_any": case(
        lambda x: (x.isinf().any(), x.isfinite().all()), [uniform(3, 53, 53)], [lambda: torch.cat([torch.rand(999), torch.tensor([inf])])]
    ),
    "expanded_reduction": case(lambda x, y: (x * y).sum((0, 1)), [(2, 97, 56), (2, 1, 56)], rtol=1e-4, atol=1e-4),
    "min_max_reduction": case(
        lambda a, b: ((a + b).max(), (a + b).min(), torch.amax(a + 1, (0, 1), True), torch.amin(b + 1, (0, 1), True)),
        *([cast((8, 8), d)] * 2 for d in (torch.float32, f16, bf16)),
    ),
    "min_max_reduction_nan": case(lambda a: (a.max(), a.min()), [tensor([1.0, nan, 3.0])]),
    "sum_int": case(lambda x: 2 * x.sum(-1) + x.sum(), *([integers(0, 2, (64,), d)] for d in (torch.bool, torch.uint8, i32))),
    "sum_dtype": case(lambda x: x * x.sum(-1, dtype=f64) + x.sum(dtype=f64), [full((32, 32), 70.0)]),
    "no_op_reduction": case(lambda a: (a.sum(-1), (a + 1).amax(1, keepdim=True)), [(8, 1, 1)]),
    "issue102546": case(lambda x: x.mean(0), [uniform(())]),
    "zero_dim_reductions": case(
        lambda x: [op(x, 1, k) for op in (aten.sum, aten.prod, aten.any, aten.all) for k in (False, True)], [zeros(2, 0, dtype=f16)]
    ),
    "any": case(
        lambda x: (x.any(-1), x.isinf().any(), x.isinf().all(0), torch.logical_not(x.isinf()).all()),
        [lambda: -torch.rand(64)],
        [tensor([[1.0, inf], [0.0, 2.0]])],
    ),
    "large_tensor_reduction": case(torch.max, [lambda: torch.arange(2**12, dtype=torch.int8)]),
    "large_broadcast_reduction": case(
        lambda a, b: (a + b).max(), [lambda: torch.arange(64, dtype=torch.int8).view(1, 64), lambda: torch.arange(63, dtype=torch.int8).view(63, 1)]
    ),
    "not_materialize_pointwise_reduction": case(lambda a, b: (a - b).sum(-1).amax(-1), [(16, 1, 7), (1, 16, 7)], rtol=1e-5, atol=1e-5),
    "split_reduction_dynamic_shape": case(lambda x: x.sum(0), [(196, 52)], rtol=1e-4, atol=1e-4),
    "evict_last_non_coalesced_loads": case(
        lambda a, b: (a * b).sum(-1),
        [laid((6, 7, 8), lambda t: t.permute(2, 1, 0)), laid((6, 8, 7), lambda t: t.permute(1, 2, 0))],
        rtol=1e-5,
        atol=1e-5,
    ),
    "cumsum": case(lambda x: (x.cumsum(0), x.cumsum(1)), [uniform(16, 32)], [uniform(5, 400)], rtol=1e-5, atol=1e-5),
    "cumsum_zero_dim": case(lambda x: (x.cumsum(0), x.cumsum(-1)), [uniform(())]),
    "cumsum_no_mask": case(lambda x: x.cumsum(-1), [uniform(1, 1024)], rtol=1e-5, atol=1e-5),
    "cumprod_zero_dim": case(lambda x: (x.cumprod(0), x.cumprod(-1)), [uniform(())]),
    "cumsum_inf": case(lambda x: x.cumsum(-1), [full((2, 100), inf, dtype=f64)], [full((2, 10), inf, dtype=f64)]),
    "cumsum_pattern_matcher_issue": case(lambda x: torch.ones(*x.view(-1, x.shape[-1]).shape).long().cumsum(1), [(2, 3)]),
    "cummin": case(lambda x: (*x.cummin(0), *x.cummax(0)), [uniform(16, 32)], [uniform(1)], [uniform(0)]),
    "logcumsumexp": case(lambda x: (x.logcumsumexp(0), x.logcumsumexp(1)), [uniform(16, 32)], [uniform(3, 400)], rtol=1e-5, atol=1e-5),
    "logcumsumexp_zero_dim": case(lambda x: (x.logcumsumexp(0), x.logcumsumexp(-1)), [uniform(())]),
    "split_cumsum": case(
        lambda a: (a.view(-1).cumsum(-1), a.cumsum(-1)),
        *([integers(0, 3, (3, 900), d)] for d in (torch.float32, f64, torch.bool, torch.uint8, torch.int8, torch.int16, i32, i64)),
    ),
    "split_cumsum_low_prec": case(lambda a: a.view(-1).cumsum(0), [lambda: torch.rand(3, 52).half()], rtol=1e-2),
    "consecutive_split_cumsum": case(
        lambda a, b: a.view(-1).cumsum(0) + b.view(-1).cumsum(0), [uniform(3, 300), uniform(3, 300, dtype=f64)], rtol=1e-5
    ),
    "split_cumprod": case(
        lambda a: a.cumprod(-1),
        [lambda: torch.rand(3, 300) * 0.2 + 0.9],
        [lambda: torch.randint(0, 2, (3, 300)) * 2 - 1],
        [lambda: torch.randint(0, 2, (3, 300), dtype=i32) * 2 - 1],
        rtol=1e-4,
    ),
    "split_cumprod_low_prec": case(
        lambda a: a.view(-1).cumprod(0), *([lambda d=d: (torch.rand(30) * 0.2 + 0.9).to(d)] for d in (f16, bf16)), rtol=3e-2, atol=1e-2
    ),
    "consecutive_split_cumprod": case(
        lambda a, b: a.cumprod(0) + b.cumprod(0), [lambda: torch.rand(200) * 0.2 + 0.9, lambda: torch.rand(200).double() * 0.2 + 0.9], rtol=1e-4
    ),
    "logsumexp": case(lambda x: (x.logsumexp(-1), x.logsumexp(0) - 2), [(8, 8)], rtol=1e-5, atol=1e-5),
    "dist": case(lambda a, b: (torch.dist(a, b), torch.dist(a, b, p=1.2)), [(4, 4), (4, 4)], rtol=1e-5),
    "dist_bf16": case(lambda a, b: torch.dist(a.bfloat16(), b.bfloat16()), [(4, 4), (4, 4)]),
    "norm_constant_overflow": case(lambda a: (a.norm(p=-41.0, dim=1), a.norm(p=-41.0, dim=0)), [lambda: torch.rand(4, 1, 4) + 0.5], rtol=1e-4),
    "mean": case(lambda x: (x.mean(), x.mean(-1), x.mean(-2, keepdim=True), x.mean([0, 1])), [(1, 2, 4, 8)], rtol=1e-5, atol=1e-6),
    "var_mean": case(lambda x: (*torch.var_mean(x, -1), *torch.var_mean(x, [1, 3])), [(1, 2, 4, 8)], rtol=1e-5, atol=1e-5),
    "var_mean_div_by": case(lambda x: (v := torch.var_mean(x, dim=2, keepdim=True), x / v[0]), [uniform(1, 17, 248)], rtol=1e-4, atol=1e-5),
    "var_correction": case(lambda x: [torch.var(x, dim=-1, correction=c) for c in (1.3, 3, 10)], [(2, 8)], [(2, 4)], rtol=1e-5, atol=1e-5),
    "std": case(variances, [(2, 4, 4, 8)], rtol=1e-5, atol=1e-5),
    "tmp_not_defined_issue1": case(with_counts, [(1, 12, 24)], rtol=1e-5, atol=1e-5),
    "argmax_min_int32": case(lambda a, b: torch.min(b, a.argmax(3)), [integers(0, 1, (3, 4, 2, 1), i32), integers(0, 1, (2, 2, 1, 4, 1), i32)]),
    "argmax_argmin1": case(lambda x: (x.argmax(), x.argmin()), [(8, 26, 26)]),
    "argmax_argmin2": case(positions, [(44, 44)]),
    "argmax_argmin3": case(lambda x: [op(x, d) for op in EXTREMA for d in (0, -1)], [lambda: torch.randperm(64 * 9).view(64, 9)]),
    "argmax_argmin_with_duplicates": case(positions, [integers(0, 2, (6, 6))], [integers(0, 8, (32, 32))]),
    "argmax_argmin_with_nan": case(positions, [column(1, 3)]),
    "adaptive_avg_pool1d_argmax": case(lambda x: torch.adaptive_avg_pool1d(x, 2).argmax(), [uniform(4, 4, 3, dtype=f64)]),
    "sort": case(lambda a: torch.sort(a), [lambda: torch.randperm(64).view(1, 1, 8, 8).float()]),
    "sort_stable": case(sorts, [repeated(10, 28)], [lambda: repeated(10, 28)()[:, :20]]),
    "sort_bool": case(lambda a: sorts(a.to(torch.int8)), [bools(10, 28)]),
    "sort_transpose": case(sorts, [laid((28, 10), lambda t: t.transpose(0, 1))]),
    "size_asserts_for_multi_output_fallback": case(lambda x: x.sort(), [(16, 32)]),
    "topk": case(lambda a: a.topk(2, -1), [lambda: torch.randperm(64).view(1, 1, 8, 8).float()]),
    "triu": case(lambda a: (a.triu(1), a.triu(0), a.triu(2)), [(2, 10, 10)]),
    "kwargs": case(lambda x, y: torch.histogramdd(x.cpu(), bins=[3, 3], weight=y.cpu()), [(4, 2), (4,)], dynamic=False),
    "layer_norm": case(lambda x, w, b: layer(x, w, b).relu(), [(16, 32), (32,), (32,)], rtol=1e-4, atol=1e-5),
    "layer_norm_inplaces_after_matmul": case(lambda x, w, a, b: layer(x @ w, a, b), [(2, 5, 24), (24, 24), (24,), (24,)], rtol=1e-4, atol=1e-4),
    "matmul_layer_norm": case(lambda x, w, a, b: layer(x @ w, a, b), [(2, 5, 24), (24, 24), (24,), (24,)], gradients=True, rtol=1e-3, atol=1e-4),
    "donated_buffer_inplace": case(
        lambda x, w, a, b: layer(x @ w, a, b).sin(), [(2, 5, 24), (24, 24), (24,), (24,)], gradients=True, rtol=1e-3, atol=1e-4
    ),
    "batch_norm_2d": case(
        lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b).relu(), [(2, 10, 8, 8), zeros(10), ones(10), (10,), (10,)], rtol=1e-4, atol=1e-5
    ),
    "batch_norm_2d_2": case(
        lambda x, k, m, v, w, b: F.leaky_relu_(F.batch_norm(F.conv2d(x, k, stride=2, padding=1), m, v, w, b, True, 0.03, 1e-4), 0.1),
        [(2, 6, 12, 10), (8, 6, 3, 3), zeros(8), ones(8), (8,), (8,)],
        rtol=1e-4,
        atol=1e-4,
    ),
    "nll_loss_forward": case(
        lambda a, b: aten.nll_loss_forward(a, b, None, 1, -100), [(5, 5), zeros(5, dtype=i64)], [(5, 5), tensor([-100, -100, 3, -100, -100])]
    ),
    "nll_loss_backward": case(
        lambda a, b, c: aten.nll_loss_backward(a, b, c, None, 1, -100, torch.tensor(1.0)),
        [(), (5, 5), zeros(5, dtype=i64)],
        [(), (5, 5), tensor([-100, -100, 3, -100, -100])],
    ),
    "pattern_matcher_multi_user": case(
        lambda x, y: (F.cross_entropy(x / 64, y, ignore_index=5), (x / 64).logsumexp(-1)),
        [(12, 96), integers(0, 95, (12,))],
        gradients=True,
        rtol=1e-5,
        atol=1e-5,
    ),
}
