"""Ops on lists of tensors, as optimizers call them, are compiled."""
import pytest
import torch

from kiln_torch import kiln, reports
from kiln_torch.foreach import foreach

SIZES = ((3, 4), (5,), (), (2, 1, 3))
OPS = {str(op): op for op in foreach()}


def argument(a):
    """A value for an argument of a schema; positive, so that all ops take it."""
    kind = str(a.type)
    tensors = lambda: [torch.rand(size) + 0.5 for size in SIZES]
    if kind == "List[Tensor]":
        return tensors()
    if kind == "List[number]":
        return [0.5, 2, 1.5, 3]
    return {"Tensor": lambda: torch.tensor(1.5), "number": lambda: 1.5}[kind]()


@pytest.mark.parametrize("name", OPS)
def test_as_eager(name):
    op = OPS[name]
    given = [argument(a) for a in op._schema.arguments if not a.has_default_value() and not a.kwarg_only]
    got = torch.compile(lambda *args: op(*args), backend=kiln)(*given)
    torch.testing.assert_close(list(got), list(op(*given)), equal_nan=True)
    assert [r.eager for r in reports] == [{}]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64])
def test_optional_arguments(dtype):
    xs, ys = ([torch.arange(12).reshape(3, 4).to(dtype) + k for k in range(3)] for _ in range(2))

    def fn(xs, ys):
        sums = torch._foreach_sub(xs, ys, alpha=3)
        scaled = torch._foreach_addcmul(sums, xs, ys, value=2)
        return scaled, torch._foreach_maximum(scaled, 5), torch._foreach_norm([x.float() for x in xs], 1)

    torch.testing.assert_close(torch.compile(fn, backend=kiln)(xs, ys), fn(xs, ys))


def test_lists_that_are_written():
    xs = [torch.rand(size) for size in SIZES]
    want = [x.clone() for x in xs]

    def fn(xs):
        torch._foreach_mul_(xs, 2)
        torch._foreach_zero_(xs[:1])

    torch.compile(fn, backend=kiln)(xs)
    fn(want)
    torch.testing.assert_close(xs, want)


@pytest.mark.parametrize("foreach", [False, True])
def test_gradients_are_clipped(foreach):
    grads = [torch.randn(size) for size in SIZES]

    def clip(*grads):
        parameters = [torch.nn.Parameter(torch.zeros_like(g)) for g in grads]
        for p, g in zip(parameters, grads):
            p.grad = g.clone()
        total = torch.nn.utils.clip_grad_norm_(parameters, 0.5, foreach=foreach)
        return total, [p.grad for p in parameters]

    torch.testing.assert_close(torch.compile(clip, backend=kiln)(*grads), clip(*grads))
