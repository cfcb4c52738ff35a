"""Support of gen_aten.py: random inputs and families of cases."""
import torch

A, F, Dim = torch.ops.aten, torch.nn.functional, torch.export.Dim
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
    """A non-contiguous tensor."""
    return f(*reversed(shape)).permute(*reversed(range(len(shape))))


families = {}


def case(family, fn, *inputs, dyn=None):
    """`dyn` has one dict of dynamic dimensions (or None) per input, renamed to be unique to the case."""
    k = len(families.setdefault(family, []))
    named = lambda dim: Dim(f"{dim.__name__}{k}", min=dim.min, max=64) if isinstance(dim, Dim) else dim
    own = lambda d: d and {axis: named(dim) for axis, dim in d.items()}
    families[family].append((fn, inputs, [own(d) for d in dyn or [None] * len(inputs)]))
