"""Sizes that are arguments or values of the call, and not sizes of its tensors.

The functions name the device of what they create: under `with torch.device(...)`, AOTAutograd puts it on the processor."""
import pytest
import torch

import kiln_torch


def check(f, *calls):
    """Each call beside eager's, all in one program, without an op that stays eager."""
    compiled = torch.compile(f, backend="kiln", dynamic=True)
    for call in calls:
        got, want = compiled(*call), f(*call)
        torch.testing.assert_close(got, want)
    eager = {op: why for r in kiln_torch.reports for op, why in r.eager.items()}
    assert not eager
    assert sum(r.programs for r in kiln_torch.reports) == len(kiln_torch.reports) > 0


def test_a_size_is_an_argument():
    check(lambda x, n: torch.full((n, 4), 1.5, device=x.device) + x, (torch.randn(4), 7), (torch.randn(4), 3))


def test_a_size_is_computed_from_an_argument():
    check(lambda x, n: x.new_zeros(n * 2, 3) + x, (torch.randn(3), 5), (torch.randn(3), 6))


def test_two_sizes_are_arguments():
    f = lambda x, n, m: (x.new_zeros(n, m) + x.sum(), torch.arange(n * m + 1, device=x.device))
    check(f, (torch.randn(4), 5, 3), (torch.randn(4), 6, 2))


def test_a_slice_ends_at_an_argument():
    f = lambda x, n: (x[:, :n].sum(1), x.new_ones(n))
    check(f, (torch.randn(3, 9), 5), (torch.randn(4, 7), 2))


def test_a_number_may_be_negative():
    """A negative number is no size: such calls are eager's."""
    check(lambda x, n: x * n, (torch.randn(4), 5), (torch.randn(4), -6))


@pytest.mark.parametrize("n", [4, 0])
def test_a_size_is_the_value_of_a_tensor(n):
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        check(lambda x, n: torch.arange(n.item(), device=x.device) + x, (torch.randn(1), torch.tensor(n)), (torch.randn(1), torch.tensor(9)))


def test_ops_whose_results_have_sizes_of_data_stay_eager():
    """What reads the results is compiled, at each size."""
    f = lambda x: (x[x > 0].exp() * 2, torch.unique(x).shape[0] + x.sum())
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        compiled = torch.compile(f, backend="kiln")
        for n in (6, 6):
            x = torch.randint(-3, 4, (n,), dtype=torch.float32)
            torch.testing.assert_close(compiled(x), f(x))
    eager = {op.split()[0]: why for r in kiln_torch.reports for op, why in r.eager.items()}
    assert "depends on data" in eager["aten.index.Tensor"] and "depends on data" in eager["aten._unique2.default"], eager
    assert sum(r.programs for r in kiln_torch.reports) > 0


def test_a_quotient_of_sizes_is_a_float():
    f = lambda x, n: torch.nn.functional.interpolate(x, (n,), mode="nearest") * (x.shape[2] / n)
    compiled = torch.compile(f, backend="kiln", dynamic=True)
    for width, n in ((4, 5), (6, 4), (9, 13)):
        x = torch.randn(2, 3, width)
        torch.testing.assert_close(compiled(x, n), f(x, n))


@pytest.mark.parametrize("f", [torch.sgn, lambda x: torch.cumprod(x, 1)], ids=["sgn", "cumprod"])
def test_sizes_that_pytorch_specialises_are_numbers(f):
    x = torch.randn(5, 5, requires_grad=True)
    y = torch.compile(f, backend="kiln", dynamic=True)(x)
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x), torch.autograd.grad(f(x).sum(), x))
    assert not any(r.eager for r in kiln_torch.reports)


def test_strides_address_memory_of_any_size():
    """Of a row-major value, of a transposed one, and through a view that is written."""
    strided = lambda y: (y.as_strided((2, 3), (3, 1)), y.t().contiguous().t().as_strided((2, 2), (1, 2)))

    def written(x):
        y = x + 1
        y.as_strided((2,), (1,)).fill_(-2)
        return y

    check(lambda x: (*strided(x + 1), written(x)), (torch.randn(3, 5),), (torch.randn(6, 4),))


def test_strides_stay_inside_of_their_tensor():
    check(lambda x: (x + 1).as_strided((4,), (2,)), (torch.randn(9),), (torch.randn(7),))
    with pytest.raises(Exception, match="out of bounds|inside of their tensor"):
        torch.compile(lambda x: (x + 1).as_strided((4,), (2,)), backend="kiln", dynamic=True)(torch.randn(6))


@pytest.mark.parametrize("reduce", ["sum", "amax"])
def test_a_source_is_larger_than_its_index(reduce):
    def scattered(x, i, s):
        return x.scatter_reduce(0, i, s, reduce, include_self=False), x.scatter(0, i, s), x.scatter_add(0, i, s)

    call = lambda n, m, k: (torch.randn(n), torch.randperm(n)[:m], torch.randn(k))
    check(scattered, call(7, 3, 5), call(9, 4, 4), call(6, 2, 6))


def test_a_sum_of_sizes_is_computed_once_for_many_values():
    """Sizes that are computed from the arguments' while the values that had them are replaced."""
    def f(x, y):
        z = torch.cat([x, y, y]).abs() + 0.5
        return torch.digamma(z).log(), z.lgamma() / z

    check(f, (torch.rand(3) + 2, torch.rand(5) + 2), (torch.rand(6) + 2, torch.rand(2) + 2))


@pytest.mark.parametrize("convolution", [torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.Conv2d(3, 4, 3, padding=1, stride=2)], ids=["same", "halved"])
def test_sizes_of_intermediate_values_are_the_arguments(convolution, device):
    """Those of the first convolution are its image's, those of the second are computed of it."""
    convolution = convolution.to(device)

    def f(x):
        z = convolution(x).flatten(2).transpose(1, 2)
        return z.tanh(), z.reshape(-1, 4).amax(1)

    with torch.no_grad():
        check(f, (torch.randn(2, 3, 8, 9),), (torch.randn(3, 3, 12, 7),))
