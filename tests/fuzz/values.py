"""Inputs and values of random functions: dtypes, sizes, layouts, and evaluation in float64 beside eager's."""
import contextlib
from dataclasses import dataclass

import numpy
import torch
from torch.overrides import TorchFunctionMode

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTS = (torch.int64, torch.int32, torch.uint8, torch.int8)
# float32 and int64 are drawn more often.
DTYPES = (torch.float32,) * 5 + FLOATS[1:] + (torch.int64,) * 2 + INTS[1:] + (torch.bool,) * 2
SIZES = (0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 13)
LAYOUTS = ("contiguous",) * 5 + ("transposed", "sliced", "expanded", "offset")


def name_of(dtype):
    return str(dtype).removeprefix("torch.")


@dataclass
class Input:
    """An argument of a random function. Its elements follow from `seed`, its shape and its dtype."""

    name: str
    dtype: torch.dtype
    shape: tuple
    layout: str = "contiguous"
    seed: int = 0
    # The reducer replaces drawn elements by those that a function computed.
    given: torch.Tensor | None = None

    def elements(self, shape):
        """Small integers, or quarters, so that sums, products and comparisons are exact."""
        draw = numpy.random.default_rng([self.seed, *shape])
        if self.dtype == torch.bool:
            return torch.from_numpy(draw.integers(0, 2, shape).astype(bool))
        low = 0 if self.dtype == torch.uint8 else -9
        whole = torch.from_numpy(numpy.asarray(draw.integers(low, 10, shape)))
        if not self.dtype.is_floating_point:
            return whole.to(self.dtype)
        return (whole.double() / (1, 2, 4)[self.seed % 3]).to(self.dtype)

    def make(self, shape=None):
        if self.given is not None:
            return self.given.clone()
        shape = tuple(self.shape if shape is None else shape)
        if self.layout == "transposed" and len(shape) > 1:
            return self.elements(shape[::-1]).permute(*reversed(range(len(shape))))
        if self.layout == "sliced" and shape:
            return self.elements((*shape[:-1], 2 * shape[-1]))[..., ::2]
        if self.layout == "offset" and shape:
            return self.elements((shape[0] + 1, *shape[1:]))[1:]
        if self.layout == "expanded" and shape and shape[0] > 1:
            return self.elements((1, *shape[1:])).expand(shape)
        return self.elements(shape)


@dataclass
class Value:
    """A tensor of a function: what eager gives, the same in float64, and whether no operation rounded."""

    name: str
    tensor: torch.Tensor
    wide: torch.Tensor
    exact: bool

    @property
    def shape(self):
        return tuple(self.tensor.shape)

    @property
    def rank(self):
        return self.tensor.dim()

    @property
    def kind(self):
        dtype = self.tensor.dtype
        return "float" if dtype.is_floating_point else "bool" if dtype == torch.bool else "int"

    @property
    def determined(self):
        """Whether an integer computed from it is determined."""
        return self.exact or self.kind != "float"


class Wide(TorchFunctionMode):
    """Calls with float64 in place of narrower floating-point dtypes."""

    def widens(self, dtype):
        return dtype.is_floating_point

    def __torch_function__(self, function, types, args=(), kwargs=None):
        swap = lambda x: torch.float64 if isinstance(x, torch.dtype) and self.widens(x) else x
        return function(*map(swap, args), **{k: swap(v) for k, v in (kwargs or {}).items()})


@contextlib.contextmanager
def in_float64(mode=Wide):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with mode():
            yield
    finally:
        torch.set_default_dtype(before)


def widened(tensor):
    """A copy, in float64 if of floats, with the same layout, so that views and writes go the same way."""
    dtype = torch.float64 if tensor.is_floating_point() else tensor.dtype
    base = torch.empty_strided(tensor.shape, tensor.stride(), dtype=dtype)
    # Elements that lie at one place are written once.
    once = tuple(slice(0, 1) if s == 0 else slice(None) for s in tensor.stride())
    base[once] = tensor[once].to(dtype)
    return base


def same(tensor, wide):
    """Whether eager's tensor is the one of float64, also where neither is a number."""
    return tensor.shape == wide.shape and bool(torch.eq(tensor.double(), wide.double()).logical_or(tensor.isnan() & wide.isnan()).all())
