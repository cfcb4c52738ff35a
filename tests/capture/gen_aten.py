"""Makes aten_<family>.pt2 and .safetensors in this folder: torch.export's archives of small cases that use every row of the ATen table,
with input_K and output_K as PyTorch gave them on the CPU. Needs torch and safetensors.

    python gen_aten.py [--each DIR]

With --each, every case is an archive of its own in DIR, to find the one that fails.
"""
import re, sys, torch, zipfile, io
from pathlib import Path
from safetensors.torch import save_file

A, F, Dim = torch.ops.aten, torch.nn.functional, torch.export.Dim
HERE = Path(__file__).parent
inf, nan = float("inf"), float("nan")
gen = torch.Generator().manual_seed(0)
HALF = (torch.float16, torch.bfloat16)


def f(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=gen).to(dtype)


def p(*shape, dtype=torch.float32):
    return (torch.rand(shape, generator=gen) * 1.5 + 0.2).to(dtype)


def u(*shape):
    return torch.rand(shape, generator=gen) * 1.8 - 0.9


def i(lo, hi, *shape, dtype=torch.int64):
    return torch.randint(lo, hi, shape, generator=gen).to(dtype)


def b(*shape):
    return torch.rand(shape, generator=gen) > 0.5


def special():
    return torch.tensor([inf, -inf, nan, 0.0, -0.0, 1.5, -2.5, 0.5, 2.5])


def nc(*shape):
    """A tensor that is not contiguous."""
    return f(*reversed(shape)).permute(*reversed(range(len(shape))))


families = {}


def case(family, fn, *inputs, dyn=None):
    """`dyn` holds one dict of dynamic dimensions (or None) for each input; the dimensions become the case's own."""
    k = len(families.setdefault(family, []))
    own = lambda d: d and {axis: Dim(f"{dim.__name__}{k}", min=dim.min, max=64) for axis, dim in d.items()}
    families[family].append((fn, inputs, [own(d) for d in dyn or [None] * len(inputs)]))


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
    # In place, by the functional rows.
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


def view():
    add = lambda fn, *a, **k: case("view", fn, *a, **k)
    n, m = Dim("n", min=2, max=64), Dim("m", min=2, max=64)
    add(A.alias.default, f(2))
    add(lambda x: (A._assert_async.msg((x > -100).all(), "small"), x + 1)[1], f(2))
    add(lambda x: A.squeeze.dims(x, []), f(1, 3))
    add(lambda x: A.detach.default(x) + 1, f(2))
    add(lambda x: A.contiguous.default(x), nc(2, 3))
    add(lambda x: A.clone.default(x, memory_format=torch.contiguous_format), nc(2, 3))
    add(lambda x: x + torch.tensor([1.0, 2.0, 3.0]), f(2, 3))
    for shape in ([-1], [4, -1], [2, 1, 6, -1], [12]):
        add(lambda x, s=shape: A.view.default(x, s), f(3, 4))
    add(lambda x: A.view.default(x, [0, 4]), f(0, 2, 2))
    add(lambda x: A.reshape.default(x, [3, -1]), nc(4, 6))
    add(lambda x: A.reshape.default(x, []), f(1, 1))
    add(lambda x: x.reshape(x.shape[0], -1), f(4, 3, 2), dyn=[{0: n}])
    add(lambda x: x.reshape(-1, 2), f(4, 3, 2), dyn=[{0: n}])
    add(lambda x: x.view(x.shape[0] * x.shape[1], -1), f(4, 3, 2), dyn=[{0: n, 1: m}])
    add(lambda x: A._unsafe_view.default(x, [6]), f(2, 3))
    add(lambda x, y: A.view_as.default(x, y), f(2, 3), f(3, 2))
    add(A.flatten.using_ints, f(2, 3, 4))
    add(lambda x: A.flatten.using_ints(x, 1, -2), f(2, 3, 4, 2))
    add(A.flatten.using_ints, torch.tensor(2.0))
    add(lambda x: A.flatten.using_ints(x, 1), f(4, 3, 2), dyn=[{0: n}])
    add(lambda x: A.unflatten.int(x, -1, [2, -1]), f(3, 6))
    add(lambda x: A.unflatten.int(x, 0, [3, 1]), f(3, 6))
    for d in (0, -1, 1):
        add(lambda x, d=d: A.unsqueeze.default(x, d), f(3, 2))
    add(lambda x: A.unsqueeze.default(x, -1), torch.tensor(1.0))
    add(A.squeeze.default, f(1, 3, 1))
    add(lambda x: A.squeeze.dim(x, -1), f(1, 3, 1))
    add(lambda x: A.squeeze.dim(x, 1), f(1, 3, 1))
    add(lambda x: A.squeeze.dims(x, [0, -1]), f(1, 3, 1))
    add(lambda x: A.squeeze.dim(x, 0), torch.tensor(1.0))
    add(lambda x: A.permute.default(x, [2, 0, -2]), f(2, 3, 4))
    add(lambda x: A.permute.default(x, []), torch.tensor(1.0))
    add(lambda x: A.transpose.int(x, 0, -1), f(2, 3, 4))
    add(A.t.default, f(2, 3))
    add(A.t.default, f(3))
    add(lambda x: A.mT.default(x), f(2, 3, 4))
    add(lambda x: A.expand.default(x, [4, -1, 3]), f(2, 1))
    add(lambda x: A.expand.default(x, [2, 2]), torch.tensor(1.0))
    add(lambda x, y: A.expand_as.default(x, y), f(3, 1), f(2, 3, 4))
    add(lambda x, y: x.expand(y.shape[0], -1), f(1, 3), f(4, 2), dyn=[None, {0: n}])
    add(lambda x: A.select.int(x, 1, -1), f(2, 3, 4))
    add(lambda x: A.select.int(x, -1, 2), f(2, 3, 4))
    add(lambda x: x[-1] + x[0], f(4, 3), dyn=[{0: n}])
    for s in ((0, 1, 3, 1), (-1, None, -1, 1), (1, -2, 100, 1), (0, 1, None, 2), (1, 3, 1, 1), (0, -100, 2, 1), (-1, 0, 4, 3)):
        add(lambda x, s=s: A.slice.Tensor(x, *s), f(4, 5))
    add(lambda x: (x[1:], x[:-1], x[::2], x[-2:], x[:100], x[1::3]), f(9, 3), dyn=[{0: Dim("n", min=6, max=64)}])
    add(lambda x: A.narrow.default(x, -1, 1, 2), f(3, 4))
    add(lambda x: A.narrow.default(x, 0, -2, 2), f(3, 4))
    add(lambda x: A.split.Tensor(x, 2, -1), f(3, 5))
    add(lambda x: A.split_with_sizes.default(x, [1, 3, 1], 1), f(3, 5))
    add(lambda x: A.chunk.default(x, 3, 1), f(3, 5))
    add(lambda x: A.chunk.default(x, 4), f(6, 2))
    add(lambda x: A.unbind.int(x, -1), f(2, 3))
    add(lambda x, y: A.cat.default([x, y], -1), f(2, 3), i(0, 5, 2, 1))
    add(lambda x, y: A.cat.default([x, y]), f(0), f(2, 3))
    add(lambda x, y: torch.cat([x, y]), f(4, 3), f(5, 3), dyn=[{0: n}, {0: m}])
    add(lambda x, y: A.stack.default([x, y], -1), f(2, 3), f(2, 3, dtype=torch.float64))
    add(lambda x, y: A.stack.default([x, y]), torch.tensor(1), torch.tensor(2.0))
    add(lambda x: A.flip.default(x, [0, -1]), f(2, 3, 4))
    add(lambda x: A.flip.default(x, [0]), i(0, 9, 5))
    add(lambda x: A.flip.default(x, []), f(2, 3))
    add(lambda x: A.roll.default(x, [1, -2], [0, -1]), f(3, 4))
    add(lambda x: A.roll.default(x, [5]), f(3, 4))
    add(lambda x: A.repeat.default(x, [2, 1, 3]), f(2, 2))
    add(lambda x: A.repeat.default(x, [2]), torch.tensor(1.0))
    add(lambda x: A.tile.default(x, [2]), f(2, 2))
    add(lambda x: A.tile.default(x, [2, 1, 2]), f(2, 2))
    add(lambda x: A.pad.default(x, [1, 2]), f(2, 3))
    add(lambda x: A.pad.default(x, [1, 0, 0, 2], value=2.5), f(2, 3))
    add(lambda x: A.pad.default(x, [1, -1]), f(2, 3))
    add(lambda x: A.constant_pad_nd.default(x, [0, 1, 2, 0], 3), i(0, 5, 2, 3))
    add(lambda x: A.sym_size.int(x, 0) * x, f(4, 3), dyn=[{0: n}])
    add(lambda x: A.sym_numel.default(x) + x, f(4, 3), dyn=[{0: n}])
    add(lambda x, y: torch.zeros(x.shape[0] * y.shape[0] + 3 - 1, (x.shape[0] + y.shape[0]) // 2, 7 - x.shape[0] % 4) + 1, f(4), f(5), dyn=[{0: n}, {0: m}])


def index():
    add = lambda fn, *a, **k: case("index", fn, *a, **k)
    n = Dim("n", min=2, max=64)
    add(lambda w, ix: A.embedding.default(w, ix), f(5, 3), i(0, 5, 2, 4))
    add(lambda w, ix: A.embedding.default(w, ix, 1), f(5, 3), i(0, 5, 4, dtype=torch.int32))
    add(lambda x, ix: A.index_select.default(x, -1, ix), f(2, 3, 5), i(0, 5, 7))
    add(lambda x, ix: A.index_select.default(x, 1, ix), f(2, 3, 5), i(0, 3, 4, dtype=torch.int32))
    add(lambda x, ix: A.index_select.default(x, 0, ix), f(2, 3), torch.tensor(1))
    add(lambda x, ix: A.gather.default(x, -1, ix), f(3, 5), i(0, 5, 2, 4))
    add(lambda x, ix: A.gather.default(x, 0, ix), f(3, 5), i(0, 3, 4, 5))
    add(lambda x, ix: A.index.Tensor(x, [ix]), f(4, 3), i(-4, 4, 2, 3))
    add(lambda x, ix, iy: A.index.Tensor(x, [ix, iy]), f(4, 3, 2), i(-4, 4, 5, 1), i(0, 3, 2))
    add(lambda x, ix: A.index.Tensor(x, [None, ix]), f(4, 3, 2), i(0, 3, 2, 2))
    add(lambda x, ix, iy: A.index.Tensor(x, [ix, None, iy]), f(4, 3, 2), i(0, 4, 5), i(0, 2, 5))
    add(lambda x, ix: x[ix, :, 1:], f(4, 3, 5), i(0, 4, 2))
    add(lambda x, ix: x[ix], f(4, 3), i(-4, 4, 6), dyn=[{0: n}, None])
    add(lambda x, ix, v: A.index_put.default(x, [ix], v), f(4, 3), torch.tensor([2, -1]), f(2, 3))
    add(lambda x, ix, v: A.index_put.default(x, [ix], v, True), f(4, 3), torch.tensor([2, 2, 0]), f(3))
    add(lambda x, ix, v: A.index_put.default(x, [None, ix], v), f(4, 3), torch.tensor([2, 0]), f(4, 2))
    add(lambda x, ix, iy, v: A.index_put.default(x, [ix, iy], v), f(4, 3, 2), torch.tensor([2, 0]), torch.tensor([1, 1]), torch.tensor(5.0))
    add(lambda x, m, v: A.index_put.default(x, [m], v), f(4, 3), b(4), torch.tensor(5.0))
    add(lambda x, m, v: A.index_put.default(x, [m], v), f(4, 3), b(4, 3), torch.tensor(5.0))
    add(lambda x, ix, s: A.scatter.src(x, -1, ix, s), f(3, 5), torch.tensor([[0, 3], [4, 1], [2, 0]]), f(3, 4))
    add(lambda x, ix: A.scatter.value(x, 1, ix, 2), f(3, 5), i(0, 5, 3, 1))
    add(lambda x, ix, s: A.scatter_add.default(x, 0, ix, s), f(3, 5), i(0, 3, 4, 5), f(4, 5))
    add(lambda x, ix, s: A.scatter_add.default(x, 1, ix, s), i(0, 5, 3, 5), i(0, 5, 2, 3), i(0, 5, 3, 4))
    add(lambda x, s: A.slice_scatter.default(x, s, -1, 1, 4, 2), f(3, 5), f(3, 2))
    add(lambda x, s: A.slice_scatter.default(x, s, 0, -2), f(3, 5), f(2, 5))
    add(lambda x, s: A.slice_scatter.default(x, s, 1, 1, 100), f(3, 5), f(3, 4))
    add(lambda x, s: A.slice_scatter.default(x, s, 1, 1), f(4, 5), f(4, 4), dyn=[{0: n}, {0: n}])
    add(lambda x, s: A.select_scatter.default(x, s, -1, -2), f(3, 5), f(3))
    add(lambda x, s: A.select_scatter.default(x, s, 0, 1), f(3, 5), f(5))


def reduce():
    add = lambda fn, *a, **k: case("reduce", fn, *a, **k)
    n = Dim("n", min=2, max=64)
    for x in (f(3, 4), i(-3, 4, 5, dtype=torch.int32), b(6), f(5, dtype=torch.float16)):
        for name in "sum prod max min any all".split():
            add(getattr(A, name).default, x)
    add(lambda x: A.sum.default(x, dtype=torch.float64), i(0, 5, 4))
    add(lambda x: A.prod.default(x, dtype=torch.float32), i(1, 5, 4))
    add(lambda x: A.sum.dim_IntList(x, [0, -1], True), f(2, 3, 4))
    add(lambda x: A.sum.dim_IntList(x, [1], dtype=torch.float32), i(0, 9, 2, 3))
    add(lambda x: A.sum.dim_IntList(x, None), f(2, 3))
    add(lambda x: A.sum.dim_IntList(x, [0]), f(0, 3))
    add(lambda x: A.sum.dim_IntList(x, [-1]), b(3, 4))
    add(lambda x: A.sum.dim_IntList(x, [0]), f(4, 3), dyn=[{0: n}])
    add(lambda x: A.prod.dim_int(x, -1, True), f(3, 4))
    for name in "amax amin".split():
        op = getattr(A, name).default
        add(op, f(3, 4))
        add(lambda x, op=op: op(x, [0, -1], True), f(2, 3, 4))
        add(lambda x, op=op: op(x, [1]), b(3, 4))
        add(lambda x, op=op: op(x, [-1]), torch.tensor([[1.0, nan], [2.0, 3.0]]))
    add(lambda x: A.any.dim(x, -1, True), f(3, 4) > 1)
    add(lambda x: A.any.dims(x, [0, 1]), b(2, 3, 4))
    add(lambda x: A.all.dim(x, 0), i(0, 2, 3, 4))
    add(A.mean.default, f(3, 4))
    add(lambda x: A.mean.default(x, dtype=torch.float32), i(0, 9, 5))
    add(lambda x: A.mean.dim(x, [-1, 0], True), f(2, 3, 4))
    add(lambda x: A.mean.dim(x, [1], dtype=torch.float64), f(2, 3))
    add(lambda x: A.mean.dim(x, [0]), f(4, 3), dyn=[{0: n}])
    add(lambda x: A.mean.dim(x, None), f(4, 3, dtype=torch.bfloat16))
    for op in (A.var, A.std):
        add(op.default, f(3, 4))
        add(lambda x, op=op: op.default(x, False), f(3, 4))
        add(lambda x, op=op: op.dim(x, [-1], False, True), f(3, 4))
        add(lambda x, op=op: op.correction(x, [0], correction=2), f(5, 4))
        add(lambda x, op=op: op.correction(x, None, correction=0, keepdim=True), f(3, 4))
        add(lambda x, op=op: op.correction(x, [0]), f(5, 4), dyn=[{0: n}])
    add(lambda x: A.var_mean.correction(x, [-1], correction=0, keepdim=True), f(3, 4))
    for o in (2, 1, 0, inf, -inf, 3, 0.5):
        add(lambda x, o=o: A.linalg_vector_norm.default(x, o), f(3, 4))
        add(lambda x, o=o: A.norm.ScalarOpt_dim(x, o, [-1], True), f(3, 4))
    add(lambda x: A.linalg_vector_norm.default(x, 2, [0], True, dtype=torch.float64), f(3, 4))
    for name in "argmax argmin".split():
        op = getattr(A, name).default
        add(op, f(3, 4))
        add(lambda x, op=op: op(x, -1, True), i(0, 3, 3, 6))
        add(lambda x, op=op: op(x, 0), torch.tensor([[1.0, 5.0], [nan, 5.0]]))
        add(lambda x, op=op: op(x, None, True), f(2, 3))
    for name in "max min".split():
        op = getattr(A, name).dim
        add(lambda x, op=op: tuple(op(x, -1)), f(3, 4))
        add(lambda x, op=op: tuple(op(x, 0, True)), i(0, 4, 3, 4))
    for name in "cumsum cumprod".split():
        op = getattr(A, name).default
        add(lambda x, op=op: op(x, -1), f(3, 4))
        add(lambda x, op=op: op(x, 0), i(-2, 3, 3, 4, dtype=torch.int32))
        add(lambda x, op=op: op(x, 0, dtype=torch.float64), b(4))
        add(lambda x, op=op: op(x, 0), torch.tensor(3.0))
    add(lambda x: A.logsumexp.default(x, [0, -1]), f(2, 3, 4))
    add(lambda x: A.logsumexp.default(x, [1], True), torch.tensor([[-inf, -inf], [1.0, inf], [1000.0, 1000.0]]))
    add(lambda x: A.logsumexp.default(x, [0]), i(0, 5, 4))
    add(lambda x: tuple(A.sort.default(x, 0, True)), f(4, 3))
    add(lambda x: tuple(A.sort.default(x)), torch.tensor([2.0, nan, -inf, inf, 1.0]))
    add(lambda x: tuple(A.sort.stable(x, stable=True, dim=-1, descending=True)), i(0, 3, 2, 6))
    add(lambda x: A.argsort.default(x, 0), f(4, 3))
    add(lambda x: A.argsort.default(x, -1, True), f(4, 3))
    add(lambda x: tuple(A.topk.default(x, 2)), f(3, 5))
    add(lambda x: tuple(A.topk.default(x, 3, 0, False)), f(5, 3))
    add(A.diff.default, f(3, 4))
    add(lambda x: A.diff.default(x, 2, 0), i(0, 9, 5, 2))
    add(lambda x, y: A.diff.default(x, 1, -1, y, y), f(3, 4), f(3, 1))
    add(A.diff.default, b(6))
    add(A.diff.default, f(6), dyn=[{0: Dim("n", min=3, max=64)}])


def contract():
    add = lambda fn, *a, **k: case("contract", fn, *a, **k)
    n = Dim("n", min=2, max=64)
    add(A.linear.default, f(2, 3, 4), f(5, 4), f(5))
    add(A.linear.default, f(4), f(5, 4))
    add(A.linear.default, f(2, 4, dtype=torch.bfloat16), f(5, 4, dtype=torch.bfloat16))
    for x, y in ((f(4), f(4)), (f(2, 4), f(4)), (f(4), f(4, 3)), (f(2, 1, 3, 4), f(5, 4, 2)), (nc(3, 4), f(4, 2)), (i(0, 5, 2, 3), i(0, 5, 3, 2)), (f(2, 0), f(0, 3)), (f(3), f(2, 3, 4))):
        add(A.matmul.default, x, y)
    add(A.matmul.default, f(4, 2, 3), f(4, 3, 5), dyn=[{0: n}, {0: n}])
    add(A.matmul.default, f(4, 3), f(3, 2), dyn=[{0: n}, None])
    add(A.mm.default, f(2, 3), f(3, 4))
    add(A.mm.default, f(2, 3, dtype=torch.float16), f(3, 4, dtype=torch.float16))
    add(A.bmm.default, f(2, 3, 4), f(2, 4, 1))
    add(A.mv.default, f(2, 3), f(3))
    add(A.dot.default, f(3), f(3))
    add(lambda x, y, z: A.addmm.default(x, y, z), f(4), f(2, 3), f(3, 4))
    add(lambda x, y, z: A.addmm.default(x, y, z, beta=0.5, alpha=2), f(2, 4), f(2, 3), f(3, 4))
    add(lambda x, y, z: A.addmm.default(x, y, z, beta=0), torch.full((2, 4), nan), f(2, 3), f(3, 4))
    add(lambda x, y, z: A.addmm.default(x, y, z, beta=2, alpha=3), i(0, 5, 4), i(0, 5, 2, 3), i(0, 5, 3, 4))
    add(lambda x, y, z: A.baddbmm.default(x, y, z, beta=2, alpha=0.5), f(2, 3, 1), f(2, 3, 4), f(2, 4, 2))
    add(A.outer.default, f(3), i(0, 5, 2))
    for eq, shapes in (("ij,jk->ik", ((2, 3), (3, 4))), ("bij,bjk", ((2, 3, 4), (2, 4, 2))), ("bhid,bhjd->bhij", ((1, 2, 3, 4), (1, 2, 5, 4))), ("ij->ji", ((2, 3),)), ("ij->j", ((2, 3),)),
                       ("i,j->ij", ((2,), (3,))), ("ij,ij->", ((2, 3), (2, 3))), ("ij,jk,kl->il", ((2, 3), (3, 4), (4, 2))), (" bi , ijk -> b k", ((2, 3), (3, 4, 5))), ("bij,kj->bik", ((2, 3, 4), (5, 4)))):
        add(lambda *t, eq=eq: A.einsum.default(eq, list(t)), *[f(*s) for s in shapes])
    q, k, v = f(2, 2, 3, 4), f(2, 2, 5, 4), f(2, 2, 5, 6)
    sdpa = A.scaled_dot_product_attention.default
    add(sdpa, q, k, v)
    add(lambda q, k, v: sdpa(q, k, v, None, 0.0, True), f(1, 2, 4, 4), f(1, 2, 4, 4), f(1, 2, 4, 4))
    add(lambda q, k, v, m: sdpa(q, k, v, m, scale=0.3), q, k, v, f(3, 5))
    add(lambda q, k, v, m: sdpa(q, k, v, m), q, k, v, torch.tensor([[1, 0, 1, 1, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1]]).bool())
    add(lambda q, k, v: sdpa(q, k, v), f(2, 3, 4), f(2, 5, 4), f(2, 5, 4))
    add(lambda q, k, v, m: sdpa(q, k, v, m), f(2, 3, 4), f(2, 5, 4), f(2, 5, 4), f(2, 3, 5))
    add(lambda q, k, v: sdpa(q, k, v, enable_gqa=True), f(2, 4, 3, 4), f(2, 2, 5, 4), f(2, 2, 5, 4))
    add(lambda q, k, v: sdpa(q, k, v), f(3, 4), f(5, 4), f(5, 4))


def norm():
    add = lambda fn, *a, **k: case("norm", fn, *a, **k)
    n = Dim("n", min=2, max=64)
    add(lambda x: A.layer_norm.default(x, [3, 4]), f(2, 3, 4))
    add(lambda x, w, c: A.layer_norm.default(x, [4], w, c, 1e-3), f(2, 3, 4), f(4), f(4))
    add(lambda x, w, c: A.layer_norm.default(x, [4], w, c), f(3, 4), f(4), f(4), dyn=[{0: n}, None, None])
    add(lambda x, w: A.layer_norm.default(x, [4], w), f(2, 4, dtype=torch.float16), f(4, dtype=torch.float16))
    add(lambda x, w, c: A.native_layer_norm.default(x, [4], w, c, 1e-3)[0], f(2, 3, 4), f(4), f(4))
    add(lambda x, w: A.rms_norm.default(x, [4], w), f(2, 3, 4), f(4))
    add(lambda x: A.rms_norm.default(x, [3, 4], None, 1e-2), f(2, 3, 4))
    add(lambda x, w, c: A.group_norm.default(x, 2, w, c, 1e-3), f(2, 4, 3), f(4), f(4))
    add(lambda x: A.group_norm.default(x, 4), f(2, 4, 2, 2))
    add(lambda x, w, c: A.native_group_norm.default(x, w, c, 2, 4, 6, 2, 1e-3)[0], f(2, 4, 2, 3), f(4), f(4))
    add(lambda x, w, c, m, v: A.batch_norm.default(x, w, c, m, v, False, 0.1, 1e-3, True), f(2, 3, 2, 2), f(3), f(3), f(3), p(3))
    add(lambda x, m, v: A.batch_norm.default(x, None, None, m, v, False, 0.1, 1e-5, False), f(2, 3), f(3), p(3))
    add(lambda x, w, c, m, v: A._native_batch_norm_legit_no_training.default(x, w, c, m, v, 0.1, 1e-3)[0], f(2, 3, 2), f(3), f(3), f(3), p(3))
    for op, core in ((A.softmax.int, A._softmax.default), (A.log_softmax.int, A._log_softmax.default)):
        add(lambda x, op=op: op(x, -1), f(3, 4) * 5)
        add(lambda x, op=op: op(x, 0, torch.float64), f(3, 4))
        add(lambda x, op=op: op(x, 1, torch.float32), i(0, 5, 2, 3))
        add(lambda x, op=op: op(x, 1), torch.tensor([[-inf, 1.0], [100.0, -100.0]]))
        add(lambda x, op=op: op(x, 0), f(5, dtype=torch.bfloat16))
        add(lambda x, op=core: op(x, 1, False), f(2, 3, 4))
    add(lambda x: A.dropout.default(x, 0.5, False), f(3))
    add(lambda x: A.feature_dropout.default(x, 0.5, False), f(2, 3, 2))
    add(lambda x: A.dropout.default(x, 0.0, True) + 1, f(3))
    for r in (0, 1, 2):
        add(lambda x, t, r=r: A.mse_loss.default(x, t, r), f(3, 4), f(3, 4))
        add(lambda x, t, r=r: A.cross_entropy_loss.default(x, t, None, r), f(4, 5), i(0, 5, 4))
    add(lambda x, t, w: A.cross_entropy_loss.default(x, t, w, 1, -100, 0.1), f(4, 5), torch.tensor([0, -100, 3, 4]), p(5))
    add(lambda x, t: A.cross_entropy_loss.default(x, t, None, 1, 2), f(2, 5, 3), torch.tensor([[0, 2, 1], [2, 4, 3]]))


def image():
    add = lambda fn, *a, **k: case("image", fn, *a, **k)
    n = Dim("n", min=2, max=64)
    add(lambda x, w, c: A.conv1d.default(x, w, c, [2], [1], [2]), f(2, 3, 9), f(4, 3, 3), f(4))
    add(lambda x, w: A.conv1d.default(x, w), f(3, 9), f(4, 3, 3))
    add(lambda x, w, c: A.conv2d.default(x, w, c, [2, 1], [1, 0], [1, 2], 2), f(2, 4, 7, 6), f(6, 2, 3, 2), f(6))
    add(lambda x, w, c: A.conv2d.default(x, w, c), f(3, 5, 5), f(2, 3, 3, 3), f(2))
    add(lambda x, w, c: A.conv2d.default(x, w, c), f(4, 3, 5, 5), f(2, 3, 3, 3), f(2), dyn=[{0: n}, None, None])
    add(lambda x, w: A.conv2d.padding(x, w, None, [1, 1], "same", [1, 1]), f(1, 2, 5, 5), f(3, 2, 3, 2))
    add(lambda x, w, c: A.conv2d.padding(x, w, c, [2, 2], "valid", [1, 1]), f(1, 2, 5, 5), f(3, 2, 3, 2), f(3))
    add(lambda x, w, c: A.conv3d.default(x, w, c, [1, 2, 1], [1, 0, 1]), f(1, 2, 3, 4, 3), f(2, 2, 2, 2, 2), f(2))
    add(lambda x, w, c: A.conv_transpose1d.default(x, w, c, [2], [1], [1], 1, [2]), f(2, 3, 5), f(3, 4, 3), f(4))
    add(lambda x, w, c: A.conv_transpose2d.input(x, w, c, [2, 2], [1, 0], [1, 0], 2), f(1, 4, 3, 4), f(4, 3, 3, 2), f(6))
    add(lambda x, w, c: A.convolution.default(x, w, c, [1], [1], [1], False, [0], 1), f(2, 3, 5), f(4, 3, 3), f(4))
    add(lambda x, w: A.convolution.default(x, w, None, [2, 1], [0, 1], [1, 1], True, [1, 0], 1), f(1, 2, 3, 3), f(2, 3, 2, 2))
    add(lambda x: A.max_pool1d.default(x, [3], [2], [1]), f(2, 3, 8))
    add(lambda x: A.max_pool2d.default(x, [2, 3]), f(1, 2, 5, 7))
    add(lambda x: A.max_pool2d.default(x, [3], [2], [1], [1], True), f(2, 6, 6))
    add(lambda x: A.max_pool2d.default(x, [2, 2], [1, 2], [0, 1], [2, 1]), f(1, 2, 5, 7))
    add(lambda x: A.max_pool2d_with_indices.default(x, [3, 3], [2, 2], [1, 1])[0], f(1, 2, 5, 7))
    add(lambda x: A.avg_pool1d.default(x, [3], [2], [1], False, False), f(2, 3, 8))
    add(lambda x: A.avg_pool2d.default(x, [2, 3]), f(1, 2, 5, 7))
    add(lambda x: A.avg_pool2d.default(x, [3, 3], [2, 2], [1, 1], True, True), f(1, 2, 6, 6))
    add(lambda x: A.avg_pool2d.default(x, [3, 3], [2, 2], [1, 1], True, False, 5), f(2, 6, 6))
    add(lambda x: A.adaptive_avg_pool1d.default(x, [3]), f(2, 3, 8))
    add(lambda x: A.adaptive_avg_pool2d.default(x, [3, 2]), f(1, 2, 7, 5))
    add(lambda x: A.adaptive_avg_pool2d.default(x, [1, 1]), f(4, 2, 7, 5), dyn=[{0: n}])
    add(lambda x: A._adaptive_avg_pool2d.default(x, [2, 2]), f(2, 6, 4))
    add(lambda x: A.upsample_nearest2d.vec(x, [5, 7], None), f(1, 2, 3, 4))
    add(lambda x: A.upsample_nearest2d.vec(x, None, [2.0, 3.0]), f(1, 2, 3, 4))
    add(lambda x: A.upsample_nearest2d.default(x, [6, 4]), f(1, 2, 3, 4))


def in_place():
    """What reads a base and its other views after a write to one of them."""
    add = lambda fn, *a, **k: case("in_place", fn, *a, **k)

    def relu(x):
        y = x * 2
        z = y.relu_()
        return y + 1, z

    def slice_(x):
        y = x.clone()
        row, column, before = y[1], y[:, 1], y[0] + 0
        y[1:3, ::2].add_(10)
        return y, row, column, before

    def select(x):
        y = x.clone()
        flat, t = y.view(-1), y.t()
        y.select(1, 2).mul_(-1)
        t[0].add_(5)
        return y, flat, t

    def transposed(x):
        y = x.clone()
        y.t().add_(torch.arange(4.0).unsqueeze(1))
        y.view(2, -1)[1].sub_(1, alpha=2)
        return y, y.sum(0)

    def twice(x):
        y = x.clone()
        a = y[1:]
        c = a[1:]
        c.fill_(0.5)
        a[0].copy_(y[0])
        return y, a, c

    def masked(x, m):
        y = x.clone()
        v = y[1:]
        v.masked_fill_(m, -1.0)
        return y, v + y[:-1]

    def put(x, ix):
        y = x.clone()
        w = y.t()
        y.index_put_((ix,), torch.tensor(3.0))
        y[ix] += 1
        return y, w

    def mixed(x):
        y = torch.zeros(3, 4, dtype=torch.int64)
        y[1] = x[0].long() + 2
        y[:, 1:].add_(1)
        y[-1, -1] = 9
        return y, y.unsqueeze(0).permute(2, 0, 1)

    def split(x):
        y = x + 0
        a, c = y.split(2, 1)
        a.mul_(2)
        c.add_(a)
        return y, a, c

    def copies(x):
        y = x.clone()
        a, c, d, e = y.t().contiguous(), y.t().reshape(-1), y.contiguous(), y.type_as(x)
        a.add_(1), c.mul_(2), d.sub_(3), e[0].fill_(torch.tensor(7)), y[1].zero_()
        const = torch.tensor([1.0, 2.0])
        const.add_(1)
        return y, a, c, d, e, const

    for fn in (copies, relu, slice_, select, transposed, twice, mixed, split):
        add(fn, f(3, 4) if fn is not transposed else f(4, 4)[:, :4])
    add(masked, f(3, 4), b(2, 4))
    add(put, f(3, 4), torch.tensor([2, 0]))
    add(lambda x: (x.clone().copy_(torch.ones(4, dtype=torch.int64)), x), f(3, 4))


class Each(torch.nn.Module):
    def __init__(self, cases):
        super().__init__()
        self.cases = cases

    def forward(self, *args):
        out, at = [], 0
        for fn, inputs, _ in self.cases:
            r = fn(*args[at : at + len(inputs)])
            at += len(inputs)
            out += list(r) if isinstance(r, (tuple, list)) else [r]
        return tuple(out)


class Unsupported(torch.nn.Module):
    def forward(self, x):
        y = torch.lgamma(x).relu()
        return torch.lgamma(y) + torch.erfinv(x)


class Training(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x) * 2


class State(torch.nn.Module):
    """Buffers and inputs that a call changes."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.tensor(3))
        self.register_buffer("mean", torch.arange(4.0))
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 4))

    def forward(self, x, y):
        self.count.add_(1)
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        y[0].copy_(x[1])
        return (x - self.mean) * self.weight + self.count, y.sum()


def strip(ep):
    """Only the file names of stack traces, and of those only the user's."""
    for node in ep.graph.nodes:
        trace = node.meta.get("stack_trace") or ""
        last = re.findall(r'File "[^"]*?(gen_aten\.py)", line (\d+)', trace)
        node.meta["stack_trace"] = f'  File "{last[-1][0]}", line {last[-1][1]}, in forward' if last else None
        node.meta.pop("nn_module_stack", None), node.meta.pop("source_fn_stack", None)
    return ep


def save(ep, path):
    """As torch.export.save, with the JSON deflated and without the samples."""
    buffer = io.BytesIO()
    torch.export.save(strip(ep), buffer)
    with zipfile.ZipFile(buffer) as src, zipfile.ZipFile(path, "w") as dst:
        for name in src.namelist():
            if "sample_inputs" in name or name.endswith(".data/serialization_id"):
                continue
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED if name.endswith(".json") else zipfile.ZIP_STORED
            dst.writestr(info, src.read(name))


def write(path, module, args, dyn, outputs=None):
    args = tuple(args)
    want = module(*[a.clone() for a in args]) if outputs is None else outputs
    ep = torch.export.export(module, args, dynamic_shapes=dyn)
    save(ep, f"{path}.pt2")
    plain = lambda t: t.detach().clone(memory_format=torch.contiguous_format)
    save_file({f"input_{k}": plain(t) for k, t in enumerate(args)} | {f"output_{k}": plain(t) for k, t in enumerate(want)}, f"{path}.safetensors")
    return ep


def float8():
    add = lambda fn, *a, **k: case("float8", fn, *a, **k)
    n = Dim("n", min=2, max=64)
    # Every bit of more is in tests/compiled/gen_fp8.py.
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


def empty():
    """What has no elements along the axis that is combined."""
    add = lambda fn, *a, **k: case("empty", fn, *a, **k)
    attention = F.scaled_dot_product_attention
    for shape, axis in (((3, 0), 1), ((0, 4), 0), ((2, 0, 5), 1), ((0,), 0)):
        add(lambda x, a=axis: A.softmax.int(x, a), f(*shape))
        add(lambda x, a=axis: A.log_softmax.int(x, a), f(*shape))
        add(lambda x, a=axis: A.logsumexp.default(x, [a]), f(*shape))
        add(lambda x, a=axis: A.softmax.int(x, a).sum(a), f(*shape))
    for heads, queries, keys in ((2, 3, 0), (2, 0, 5), (2, 0, 0), (1, 40, 0)):
        for dtype in (torch.float32, torch.bfloat16):
            q, k, v = f(2, heads, queries, 8, dtype=dtype), f(2, heads, keys, 8, dtype=dtype), f(2, heads, keys, 4, dtype=dtype)
            add(lambda q, k, v: attention(q, k, v), q, k, v)
    add(lambda q, k, v: attention(q, k, v, is_causal=True), f(1, 2, 3, 8), f(1, 2, 0, 8), f(1, 2, 0, 8))
    add(lambda q, k, v, m: attention(q, k, v, attn_mask=m), f(1, 2, 3, 8), f(1, 2, 0, 8), f(1, 2, 0, 8), f(3, 0))


if __name__ == "__main__":
    for make in (unary, binary, create, view, index, reduce, contract, norm, image, in_place, float8, empty):
        make()
    each = Path(sys.argv[2]) if sys.argv[1:2] == ["--each"] else None
    if each:
        each.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    with torch.no_grad():
        for family, cases in families.items():
            groups = [(each / f"aten_{family}_{k:03}", [c]) for k, c in enumerate(cases)] if each else [(HERE / f"aten_{family}", cases)]
            for path, group in groups:
                args = [t for _, inputs, _ in group for t in inputs]
                dyn = {"args": tuple(d for _, _, ds in group for d in ds)}
                try:
                    write(path, Each(group), args, dyn)
                except Exception as e:
                    print(f"{path.name}: {type(e).__name__}: {str(e)[:600]}", flush=True)
        if not each:
            x, y = f(3, 4), f(2, 4)
            m, y2 = State(), y.clone()
            ep = torch.export.export(State(), (x, y.clone()))
            out = m(x, y2)
            final = list(out) + [m.count, m.mean, y2]
            t = {"input_0": x, "input_1": y} | {f"output_{k}": v.detach().clone() for k, v in enumerate(final)}
            save(torch.export.export(Unsupported(), (u(3),)), HERE / "unsupported.pt2")
            save(torch.export.export(Training(torch.nn.BatchNorm1d(4)), (x,)), HERE / "batch_norm_training.pt2")
            save(torch.export.export(Training(torch.nn.Dropout(0.5)), (x,)), HERE / "dropout_training.pt2")
            save(ep.run_decompositions(), HERE / "state.core.pt2")
            save(ep, HERE / "state.pt2")
            save_file(t, str(HERE / "state.safetensors"))
