"""Pools, convolutions and resampling, by the names of PyTorch's tests."""

import torch
import torch.nn.functional as F

from .case import case, cast, channels_last, uniform

aten = torch.ops.aten
pool, avg = aten.max_pool2d_with_indices, aten.avg_pool2d
CLOSE = {"rtol": 1e-4, "atol": 1e-4}
DOWN = lambda: -torch.arange(64.0).view(1, 1, 8, 8)


def pooled_back(shape, *how):
    """The gradient of a pool with indices."""

    def make():
        y, i = pool(x := torch.randn(shape), *how)
        return [torch.randn_like(y), x, i]

    return case(lambda g, x, i: aten.max_pool2d_with_indices_backward(g, x, *how, i), make, **CLOSE)


def averaged_back(op, shape, out, *how):
    return case(lambda g, x: op(g, x, *how), [out, shape], **CLOSE)


def adaptive(op, *sizes):
    return lambda x: [op(x + k, s) for k, s in enumerate(sizes)]


def offsets(kernel, stride, padding, dilation):
    def fn(x):
        prims, d = torch.ops.prims, len(kernel)
        values, where = prims._low_memory_max_pool_with_offsets(x, kernel, stride, padding, dilation, False)
        return values, prims._low_memory_max_pool_offsets_to_indices(where, kernel, x.shape[-d:], stride, padding, dilation=dilation)

    return fn


def convolved_back(rank, mask=(True, True, True)):
    one = [1] * rank
    sizes = [3] * rank
    return case(
        lambda g, x, w: [t for t in aten.convolution_backward(g, x, w, [4], one, [0] * rank, one, False, [0] * rank, 1, list(mask)) if t is not None],
        [(3, 4, *sizes), (3, 4, *[5] * rank), (4, 4, *sizes)],
        **CLOSE,
    )


def reflected_back(shape, padding):
    def make():
        x = torch.randn(shape)
        return [torch.randn_like(aten.reflection_pad2d(x, padding)), x]

    return case(lambda g, x: aten.reflection_pad2d_backward(g, x, padding), make)


def nearest(op, sizes, *rest):
    return lambda a: [op(a, s, *rest) for s in sizes]


def relu_conv(x, w, b):
    return F.conv2d(x, w, b).relu()


POOLING = {
    "low_memory_max_pool": [
        case(offsets(k, [2] * d, [1] * d, [n] * d), [(1, 3, *[10] * d)], since=(2, 8)) for d, k in ((2, [3, 3]), (3, [3, 3, 2])) for n in (1, 2)
    ],
    "max_pool2d1": case(lambda x: pool(x, [3, 3], [2, 2]), [(2, 4, 16, 16)]),
    "max_pool2d2": case(lambda x: pool(x, [3, 3], [2, 2]), [(3, 6, 15, 15)]),
    "max_pool2d3": case(lambda x: (pool(x, [3, 3], [2, 2], [1, 1]), pool(x, [3], [2], [1])), [DOWN]),
    "max_pool2d4": case(lambda x: pool(x, [3, 3], [2, 2], [0, 0], [1, 1], True), [(2, 4, 21, 21)]),
    "max_pool2d5": case(lambda x: pool(x, [3, 3], []), [(3, 6, 15, 15)]),
    "max_pool2d6": [case(lambda x, d=d: pool(x, [13, 13], [], dilation=[d, d]), [(2, 3, 27, 27)]) for d in (1, 2)],
    "max_pool2d7": case(lambda x: F.max_pool2d(x, 1, stride=(2, 2), padding=0, ceil_mode=True), [(1, 1, 6, 7)]),
    "max_pool2d8": case(lambda x: pool(x, [3, 2], [2, 1], [1, 1], [1, 2]), [(2, 2, 3, 6)]),
    "max_pool2d_with_indices_backward": pooled_back((2, 4, 18, 14), [2, 2], [2, 2], [0, 0], [1, 1], False),
    "max_pool2d_with_indices_backward2": pooled_back((2, 4, 20, 16), [3, 3], [2, 2], [1, 1], [1, 1], True),
    "max_pool2d_with_indices_backward3": pooled_back((2, 6, 17, 18), [1, 1], [2, 2], [0, 0], [1, 1], False),
    "max_pool2d_with_indices_backward4": pooled_back((2, 6, 3, 4), [5, 5], [1, 1], [2, 2], [1, 1], False),
    "max_pool2d_with_indices_backward5": pooled_back((2, 6, 14, 14), [13, 13], [1, 1], [2, 2], [1, 1], False),
    "max_pool2d_with_indices_backward6": pooled_back((2, 2, 3, 6), [3, 2], [2, 1], [1, 1], [1, 2], False),
    "avg_pool2d1": case(lambda x: avg(x, [3, 3], [2, 2]), [(2, 4, 16, 16)]),
    "avg_pool2d2": case(lambda x: avg(x, [3, 3], [2, 2]), [(3, 6, 15, 15)]),
    "avg_pool2d3": case(lambda x: (avg(x, [3, 3], [2, 2], [1, 1]), avg(x, [3], [2], [1])), [DOWN]),
    "avg_pool2d4": case(lambda x: avg(x, [3, 3], [2, 2], [0, 0], True), [(2, 4, 21, 21)]),
    "avg_pool2d5": case(lambda x: avg(x, [3, 3], [2, 2], [1, 1], count_include_pad=False), [DOWN]),
    "avg_pool2d6": case(lambda x: avg(x, [3, 3], [2, 2], [1, 1], divisor_override=3), [DOWN]),
    "avg_pool2d7": case(lambda x: avg(x, [13, 13], [1, 1], [0, 0]), [(1, 1, 24, 24)], rtol=1e-5, atol=1e-5),
    "avg_pool2d8": case(lambda x: avg(x, 3, 2, 1, True), [(1, 3, 6, 6)]),
    "avg_pool2d_backward": averaged_back(aten.avg_pool2d_backward, (2, 4, 14, 14), (2, 4, 7, 7), [2, 2], [2, 2], [0, 0], True, False, None),
    "avg_pool2d_backward2": averaged_back(aten.avg_pool2d_backward, (1, 1, 20, 15), (1, 1, 20, 15), [3, 3], [1, 1], [1, 1], True, False, None),
    "avg_pool2d_backward3": averaged_back(aten.avg_pool2d_backward, (1, 16, 21, 21), (1, 16, 11, 11), [1, 1], [2, 2], [0, 0], False, False, None),
    "avg_pool2d_backward4": averaged_back(aten.avg_pool2d_backward, (1, 3, 24, 24), (1, 3, 12, 12), [13, 13], [1, 1], [0, 0], True, False, None),
    "avg_pool3d_backward": averaged_back(aten.avg_pool3d_backward, (2, 4, 8, 8, 8), (2, 4, 4, 4, 4), [2] * 3, [2] * 3, [0] * 3, True, False, None),
    "avg_pool3d_backward2": averaged_back(aten.avg_pool3d_backward, (1, 1, 8, 8, 7), (1, 1, 8, 8, 7), [3] * 3, [1] * 3, [1] * 3, True, False, None),
    "avg_pool3d_backward3": averaged_back(aten.avg_pool3d_backward, (1, 6, 7, 7, 7), (1, 6, 4, 4, 4), [1] * 3, [2] * 3, [0] * 3, False, False, None),
    "avg_pool3d_backward4": averaged_back(
        aten.avg_pool3d_backward, (1, 2, 14, 14, 14), (1, 2, 2, 2, 2), [13] * 3, [1] * 3, [0] * 3, True, False, None
    ),
    "adaptive_avg_pool2d1": case(
        adaptive(aten._adaptive_avg_pool2d, (6, 6), (2, 5)), [(2, 4, 16, 16)], [(2, 4, 3, 3)], [(2, 4, 6, 6)], rtol=1e-5, atol=1e-5
    ),
    "adaptive_avg_pool2d2": case(adaptive(aten._adaptive_avg_pool2d, (4, 4)), [(2, 4, 21, 21)], rtol=1e-5, atol=1e-5),
    "adaptive_avg_pool2d_low_prec": case(
        lambda x: F.adaptive_avg_pool2d(x, (1, 1)), [cast((4, 3, 7, 7), torch.float16)], [cast((4, 3, 7, 7), torch.bfloat16)], rtol=2e-2, atol=1e-2
    ),
    "adaptive_avg_pool_with_output_size_0": case(lambda x, y: (F.adaptive_avg_pool1d(x, 0), F.adaptive_avg_pool2d(y, 0)), [(1, 2), (1, 2, 3)]),
    "adaptive_max_pool2d1": case(adaptive(aten.adaptive_max_pool2d, (6, 6)), [(2, 4, 16, 16)], [(2, 4, 3, 3)], [(2, 4, 6, 6)]),
    "adaptive_max_pool2d2": case(adaptive(aten.adaptive_max_pool2d, (4, 4)), [(2, 4, 21, 21)]),
    "adaptive_max_pool2d3": case(adaptive(aten.adaptive_max_pool2d, (2, 2)), [(2, 4, 12, 12)], [(2, 4, 4, 4)]),
    "adaptive_max_pool3d_with_indices": case(lambda y: F.adaptive_max_pool3d_with_indices(y, 5, True), [uniform(2, 3, 9, 8, 6)]),
    "fractional_max_pool2d1": case(lambda x, s: aten.fractional_max_pool2d(x, (3, 3), (2, 2), s), [(1, 4, 16, 16), uniform(1, 4, 2)]),
    "fractional_max_pool2d2": case(lambda x, s: aten.fractional_max_pool2d(x, (6, 5), (3, 3), s), [(2, 4, 26, 26), uniform(2, 4, 2)]),
    "fractional_max_pool2d3": case(lambda x, s: aten.fractional_max_pool2d(x, (1, 1), (16, 16), s), [(2, 4, 16, 16), uniform(2, 4, 2)]),
    "fractional_max_pool2d4": case(
        lambda x: F.fractional_max_pool2d_with_indices(x, (4, 3), (3, 2)), [(1, 4, 16, 16)], eager_random=True, alone=True
    ),
    "fractional_max_pool2d5": case(lambda x, s: aten.fractional_max_pool2d(x, (3, 3), (1, 1), s), [(2, 4, 6, 6), uniform(2, 4, 2)]),
    "convolution1": case(relu_conv, [(2, 5, 16, 16), (6, 5, 3, 3), (6,)], gradients=True, **CLOSE),
    "convolution2": case(lambda x, w, b: aten.convolution(x, w, b, [4], [0], [1], True, [0], 1), [(2, 8, 30), (8, 6, 8), (6,)], **CLOSE),
    "convolution3": case(
        lambda x, w, b: F.conv2d(x, w, b, stride=[1], padding=[0], dilation=[1]).relu(), [(2, 5, 16, 16), (6, 5, 3, 3), (6,)], **CLOSE
    ),
    "convolution4": case(lambda x, w: F.conv2d(x, w, groups=w.shape[0]).sum(), [(2, 3, 16, 20), (3, 1, 5, 5)], rtol=1e-3, atol=1e-3),
    "convolution5": case(lambda x, w: F.conv2d(x, w, dilation=[x.size(0)]).sum(), [(2, 1, 16, 20), (1, 1, 5, 5)], rtol=1e-3, atol=1e-3),
    "conv3d": case(lambda x, w, b: F.conv3d(x, w, b), [(1, 3, 6, 8, 9), (3, 3, 5, 5, 5), (3,)], **CLOSE),
    "conv_backward": [convolved_back(2), convolved_back(2, (True, False, False)), convolved_back(1), convolved_back(3)],
    "conv2d_backward_channels_last": case(
        lambda g, x, w: aten.convolution_backward(g, x, w, [6], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True] * 3),
        [(2, 6, 8, 8), (2, 8, 8, 8), channels_last(6, 8, 1, 1)],
        **CLOSE,
    ),
    "conv_bn_fuse": [
        case(
            lambda x, k, m, v, w, b, d=d, g=g: F.batch_norm((F.conv1d, F.conv2d, F.conv3d)[d - 1](x, k, groups=g), m, v, w, b),
            [(1, 3 * g, *[9] * d), (4 * g, 3, *[3] * d), (4 * g,), uniform(4 * g), (4 * g,), (4 * g,)],
            rtol=1e-3,
            atol=1e-3,
        )
        for d in (1, 2, 3)
        for g in (1, 4)
    ],
    "conv_functional_bn_fuse": case(
        lambda x, k, c, m, v, w, b: F.batch_norm(F.conv2d(x, k, c), m, v, w, b),
        [(1, 3, 16, 6), (8, 3, 3, 3), (8,), (8,), uniform(8), (8,), (8,)],
        rtol=1e-3,
        atol=1e-3,
    ),
    "conv_inference_heuristics": case(
        lambda x, w, v: F.conv2d(F.conv2d(x, w, groups=3), v), [(1, 6, 10, 10), (6, 2, 3, 3), (4, 6, 3, 3)], rtol=1e-3, atol=1e-4
    ),
    "upsample_cat_conv": case(
        lambda x, y, w, b: F.conv2d(torch.cat([F.interpolate(x, scale_factor=2), y], 1), w, b),
        [(2, 2, 6, 7), (2, 6, 12, 14), (5, 8, 1, 1), (5,)],
        **CLOSE,
    ),
    "alexnet_prefix": case(
        lambda b, w, x: pool(aten.convolution(x, w, b, [4, 4], [2, 2], [1, 1], False, [0, 0], 1).relu(), [3, 3], [2, 2])[0],
        [(8,), (8, 3, 11, 11), (2, 3, 64, 64)],
        rtol=1e-3,
        atol=1e-3,
    ),
    "sizehint_issue1": case(lambda x: F.unfold(x, [4, 4], stride=[4, 4]), [(2, 4, 16, 16)]),
    "upsample_nearest1d": case(
        lambda a: [*nearest(aten.upsample_nearest1d, ([74], [70], [45], [36]), None)(a), aten.upsample_nearest1d(a, None, [2.0])], [(2, 4, 37)]
    ),
    "upsample_nearest2d": case(
        lambda a: [*nearest(aten.upsample_nearest2d, ([24, 26], [20, 25], [15, 24], [11, 9]))(a), aten.upsample_nearest2d(a, None, [2.0, 2.0])],
        [(2, 4, 12, 13)],
    ),
    "upsample_nearest3d": case(
        lambda a: [*nearest(aten.upsample_nearest3d, ([14, 16, 18], [9, 10, 11], [6, 5, 8]), None)(a), aten.upsample_nearest3d(a, None, [2.0] * 3)],
        [(1, 2, 7, 8, 9)],
    ),
    "upsample_nearest2d_backward": case(
        lambda a: [aten.upsample_nearest2d_backward(a, [6, 12], [3, 3, *s]) for s in ((3, 6), (4, 5), (2, 8), (4, 7))],
        [(3, 3, 6, 12)],
        rtol=1e-5,
        atol=1e-5,
    ),
    "upsample_bilinear2d_a": case(
        lambda a: (aten.upsample_bilinear2d(a, [15, 15], False, None), aten.upsample_bilinear2d(a, None, True, [2.0, 2.0])), [(2, 4, 12, 13)], **CLOSE
    ),
    "upsample_bilinear2d_b": case(lambda a: aten.upsample_bilinear2d(a, None, True, [2.0, 2.0]), [(1, 2, 10, 19)], **CLOSE),
    "upsample_bicubic2d": case(
        lambda a: (aten.upsample_bicubic2d(a, (18, 18), True), aten.upsample_bicubic2d(a, (18, 26), False)), [(2, 3, 9, 7)], **CLOSE
    ),
    "float_index_expression": case(lambda x: aten.upsample_bicubic2d(x, (26, 26), False), [(1, 1, 13, 13)], **CLOSE),
    "optimize_indexing_dtype": case(lambda x: aten.upsample_bilinear2d.vec(x, None, True, [2.0, 2.0]), [(2, 4, 6, 6)], **CLOSE),
    "float_repr_dynamic_shapes": case(lambda x: F.interpolate(x, scale_factor=1 / 30, mode="linear"), [(1, 8, 396 * 3)], **CLOSE),
    "interpolate_ceil_eq": case(
        lambda t: F.interpolate(
            torch.ones(t.shape[0], 4, 2 * ((t.shape[1] - 1) // 8) + 2, 2 * ((t.shape[2] - 1) // 8) + 2, dtype=torch.bfloat16), scale_factor=2
        ),
        [(4, 16, 18)],
    ),
    "reflection_pad2d": case(lambda a: (F.pad(a, [1, 1, 1, 1], "reflect"), F.pad(a, [5, 2, 3, 4], "reflect")), [(1, 1, 8, 8)]),
    "reflection_pad2d_backward": [
        reflected_back([1, 1, 8, 8], p)
        for p in ([0, 0, 0, 0], [1, 1, 1, 1], [1, 2, 3, 4], [0, -1, 2, 2], [-1, 0, 2, 2], [2, 2, 0, -1], [2, 2, -1, 0])
    ],
    "grid_sampler_2d": case(
        lambda a, b: (aten.grid_sampler_2d(a, b * 2 - 1, 0, 0, True), aten.grid_sampler_2d(a, b * 2 - 1, 0, 1, False)),
        [(2, 3, 12, 13), uniform(2, 12, 11, 2)],
        **CLOSE,
    ),
}
