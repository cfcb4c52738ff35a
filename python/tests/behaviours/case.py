"""A case: a function, sets of arguments, and how it is compared with eager."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable

import torch


@dataclasses.dataclass(frozen=True)
class Case:
    """One behaviour. An argument is a tuple of sizes (a tensor of normal numbers), a callable that makes it, or the value itself."""

    fn: Callable
    sets: tuple[list | Callable, ...]
    gradients: bool = False
    """Gradients of the floating-point arguments are compared too."""
    rtol: float | None = None
    atol: float | None = None
    values: bool = True
    """False: the elements are undetermined, and only what else is stated about results is compared."""
    dynamic: bool = True
    """Whether it runs with `dynamic=True` too."""
    static: bool = True
    config: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Of Dynamo."""
    alone: bool = False
    """Compiled by itself; others share a graph."""
    host: bool = False
    """Only on processors: eager has no kernel for GPUs."""
    since: tuple[int, int] = (2, 7)
    """The version of PyTorch that has the op, or takes the function."""
    wide: bool = False
    """Part of the longest suite alone."""
    known: str = ""
    """Why the results are not eager's, where that is known; the test fails when they are."""
    eager_random: bool = False
    """Draws eager's numbers."""


VERSION = tuple(map(int, torch.__version__.split(".")[:2]))


def case(fn, *sets, **options) -> Case:
    return Case(fn, sets or ([],), **options)


def arguments(given) -> list:
    """One set of arguments, made. A callable makes the whole set."""
    if callable(given):
        return given()

    def one(argument):
        if isinstance(argument, tuple):
            return torch.randn(argument)
        if isinstance(argument, list):
            return [one(a) for a in argument]
        return argument() if callable(argument) else argument

    return [one(a) for a in given]


def later(function):
    """A maker of arguments whose call is put off until the device is known."""
    return lambda *args, **kwargs: lambda: function(*args, **kwargs)


normal, uniform, full, arange, tensor = map(later, (torch.randn, torch.rand, torch.full, torch.arange, torch.tensor))
zeros, ones, linspace, permutation = map(later, (torch.zeros, torch.ones, torch.linspace, torch.randperm))


def integers(low: int, high: int, shape: tuple, dtype=torch.int64):
    return lambda: torch.randint(low, high, shape).to(dtype)


def bools(*shape: int):
    return lambda: torch.rand(shape) > 0.5


def cast(shape: tuple, dtype):
    return lambda: torch.randn(shape).to(dtype)


def laid(shape: tuple, change):
    """Normal numbers in another layout: what `change` makes of a dense tensor."""
    return lambda: change(torch.randn(shape))


def channels_last(*shape: int):
    kind = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    return lambda: torch.randn(shape).to(memory_format=kind)


def strided(shape: tuple, stride: tuple, dtype=torch.float32):
    def make():
        t = torch.empty_strided(shape, stride, dtype=dtype)
        return t.copy_(torch.randn(shape) if dtype.is_floating_point else torch.randint(0, 3, shape))

    return make
