"""Views, slices, concatenations, paddings and results that share memory, by the names of PyTorch's tests."""

import torch
import torch.nn.functional as F

from .case import arange, bools, case, cast, channels_last, integers, laid, normal, ones, tensor, uniform, zeros

aten = torch.ops.aten
f64, f16, bf16, i32, i64, u8 = torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8
END = 2**63 - 1
RESHAPES = [
    ([35], [5, 7]),
    ([720], [2, 3, 4, 5, 6]),
    ([6, 4, 30], [2, 3, 4, 5, 6]),
    ([50, 4], [10, 5, 4]),
    ([1, 10, 1], [10]),
    ([4, 1, 4, 1, 4], [4, 16]),
    ([2] * 4, [4, 4]),
]


def reshaped(size):
    return lambda x, y: (x.view(size) + y, (x + 1).view(size) + y)


def slices(a):
    b = a + 1
    return a[:, :10, 0] + a[:, 10:, 0], b[:, :10, 0] + b[:, 10:, 0], a[:, -30:, 0], a[:, :-30, 0]


def empty_slices(a):
    n = a.shape[0]
    return aten.slice(a, 0, 2, 0), aten.slice(a, 0, n, n + 10), aten.slice(a, 0, -20, 0), aten.slice(a, 0, -20, -16)


def cats(a):
    t = a * 2
    return torch.cat((a, a[:, :4] + 1, a + 2), -1), torch.cat((t, t), 0), torch.cat((t, t.double()), 0)


def bits(x, y):
    """Elements read as another dtype, behind arithmetic and before it."""
    return [v for d in (i32, torch.float32, torch.int16, bf16, f16, u8) for v in ((x + 1).view(d), y.view(d) + 1)]


def longformer(scores, window):
    """Diagonals of blocks through a padded view that is written."""
    n, chunks = scores.shape[0], scores.shape[1]
    wide = scores.new_zeros(n, chunks + 1, window, window * 2 + 1)
    wide[:, :-1, :, window:] = scores[:, :, :window, : window + 1]
    out = wide.view(n, 1, (chunks + 1) * window, 2 * window + 1).transpose(2, 1)
    first = out[:, :window, :, : window + 1]
    out[:, :window, :, : window + 1] = torch.full_like(first, -float("inf"))
    return out


def same_padding(x, k, s):
    missing = [max((-(-n // s) - 1) * s + k - n, 0) for n in x.shape[-2:]]
    h, w = missing
    return F.pad(x, [w // 2, w - w // 2, h // 2, h - h // 2]) if h > 0 or w > 0 else x


VIEWS = {
    "views1": [case(reshaped(b), [tuple(a), tuple(b)]) for p in RESHAPES for a, b in (p, p[::-1])],
    "views2": [
        case(lambda x, s=s: (x.view(s) + 1, (x * 2).view(s) + 1), [n])
        for n, s in (((2, 2, 2, 2), [4, -1]), ((4, 1, 4, 1, 4), [-1, 16]), ((50, 4), [10, -1, 4]))
    ],
    "views3": case(lambda x, i: x[i].view(1, 36, 64).view(1, 12, 3, 64), [(8, 64), integers(0, 8, (36,))]),
    "views4": case(lambda x, i: x.index_select(0, i).view(2, 3, 4, 5, 5).view(2, 3, 2, 10, -1), [(12, 5, 5), integers(0, 11, (24,))]),
    "views5": case(lambda x: (y := x[:, 4:], y.view(4, -1, 4)), [(4, 4, 4, 4)]),
    "views6": case(lambda x: aten.slice(x.relu()[:, :], 3, 0, 0).view(4, 2, -1), [(4, 2, 4, 4)]),
    "views7": case(lambda x, y: ((x + 1).view(i32), (y + 1).view(torch.float32)), [(2, 3), integers(0, 10, (2, 3), i32)]),
    "transpose": case(lambda a, b: (a.t() + b, (b * 2).transpose(0, 1) + 10), [(8, 8), (8, 8)]),
    "permute1": case(lambda a: ((a + 1).permute(2, 1, 4, 0, 3) + 2, a.permute(2, 1, 4, 0, 3) + 2), [(2, 3, 4, 2, 2)]),
    "permute2": case(lambda a: a.unfold(0, 2, 1).unsqueeze(1).permute(0, 2, 3, -3), [(4, 4)]),
    "expand": case(lambda a: ((a + 1).expand(3, 4, 2, 3, 2) + 2, a.expand(2, 1, 2, 3, 2) + 2, a.expand(2, -1, 5, -1)), [(2, 1, 2)]),
    "squeeze1": case(lambda a: ((a + 1).squeeze() + 2, a.squeeze() + 2), [(1, 2, 1, 2, 2, 1, 1)]),
    "squeeze2": case(lambda a: ((a + 1).squeeze(-1).squeeze(2) + 2, a.squeeze(0) + 2), [(1, 2, 1, 2, 2, 2, 1)]),
    "squeeze_varargs": case(lambda x: x.squeeze((1, 2)).clone(), [(24, 1, 1)]),
    "simplify_loops": case(torch.add, [(2, 3, 4, 5, 6), laid((4, 2, 3, 5, 6), lambda t: t.permute(1, 2, 0, 3, 4))]),
    "unsqueeze": case(lambda a: ((a + 1).unsqueeze(-1) + 2, a.unsqueeze(2) + 2, (a + 1).unsqueeze(0) + 2, a.unsqueeze(-2) + 2), [(2, 3, 2, 2)]),
    "unsqueeze_inplace": case(lambda a: ((t := a + 1).unsqueeze_(2), (a + 1).unsqueeze_(0) + 2, t), [(2, 3, 2)]),
    "view_detach": case(lambda a: a[0].detach(), [lambda: torch.randn(4, 4, requires_grad=True)]),
    "aliased_buffer_reuse": case(
        lambda x, y: (c := torch.cat([x * 2, y * 2], -1) + 1, (c @ c)[:, :2] + x * 2), [(4, 2), (4, 2)], rtol=1e-5, atol=1e-5
    ),
    "slice1": case(slices, [(2, 20, 2)]),
    "slice2": case(lambda a: (a[:-1, ::2, -1] + a[-1:, 1::2, -2], (a + 1)[:-1, ::2, -1] + (a + 2)[-1:, 1::2, -2]), [(2, 20, 2)]),
    "slice3": case(lambda a, b: aten.slice(a, 0, 0, -b), [(8, 3, 5), 2]),
    "slice4": case(empty_slices, [(10,)]),
    "split_with_list": [case(lambda a, n=n: [t + 1.0 for t in (a * 2.0).split(n, -1)], [(2, 2, 10)]) for n in ([3, 3, 4], [4, 3, 3], [1, 2, 3, 4])],
    "split_with_integer": [case(lambda x, n=n: x.split(n, -1), [(2, k)]) for k, n in ((10, 5), (12, 4), (10, 3))],
    "split": case(lambda a: (a.split(3, -1), (a + 1).split(3, -1)), [(2, 2, 10)]),
    "split_op_with_sym": case(lambda x: (x.split(x.shape[0]), x.split(x.shape[0] // 2)), [(5, 5)]),
    "unbind": case(lambda a: (a.unbind(), a.unbind(-1)), [(4, 3, 4)]),
    "repeat": case(lambda x: (x.repeat(0, 1, 1, 1), x.repeat(2, 2, 3, 1), x.repeat(8, 1, 1, 1), x.repeat(2, 1, 1, 1, 1, 1)), [(1, 2, 4, 8)]),
    "repeat_as_strided": case(lambda x: (r := x.repeat((3, 2)), torch.as_strided(r, (3, 2), r.stride()) * 2)[1], [(1, 1)]),
    "repeat_interleave": case(
        lambda x: (x.repeat_interleave(2), x.repeat_interleave(3, dim=0), x.repeat_interleave(x.size(1), dim=1)), [(1, 2, 4, 8)]
    ),
    "cat": case(cats, [(8, 16)], [channels_last(1, 3, 3, 16)]),
    "cat_uint8": case(lambda x: torch.cat([x.new_zeros(1).expand(x.shape[0], 1), x], -1), [integers(0, 256, (3, 255), u8)]),
    "cat_empty": case(lambda *ts: torch.cat(ts), [(1, 3, 3, 6), ones(0)], [(1, 3, 3, 6), ones(0), (1, 3, 3, 6)], [ones(0), (1, 3, 3, 6)]),
    "cat_empty_index": case(lambda out, x: torch.cat([out[0], x]), [(1, 0, 64), (8, 64)]),
    "cat_negative_dim": case(lambda *ts: torch.cat(ts, -1), [(2, 3), (2, 4)], [(2, 3), (0,), (2, 4)], [(0,), (2, 3), (2, 4)]),
    "cat_single_empty": case(lambda *ts: torch.cat(ts), [ones(0)]),
    "cat_upcasting": case(lambda a, b: torch.cat([a, b], 1), [(8, 16), cast((8, 20), f16)]),
    "cat_extern_kernel": case(
        lambda a, b, c, d: torch.cat([torch.mm(torch.mm(b, c)[:, :10], d), a], 1), [(16, 16), (16, 24), (24, 30), (10, 16)], rtol=1e-4, atol=1e-4
    ),
    "cat_of_loops_and_extern_kernel": case(
        lambda x, y, w: torch.cat([F.conv2d(x, w), F.max_pool2d(y, 2)], 1),
        [channels_last(1, 6, 8, 8), channels_last(1, 6, 16, 16), (5, 6, 1, 1)],
        rtol=1e-4,
        atol=1e-5,
    ),
    "cat_inplace": case(lambda x: (torch.cat([x]), x.sin_())[0], [ones(2)]),
    "stack": case(lambda a, b: torch.stack([a.expand(12, 16), b.expand(12, 16)], 2), [(1, 16), (12, 1)]),
    "flip": case(lambda x: (x.flip(-1), x.flip(0, 2) - 2), [(1, 2, 6, 6)]),
    "flip_cat": case(lambda a, b: torch.cat([a, b], 1).view(4)[:3].flip(0), [(2, 1), (2, 1)], gradients=True),
    "roll": case(lambda a: (a.roll([-3, 10], [1, 2]), a.roll([5])), [(2, 16, 16, 4)]),
    "narrow": case(lambda x: (x.narrow(1, 10, 16), (x + 2).narrow(0, 10, 16) + 1, torch.narrow_copy(x, 1, 10, 16)), [(32, 32)]),
    "expand_as": case(lambda a, b: (a.expand_as(b), (a + 1).expand_as(b + 1) + 1), [(6, 1, 10), (6, 12, 10)]),
    "diagonal_copy": case(torch.diagonal_copy, [(2, 3)], [(2, 2)], [(3, 2)]),
    "unfold_zero_dimension_tensor": case(lambda x: torch.unfold_copy(x, 1, 0, 7), [(1, 0)]),
    "constant_pad_1d": case(lambda a: (F.pad(a, [0, 1], value=6.0), F.pad(a, [2, 3], value=99.0)), [(2, 16, 31)]),
    "constant_pad_2d": case(lambda a: (F.pad(a, [1, 1, 1, 1], value=6.0), F.pad(a, [1, 2, 3, 4], value=99.0)), [(1, 1, 8, 8)]),
    "constant_pad_3d": case(lambda a: (F.pad(a, [1, 2, 3, 4, 5, 6], value=6.0), F.pad(a, [0, 0, 3, 4, 0, 0], value=6.0)), [(2, 4, 4, 4)]),
    "constant_pad_float64": case(lambda x: F.pad(x, (1, 0)) > x, [normal(1, 2, 2, 1, dtype=f64)]),
    "constant_pad_nd_inplace": case(lambda a: aten.constant_pad_nd(a, [0, 0]), [(2,)]),
    "pad_view": case(lambda a: (y := F.pad(a, (0, 0, 0, 1)), y.view(*y.size()[:-2], y.size(-1), y.size(-2)))[1], [uniform(4, 3, 8, 8)]),
    "pad_single": case(lambda a: F.pad(a, (10, 10)), [(1, 1, 1)]),
    "pad_cast": case(lambda x: F.pad(x.float(), (0, 3, 0, 0)), [ones(1, 1, 13, dtype=i32)], [ones(1, 1, 13, dtype=i64)]),
    "graph_partition_pad_dynamic": case(lambda x: same_padding(x, 5, 2), [(2, 4, 11, 14)], alone=True),
    "insignificant_strides": case(lambda x: (x + 1).view(-1, 1, 2), [arange(8.0)]),
    "remove_noop_view_default": case(lambda x: x.transpose(1, 2).reshape(x.shape[0], 2, 3), [(2, 3, 2)], [(4, 3, 2)]),
    "remove_noop_view_dtype": case(lambda x: x.transpose(1, 2).view(u8), [ones(2, 3, 2, dtype=u8)]),
    "remove_noop_slice": case(lambda x: aten.slice(x + 1, -1, 0, x.shape[-1]) + 1, [(2, 3, 2)]),
    "remove_noop_slice1": case(lambda x: aten.slice(x + 1, -1, 0, -1) + 1, [(2, 3, 2)]),
    "remove_noop_slice_scatter": case(lambda x: aten.slice_scatter(torch.zeros_like(x), x + 1, -1, 0, x.shape[-1]) + 1, [(2, 3, 2)]),
    "dtypeview": case(bits, [(2, 4), integers(0, 99, (2, 4), i32)], [cast((2, 8), bf16), integers(0, 99, (2, 8), torch.int16)], dynamic=False),
    "reinterpret_dtypeview": case(lambda x, y: (x.view(10, 10).view(i32), y.view(i32).view(10, 10)), [(100, 1), (100, 1)]),
    "view_uint8_through_differing_bitwidths": [
        case(lambda x, d=d: x.view(d).view(u8), [integers(0, 16, (8, 16), u8)]) for d in (torch.int16, i32, i64)
    ],
    "dtype_sympy_expr": case(lambda a: a[..., :-1, :].contiguous(), [(1, 2, 16, 4)], gradients=True),
    "large_grid": case(lambda x: x.reshape(-1, 2, 4).permute(0, 2, 1).clone(memory_format=torch.contiguous_format), [(999, 8)]),
    "getitem": case(lambda xs: xs[["p3", "p4", "p5"].index("p5")], [[(1, 4, 5), (1, 4, 3), (1, 4, 2)]]),
    "AllenaiLongformerBase_repro": case(longformer, [(6, 3, 8, 9), 4], dynamic=False),
    "inductor_detach_view": case(lambda x: (a := x * 2, a.detach()), [(2, 2)], gradients=True),
    "chunk_recompiles": [case(lambda x: x.chunk(4), *([(n,)] for n in (4, 8, 12, 20, 11, 10, 9)), alone=True)],
    "resize": case(
        lambda x: (aten.resize(x, (1, 3, 2, 3)), aten.resize(x, (1, 3, 2, 3), memory_format=torch.channels_last)),
        [(100,)],
        [(1, 3, 2, 3)],
        [lambda: torch.randn(100)[::2].reshape(25, 2).t()],
        dynamic=False,
    ),
    "resize_as": case(
        lambda x, y: aten.resize_as(x, y, memory_format=torch.preserve_format),
        [(100,), (1, 3, 2, 3)],
        [(100,), channels_last(1, 3, 2, 3)],
        dynamic=False,
    ),
}
