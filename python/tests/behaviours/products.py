"""Products, linear algebra, attention, transforms and quantised weights, by the names of PyTorch's tests."""

import torch
import torch.nn.functional as F

from .case import bools, case, cast, channels_last, full, integers, laid, normal, tensor, uniform

aten = torch.ops.aten
f64, f16, bf16, i32 = torch.float64, torch.float16, torch.bfloat16, torch.int32
CLOSE = {"rtol": 1e-4, "atol": 1e-4}
attention = F.scaled_dot_product_attention


def layers(x, *weights):
    for w in weights:
        x = F.linear(x, w).relu()
    return x


def unpacked(a, b):
    return a @ torch.cat((b & 0xF, b >> 4), 1).reshape(-1, b.shape[1]).to(a.dtype).sub(8)


def heads(q, k, v):
    return attention(q.transpose(1, 2).contiguous(), k.transpose(1, 2), v.transpose(1, 2), scale=0.125)[:2]


def biased(q, k, v, bias, w):
    mask = (bias @ w).permute(0, 3, 1, 2)
    return attention(q, k, v, mask.contiguous())


def unaligned(q, k, v, mask):
    return attention(q, k, v, F.pad(mask, [0, 1])[..., :15].expand(4, 2, 16, 15))


def rotation(v, x):
    """Rotation matrices of vectors, applied."""
    angle = v.norm(dim=-1)
    a, b, c = (v / angle[:, None]).unbind(1)
    s, d = angle.sin(), 1 - angle.cos()
    rows = [
        1 - (b * b + c * c) * d,
        a * b * d - c * s,
        a * c * d + b * s,
        a * b * d + c * s,
        1 - (a * a + c * c) * d,
        b * c * d - a * s,
        a * c * d - b * s,
        b * c * d + a * s,
        1 - (a * a + b * b) * d,
    ]
    return torch.einsum("nij,nbj->nbi", torch.stack(rows, -1).reshape(-1, 3, 3), x.expand(v.shape[0], -1, -1)).sum()


def gated(x, w, p):
    """A padded product, as attention of GPTs has it: a slice of a product of slices."""
    q, k, v = (x @ w).split(p, 2)
    return attention(q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1), is_causal=True).squeeze(1)


def int8_rows(a, w, scales, c):
    return torch._weight_int8pack_mm(a, w, scales) + c


def packed(w, scales):
    """4-bit weights in the layout of this processor."""
    return torch._dyn_quant_pack_4bit_weight(w.cpu(), scales.bfloat16().cpu(), None, 32, 64, 12)


PRODUCTS = {
    "addmm": case(lambda a, b, c: torch.addmm(a + 1, b + 2, c + 3) + 4, [(8, 8), (8, 8), (8, 8)], **CLOSE),
    "remove_no_ops": [
        case(
            lambda x, y: [
                x @ y + x.new_zeros(6, 6),
                x @ y - x.new_zeros(6, 6),
                (x @ y) * x.new_ones(6, 6),
                (x @ y) / x.new_ones(6, 6),
                x @ y + x.new_zeros(2, 6, 6),
            ],
            [cast((6, 6), d)] * 1 + [cast((6, 6), d)],
            rtol=r,
            atol=r,
        )
        for d, r in ((torch.float32, 1e-4), (f16, 2e-2), (bf16, 5e-2))
    ],
    "addmv": case(torch.addmv, [(3,), (3, 4), (4,)], [integers(0, 9, (3,), i32), integers(0, 9, (3, 4), i32), integers(0, 9, (4,), i32)], **CLOSE),
    "linear_float64": case(F.linear, [normal(2, 8, dtype=f64), normal(16, 8, dtype=f64), normal(16, dtype=f64)]),
    "linear1": case(lambda x, w, b: F.linear(x, w, b).sigmoid(), [(2, 8), (16, 8), (16,)], gradients=True, **CLOSE),
    "linear2": case(layers, [(2, 8), (8, 8), (8, 8), (8, 8), (8, 8)], gradients=True, rtol=1e-3, atol=1e-3),
    "linear_dynamic_maxautotune": case(F.linear, [(10, 1), (1, 1), (1,)]),
    "bmm1": case(lambda a, b: (a @ b, torch.bmm(a + 1, b + 2) + 3), [(2, 8, 8), (2, 8, 8)], [(1, 16, 8), (1, 8, 10)], **CLOSE),
    "bmm2": case(lambda a, b: torch.bmm(a.permute(0, 2, 1), b), [(1, 8, 8), (1, 8, 8)], **CLOSE),
    "baddbmm": [
        case(lambda a, b, c, n=n: torch.baddbmm(a, b, c, beta=n), [bias, (6, 12, 6), (6, 6, 10)], rtol=1e-3, atol=1e-3)
        for bias in ((6, 1, 10), full((6, 1, 10), float("nan")))
        for n in (0.0, 1.0)
    ],
    "mixed_mm": case(lambda a, b: a @ b.to(a.dtype), [(8, 8), integers(-128, 127, (8, 8), torch.int8)], rtol=1e-4, atol=1e-2),
    "mixed_mm2": case(
        lambda a, b, s, c: a @ b.to(a.dtype) * s + c, [(8, 8), integers(-128, 127, (8, 8), torch.int8), (8,), (8,)], rtol=1e-4, atol=1e-2
    ),
    "mixed_mm3": case(lambda a, b: a @ b.to(a.dtype), [(56, 56), integers(-128, 127, (56, 56), torch.int8)], rtol=1e-3, atol=1e-1),
    "uint4x2_mixed_mm": case(unpacked, [(8, 8), integers(0, 255, (4, 8), torch.uint8)], **CLOSE),
    "mm_views": case(
        lambda a, b: a.view(12, 12) @ b.view(12, 12),
        [laid((12, 12), lambda t: t.transpose(0, 1)), laid((1, 12, 12), lambda t: t.transpose(0, 1))],
        **CLOSE,
    ),
    "shape_padding": [
        case(lambda x, y, z: (x @ y, torch.addmm(z, x, y)), [(7, 15), (15, 13), (13,)], **CLOSE),
        case(lambda x, y, z: (x @ y, torch.baddbmm(z, x, y)), [(7, 11, 15), (7, 15, 13), (13,)], **CLOSE),
    ],
    "inductor_multiple_specializations": case(torch.mm, [cast((16, 128), bf16), cast((128, 16), bf16)], atol=0.3, rtol=2e-2),
    "buffer_use_after_remove": case(rotation, [(2, 3), (4, 3)], gradients=True, rtol=1e-3, atol=1e-4),
    "fft_real_input": case(torch.fft.fftn, [(4, 6, 8)], **CLOSE),
    "fft_real_input_real_output": case(lambda x: torch.fft.fftn(x).real, [(4, 6, 8)], **CLOSE),
    "scaled_dot_product_attention": case(heads, [(4, 2, 4, 2), (4, 2, 4, 2), (4, 2, 4, 2)], **CLOSE),
    "scaled_dot_product_efficient_attention": case(lambda q, k, v, b: attention(q, k, v, b), [(2, 2, 36, 16)] * 3 + [(2, 2, 36, 36)], **CLOSE),
    "sdpa": case(biased, [(3, 2, 9, 8), (3, 2, 8, 8), (3, 2, 8, 8), (3, 9, 8, 6), (6, 2)], **CLOSE),
    "sdpa_unaligned_mask": case(unaligned, [(4, 2, 16, 16), (4, 2, 15, 16), (4, 2, 15, 16), (1, 1, 16, 15)], **CLOSE),
    "sdpa_unaligned_mask_freezing": case(
        lambda q, k, v, m: unaligned(q, k, v, m * 2), [(4, 2, 16, 16), (4, 2, 15, 16), (4, 2, 15, 16), (1, 1, 16, 15)], **CLOSE
    ),
    "sdpa_inference_mode_aot_compile": case(attention, [(2, 2, 18, 16)] * 3 + [bools(2, 2, 18, 18)], **CLOSE),
    "donated_buffer_inplace_gpt": case(lambda x, w: gated(x, w, 8), [(1, 10, 8), (8, 24)], gradients=True, rtol=1e-3, atol=1e-4),
    "weight_norm_bwd": case(
        lambda x, v, g: F.linear(x, torch._weight_norm(v, g, 0)), [(2, 105), (2, 105), (2, 1)], gradients=True, rtol=1e-3, atol=1e-3
    ),
    "int8_weight_only_quant": case(
        int8_rows,
        [cast((32, 32), bf16), integers(-128, 127, (48, 32), torch.int8), lambda: torch.rand(48).bfloat16(), cast((32, 48), bf16)],
        rtol=5e-2,
        atol=2.0,
        dynamic=False,
        host=True,
    ),
    "red_followed_by_transposed_pointwise": case(
        lambda x, y: (z := F.silu(x) * y, z / z.amax(1, keepdim=True), (z / z.amax(0, keepdim=True)).t().contiguous().t()),
        [(12, 10), (12, 10)],
        rtol=1e-3,
        atol=1e-3,
    ),
    "tmp_not_defined_issue3": case(
        lambda w, t, x: (
            e := F.linear(x[:, :6], w).softmax(-1),
            aten._embedding_bag(t, torch.arange(10).expand(5, 10).reshape(-1), torch.arange(5) * 10, False, 0, False, e.reshape(-1))[0],
            *torch.var_mean(x, 1),
        ),
        [(10, 6), (10, 4), (5, 9)],
        **CLOSE,
    ),
    "embedding_bag_byte_unpack": case(
        lambda a: torch.ops.quantized.embedding_bag_byte_unpack(a.cpu()),
        [
            lambda: torch.cat(
                [torch.randint(0, 255, (4, 6), dtype=torch.uint8), torch.randn(4, 1).view(torch.uint8), torch.randn(4, 1).view(torch.uint8)], -1
            )
        ],
        dynamic=False,
    ),
    "_dyn_quant_pack_4bit_weight": case(packed, [integers(0, 255, (12, 32), torch.uint8), uniform(12, 2)], dynamic=False, host=True),
    "_dyn_quant_matmul_4bit": case(
        lambda x, w, s: torch._dyn_quant_matmul_4bit(x, packed(w, s), 32, 64, 12),
        [(3, 64), integers(0, 255, (12, 32), torch.uint8), uniform(12, 2)],
        dynamic=False,
        host=True,
        **CLOSE,
    ),
    "grouped_mm": case(
        lambda a, b, n: torch._grouped_mm(a, b.transpose(-2, -1), offs=n),
        [cast((64, 16), bf16), cast((4, 32, 16), bf16), tensor([16, 32, 48, 64], dtype=i32)],
        rtol=2e-2,
        atol=1e-1,
        since=(2, 8),
    ),
    "rnn_compile_safe": case(
        lambda x, h, *w: torch.gru(x, h, w, True, 1, 0.0, False, False, True), [(4, 5, 6), (1, 4, 8), (24, 6), (24, 8), (24,), (24,)], **CLOSE
    ),
    "coalescing_analysis_sympy_is_constant": case(
        lambda q, k, v, x, y: (t := attention(q, k, v).min(dim=3).values, (t - x.var(0).reshape(3, 5, 4)) / F.layer_norm(y, (4,))),
        [(3, 5, 4, 5)] * 3 + [(3, 10, 6), (3, 5, 4)],
        rtol=1e-3,
        atol=1e-3,
    ),
    "sympy_infinity_bounds_in_persistent_reduction": case(
        lambda x, w, y: F.conv1d(F.layer_norm(x, (6, 10)), w.contiguous().view(7, 6, 5)) - F.group_norm(y.abs().sqrt(), 1),
        [(5, 6, 10), (14, 3, 5), (5, 7, 6)],
        gradients=True,
        rtol=1e-3,
        atol=1e-3,
    ),
}
