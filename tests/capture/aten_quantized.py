"""Cases of gen_aten.py with quantised tensors: PT2E's ops, torchao's, fake quantisation, products of int8, int4 and 8-bit floats. Needs torchao for its ops.

Scales of 16-bit cases are powers of two: the interpreter, which computes them without rounding, finds the same integers.
"""
import torch
import torch.ao.quantization.fx._decomposed  # Registers quantized_decomposed.
import torchao.quantization.quant_primitives  # Registers the rest of torchao.
from aten_support import A, HALF, Dim, case, f, i, p

D, O = torch.ops.quantized_decomposed, torch.ops.torchao
i8, u8, i16, i32, i64 = torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64
f32, f64, bf16, f16, e4m3, e5m2 = torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2


def q(*shape, dtype=i8):
    return i(0 if dtype == u8 else -128, 256 if dtype == u8 else 128, *shape, dtype=dtype)


def decomposed(add, n):
    # Ties, clamped values, and all dtypes that hold them.
    ties = torch.tensor([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 300, -300, 0.25])
    for low, high, d in ((-128, 127, i8), (0, 255, u8), (-32768, 32767, i16), (-8, 7, i8)):
        add(lambda x, a=low, b=high, d=d: D.quantize_per_tensor.default(x, 0.5, 3, a, b, d), ties)
        add(lambda x, s, z, a=low, b=high, d=d: D.quantize_per_tensor.tensor(x, s, z, a, b, d), f(4, 5), torch.tensor(0.017), torch.tensor(3))
    add(lambda x: D.quantize_per_tensor.default(x, 0.25, -7, -128, 127, i8), f(4, 5, dtype=bf16))
    add(lambda x, s, z, a, b: D.quantize_per_tensor.tensor2(x, s, z, a, b, i8), f(4, 5), torch.tensor([0.013], dtype=f64), torch.tensor([5]), torch.tensor(-64), torch.tensor(64))
    for o in (None, f32, bf16, f16, f64):
        add(lambda x, o=o: D.dequantize_per_tensor.default(x, 0.017, 3, -128, 127, i8, out_dtype=o), q(4, 5))
    add(lambda x, s, z: D.dequantize_per_tensor.tensor(x, s, z, 0, 255, u8), q(4, 5, dtype=u8), torch.tensor(0.017), torch.tensor(100))
    add(lambda x, s, z, a, b: D.dequantize_per_tensor.tensor2(x, s, z, a, b, i16), q(4, 5, dtype=i16), torch.tensor([0.013], dtype=f64), torch.tensor([5]), torch.tensor(-64), torch.tensor(64))
    add(lambda x: D.dequantize_per_tensor.default(D.quantize_per_tensor.default(x, 0.02, 3, -128, 127, i8), 0.02, 3, -128, 127, i8), f(4, 5), dyn=[{0: n}])
    for axis, k in ((0, 3), (1, 4), (2, 5)):
        add(lambda x, s, z, a=axis: D.quantize_per_channel.default(x, s, z, a, -128, 127, i8), f(3, 4, 5), p(k) / 30, i(-4, 5, k))
        add(lambda x, s, z, a=axis: D.dequantize_per_channel.default(x, s, z, a, -128, 127, i8), q(3, 4, 5), p(k) / 30, i(-4, 5, k))
    add(lambda x, s, z: D.quantize_per_channel.default(x, s, z, 0, 0, 255, u8), f(3, 4), p(3, dtype=f64) / 30, i(100, 140, 3, dtype=i32))
    add(lambda x, s: D.dequantize_per_channel.default(x, s, None, 0, -128, 127, i8, out_dtype=bf16), q(3, 4), p(3))
    add(lambda x, s, z: D.dequantize_per_channel.default(x, s, z, 1, 0, 255, u8), q(3, 4, dtype=u8), p(4, dtype=f64), i(0, 9, 4, dtype=i32))
    for d in (f32, f64):
        add(lambda x, s, z: D.quantize_per_token.default(x, s, z, -128, 127, i8), f(2, 3, 8), p(2, 3, 1, dtype=d) / 30, i(-4, 5, 2, 3, 1))
        add(lambda x, s, z: D.dequantize_per_token.default(x, s, z, -128, 127, i8, f32), q(2, 3, 8), p(2, 3, 1, dtype=d) / 30, i(-4, 5, 2, 3, 1))
    add(lambda x, s, z: D.quantize_per_channel_group.default(x, s, z, -8, 7, i8, 4), f(3, 8), p(3, 2) / 4, i(-2, 3, 3, 2, dtype=i32))
    add(lambda x, s, z: D.dequantize_per_channel_group.default(x, s, z, -8, 7, i8, 4, f32), q(3, 8), p(3, 2), i(-2, 3, 3, 2, dtype=i32))
    add(lambda x, s: D.dequantize_per_channel_group.default(x, s, None, -8, 7, i8, 128, bf16), q(3, 8), p(3, 1))
    # The scales are f32 numbers in f64.
    single = lambda scale, zero: (scale.float(), zero)
    for x in (f(4, 5), f(4, 5).abs() + 1, -f(4, 5).abs(), torch.zeros(3)):
        add(lambda x: single(*D.choose_qparams.tensor(x, -128, 127, 2.0**-12, i8)), x)
        add(lambda x: single(*D.choose_qparams.tensor(x, 0, 255, 2.0**-12, u8)), x)
        add(lambda x: single(*D.choose_qparams_symmetric.tensor(x, -127, 127, 2.0**-12, i8)), x)
        add(lambda x: single(*D.choose_qparams_symmetric.tensor(x, 0, 255, 2.0**-12, u8)), x)
        add(lambda x: D.choose_qparams_per_token.default(x, i8), x)
        add(lambda x: single(*D.choose_qparams_per_token_asymmetric.default(x, i8)), x)
        add(lambda x: single(*D._choose_qparams_per_token_asymmetric_impl.default(x, i8)), x)
    for d in HALF:
        add(lambda x: D.choose_qparams_per_token.default(x, i8), f(4, 5, dtype=d))
    add(lambda x, s, z: D.fake_quant_per_channel.default(x, s, z, 1, -8, 7), f(3, 4), p(4) / 4, i(-2, 3, 4))
    add(lambda x: D.convert_element_type.no_fuse(x, bf16), f(3, 4))


def affine(add, n):
    # A tensor, rows, columns, groups; ASYMMETRIC rounds and clamps its zero points.
    for block in ((4, 8), (1, 8), (4, 1), (1, 4), (2, 4)):
        for kind in ("SYMMETRIC", "SYMMETRIC_NO_CLIPPING_ERR", "ASYMMETRIC"):
            add(lambda x, block=block, kind=kind: O.choose_qparams_affine(x, kind, block, i8, -8, 7, keepdim=block == (2, 4)), f(4, 8))
        # Scales of their own: the greatest element of a block divided by its symmetric scale is 7.5, a tie.
        shape = [n // m for n, m in zip((4, 8), block)]
        add(lambda x, s, z, block=block: O.quantize_affine(x, block, s, z, i8, -8, 7), f(4, 8), p(*shape) / 4, i(-3, 4, *shape, dtype=i32))
        add(lambda x, s, z, block=block: O.dequantize_affine(x, block, s, z, i8, -8, 7), i(-8, 8, 4, 8, dtype=i8), p(*shape), i(-3, 4, *shape, dtype=i32))
    add(lambda x: O.choose_qparams_affine(x, "ASYMMETRIC", (1, 8), u8, None, None, 1e-3, f32, i64), f(4, 8) + 3)
    add(lambda x: O.choose_qparams_affine(x, "SYMMETRIC", (1, 8), i8, -127, 127, 1e-5, f32, i8), f(4, 8))
    add(lambda x, s: O.quantize_affine(x, (1, 8), s, torch.zeros(4, dtype=i8), i8), f(4, 8, dtype=bf16), torch.tensor([0.25, 0.5, 0.125, 1]).to(bf16))
    for d in (f32, *HALF):
        add(lambda x, s, d=d: O.dequantize_affine(x, (1, 4), s, None, i8, -8, 7, d), i(-8, 8, 4, 8, dtype=i8), p(4, 2, dtype=d))
        add(lambda x, s, z, d=d: O.dequantize_affine(x, (1, 8), s, z, u8, None, None, d), q(4, 8, dtype=u8), p(4), i(100, 140, 4, dtype=i32))

    def tokens(x):
        scale, zero = O.choose_qparams_affine(x, "SYMMETRIC", (1, x.shape[1]), i8, -127, 127, 1e-5, f32, i8)
        return scale, O.quantize_affine(x, (1, x.shape[1]), scale, zero, i8, -127, 127)

    add(tokens, f(4, 8), dyn=[{0: n}])
    for d in (e4m3, e5m2):
        for block in ((4, 8), (1, 8), (2, 4)):
            def eight(x, block=block, d=d):
                scale = O.choose_scale_float8(x, block, d)
                return scale, O.quantize_affine_float8_non_decomposed(x, scale, d)

            add(eight, f(4, 8))
            shape = [n // m for n, m in zip((4, 8), block)]
            add(lambda x, s: O.dequantize_affine_float8_non_decomposed(x, s, f32), f(4, 8).to(d), p(*shape))
    add(lambda x: O.choose_scale_float8(x, (1, 8), e4m3, f32, 0.5, 1.5), f(4, 8))
    add(lambda x, s: O.quantize_affine_float8_non_decomposed(x, s), f(4, 8, dtype=bf16) * 100, torch.tensor(0.125))


def fake(add):
    nan, inf = float("nan"), float("inf")
    odd = torch.tensor([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 300, -300, 0.25])
    for x in (f(3, 4), odd, f(3, 4, dtype=f64), f(3, 4, dtype=bf16), f(3, 4, dtype=f16)):
        add(lambda x: A.fake_quantize_per_tensor_affine.default(x, 0.25, 3, 0, 15), x)
        add(lambda x: A.fake_quantize_per_tensor_affine_cachemask.default(x, 0.5, -1, -8, 7), x)
    one = (torch.tensor([0.3]), torch.tensor([2], dtype=i32))
    add(lambda x, s, z: A.fake_quantize_per_tensor_affine.tensor_qparams(x, s, z, -8, 7), f(3, 4), *one)
    for on in (0, 1):
        add(lambda x, s, z, e: A._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default(x, s, z, e, -8, 7), f(3, 4) * 4, *one, torch.tensor([on]))
    for axis, k in ((0, 3), (1, 4)):
        for z in (i(-3, 4, k, dtype=i32), f(k)):
            add(lambda x, s, z, a=axis: A.fake_quantize_per_channel_affine.default(x, s, z, a, -8, 7), f(3, 4), p(k) / 4, z)
            add(lambda x, s, z, a=axis: A.fake_quantize_per_channel_affine_cachemask.default(x, s, z, a, -8, 7), f(3, 4) * 2, p(k) / 4, z)
    add(lambda g, m: (A.fake_quantize_per_tensor_affine_cachemask_backward.default(g, m), A.fake_quantize_per_channel_affine_cachemask_backward.default(g, m)), f(3, 4), f(3, 4) > 0)


def products(add, n):
    for m, k, c in ((17, 64, 32), (2, 3, 5), (1, 128, 16)):
        add(lambda x, y: A._int_mm.default(x, y), q(m, k), q(k, c))
    # Sums beyond f32's 24 bits are exact.
    add(lambda x, y: A._int_mm.default(x, y), torch.full((17, 1100), -127, dtype=i8), torch.full((1100, 8), 127, dtype=i8) - i(0, 2, 1100, 8, dtype=i8))
    add(lambda x, y: A._int_mm.default(x, y.t()), q(17, 64), q(32, 64), dyn=[{0: n}, None])
    for d in (f32, *HALF):
        add(lambda x, w, s: A._weight_int8pack_mm.default(x, w, s), f(5, 64, dtype=d), q(32, 64), p(32, dtype=d))
    eight = lambda *shape, dtype=e4m3: f(*shape).to(dtype)
    one = (torch.tensor(0.5), torch.tensor(1.5))
    for o in (f32, *HALF, e4m3, None):
        add(lambda x, y, s, t, o=o: A._scaled_mm.default(x, y.t(), s, t, out_dtype=o), eight(16, 32), eight(48, 32), *one)
    for bias, o in ((f32, f32), (bf16, bf16), (f16, f16), (f32, bf16)):
        add(lambda x, y, s, t, b, o=o: A._scaled_mm.default(x, y.t(), s, t, b, out_dtype=o), eight(16, 32), eight(48, 32), *one, f(48, dtype=bias))
    add(lambda x, y, s, t: A._scaled_mm.default(x, y.t(), s, t, out_dtype=f32), eight(16, 32, dtype=e5m2), eight(48, 32), *one)
    add(lambda x, y, s, t: A._scaled_mm.default(x, y.t(), s, t, out_dtype=f32, use_fast_accum=True), eight(16, 32), eight(48, 32), *one, dyn=[{0: n}, None, None, None])
    # A full block of rows, one of fewer, and both.
    for rows in (16, 48, 64, 128, 160):
        for group, d in ((32, f32), (64, bf16)):
            add(lambda x, w, z, g=group: A._weight_int4pack_mm_for_cpu.default(x, A._convert_weight_to_int4pack_for_cpu.default(w, 1), g, z), f(5, 64, dtype=d), i(0, 16, rows, 64, dtype=i32), f(64 // group, rows, 2, dtype=d))
    add(lambda w: A._convert_weight_to_int4pack_for_cpu.default(w, 1), i(0, 16, 16, 8, dtype=i32))
    h = lambda *shape: f(*shape, dtype=bf16)
    ends = lambda *at: torch.tensor(at, dtype=i32)
    add(lambda x, y: A._grouped_mm.default(x, y), h(3, 8, 16), h(3, 16, 24))
    for at in ((3, 3, 8), (0, 8, 8), (1, 5, 8)):
        add(lambda x, y, o: A._grouped_mm.default(x, y, o), h(8, 16), h(3, 16, 24), ends(*at))
    add(lambda x, y, o: A._grouped_mm.default(x, y, o), h(3, 8, 16), h(16, 32), ends(8, 8, 32))
    add(lambda x, y, o: A._grouped_mm.default(x, y, o), h(8, 32), h(32, 16), ends(8, 16, 32))


def packed(add, n):
    """int4 weights packed by masks and shifts, and bits under other dtypes."""
    for d in (u8, i8, i16, i32, i64, f16, bf16, f32, f64):
        add(lambda x, d=d: x.view(d), q(3, 16, dtype=u8))
        # Zeros in place of NaNs, whose payloads no test compares.
        x = q(3, 8).to(d)
        add(lambda x: x.view(u8), x)
        add(lambda x: x.view(i32 if x.dtype != i32 else i16), x)
    add(lambda x: x.view(i8), i(-9, 9, 3, 4, dtype=i32), dyn=[{0: n, 1: Dim("m", min=2, max=64)}])
    add(lambda w: torch.stack([w & 15, w >> 4], -1).flatten(-2), q(4, 8, dtype=u8))
    add(lambda w: (w << 4, (w << 4).view(i8) >> 4, w ^ 255, ~w), q(4, 8, dtype=u8))
    shifts = torch.arange(0, 32, 4, dtype=i32)
    add(lambda w: A.bitwise_right_shift.Tensor(w[:, None], shifts[:, None]).to(i16) & 15, i(-(2**31), 2**31, 4, 8, dtype=i32))


def quantized():
    add = lambda fn, *a, **k: case("quantized", fn, *a, **k)
    n = Dim("n", min=2, max=64)
    decomposed(add, n)
    affine(add, n)
    fake(add)
    products(add, n)
    packed(add, n)
