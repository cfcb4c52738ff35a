"""Support of gen_reference.py: one random generator, and tensors in the test's format."""
import math, warnings
import numpy as np
import torch

warnings.filterwarnings("ignore")
np.seterr(all="ignore")
torch.set_num_threads(1)
rng = np.random.default_rng(7)
INF, NAN = math.inf, math.nan
NP = {"f64": np.float64, "i64": np.int64, "i32": np.int32, "i16": np.int16, "i8": np.int8, "ui8": np.uint8, "i1": np.bool_}
TORCH = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
         "f8E4M3FN": torch.float8_e4m3fn, "f8E5M2": torch.float8_e5m2, "i64": torch.int64, "i32": torch.int32,
         "i16": torch.int16, "i8": torch.int8, "ui8": torch.uint8, "i1": torch.bool}
INTS = ["i64", "i32", "i16", "i8", "ui8"]
cases = []


def number(v, is_float):
    if not is_float:
        return int(v)
    v = float(v)
    if v.is_integer() and abs(v) < 1e15 and (v != 0 or math.copysign(1, v) > 0):
        return int(v)  # shorter
    return v if math.isfinite(v) else ("nan" if math.isnan(v) else "inf" if v > 0 else "-inf")


def shorten(t):
    """Fewer digits, still far more than the test's tolerance asks for."""
    return [t[0], t[1], [float(f"{v:.14g}") if isinstance(v, float) else v for v in t[2]]]


def enc(t, dtype=None):
    """Any array as a test tensor; floats are f64 unless `dtype` says otherwise."""
    if isinstance(t, torch.Tensor):
        t = t.double().numpy() if t.is_floating_point() else t.numpy()
    t = np.asarray(t)
    if dtype is None:
        dtype = next((k for k, v in NP.items() if t.dtype == v), "f64")
    is_float = "f" in dtype
    return [dtype, list(t.shape), [number(v, is_float) for v in t.reshape(-1)]]


def case(op, ins, outs, scale=0, **args):
    args = {k: enc(v) if isinstance(v, (np.ndarray, torch.Tensor)) else v for k, v in args.items() if v is not None}
    def as_list(x):
        return [t if isinstance(t, list) else enc(t) for t in (x if isinstance(x, tuple) else (x,))]
    outs = as_list(outs)
    if op not in ("round", "convert", "convert_rounded", "bitcast"):
        outs = [shorten(t) for t in outs]
    one = {"op": op, "args": args, "in": as_list(ins), "out": outs, "scale": scale}
    cases.append({k: v for k, v in one.items() if v or k in ("in", "out")})


def rand(*shape):
    """Short decimals."""
    return np.round(rng.uniform(-3, 3, shape), 2)


def ints(dtype, *shape):
    info = np.iinfo(NP[dtype])
    small = rng.integers(max(info.min, -9), 10, shape).astype(NP[dtype])
    big = rng.integers(info.min, info.max, shape, dtype=NP[dtype], endpoint=True)
    return np.where(rng.random(shape) < 0.5, small, big)


def T(x):
    return torch.from_numpy(np.ascontiguousarray(x))
