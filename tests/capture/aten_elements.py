"""Elementwise and creation cases of gen_aten.py, fp8 included."""
import torch
from aten_support import A, Dim, HALF, b, case, f, i, inf, nan, nc, p, special, u


def unary():
    for name in "exp exp2 expm1 sin cos tan atan sinh cosh tanh erf special_erf sigmoid silu".split():
        op = getattr(A, name).default
        case("unary", op, f(3, 4))
        case("unary", op, i(-2, 3, 5, dtype=torch.int32 if name != "silu" else torch.float16))
    for name in "log log1p log2 log10 sqrt rsqrt reciprocal".split():
        op = getattr(A, name).default
        case("unary", op, p(3, 4))
        case("unary", op, i(1, 9, 4))
    for name in "asin acos".split():
        case("unary", getattr(A, name).default, u(3, 4))
        case("unary", getattr(A, name).default, b(4))
    for name in "isfinite isnan isinf".split():
        case("unary", getattr(A, name).default, special())
        case("unary", getattr(A, name).default, i(-3, 3, 4))
        case("unary", getattr(A, name).default, torch.tensor([inf, 1.0, nan], dtype=torch.float16))
    for name in "ceil floor round trunc fix".split():
        case("unary", getattr(A, name).default, torch.tensor([-2.5, -1.5, -0.2, 0.5, 1.5, 2.5, 3.7]))
        case("unary", getattr(A, name).default, i(-9, 9, 4, dtype=torch.int32))
    for name in "neg abs sign relu square".split():
        op = getattr(A, name).default
        case("unary", op, nc(3, 4))
        case("unary", op, i(-4, 4, 6, dtype=torch.int16))
        for d in HALF:
            case("unary", op, f(5, dtype=d))
    case("unary", A.neg.default, i(0, 9, 4, dtype=torch.uint8))
    case("unary", A.sign.default, b(4))
    case("unary", A.relu.default, special())
    case("unary", A.square.default, i(0, 30, 4, dtype=torch.uint8))
    case("unary", A.bitwise_not.default, i(-4, 9, 5))
    case("unary", A.bitwise_not.default, b(5))
    case("unary", A.bitwise_not.default, i(0, 200, 4, dtype=torch.uint8))
    case("unary", A.logical_not.default, torch.tensor([0.0, 1.0, -2.0, nan]))
    case("unary", A.logical_not.default, i(-1, 2, 5))
    for name in "hardsigmoid hardswish relu6 gelu mish softplus elu leaky_relu hardtanh silu".split():
        op = getattr(A, name).default
        case("unary", op, f(3, 4) * 4)
        case("unary", op, (f(6) * 3).to(torch.bfloat16))
    case("unary", lambda x: A.gelu.default(x, approximate="tanh"), f(7))
    case("unary", lambda x: A.softplus.default(x, 2.0, 3.0), f(9) * 2)
    case("unary", lambda x: A.elu.default(x, 1.5, 2.0, 0.5), f(9))
    case("unary", lambda x: A.leaky_relu.default(x, 0.3), special())
    case("unary", lambda x: A.hardtanh.default(x, -0.5, 0.25), special())
    case("unary", lambda x: A.hardtanh.default(x, -2, 3), i(-9, 9, 6))
    case("unary", A.nan_to_num.default, special())
    case("unary", lambda x: A.nan_to_num.default(x, 7.0, 8.0, -9.0), special())
    case("unary", lambda x: A.nan_to_num.default(x, 2.0), torch.tensor([nan, inf, -inf], dtype=torch.float16))
    case("unary", A.nan_to_num.default, i(0, 5, 3))
    case("unary", A.exp.default, f(4, 3), dyn=[{0: Dim("n", min=2, max=64)}])
    case("unary", A.exp.default, f(0, 3))
    case("unary", A.tanh.default, f(2, dtype=torch.float64))


def binary():
    def each(op, x, y):
        case("binary", op, x, y)

    def number(op, x, y):
        case("binary", lambda t: op(t, y), x)

    scalar = torch.tensor(2)
    for name in "add sub mul".split():
        op, sc = getattr(A, name).Tensor, getattr(A, name).Scalar
        each(op, f(3, 1, 4), f(2, 1))
        each(op, i(-5, 5, 4), f(4, dtype=torch.float16))
        each(op, f(3, dtype=torch.float16), f(3, dtype=torch.bfloat16))
        each(op, i(0, 9, 3, dtype=torch.uint8), i(-9, 9, 3, dtype=torch.int8))
        each(op, i(0, 9, 3, dtype=torch.int16), scalar)
        each(op, i(0, 9, 3, dtype=torch.int16), torch.tensor(2.5))
        each(op, f(3, dtype=torch.bfloat16), torch.tensor(2.5, dtype=torch.float64))
        number(op, i(0, 9, 3, dtype=torch.int32), 2.5)
        number(op, i(0, 9, 3, dtype=torch.int32), 3)
        number(op, f(3, dtype=torch.float16), 3)
        number(sc, f(3), 1.5)
        number(sc, i(0, 9, 3), 1.5)
        number(op, torch.tensor(2.0, dtype=torch.float64), 1.5)
    case("binary", A.add.Tensor, b(6), b(6))
    case("binary", A.mul.Tensor, b(6), b(6))
    case("binary", A.mul.Tensor, b(6), i(-5, 5, 6))
    case("binary", lambda x: A.add.Tensor(x, True), b(6))
    case("binary", lambda x: A.add.Tensor(x, 2), b(6))
    for op in (A.add.Tensor, A.sub.Tensor):
        case("binary", lambda x, y, op=op: op(x, y, alpha=3), f(4), f(4))
        case("binary", lambda x, y, op=op: op(x, y, alpha=-2), i(0, 5, 4), i(0, 5, 4))
        case("binary", lambda x, y, op=op: op(x, y, alpha=0.3), f(4, dtype=torch.float16), f(4, dtype=torch.float16))
    case("binary", lambda x: A.add.Scalar(x, 2, 3), i(0, 5, 4))
    case("binary", lambda x: A.sub.Scalar(x, 2.5, 3), f(4))
    case("binary", lambda x: A.rsub.Scalar(x, 2.5), f(4))
    case("binary", lambda x: A.rsub.Scalar(x, 5, 3), i(0, 5, 4))
    case("binary", lambda x: 1 - x, f(4, dtype=torch.bfloat16))
    for name in "maximum minimum".split():
        each(getattr(A, name).default, special(), f(2, 9)[1:])
        each(getattr(A, name).default, i(0, 9, 3, dtype=torch.int32), f(3))
        each(getattr(A, name).default, b(4), b(4))
    each(A.div.Tensor, i(-9, 9, 5), i(1, 4, 5))
    each(A.div.Tensor, f(5, dtype=torch.float16), i(1, 4, 5))
    number(A.div.Scalar, i(-9, 9, 5), 4)
    number(A.div.Tensor, f(5), 3)
    sign = torch.tensor([-7, -6, -1, 1, 6, 7])
    by = torch.tensor([3, -3, 2, -2, 4, -4])
    for op in (A.fmod, A.remainder):
        each(op.Tensor, sign, by)
        each(op.Tensor, sign + 0.5, by.float())
        number(op.Scalar, sign, -4)
        number(op.Scalar, sign.float() + 0.25, 2.5)
    each(A.floor_divide.default, sign, by)
    each(A.floor_divide.default, sign + 0.5, by.float())
    number(A.floor_divide.default, sign, -4)
    for mode in ("floor", "trunc", None):
        case("binary", lambda x, y, m=mode: A.div.Tensor_mode(x, y, rounding_mode=m), sign, by)
        case("binary", lambda x, y, m=mode: A.div.Tensor_mode(x, y, rounding_mode=m), sign + 0.5, by)
        case("binary", lambda x, m=mode: A.div.Scalar_mode(x, -4, rounding_mode=m), sign)
        case("binary", lambda x, m=mode: A.div.Scalar_mode(x, 2.5, rounding_mode=m), sign)
    each(A.pow.Tensor_Tensor, p(4), f(4))
    each(A.pow.Tensor_Tensor, i(-3, 4, 4), i(0, 4, 4))
    each(A.pow.Tensor_Tensor, i(1, 4, 4), f(4))
    for e in (2, 3, 0.5, -1, 2.0, 0, -0.5, 1):
        number(A.pow.Tensor_Scalar, p(4), e)
    number(A.pow.Tensor_Scalar, i(-4, 5, 5), 2)
    number(A.pow.Tensor_Scalar, i(-4, 5, 5), 3)
    number(A.pow.Tensor_Scalar, i(-4, 5, 5), 2.0)
    number(A.pow.Tensor_Scalar, f(4, dtype=torch.float16), 2)
    case("binary", lambda x: A.pow.Scalar(2, x), f(4))
    case("binary", lambda x: A.pow.Scalar(2, x), i(0, 6, 4))
    case("binary", lambda x: A.pow.Scalar(1.5, x), i(0, 6, 4))
    each(A.atan2.default, f(8), f(8))
    each(A.atan2.default, i(-4, 4, 8), i(-4, 4, 8))
    for op in (A.bitwise_and, A.bitwise_or, A.bitwise_xor):
        each(op.Tensor, i(-9, 9, 6), i(0, 99, 6, dtype=torch.uint8))
        each(op.Tensor, b(6), b(2, 6))
    for op in (A.bitwise_and, A.bitwise_or):
        number(op.Scalar, i(-9, 9, 6, dtype=torch.int32), 5)
        number(op.Scalar, b(6), True)
    each(getattr(A, "__and__").Tensor, b(6), b(6))
    each(getattr(A, "__or__").Tensor, i(0, 9, 6), i(0, 9, 6))
    number(getattr(A, "__lshift__").Scalar, i(-9, 9, 6), 3)
    number(getattr(A, "__rshift__").Scalar, i(-99, 99, 6), 2)
    for name in "eq ne lt le gt ge".split():
        op = getattr(A, name)
        each(op.Tensor, i(0, 3, 2, 4), i(0, 3, 4).float())
        each(op.Tensor, special(), torch.tensor(0.0))
        number(op.Scalar, i(0, 3, 6), 1)
        number(op.Scalar, i(0, 3, 6), 1.5)
        number(op.Scalar, b(6), True)
    for name in "logical_and logical_or logical_xor".split():
        each(getattr(A, name).default, i(-1, 2, 6), torch.tensor([0.0, nan, 1.0, 0.0, -1.0, 0.0]))
        each(getattr(A, name).default, b(6), b(2, 1))
    case("binary", lambda x: A.clamp.default(x, -1, 2), f(6) * 3)
    case("binary", lambda x: A.clamp.default(x, min=0.5), i(-3, 3, 6))
    case("binary", lambda x: A.clamp.default(x, max=1), special())
    case("binary", lambda x, l, h: A.clamp.Tensor(x, l, h), f(3, 4), f(4) - 1, torch.tensor(1.0))
    case("binary", lambda x, h: A.clamp.Tensor(x, max=h), i(0, 9, 6), i(0, 9, 6))
    case("binary", lambda x: A.clamp_min.default(x, 0.25), f(6))
    case("binary", lambda x: A.clamp_max.default(x, 2), i(0, 5, 6))
    c = b(3, 4)
    case("binary", A.where.self, c, f(3, 4), f(4))
    case("binary", A.where.self, c, i(0, 9, 3, 1), f(1))
    case("binary", lambda c, x: A.where.ScalarOther(c, x, 2.5), c, i(0, 9, 4))
    case("binary", lambda c, x: A.where.ScalarSelf(c, -inf, x), c, f(3, 4, dtype=torch.float16))
    case("binary", lambda c: A.where.Scalar(c, 1, 0), c)
    case("binary", lambda c: A.where.Scalar(c, 1.0, 0), c)
    case("binary", lambda x, m: A.masked_fill.Scalar(x, m, -inf), f(3, 4), b(4))
    case("binary", lambda x, m: A.masked_fill.Scalar(x, m, 3), i(0, 9, 4), b(3, 4))
    case("binary", lambda x, m, v: A.masked_fill.Tensor(x, m, v), f(3, 4), b(3, 1), torch.tensor(2))
    case("binary", lambda x, e: A.lerp.Scalar(x, e, 0.3), f(3, 4), f(4))
    case("binary", lambda x, e: A.lerp.Scalar(x, e, 0.8), f(4), f(4))
    for op in (A.addcmul.default, A.addcdiv.default):
        case("binary", lambda x, y, z, op=op: op(x, y, z, value=0.5), f(3, 4), f(4), p(3, 1))
    case("binary", lambda x, y, z: A.addcmul.default(x, y, z, value=3), i(0, 5, 4), i(0, 5, 4), i(0, 5, 4))
    n = Dim("n", min=2, max=64)
    case("binary", A.add.Tensor, f(4, 3), f(3), dyn=[{0: n}, None])
    case("binary", A.mul.Tensor, f(4, 1), f(4, 3), dyn=[{0: n}, {0: n}])
    case("binary", lambda x: x / x.shape[0] + x.shape[0], f(4, 3), dyn=[{0: n}])
    case("binary", lambda x: (A.fill.Tensor(x, torch.tensor(2)), A.zero.default(x)), f(3))
    # In-place, by the functional rows.
    case("binary", lambda x: (x + 0).add_(2, alpha=2).mul_(x).relu_().clamp_(max=3), f(6))
    case("binary", lambda x: (x + 0).div_(2).sub_(1).pow_(2), f(6))
    case("binary", lambda x: (x.half() + 0).add_(x), f(6))


def create():
    add = lambda fn, *a, **k: case("create", fn, *a, **k)
    n = Dim("n", min=2, max=64)
    x = f(2, 3)
    add(lambda x: A.zeros.default([2, 3], dtype=torch.int32) + x, x)
    add(lambda x: A.zeros.default([]) + x, x)
    add(lambda x: A.ones.default([3], dtype=torch.bool) & (x > 0), x)
    add(lambda x: A.empty.memory_format([2, 3]).fill_(3) + x, x)
    add(lambda x: A.full.default([2, 3], 7) + x, x)
    add(lambda x: A.full.default([2], 7), x)
    add(lambda x: A.full.default([2], True), x)
    add(lambda x: A.full.default([2], 7.5), x)
    add(lambda x: A.full.default([2], 7, dtype=torch.float16), x)
    add(lambda x: A.full.default([2], -inf), x)
    add(lambda x: A.new_zeros.default(x, [4, 1]), x)
    add(lambda x: A.new_ones.default(x, [2], dtype=torch.int64), x)
    add(lambda x: A.new_full.default(x, [2, 2], 3), x)
    add(lambda x: A.new_full.default(x, [2, 2], 3, dtype=torch.int8), x)
    for name in "zeros_like ones_like".split():
        op = getattr(A, name).default
        add(op, i(0, 5, 3))
        add(lambda x, op=op: op(x, dtype=torch.float64), i(0, 5, 3))
    add(lambda x: A.empty_like.default(x, dtype=torch.float16).fill_(2), x)
    add(lambda x: A.full_like.default(x, 2.5), x)
    add(lambda x: A.full_like.default(x, 2.5, dtype=torch.int32), x)
    add(lambda x: A.full_like.default(x, 2), f(4, 3), dyn=[{0: n}])
    add(lambda x: A.fill.Scalar(x, 3), i(0, 5, 4))
    add(lambda x: A.fill.Scalar(x, 2.5), f(2, 3))
    add(lambda x, y: A.copy.default(x, y), f(2, 3), i(0, 5, 3))
    add(lambda x: A.scalar_tensor.default(2.5) + x, x)
    add(lambda x: A.scalar_tensor.default(2, dtype=torch.int64) + x, x)
    add(lambda x: A.arange.default(5), x)
    add(lambda x: A.arange.default(5, dtype=torch.float32), x)
    add(lambda x: A.arange.default(2.5), x)
    add(lambda x: A.arange.start(-2, 5), x)
    add(lambda x: A.arange.start(0.5, 5), x)
    add(lambda x: A.arange.start(1, 5, dtype=torch.int32), x)
    add(lambda x: A.arange.start_step(10, 1, -3), x)
    add(lambda x: A.arange.start_step(0, 1, 0.25), x)
    add(lambda x: A.arange.start_step(1, 10, 4, dtype=torch.float16), x)
    add(lambda x: A.arange.start_step(2, 2, 1), x)
    add(lambda x: torch.arange(x.shape[0]), f(4, 3), dyn=[{0: n}])
    add(lambda x: torch.arange(1, x.shape[0] + 3, 2), f(4, 3), dyn=[{0: n}])
    add(lambda x: torch.zeros(x.shape[0], 2) + x.shape[0], f(4, 3), dyn=[{0: n}])
    add(lambda x: A.linspace.default(-1, 2, 7), x)
    add(lambda x: A.linspace.default(3.0, -2.5, 4, dtype=torch.float64), x)
    add(lambda x: A.linspace.default(3, 4, 1), x)
    add(lambda x: A.linspace.default(0, 10, 5, dtype=torch.int64), x)
    add(lambda x: A.eye.default(3), x)
    add(lambda x: A.eye.default(2, dtype=torch.bool), x)
    add(lambda x: A.eye.m(2, 4, dtype=torch.int32), x)
    for op in (A.tril.default, A.triu.default):
        add(op, f(3, 4))
        add(lambda x, op=op: op(x, -1), f(2, 4, 3))
        add(lambda x, op=op: op(x, 2), i(1, 9, 4, 4))
        add(lambda x, op=op: op(x, 1), b(4, 4))
    for d in (torch.int32, torch.bool, torch.float16, torch.float64):
        add(lambda x, d=d: A.to.dtype(x, d), f(3, 4) * 3)
    add(lambda x: A.to.dtype(x, torch.uint8), i(0, 300, 5))
    add(lambda x: A.to.dtype(x, torch.float32, False, True), f(3))
    add(lambda x: A.to.device(x, torch.device("cpu"), torch.float64), f(3))
    add(lambda x: A.to.dtype_layout(x, dtype=torch.int64), f(3) * 4)
    add(lambda x: A._to_copy.default(x, dtype=torch.bfloat16), f(3))
    add(lambda x: A._to_copy.default(x), f(3))
    add(lambda x, y: A.type_as.default(x, y), f(3), i(0, 2, 2))


def float8():
    add = lambda fn, *a, **k: case("float8", fn, *a, **k)
    n = Dim("n", min=2, max=64)
    # All bit patterns are in tests/compiled/gen_fp8.py.
    some = torch.cat([f(19) * 9, torch.tensor([nan, 0.0, -0.0, 448.0, -0.015625])])
    for d in (torch.float8_e4m3fn, torch.float8_e5m2):
        for source in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
            add(lambda x, d=d: x.to(d), some.to(source))
        add(lambda x, d=d: x.to(d), i(-100, 100, 9, dtype=torch.int32))
        add(lambda x, d=d: x.to(d), b(5))
        codes = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(d)
        for target in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.bool):
            add(lambda x, t=target: x.to(t), codes)
        small = lambda *shape: (f(*shape) * 2).to(d)
        add(lambda x: x.to(torch.int64), small(9))
        add(lambda x, y, d=d: (x.float() * y.float() + 1).relu().to(d), small(3, 17), small(17))
        add(lambda x, y, d=d: (x.float() * y.float()).to(d), small(4, 3), small(3), dyn=[{0: n}, None])
        add(lambda x, y: A.mm.default(x, y), small(5, 16), small(16, 7))
        add(lambda x, y: A.mm.default(x.float(), y.float()), small(17, 33), small(33, 18))
        add(lambda x, y, w: torch.softmax(x.float() @ y.float().t() * w, -1), small(4, 8), small(6, 8), torch.tensor(0.25))
        add(lambda x, y: torch.where(x == y, x, torch.cat([y[1:], y[:1]])), small(19), small(19))
        add(lambda x, k: x.t().contiguous()[k], small(5, 6), i(0, 6, 3))


def narrow():
    """Floats that integers of few bits do not hold."""
    add = lambda fn, *a: case("narrow", fn, *a)
    wide = [300.7, 2.9, -1.5, 100.3, -300.9, 70000.5, -70000.5, 255.9, -128.9, 2.0**31 - 200]
    for dtype in (torch.float64, torch.float32):
        x = torch.tensor(wide, dtype=dtype)
        for to in (torch.uint8, torch.int8, torch.int16, torch.int32):
            add(lambda x, to=to: A._to_copy.default(x, dtype=to), x)
            add(lambda x, to=to: A.cumprod.default(x, 0, dtype=to), x)
            add(lambda x, to=to: A.cumsum.default(x, 0, dtype=to), x)
            add(lambda x, to=to: A.sum.dim_IntList(x, [0], dtype=to), x)
            add(lambda x, to=to: A.prod.default(x, dtype=to), x)
    add(lambda x: A._to_copy.default(x, dtype=torch.uint8), torch.tensor([2.0**32 + 257, -(2.0**40) - 1], dtype=torch.float64))
    for half in HALF:
        add(lambda x: A._to_copy.default(x, dtype=torch.int8), torch.tensor([300.0, -200.0, 5000.0], dtype=half))
    add(lambda x: A.cumprod.default(x, 0, dtype=torch.uint8), torch.tensor([300, -2, 7, 100]))
