"""`as_strided`, which addresses the storage of its argument's base and not its argument; and views that a graph returns."""
import pytest
import torch

import kiln_torch
from kiln_torch import shared

CASES = {
    "an offset before its view": lambda x: (x + 1)[1:].as_strided((2,), (1,), 0),
    "the offset of its view": lambda x: (x + 1)[1:].as_strided((2,), (1,)),
    "beyond its view": lambda x: (x + 1)[:2].as_strided((4,), (1,)),
    "across a transposed view": lambda x: (x + 1)[:4].view(2, 2).t().as_strided((2, 2), (2, 1)),
    "a view among several": lambda x: (x + 1).split([1, 4])[1].as_strided((2,), (2,)),
    "an offset in an argument": lambda x: x.as_strided((2,), (1,), 0) + 1,
    "an offset before a view of an argument": lambda x: x[1:].as_strided((2,), (1,), 0) + 1,
    "the offset of a view of an argument": lambda x: x[1:].as_strided((2,), (1,)) + 1,
    "the offset of an argument": lambda x: x.as_strided((2,), (1,)) + 1,
}


@pytest.mark.parametrize("name", CASES)
def test_as_strided_addresses_the_storage(name):
    f, x = CASES[name], torch.randn(7)
    compiled = torch.compile(f, backend="kiln")
    for given in (x[:5], x[2:]):
        torch.testing.assert_close(compiled(given), f(given), rtol=0, atol=0)


def test_views_of_a_programs_values_are_compiled():
    f = CASES["across a transposed view"]
    torch.compile(f, backend="kiln")(torch.randn(5))
    assert not kiln_torch.reports[-1].eager


def parts_of_a_value(x, k, n):
    y = x + 1
    return y, y.narrow(0, k, n), y[k:, 1], y.t()


RETURNED = {
    "narrow": lambda x, k, n: x.narrow(0, k, n),
    "split": lambda x, k, n: torch.split(x, k),
    "chunk": lambda x, k, n: torch.chunk(x, n),
    "split with sizes": lambda x, k, n: torch.split_with_sizes(x, [k, n, x.shape[0] - k - n]),
    "chain": lambda x, k, n: x[k:].t().unsqueeze(0)[:, 1:],
    "transpose": lambda x, k, n: (x.t(), x.t() * 2),
    "parts of a value": parts_of_a_value,
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", RETURNED)
def test_returned_views_share_storage(name, dynamic):
    f = RETURNED[name]
    compiled = torch.compile(f, backend="kiln", dynamic=dynamic)
    for k, n in ((2, 3), (1, 4)):
        x = torch.randn(7, 5)
        have, want = (torch.utils._pytree.tree_leaves(g(x, k, n)) for g in (compiled, f))
        address = lambda t: t.untyped_storage().data_ptr()
        for a, b in zip(have, want, strict=True):
            assert torch.equal(a, b) and a.stride() == b.stride()
            assert (address(a) == address(x)) == (address(b) == address(x))
            # Of values that the graph computes, the same ones share.
            assert [address(a) == address(other) for other in have] == [address(b) == address(other) for other in want]
    assert not any(r.eager for r in kiln_torch.reports)


def test_results_are_views_of_what_is_computed_or_given():
    def f(x):
        y = x + 1
        return x.t().unsqueeze(0), y.t(), y.view(24), y[:2, 1:], (y * 2)[1:]

    graph = torch.fx.experimental.proxy_tensor.make_fx(f, tracing_mode="fake")(torch.randn(4, 6)).graph
    x, outputs = next(iter(graph.nodes)), list(next(n for n in graph.nodes if n.op == "output").args[0])
    computed, made = shared.results({x: 0}, outputs, set(outputs))
    # A part of the products is stored as it is.
    assert computed == [shared.base(outputs[1]), outputs[4]]
    dense = torch.randn(4, 6)
    for given in (dense, dense.t().contiguous().t()):
        y = dense + 1
        have = [r.make([y, (y * 2)[1:]], [given]) for r in made]
        for a, b in zip(have, f(dense), strict=True):
            assert torch.equal(a, b)
        assert have[0].data_ptr() == given.data_ptr() and have[1].data_ptr() == have[2].data_ptr() == y.data_ptr()
    # What a user sees has memory of its own.
    assert shared.results({x: 0}, outputs, set())[0] == outputs


def test_views_between_programs_share_memory():
    """An op of PyTorch reads three views of a product, which the program stores once."""
    refused = torch.library.custom_op("kiln_tests::mixed", lambda a, b, c: a * b + c, mutates_args=(), schema="(Tensor a, Tensor b, Tensor c) -> Tensor")
    refused.register_fake(lambda a, b, c: torch.empty_like(c, memory_format=torch.contiguous_format))

    def f(x, w):
        a, b, c = (v.view(2, 5, 3, 2).transpose(1, 2) for v in (x @ w).view(2, 5, 18).split(6, dim=2))
        return torch.ops.kiln_tests.mixed(a, b, c).sin()

    x, w = torch.randn(10, 4), torch.randn(4, 18)
    compiled = torch.compile(f, backend="kiln")
    torch.testing.assert_close(compiled(x, w), f(x, w))
    stored = [program.outputs() for report in kiln_torch.reports[-1:] for ref in report.compiled if (program := ref()) is not None]
    assert [len(outputs) for outputs in stored] == [1, 1]
