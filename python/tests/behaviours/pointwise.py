"""Functions of single elements, by the names of PyTorch's tests."""

import math

import torch
import torch.nn.functional as F

from .case import arange, bools, case, cast, full, integers, linspace, normal, tensor, uniform, zeros

aten, inf, nan = torch.ops.aten, math.inf, math.nan
f64, f16, bf16, i32, i64 = torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64
SQUARE, PAIR = [(8, 8)], [(8, 8), (8, 8)]
COMPLEX = [1 + 2j, -1 + 1j, -2 - 2j, 3 - 3j, 0, 1j, 2, -1]
SPECIAL = [1, inf, 2, -inf, nan]


def both(op):
    """A function of one element, plain and behind another."""
    return lambda x: (op(x) + 2, op(x + 1))


def add(x, y, alpha):
    return torch.add(x, y, alpha=alpha)


def logic(a, b):
    return a + b, a * b, a & b, a | b, a ^ b, torch.logical_and(a, b), torch.logical_or(a, b), torch.logical_not(a), torch.sign(b)


def bitwise(x, y):
    return torch.bitwise_not(x), torch.bitwise_or(x, y), torch.bitwise_xor(x, y), torch.bitwise_and(x, y)


def state_equation(s, t, p):
    u = 1.0 / (-3.1e-7 + t * (-2.0e-8 + -1.1e-11 * t) + 1.6e-10 * s)
    return u + u * p


def numbers(a):
    n = torch.nan_to_num
    return n(a), n(a, nan=3.0), n(a, posinf=4.0), n(a, neginf=5.0), n(a, 3.0, 4.0, 5.0)


def zero_quotients(x, zero, minus):
    z = torch.zeros_like(x)
    return x / 0.0, x / -0.0, z / 0.0, x / z, x / -z, z / z, x / zero, x / minus, zero / minus


POINTWISE = {
    "bool": case(logic, [tensor([True, False, True, False]), tensor([False, False, True, True])]),
    "add_complex": case(add, [tensor(COMPLEX), tensor(COMPLEX), 2]),
    "add_complex3": case(lambda x: (torch.neg(x), x + x), [cast((41,), torch.complex64)]),
    "add_complex4": case(lambda a, b: (a + b) + (a + b), [tensor(COMPLEX), tensor(COMPLEX)], [tensor(COMPLEX, dtype=torch.complex128)] * 2),
    "add_complex5": case(add, [cast((2, 2), torch.complex64), cast((2, 2), torch.complex64), 2]),
    "add_complex6": case(add, [cast((1, 4), torch.complex64), cast((1, 1), torch.complex64), 2]),
    "abs": case(lambda a: a / (a.abs() + 1), [(17,)]),
    "angle": case(lambda a, b, c: (a.angle(), b.angle(), c.angle()), [tensor(COMPLEX + [nan]), tensor([-1.0, 0.0, 1.0, nan]), tensor([-1, 0, 1])]),
    "sgn": case(lambda a: (a.sgn(), (a + 1).sgn() - 1), [linspace(-10, 10, 41)]),
    "sgn_extremal": [case(torch.sgn, [tensor([inf, -inf, 0])]), case(torch.sgn, [tensor([nan])])],
    "max_min": case(
        lambda a, b: (torch.maximum(a, b), torch.minimum(a, b)),
        [(8,), (8,)],
        [tensor([nan, 1.0, 2.0]), tensor([0.0, nan, 3.0])],
    ),
    "fmin_fmax": case(
        lambda a, b: (torch.fmin(a, b), torch.fmax(a, b), torch.fmax(a + 1, torch.tensor(0.0))),
        [tensor([-10.0, 10, nan, nan, nan, 3, 4]), tensor([nan, nan, -10.0, 10, nan, 4, 3])],
    ),
    "neg_max_uint8": case(lambda a, b: torch.maximum(b, -a), [integers(0, 256, (1,), torch.uint8), integers(0, 256, (999,), torch.uint8)]),
    "compar": case(lambda x: (x.gt(3.5), x.ge(3.5), x.eq(3.5), x.le(2.5), x.lt(3.5), x.ne(3.5)), [tensor([3, 4])]),
    "horizonal_fusion1": case(lambda a, b, c: (a + b, a - c, b * c), [(8, 6, 6), (8, 6, 6), (1, 6, 1)]),
    "horizonal_fusion2": case(lambda a, b, c: (a + 1, b + 2, c + 3), [(8, 6, 8), (8, 6), (6, 8)]),
    "vertical_fusion1": case(state_equation, [(20, 20, 6), (20, 20, 6), (6,)], rtol=1e-4, atol=1e-2),
    "relu": case(lambda a, b: (a.relu(), (a + b).relu() / 10), PAIR),
    "exp": case(lambda a, b: (a.exp(), (a + b).exp()), PAIR),
    "exp2": case(lambda a, b: (torch.exp2(a), torch.exp2(a + b), torch.pow(2, -(a - b).abs())), PAIR),
    "logaddexp": case(torch.logaddexp, PAIR),
    "sigmoid": case(lambda a, b: (a.sigmoid(), (a + b).sigmoid()), PAIR),
    "round": case(lambda a, b: (a.round(), (b + 1).round(), torch.round(a, decimals=2)), PAIR),
    "round_correctness": case(torch.round, [arange(-10, 10, 0.1, dtype=f64)], [tensor([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5])]),
    "silu": case(F.silu, SQUARE),
    "nan_to_num": case(numbers, [tensor([nan, inf, -inf, 1.0])]),
    "div_by_zero": case(zero_quotients, [(10,), zeros(10), full((10,), -0.0)]),
    "elu": case(lambda x: (aten.elu(x, 1.6732, 1.0507) + 2, aten.elu(x + 1, 2, 3, 4)), SQUARE),
    "tan": case(both(torch.tan), SQUARE, rtol=1e-5),
    "tanh": case(both(torch.tanh), SQUARE),
    "lgamma": case(lambda x: (x.lgamma() + 2, (x + 1).cos()), [uniform(16, 16)], rtol=1e-5),
    "cos": case(both(torch.cos), SQUARE),
    "sin": case(both(torch.sin), SQUARE),
    "leaky_relu": case(lambda x: (F.leaky_relu(x, 0.2) + 2, F.leaky_relu(x + 1)), SQUARE),
    "gelu": case(both(F.gelu), SQUARE),
    "clone": case(both(torch.clone), SQUARE),
    "masked_fill": case(lambda m, v: (v.masked_fill(m, -10000.0) + 2, (v / 2).masked_fill(~m, 667)), [bools(1, 16), (16, 16)]),
    "masked_fill_promotion": case(
        lambda m, v: v.masked_fill(m, torch.tensor(3.5)), [bools(1, 16), cast((16, 16), f16)], [bools(1, 16), integers(0, 16, (16, 16))]
    ),
    "fill1": case(lambda x: (t := torch.ones_like(x), aten.fill.Scalar(t, 2)), SQUARE),
    "fill2": case(lambda x: (t := torch.ones_like(x), aten.fill.Tensor(t, torch.tensor(3.0))), SQUARE),
    "pow1": case(lambda x: [x**e for e in range(-8, 9)], [uniform(8, 8)], rtol=1e-5, atol=1e-4),
    "pow2": case(lambda x: (torch.pow(1000, x), torch.pow(x, 1000)), SQUARE, rtol=1e-4),
    "pow3": case(lambda x: torch.pow(torch.tensor(0.123) + x, 0.5), [uniform(())]),
    "pow_int": case(
        lambda x, y: (torch.pow(x, 0x57), torch.pow(x, y)),
        *([integers(0, 9, (8, 8), d), integers(0, 100, (8, 8), d)] for d in (torch.uint8, torch.int8, torch.int16, i32, i64)),
    ),
    "glu": case(lambda x: (F.glu(x, -1), F.glu(x, 1), F.glu(x, 2)), [(2, 6, 8, 4)]),
    "hardtanh": case(lambda x: (F.hardtanh(x), F.hardtanh(x + 1), F.hardtanh(x - 1)), [(64,)]),
    "hardsigmoid": case(lambda x: (F.hardsigmoid(x), F.hardsigmoid(x + 3), F.hardsigmoid(x - 3)), [(64,)]),
    "hardswish": case(lambda x: (F.hardswish(x), F.hardswish(x + 3), F.hardswish(x - 3)), [(64,)]),
    "rsqrt": case(lambda x: (x.rsqrt(), (x + 1).rsqrt() - 2), [(64,)]),
    "expm1": case(
        lambda x: (x.expm1(), x.expm1() * 2), *([cast((64,), d)] for d in (f16, torch.float32, f64, i32, i64)), [arange(-1e-5, 1e-5, 1e-7)]
    ),
    "log1p": case(
        lambda x: (x.log1p(), x.log1p() * 2), *([cast((64,), d)] for d in (f16, torch.float32, f64, i32, i64)), [arange(-1e-5, 1e-5, 1e-7)]
    ),
    # Negation gives NaN any sign on GPUs.
    "signbit": [
        case(lambda x: (x.signbit(), ~(-x).signbit() & 1), [(1, 2, 6, 6)], [tensor([0.0, -0.0, -inf])]),
        case(lambda x: (x.signbit(), ~(-x).signbit() & 1), [tensor([nan, -nan])], host=True),
    ],
    "sign_dtype": [case(lambda x: x.sign().tanh(), [(1, 2, 6, 6)]), case(torch.sign, [tensor([nan])])],
    "fmod": case(lambda a, b: (a.fmod(b), (3.0 * a).fmod(b) - 2.0), [(2, 6, 6), (2, 6, 6)], rtol=1e-4, atol=1e-5),
    "fmod_zero_dim": case(torch.fmod, [(10,), ()], [(), (10,)], rtol=1e-4, atol=1e-5),
    "log2": case(lambda x: (x.log2(), (x + 1).log2() - 2), [uniform(64)], rtol=1e-5),
    "log_fp64": case(lambda x: (x.log(), x.log2()), [uniform(99, dtype=f64)]),
    "bitwise": case(bitwise, [integers(0, 2**30, (64,), i32), integers(0, 2**30, (64,), i32)]),
    "bitwise2": case(bitwise, [bools(2, 20), bools(2, 20)]),
    "bitwise3": case(
        lambda x, y: (torch.max(x & y, y), torch.clamp_max(x | y, y), torch.clamp_min(x ^ y, y)),
        [integers(-5, 5, (5, 10, 1), torch.int8), integers(-5, 5, (10, 1), torch.int8)],
    ),
    "inf": case(lambda a: (a + inf, a + -inf, a * -inf), [(8,)]),
    "remainder": case(lambda a, b: (a.remainder(b), (a + 1).remainder(b - 1), (a - 1).remainder(b + 1)), [(64,), (64,)], rtol=1e-4, atol=1e-4),
    "isinf": case(lambda x: (x.isinf(), x.isnan()), *([tensor(SPECIAL, dtype=d)] for d in (torch.float32, f64, f16, bf16))),
    "isinf2": case(lambda x: x == torch.tensor(SPECIAL), [tensor(SPECIAL)]),
    "erfc": case(torch.erfc, SQUARE, rtol=1e-5),
    "erfinv": case(lambda x: (x * 2 - 1).erfinv(), [uniform(8, 8)], rtol=1e-5),
    "uint": case(lambda z: (x := torch.tensor(5, dtype=torch.uint8), x < -x, z), [(26,)]),
    "lerp": case(
        lambda a, b: (torch.lerp(b, a.transpose(-2, -3), 70000), torch.lerp(b, b + 1, 70000), torch.lerp(a, a * 2, 0.3)),
        [(5, 3, 4), (3, 5, 4)],
        rtol=1e-5,
    ),
    "where_broadcast": case(torch.where, [tensor([[True]]), (5, 7, 3), (1, 1)], [integers(0, 2, (1, 1, 4, 4), torch.bool), (), (1, 4, 4, 4)]),
    "where_with_logical_op": case(
        lambda x, y: (torch.where(torch.logical_and(x, y), 1.0, 0.0), torch.where(torch.logical_or(x, y), 1.0, 0.0)), [(32,), (32,)]
    ),
    "polar": case(torch.polar, [tensor([1, 2], dtype=f64), tensor([1.57, 3.9], dtype=f64)]),
    "complex_fallback": case(lambda x, y: (x * x + 10, (y + y + 12).to(torch.complex64)), [cast((2, 4, 8), torch.complex64), (2, 4, 8)]),
    "view_as_complex": case(
        lambda x: torch.view_as_complex(x.clone(memory_format=torch.contiguous_format)),
        [lambda: torch.empty_strided((8, 4, 3, 2, 2), (1, 96, 32, 16, 8)).normal_()],
    ),
    "view_as_real": case(lambda x: torch.view_as_real(x) + 1, [cast((4,), torch.complex64)]),
    "reuse_buffers_with_aliasing": case(lambda x: (torch.view_as_real(z := torch.view_as_complex(x + 1)) + 1, torch.view_as_real(z + 1)), [(4, 2)]),
    "cauchy": case(lambda x, y: (1 / (x.unsqueeze(-1) - y)).sum(), [uniform(32), full((32,), 2.5)]),
    "fuse_tiled": case(lambda a, b, c: (a + b, c + 1), [(24, 1), (1, 24), (24, 24)]),
    "large_block_sizes": case(lambda x, y: x.t() + y, [(999, 65), (65, 999)]),
    "vdd_clamp": case(lambda x: torch.clamp_min(x * 10, 3), [(16,)], gradients=True),
    "clamp": case(lambda a, b: (a.clamp(-0.1, 0.1), b.clamp(0), torch.clamp(a + b, max=0)), PAIR, [tensor([nan, 1.0]), tensor([1.0, nan])]),
    "clamp_type_promotion": case(lambda a: a.clamp(min=torch.tensor(1.0, dtype=f64), max=torch.full((4,), 2)), [integers(0, 4, (4,))]),
    "clamp_type_promotion_non_tensor": case(lambda a: (a.clamp(min=1.5), a.clamp(min=2)), [integers(0, 4, (4,))]),
    "softmax_backward_data": case(lambda a, b: aten._softmax_backward_data(a, b, 1, torch.float32), [(10, 10), (10, 10)]),
    "isin_tensor_scalar": case(
        lambda x: (torch.isin(2, x), torch.isin(2, x, invert=True), torch.isin(x, 2), torch.isin(x, 2, invert=True)), [tensor([1, 2, 3, 4])]
    ),
    "mul_index_expr": case(lambda: -(torch.arange(16).unsqueeze(-1) * torch.arange(16)) / 16),
    "dtypeview_fusion": case(lambda x: (x + 1).view(torch.int16) * 2, [cast((99,), f16)]),
    "float16_to_int16": case(lambda x: x.view(torch.int16).mul(2) + x.view(torch.int16).bitwise_and(2), [full((4,), 1.0, dtype=f16)]),
    "bfloat16_to_int16": case(lambda a, b: (v := (a + b).view(torch.int16), v.mul(2) + v.bitwise_and(2)), [full((4,), 1.0, dtype=bf16)] * 2),
    "float32_to_int32": case(lambda a, b: (v := (a + b).view(i32), v.mul(2) + v.bitwise_and(2)), [full((4,), 0.5)] * 2),
    "tmp_not_defined_issue2": case(
        lambda a, b, c, d: (d, (c / b * a).sum()), [(1, 8, 9, 9), (), (1, 8, 9, 9), (3,)], gradients=True, rtol=1e-4, atol=1e-3
    ),
    "softmax": case(lambda a, b: ((a + b).softmax(-1), a.softmax(0), b.softmax(1)), PAIR),
    "log_softmax": case(lambda a, b: (F.log_softmax(a + b, -1), F.log_softmax(a, 0), F.log_softmax(b, 1)), PAIR),
    "softmax_one_kernel_persist": case(lambda x: (e := (x - x.amax(1, keepdim=True)).exp(), e / e.sum(1, keepdim=True)), [(16, 32)]),
    "softmax_one_kernel_loop": case(lambda x: (e := (x - x.amax(1, keepdim=True)).exp(), e / e.sum(1, keepdim=True)), [(4, 3000)], rtol=1e-5),
    "prepare_softmax_with_fast_math": case(
        lambda x: (m := x.amax(-1, keepdim=True), (x - m).exp().sum(-1, keepdim=True).log()), [cast((16, 128), bf16)], rtol=1e-2, atol=1e-2
    ),
    "dtype_mismatch_issue": case(lambda x: F.pad(x, [0, 1]).softmax(-1), [uniform(8, 3, 63)]),
    "no_mega_fusion_during_lowering": case(lambda *xs: sum(xs, xs[0]), [(64,)] * 1 + [(64,)] * 49),
    "l1_loss": case(lambda a, b: (F.l1_loss(a, b), F.mse_loss(a, b)), [(2, 3, 6, 6), (2, 3, 6, 6)]),
}

UNARY = """airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 digamma entr erf erfc erfcx erfinv exp2 expit expm1 gammaln i0 i0e i1 i1e log1p log_ndtr
logit modified_bessel_i0 modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 ndtr ndtri psi round scaled_modified_bessel_k0
scaled_modified_bessel_k1 sinc spherical_bessel_j0""".split()
POLYNOMIALS = [name for name in dir(torch.special) if "_polynomial_" in name]


def special(*names):
    return lambda *args: [getattr(torch.special, name)(*args) for name in names]


POINTWISE |= {
    "pointwise": [
        *(case(special(*UNARY[k : k + 9]), [(8, 8)], rtol=1e-4, atol=1e-4, wide=True) for k in range(0, len(UNARY), 9)),
        case(special(*POLYNOMIALS), [(8, 8), 2], rtol=1e-4, atol=1e-4, dynamic=False, wide=True),
        case(special("digamma", "entr", "erf", "expit", "i0", "ndtr", "sinc"), [(8, 8)], rtol=1e-4, atol=1e-4),
        case(special("xlog1py", "xlogy"), [(8, 8), lambda: torch.rand(8, 8) + 1], rtol=1e-4, atol=1e-4),
        case(special("gammainc", "gammaincc", "zeta"), [(8, 8), lambda: torch.rand(8, 8) + 1], rtol=1e-4, atol=1e-4, wide=True),
        case(lambda x: (torch.special.multigammaln(x, 2), torch.special.polygamma(1, x)), [lambda: torch.rand(8, 8) + 1], rtol=1e-4, atol=1e-4),
    ],
    "special_polygamma": case(lambda x: [torch.special.polygamma(n, x) for n in range(3)], [tensor(2.0)], rtol=1e-5),
}
