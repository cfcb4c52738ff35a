"""Memory formats and strides of arguments and results, by the names of PyTorch's tests."""

import torch
import torch.nn.functional as F

from .case import arange, case, cast, channels_last, integers, laid, ones, strided, uniform

aten = torch.ops.aten


def like_strided(x):
    out = torch.empty_strided(x.size(), x.stride())
    out[:] = x + x
    return out


def like_channels_last():
    x = torch.randn(4, 3, 8, 8)
    last = x.contiguous(memory_format=torch.channels_last)
    return last, torch.zeros_like(last, memory_format=torch.preserve_format), torch.rand_like(x)


def windows(x, w):
    """Overlapping windows of a padded convolution."""
    y = F.pad(F.conv2d(x, w), [2, 2, 2, 2])
    s = y.stride()
    return torch.as_strided(y, (2, 6, 2, 12, 6), (s[0], s[1], 6 * s[2], s[3], s[2])).clone(memory_format=torch.contiguous_format)


def strides_as_sizes(x):
    y = x.t() + 1
    return y, y.stride(0) * x, torch.ones(y.stride())


STRIDES = {
    "to_memory_format": [
        case(lambda x: x.to(memory_format=torch.channels_last), [(2, 2, 6, 6)]),
        case(lambda x: x.to(memory_format=torch.contiguous_format), [channels_last(2, 2, 6, 6)]),
    ],
    "transposed_propagates": case(torch.add, [laid((1, 4, 5, 6), lambda t: t.permute(0, 2, 3, 1)), laid((4, 5, 6), lambda t: t.permute(1, 2, 0))]),
    "transpose_add": case(lambda a, b: a.t() + b, [(16, 32), (32, 16)]),
    "output_strides": [
        case(lambda x: x.permute(0, 2, 3, 1).contiguous().view(-1, 4), [(4, 4, 4, 4)]),
        case(lambda x: x[0:2:2].T[3:].squeeze(0), [(4, 4, 4, 4)]),
    ],
    "strided_inputs": case(torch.add, [strided((8, 16), (32, 2)), strided((8, 16), (16, 1))]),
    "as_strided": [
        case(lambda x: (torch.as_strided(x, (8, 8, 4), (32, 4, 1), 0), torch.as_strided(x + 1, (8, 8, 4), (32, 4, 1), 0) + 2), [(16, 16)]),
        case(lambda x: torch.as_strided(x + 1, (2, 8, 2, 5, 6), (800, 1, 400, 8, 40), 0) + 2, [channels_last(2, 8, 10, 10)]),
    ],
    "as_strided_scatter": case(
        lambda a, b: torch.as_strided_scatter(a * 8 + 10, b * 2 - 4, (a.shape[0], a.shape[1] // 2), (a.shape[1], 2), 0), [(10, 16), (10, 8)]
    ),
    "exact_stride": case(like_strided, [lambda: torch.randn(16, 16).as_strided((16, 8), (16, 1))]),
    "like_channels_last": case(like_channels_last, values=False),
    "empty1": case(lambda: torch.empty((1, 12, 12)), values=False),
    "empty2": case(lambda: aten.empty((1, 12, 12)), values=False),
    "new_empty": case(lambda a: aten.new_empty(a, [1, 12, 12]), [(5,)], values=False),
    "empty_strided": case(lambda: aten.empty_strided([1, 12, 12], [144, 12, 1]), values=False),
    "new_empty_strided": case(lambda a: aten.new_empty_strided(a, [1, 12, 12], [144, 12, 1]), [(5,)], values=False),
    "pixel_shuffle_channels_last": case(lambda x: F.pixel_shuffle(x, 2).relu(), [channels_last(1, 16, 6, 8)]),
    "require_stride_expanded": case(
        lambda w, x: aten.convolution(x.unsqueeze(0), w, None, [4, 4], [2, 2], [1, 1], False, [0, 0], 1),
        [channels_last(8, 3, 11, 11), lambda: torch.randn(1, 3, 32, 32).to(memory_format=torch.channels_last).squeeze(0)],
        rtol=1e-3,
        atol=1e-3,
    ),
    "conv_with_as_strided": case(windows, [(2, 4, 8, 8), (6, 4, 1, 1)], rtol=1e-4, atol=1e-5, dynamic=False),
    "adding_tensor_offsets": case(lambda x: x[16:32], [(64,)], [lambda: torch.randn(80)[16:]], alone=True),
    "large_offset_pointwise": case(lambda a: a + 4, [lambda: torch.zeros(2**10 + 1, dtype=torch.int8)[2**9 :]]),
    "large_strided_reduction": case(torch.max, [lambda: torch.arange(2**10 + 1, dtype=torch.int32)[::32]]),
    "config_option_dont_assume_alignment": case(
        lambda x: x.sin() + x.cos(), *([lambda k=k: torch.randn(4160).as_strided((64, 64), (64, 1), k)] for k in range(5)), alone=True
    ),
    "config_option_dont_assume_alignment_cudagraphs": case(
        lambda x: x.cos() * x.sin(),
        *([lambda s=s, k=k: torch.randn(70 * 64).as_strided((s, s), (s, 1), k)] for s, k in ((32, 4), (48, 4), (64, 5))),
        gradients=True,
        alone=True,
        rtol=1e-5,
        atol=1e-5,
    ),
    "graph_partition_misaligned_input": case(
        lambda x: (x.cos() * x.sin()).sum(0),
        *([lambda s=s, k=k: torch.randn(70 * 64).as_strided((s, s), (s, 1), k)] for s, k in ((32, 4), (64, 5))),
        gradients=True,
        alone=True,
        rtol=1e-5,
        atol=1e-5,
    ),
    "inductor_layout_optimization_input_mutations": case(
        lambda x, w: F.conv2d(x.mul_(2), w), [uniform(2, 3, 12, 12), (16, 3, 1, 1)], rtol=1e-4, atol=1e-5
    ),
    "stride_preservation_with_stride_modifying_fx_pass": case(lambda x: (x + 1, x.t() + 1, (x.t() + 1).t()), [uniform(4, 5)]),
    "mix_device_index": case(
        lambda x, k: (i := k.argsort(dim=-1), x[torch.arange(2).unsqueeze(-1), i[:, :3]].view(-1, 4, 5, 5))[1],
        [lambda: torch.randn(24, 4, 5, 5).to(memory_format=torch.channels_last).view(2, 12, 4, 5, 5), uniform(2, 12)],
    ),
    "complex_memory_overlap": case(
        lambda x: x + 1,
        [strided((8, 15, 1), (19, 1, 1))],
        [lambda: torch.randn(4, 1).expand(4, 3)],
        [lambda: torch.randn(9).as_strided((4, 3), (1, 2))],
    ),
    "inner_fn_str_and_stride": case(lambda x: (x + 1) * 2, [lambda: torch.rand(3, 2).t()]),
    "non_blocking_copy_codegen": case(lambda x: x.to(device=x.device, non_blocking=True) + 1, [(3, 4)]),
    "conv2d_channels_last": [
        case(lambda x, w, b: F.conv2d(x, w, b), [x, w, (3,)], rtol=1e-4, atol=1e-5)
        for x, w in (
            ((2, 3, 6, 6), channels_last(3, 3, 1, 1)),
            (channels_last(2, 3, 6, 6), (3, 3, 1, 1)),
            (channels_last(2, 3, 6, 6), channels_last(3, 3, 3, 3)),
        )
    ],
    "conv3d_channels_last": [
        case(lambda x, w, b: F.conv3d(x, w, b), [x, w, (3,)], rtol=1e-4, atol=1e-5)
        for x, w in (((2, 3, 4, 4, 4), channels_last(3, 3, 1, 1, 1)), (channels_last(2, 3, 4, 4, 4), (3, 3, 1, 1, 1)))
    ],
    "sym_stride_lowering": case(strides_as_sizes, [(4, 3)]),
}
