"""Cases of prims, built on import in file order, since all share one random generator."""
import itertools, math
import numpy as np
import torch
import torch.nn.functional as F
from reference_support import *

# ---- pointwise
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 0.5, -2.5, 1.5, 1e-300, 5e-324, -1e300, 710.0])
REGULAR = np.array([0.1, -0.1, 1e-9, -1e-9, 0.9, -0.9, 2.7, -2.7, 3.5, 12.3, -12.3, 100.25, 1e5])
v_erf = np.vectorize(math.erf)
UNARY = {
    "Neg": np.negative, "Abs": np.abs, "Sign": lambda x: np.where(x == 0, x, np.sign(x)), "Exp": np.exp, "Exp2": np.exp2,
    "Expm1": np.expm1, "Log": np.log, "Log1p": np.log1p, "Log2": np.log2, "Sqrt": np.sqrt,
    "Rsqrt": lambda x: T(x).rsqrt().numpy(), "Sin": np.sin, "Cos": np.cos, "Tan": np.tan, "Asin": np.arcsin,
    "Acos": np.arccos, "Atan": np.arctan, "Sinh": np.sinh, "Cosh": np.cosh, "Tanh": np.tanh, "Erf": v_erf, "Ceil": np.ceil,
    "Floor": np.floor, "RoundEven": np.rint, "Trunc": np.trunc, "IsFinite": np.isfinite, "IsNan": np.isnan,
}
for kind, f in UNARY.items():
    x = np.concatenate([SPECIAL, REGULAR])
    case("unary", x, f(x), kind=kind)
for dtype in INTS:
    info = np.iinfo(NP[dtype])
    x = np.array([info.min, info.max, 0, 1, 7], dtype=NP[dtype])
    for kind, f in {"Neg": np.negative, "Abs": np.abs, "Sign": np.sign, "Not": np.invert, "IsFinite": np.isfinite, "IsNan": np.isnan}.items():
        case("unary", x, f(x), kind=kind)
case("unary", np.array([True, False]), np.array([False, True]), kind="Not")

pairs = np.array(list(itertools.product([0.0, -0.0, 1.0, INF, -INF, NAN, -2.5, 3.0, 0.1], repeat=2)))
px, py = pairs[:, 0].copy(), pairs[:, 1].copy()


def ieee(pick):
    def f(a, b):
        if math.isnan(a) or math.isnan(b):
            return NAN
        if a == b == 0:  # signs: + above -
            return pick(math.copysign(1, a), math.copysign(1, b)) * 0.0
        return pick(a, b)
    return np.vectorize(f)


BINARY = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Rem": np.fmod,
    "FloorDiv": lambda x, y: torch.floor_divide(T(x), T(y)).numpy(), "Pow": lambda x, y: torch.pow(T(x), T(y)).numpy(),
    "Max": ieee(max), "Min": ieee(min), "Atan2": np.arctan2,
}
for kind, f in BINARY.items():
    case("binary", (px, py), f(px, py), kind=kind)
x, y = rand(12), rand(12)
for kind in ["Rem", "FloorDiv", "Atan2"]:
    case("binary", (x, y), BINARY[kind](x, y), kind=kind)
case("binary", (abs(x), y), BINARY["Pow"](abs(x), y), kind="Pow")
INT_BINARY = {
    "Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Max": torch.maximum, "Min": torch.minimum, "Pow": torch.pow,
    "And": torch.bitwise_and, "Or": torch.bitwise_or, "Xor": torch.bitwise_xor, "Shl": torch.bitwise_left_shift,
    "Shr": torch.bitwise_right_shift, "Div": lambda x, y: torch.div(x, y, rounding_mode="trunc"), "Rem": torch.fmod,
    "FloorDiv": lambda x, y: torch.div(x, y, rounding_mode="floor"),
}
for dtype in INTS:
    for kind, f in INT_BINARY.items():
        x, y = ints(dtype, 12), ints(dtype, 12)
        if kind in ("Div", "Rem", "FloorDiv"):
            y = np.where((y == 0) | (y == -1 if dtype != "ui8" else False), 3, y).astype(NP[dtype])
        if kind in ("Shl", "Shr"):
            y = np.array([0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 63, 64]).astype(NP[dtype])
            y = y if dtype == "ui8" else np.where(y == 15, -1, y).astype(NP[dtype])
        if kind == "Pow":
            x[:5], y[:5] = ([0, 1, 2, 3, 5] if dtype == "ui8" else [0, 1, -1, -1, 2]), ([0, 9, 7, 5, 4] if dtype == "ui8" else [-1, -3, -3, -4, -1])
            y[5:] = np.clip(y[5:], 0, 40)
        case("binary", (x, y), f(T(x), T(y)), kind=kind)
b0, b1 = np.array([False, False, True, True]), np.array([False, True, False, True])
for kind, f in {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor, "Max": np.logical_or, "Min": np.logical_and,
                "Add": np.logical_or, "Mul": np.logical_and}.items():
    case("binary", (b0, b1), f(b0, b1), kind=kind)
for kind, f in {"Eq": np.equal, "Ne": np.not_equal, "Lt": np.less, "Le": np.less_equal, "Gt": np.greater, "Ge": np.greater_equal}.items():
    q = np.array(list(itertools.product([0.0, -0.0, 1.5, NAN, INF, -INF], repeat=2)))
    case("compare", (q[:, 0], q[:, 1]), f(q[:, 0], q[:, 1]), kind=kind)
    for dtype in ["i64", "ui8"]:
        x, y = ints(dtype, 8), ints(dtype, 8)
        y[:3] = x[:3]
        case("compare", (x, y), f(x, y), kind=kind)
    case("compare", (b0, b1), f(b0, b1), kind=kind)
for dtype in ["f64", "i32", "i1"]:
    c = rng.random((2, 3)) < 0.5
    x, y = (rand(2, 3), rand(2, 3)) if dtype == "f64" else (rng.integers(0, 2, (2, 2, 3)).astype(NP[dtype]))
    case("select", (c, x, y), np.where(c, x, y))
x = np.array([1.0, -5.0, 9.0, NAN, INF, -INF, 2.0, 2.0, 2.0])
lo = np.array([0.0, -1.0, -1.0, 0.0, 0.0, 0.0, 5.0, NAN, 0.0])
hi = np.array([2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 3.0, 1.0, NAN])
case("clamp", (x, lo, hi), torch.clamp(T(x), T(lo), T(hi)))
for dtype in INTS:
    x, lo, hi = ints(dtype, 8), ints(dtype, 8), ints(dtype, 8)
    case("clamp", (x, lo, hi), torch.clamp(T(x), T(lo), T(hi)))

# ---- dtypes
for dtype in INTS + ["i1"]:
    x = np.array([0.0, -0.0, 1.9, 5.5, 100.0] + ([-1.9, -100.7] if dtype not in ("ui8", "i1") else []))
    case("convert", x, T(x).to(TORCH[dtype]), dtype=dtype)
    for source in INTS + ["i1"]:
        x = ints(source, 6) if source != "i1" else b1
        case("convert", x, T(x).to(TORCH[dtype]), dtype=dtype)
    x = ints(dtype, 6) if dtype != "i1" else b1
    case("convert", x, T(x).double(), dtype="f64")
case("convert", np.array([NAN, INF, 1e-320]), np.array([True, True, True]), dtype="i1")
big = np.array([2**63 - 1, -(2**63), 2**62 + 1, 2**53 + 1, 2**60 + 2**36 + 1, 2**60 + 2**36, 2**60 + 3 * 2**36 - 1, 2**24 + 1, 2**24 + 3, -(2**40) - 2**16 - 1])
case("convert", big, big.astype(np.float64), dtype="f64")
case("convert_rounded", big, enc(big.astype(np.float32), "f32"), dtype="f32")
case("convert_rounded", np.array([65519, 65520, 2049, 2051, -7]), enc(np.array([65519, 65520, 2049, 2051, -7]).astype(np.float16), "f16"), dtype="f16")


def rounding_inputs(name):
    """Numbers near boundaries, exact in f32, through which PyTorch converts."""
    if name in ("f8E4M3FN", "f8E5M2"):
        grid = torch.arange(128, dtype=torch.uint8).view(TORCH[name]).double().numpy()
    else:
        wanted = np.unique(np.concatenate([np.arange(6), 2 ** np.arange(0, 15, 2), 2 ** np.arange(1, 15, 2) - 1, rng.integers(0, 2**15 - 1, 8), [0x7bfe, 0x7bff, 0x7f7e, 0x7f7f]]))
        grid = torch.from_numpy(wanted.astype(np.int16)).view(TORCH[name]).double().numpy()
        following = torch.from_numpy((wanted + 1).astype(np.int16)).view(TORCH[name]).double().numpy()
        grid = np.stack([grid, following], 1).reshape(-1)
    grid = grid[np.isfinite(grid)]
    middle = (grid[1:] + grid[:-1]) / 2
    near = np.nextafter(middle.astype(np.float32), np.float32(INF)).astype(np.float64)
    below = np.nextafter(middle.astype(np.float32), np.float32(-INF)).astype(np.float64)
    x = np.concatenate([grid[::5], middle, near[::6], below[::6], [INF, NAN, 448.0, 464.0, 465.0, 480.0, 57344.0, 61439.0, 61440.0, 65519.0, 65520.0, 3.3895e38, 3.4e38]])
    x = np.float64(np.float32(x))
    return np.where(np.arange(len(x)) % 2 == 0, x, -x)


for name in ["bf16", "f8E4M3FN", "f8E5M2"]:
    x = rounding_inputs(name)
    case("round", x, enc(T(x).to(TORCH[name]), name), dtype=name)
x = rounding_inputs("f16")
x = np.concatenate([x, np.nextafter(x[::4], INF), rng.uniform(-1, 1, 20) * 2.0 ** rng.integers(-28, 17, 20)])
case("round", x, enc(x.astype(np.float16), "f16"), dtype="f16")
x = np.concatenate([rng.uniform(-1, 1, 30) * 2.0 ** rng.integers(-155, 129, 30), [1 + 2.0**-24, 1 + 3 * 2.0**-24, 1 + 2.0**-24 + 2.0**-50, 2.0**-150, 2.0**-150 * 1.5, 3.4028235677973366e38, INF, NAN, -0.0]])
case("round", x, enc(x.astype(np.float32), "f32"), dtype="f32")
for name in ["f8E4M3FN", "f8E5M2"]:
    for source in ["i8", "ui8"]:
        x = np.arange(0, 256, 1 if source == "i8" else 7).astype(np.uint8).view(NP[source])
        case("bitcast", x, enc(T(x).view(TORCH[name]), name), dtype=name)
        if source == "i8":
            x = x[::5]
        keep = ~np.isnan(T(x).view(TORCH[name]).double().numpy())
        case("bitcast", enc(T(x[keep]).view(TORCH[name]), name), x[keep], dtype=source)
for name, source in [("f16", "i16"), ("bf16", "i16"), ("f32", "i32"), ("f64", "i64")]:
    x = np.concatenate([ints(source, 20), np.arange(4).astype(NP[source])])
    x = x[~np.isnan(T(x).view(TORCH[name]).double().numpy())]
    case("bitcast", x, enc(T(x).view(TORCH[name]), name), dtype=name)
    case("bitcast", enc(T(x).view(TORCH[name]), name), x, dtype=source)
x = ints("i8", 6)
case("bitcast", x, x.view(np.uint8), dtype="ui8")

# ---- movement
for value in [np.float64(2.5), np.int32(-7), np.bool_(True)]:
    case("splat", np.asarray(value), np.full((2, 3), value), sizes=[2, 3])
    case("splat", np.asarray(value), np.full((), value), sizes=[])
for axis in range(3):
    case("iota", (), np.indices((2, 3, 2))[axis].astype(np.float64), sizes=[2, 3, 2], axis=axis, dtype="f64")
    case("iota", (), np.indices((2, 0, 2))[axis].astype(np.int64), sizes=[2, 0, 2], axis=axis, dtype="i64")
case("iota", (), np.arange(300).astype(np.int8), sizes=[300], axis=0, dtype="i8")
case("iota", (), np.arange(260).astype(np.uint8), sizes=[260], axis=0, dtype="ui8")
x = rand(2, 1, 3)
case("broadcast_in_dim", x, np.broadcast_to(x.reshape(1, 2, 1, 3), (4, 2, 5, 3)), dims=[1, 2, 3], sizes=[4, 2, 5, 3])
case("broadcast_in_dim", rand(3) * 0 + 1.5, np.full((3, 2), 1.5), dims=[0], sizes=[3, 2])
case("broadcast_in_dim", np.array([1, 2, 3]), np.array([[1, 1], [2, 2], [3, 3]]), dims=[0], sizes=[3, 2])
case("broadcast_in_dim", np.asarray(True), np.full((2, 2), True), dims=[], sizes=[2, 2])
case("broadcast_in_dim", rand(1, 0), np.zeros((2, 0)), dims=[0, 1], sizes=[2, 0])
for dtype in ["f64", "ui8", "i1"]:
    x = rand(2, 3, 4) if dtype == "f64" else rng.integers(0, 2, (2, 3, 4)).astype(NP[dtype])
    case("reshape", x, x.reshape(4, 6), sizes=[4, 6])
    case("transpose", x, x.transpose(2, 0, 1), permutation=[2, 0, 1])
    case("slice", x, x[1:2, 0:3:2, 1:4], offsets=[1, 0, 1], sizes=[1, 2, 3], strides=[1, 2, 1])
    case("slice", x, x[2:, :, ::3], offsets=[2, 0, 0], sizes=[0, 3, 2], strides=[1, 1, 3])
    case("reverse", x, x[::-1, :, ::-1], dims=[2, 0])
    case("reverse", x, x, dims=[])
    case("concat", (x, x[:, :1], x[:, 1:]), np.concatenate([x, x[:, :1], x[:, 1:]], 1), axis=1)
    case("concat", (x, x[:0]), x, axis=0)
case("transpose", np.asarray(1.5), np.asarray(1.5), permutation=[])
case("concat", (np.zeros((2, 0)), np.zeros((2, 0))), np.zeros((2, 0)), axis=1)
x = rand(3, 4)
for low, high in [([1, 0], [2, 3]), ([-1, 2], [0, -3]), ([-2, -1], [-1, -1]), ([-2, 1], [1, -2])]:
    case("pad", (x, np.asarray(9.5)), F.pad(T(x), (low[1], high[1], low[0], high[0]), value=9.5), low=low, high=high)
case("pad", (np.array([1, 2]), np.asarray(7)), np.array([7, 7]), low=[-5], high=[5])
case("pad", (np.array([True]), np.asarray(False)), np.array([False, True]), low=[1], high=[0])

# ---- indexed
x = rand(3, 4, 2)
i, j = np.array([[0, 2, 2], [1, 0, 2]]), np.array([[3, 0, 1], [1, 3, 3]])
case("gather", (x, i), x[i], dims=[0])
case("gather", (x, i, j), x[i, j], dims=[0, 1])
case("gather", (x, j.astype(np.int32)), np.moveaxis(x[:, j], 0, 2), dims=[1])
k = np.array([[0, 1, 1], [0, 0, 1]])
case("gather", (x, k, i), x.transpose(2, 0, 1)[k, i], dims=[2, 0])
case("gather", (x, i, j, k), x[i, j, k], dims=[0, 1, 2])
case("gather", (np.arange(5).astype(np.uint8), np.asarray(3)), np.asarray(3, dtype=np.uint8), dims=[0])
case("gather", (x, np.zeros((0,), np.int64)), x[:0], dims=[0])


def scatter_ref(kind, x, u, idx, dims):
    out = x.copy()
    moved = np.moveaxis(out, dims, range(len(dims)))  # a view
    f = {"Add": np.add, "Mul": np.multiply, "Max": np.maximum, "Min": np.minimum, "Assign": lambda a, b: b}[kind]
    for at in np.ndindex(idx[0].shape):
        where = tuple(int(t[at]) for t in idx)
        moved[where] = f(moved[where], u[at])
    return out


for kind in ["Assign", "Add", "Mul", "Max", "Min"]:
    for dims, idx in [([0], [i]), ([0, 1], [i, j]), ([2, 0], [k, i])]:
        shape = i.shape + tuple(s for d, s in enumerate(x.shape) if d not in dims)
        u = rand(*shape)
        case("scatter", (x, u, *idx), scatter_ref(kind, x, u, idx, dims), kind=kind, dims=dims)
    y, u = ints("i8", 4), ints("i8", 6)
    idx = np.array([0, 3, 3, 0, 1, 3])
    case("scatter", (y, u, idx), scatter_ref(kind, y, u, [idx], [0]), kind=kind, dims=[0])
case("scatter", (np.array([1.0, 2.0]), np.array([NAN, 5.0, 1.0]), np.array([0, 0, 1])), np.array([NAN, 2.0]), kind="Max", dims=[0])
x = rand(4, 5)
for s in [(1, 2), (-3, 99), (3, 0), (np.iinfo(np.int64).min, np.iinfo(np.int64).max)]:
    a, b = min(max(s[0], 0), 2), min(max(s[1], 0), 2)
    starts = (np.asarray(s[0], dtype=np.int64), np.asarray(s[1], dtype=np.int64))
    case("dynamic_slice", (x, *starts), x[a:a + 2, b:b + 3], sizes=[2, 3])
    u, r = rand(2, 3), x.copy()
    r[a:a + 2, b:b + 3] = u
    case("dynamic_update_slice", (x, u, *starts), r)
case("dynamic_slice", np.asarray(4), np.asarray(4), sizes=[])
case("dynamic_update_slice", (np.array([1, 2, 3], np.uint8), np.array([9], np.uint8), np.asarray(200, np.uint8)), np.array([1, 2, 9], np.uint8))

# ---- reductions
x, xn = rand(2, 3, 4), rand(2, 3, 4)
xn[0, 1, 2], xn[1, 0, 0], xn[1, 2, 3] = NAN, INF, -INF
R = {"Sum": np.sum, "Prod": np.prod, "Max": np.max, "Min": np.min}
for kind, f in R.items():
    for dims in [[1], [0, 2], [2, 1, 0], []]:
        case("reduce", x, f(x, axis=tuple(dims)), scale=1, kind=kind, dims=dims)
    case("reduce", xn, f(xn, axis=2), scale=1, kind=kind, dims=[2])
    for dtype in INTS:
        y = ints(dtype, 3, 2)
        extra = {"dtype": NP[dtype]} if kind in ("Sum", "Prod") else {}
        case("reduce", y, f(y, axis=0, **extra), kind=kind, dims=[0])
case("reduce", np.zeros((2, 0)), np.zeros(2), kind="Sum", dims=[1])
case("reduce", np.zeros((2, 0)), np.ones(2), kind="Prod", dims=[1])
case("reduce", np.zeros((0, 2)), np.zeros(0), kind="Max", dims=[1])
t = rng.random((3, 4)) < 0.5
t[0], t[1] = True, False
for kind, f in {"Any": np.any, "All": np.all, "Max": np.any, "Min": np.all, "Sum": np.any, "Prod": np.all}.items():
    case("reduce", t, f(t, axis=1), kind=kind, dims=[1])
case("reduce", np.zeros((0, 2), bool), np.ones(2, bool), kind="All", dims=[0])
case("reduce", np.zeros((0, 2), bool), np.zeros(2, bool), kind="Any", dims=[0])
ties = np.array([[1.0, 3.0, 3.0, 1.0], [NAN, 2.0, NAN, -INF], [INF, NAN, 1.0, 2.0], [-0.0, 0.0, 0.0, -0.0]])
for op, f in {"arg_max": np.argmax, "arg_min": np.argmin}.items():
    for axis in range(2):
        case(op, ties, f(ties, axis), axis=axis)
    for dtype in INTS:
        y = ints(dtype, 3, 3)
        case(op, y, f(y, 1), axis=1)
    case(op, t, f(t, 1), axis=1)
    case(op, np.zeros((2, 0, 3)), np.zeros((2, 0), np.int64), axis=2)
A = {"Sum": np.add, "Prod": np.multiply, "Max": np.maximum, "Min": np.minimum}
for kind, f in A.items():
    for axis in range(3):
        case("cumulative", x, f.accumulate(x, axis), scale=1, kind=kind, axis=axis)
    case("cumulative", xn, f.accumulate(xn, 2), scale=1, kind=kind, axis=2)
    for dtype in ["i32", "i8", "ui8"]:
        y = ints(dtype, 6)
        case("cumulative", y, f.accumulate(y, 0, dtype=NP[dtype]), kind=kind, axis=0)
for axis, descending in itertools.product([0, 1], [False, True]):
    for y in [ties, np.round(rng.uniform(0, 3, (5, 4))), ints("i8", 4, 5), rng.integers(0, 3, (6, 2)).astype(np.uint8), t]:
        v, p = torch.sort(T(y), dim=axis, descending=descending, stable=True)
        v = np.take_along_axis(y, p.numpy(), axis)
        case("sort", y, (v, p), axis=axis, descending=descending)
        for count in [0, 2]:
            cut = [slice(None)] * 2
            cut[axis] = slice(0, count)
            case("top_k", y, (v[tuple(cut)], p[tuple(cut)]), axis=axis, k=count, smallest=not descending)
y = rng.permutation(21).reshape(3, 7) * 0.5  # no ties: torch.topk does not define their order
for smallest in [False, True]:
    v, p = torch.topk(T(y), 3, 1, largest=not smallest)
    case("top_k", y, (v, p), axis=1, k=3, smallest=smallest)

# ---- Fourier transforms; of numbers of their own, so that other cases stay as they are
own = np.random.default_rng(12)
for n, inverse in itertools.product([1, 2, 7, 12, 30, 37], [False, True]):
    re, im = own.normal(size=(2, 2, 3, n))
    # NumPy scales inverse transforms; these are not.
    scale = n if inverse else 1
    parts = lambda z: (np.ascontiguousarray(z.real), np.ascontiguousarray(z.imag))
    whole = (np.fft.ifft if inverse else np.fft.fft)(re + 1j * im, axis=-1) * scale
    case("fft", (re, im), parts(whole), scale=n, kind="C2c", length=n, inverse=inverse)
    half = np.conj(np.fft.rfft(re)) if inverse else np.fft.rfft(re)
    case("fft", re, parts(half), scale=n, kind="R2c", length=n, inverse=inverse)
    re, im = own.normal(size=(2, 3, n // 2 + 1))
    z = re + 1j * (im if inverse else -im)
    case("fft", (re, im), np.fft.irfft(z, n) * n, scale=n, kind="C2r", length=n, inverse=inverse)

# ---- contractions
def dot(x, y, lb, rb, lc, rc, spec, **kw):
    case("dot_general", (x, y), kw.pop("out", None) if "out" in kw else np.einsum(spec, x, y), scale=1, lhs_batch=lb, rhs_batch=rb, lhs_contract=lc, rhs_contract=rc, **kw)


dot(rand(3, 4), rand(4, 2), [], [], [1], [0], "mk,kn->mn")
dot(rand(2, 3, 4), rand(2, 5, 4), [0], [0], [2], [2], "bmk,bnk->bmn")
dot(rand(3, 2, 4), rand(4, 5, 2), [1], [2], [2], [0], "mbk,knb->bmn")
dot(rand(2, 3, 4), rand(4, 3, 2), [], [], [1, 2], [1, 0], "mkl,lkn->mn")
dot(rand(2, 3, 2, 2), rand(3, 2, 4), [1, 0], [0, 1], [], [], "abmx,ban->bamxn")
dot(rand(3), rand(3), [], [], [0], [0], "k,k->")
dot(np.zeros((2, 0)), np.zeros((0, 3)), [], [], [1], [0], "mk,kn->mn")
for dtype in INTS:
    x, y = ints(dtype, 2, 3), ints(dtype, 3, 2)
    dot(x, y, [], [], [1], [0], "", out=np.asarray((x[:, :, None] * y[None]).sum(1, dtype=NP[dtype])))
x, y = ints("i8", 2, 5), ints("i8", 5, 2)
dot(x, y, [], [], [1], [0], "", out=x.astype(np.int32) @ y.astype(np.int32), element_type="i32")
x = ints("ui8", 5, 2)
dot(y.T.copy(), x, [], [], [1], [0], "", out=y.T.astype(np.int32) @ x.astype(np.int32), element_type="i32")


def conv(n, c, o, size, kernel, stride=1, low=0, high=None, dilation=1, groups=1, transposed=False, extra=None, dtype=None):
    r = len(size)
    full = lambda v: list(v) if isinstance(v, (list, tuple)) else [v] * r
    stride, low, dilation, kernel = full(stride), full(low), full(dilation), full(kernel)
    high = low if high is None else full(high)
    w_shape = ([c, o // groups] if transposed else [o, c // groups]) + kernel
    x, w = (rand(n, c, *size), rand(*w_shape)) if dtype is None else (ints(dtype, n, c, *size) % 50, ints(dtype, *w_shape) % 50)
    tx, tw = T(x.astype(np.float64)), T(w.astype(np.float64))
    if not transposed:
        pads = [v for d in reversed(range(r)) for v in (low[d], high[d])]
        out = [F.conv1d, F.conv2d, F.conv3d][r - 1](F.pad(tx, pads), tw, stride=stride, dilation=dilation, groups=groups)
    else:
        f = [F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d][r - 1]
        if low == high:
            out = f(tx, tw, stride=stride, padding=low, output_padding=extra or 0, dilation=dilation, groups=groups)
        else:
            out = f(tx, tw, stride=stride, dilation=dilation, groups=groups)
            out = F.pad(out, [v for d in reversed(range(r)) for v in (-low[d], (extra[d] if extra else 0) - high[d])])
    if dtype is not None:
        out = out.numpy().astype(np.int64).astype(NP[dtype])
    case("convolution", (x, w), out, scale=1, strides=stride, pad_low=low, pad_high=high, dilation=dilation, groups=groups, transposed=transposed, output_padding=extra)


conv(2, 3, 2, [7], 3)
conv(1, 4, 6, [6], 3, stride=2, low=1, groups=2)
conv(1, 2, 3, [5, 6], [3, 2], stride=[2, 1], low=[1, 0], high=[2, 1], dilation=[1, 2])
conv(1, 4, 4, [4, 3], 3, low=1, groups=4)
conv(1, 1, 2, [3, 4, 3], [2, 3, 1], stride=[1, 2, 1], low=[1, 1, 0])
conv(1, 2, 2, [8], 3, low=-1, high=-2)
conv(1, 2, 2, [4, 4], 2, stride=3)
conv(1, 2, 3, [5], 3, low=1, dtype="i32")
conv(1, 2, 2, [5], 2, dtype="i8")
conv(1, 2, 3, [4], 3, transposed=True)
conv(1, 4, 6, [4], 3, stride=2, low=1, groups=2, transposed=True, extra=[1])
conv(1, 3, 2, [3, 4], [3, 2], stride=[2, 3], low=[1, 0], dilation=[2, 1], transposed=True, extra=[1, 2])
conv(1, 2, 2, [3, 3], 3, stride=2, low=[0, 1], high=[1, 2], transposed=True)
conv(1, 2, 2, [3, 3], 2, stride=2, low=[0, 1], high=[1, 0], transposed=True, extra=[1, 1])
conv(1, 1, 2, [2, 3, 2], 2, stride=2, transposed=True, extra=[0, 1, 0])
conv(1, 2, 2, [4], 2, low=-1, high=0, stride=2, transposed=True)
case("convolution", (np.zeros((0, 2, 4)), rand(3, 2, 2)), np.zeros((0, 3, 3)), strides=[1], pad_low=[0], pad_high=[0], dilation=[1], groups=1, transposed=False)


def window(kind, x, win, strides, low, high, dilation):
    info = None if x.dtype == np.float64 else np.iinfo(x.dtype)
    ident = {"Sum": 0, "Prod": 1, "Max": -INF if info is None else info.min, "Min": INF if info is None else info.max}[kind]
    p = x
    for d in range(x.ndim):
        lo, hi = low[d], high[d]
        p = np.take(p, range(max(0, -lo), p.shape[d] - max(0, -hi)), axis=d)
        p = np.pad(p, [(max(lo, 0), max(hi, 0)) if e == d else (0, 0) for e in range(x.ndim)], constant_values=ident)
    view = np.lib.stride_tricks.sliding_window_view(p, [(w - 1) * d + 1 for w, d in zip(win, dilation)])
    view = view[tuple(slice(None, None, s) for s in strides) + tuple(slice(None, None, d) for d in dilation)]
    axes = tuple(range(x.ndim, 2 * x.ndim))
    extra = {"dtype": x.dtype} if kind in ("Sum", "Prod") else {}
    case("reduce_window", x, R[kind](view, axis=axes, **extra), scale=1, kind=kind, window=win, strides=strides, pad_low=low, pad_high=high, dilation=dilation)


for kind in R:
    window(kind, rand(5, 6), [2, 3], [1, 2], [0, 1], [1, 1], [1, 1])
    window(kind, rand(7), [3], [2], [2], [0], [2])
    window(kind, rand(2, 6), [1, 2], [1, 1], [0, -1], [0, -2], [1, 2])
    window(kind, rand(3), [2], [1], [3], [3], [1])
    window(kind, ints("i8", 6), [3], [1], [1], [1], [1])
    window(kind, ints("ui8", 6), [2], [2], [2], [0], [1])

# ---- random numbers: an independent Philox on Python integers
M32 = 2**32 - 1


def philox(counter, key):
    c, k = list(counter), list(key)
    for r in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & M32, (p0 >> 32) ^ c[3] ^ k[1], p0 & M32]
        k = [(k[0] + 0x9E3779B9) & M32, (k[1] + 0xBB67AE85) & M32]
    return c


def words(key, n):
    seed, offset = (int(v) % 2**64 for v in key)
    out = []
    for b in range((n + 3) // 4):
        out += philox((b & M32, b >> 32, offset & M32, offset >> 32), (seed & M32, seed >> 32))
    return out[:n]


def draws(key, n):
    w = words(key, 2 * n)
    return [(w[2 * i], w[2 * i + 1]) for i in range(n)]


for key in [np.array([0, 0]), np.array([42, 7]), np.array([-1, 2**40 + 5]), np.array([2**33 + 1, -(2**63)])]:
    case("random_bits", key, np.array(words(key, 10), np.uint32).view(np.int32).reshape(2, 5), sizes=[2, 5], dtype="i32")
    case("random_bits", key, np.array([a | b << 32 for a, b in draws(key, 7)], np.uint64).view(np.int64), sizes=[7], dtype="i64")
    for dtype, p in {"f32": 24, "f16": 11, "bf16": 8}.items():
        for low, high in [(0.0, 1.0), (-2.0, 3.0)]:
            case("random_uniform", key, enc(np.array([low + (high - low) * ((w >> (32 - p)) * 2.0**-p) for w in words(key, 6)]), dtype), sizes=[6], dtype=dtype, low=low, high=high)
    case("random_uniform", key, np.array([((a | b << 32) >> 11) * 2.0**-53 for a, b in draws(key, 5)]), sizes=[5], dtype="f64", low=0.0, high=1.0)
    normal = np.array([1.5 + 2.0 * math.sqrt(-2 * math.log((a + 1) * 2.0**-32)) * math.cos(2 * math.pi * b * 2.0**-32) for a, b in draws(key, 6)])
    for dtype in ["f64", "f32"]:
        case("random_normal", key, enc(normal.reshape(3, 2), dtype), scale=1, sizes=[3, 2], dtype=dtype, mean=1.5, std=2.0)
    x = rand(3, 4)
    x[0, 0] = NAN
    u = np.array([(w >> 8) * 2.0**-24 for w in words(key, 12)]).reshape(3, 4)
    for p in [0.0, 0.3, 1.0, u[1, 2]]:
        case("dropout", (x, key), np.where(u >= p, x / (1 - p), 0.0), p=p)
