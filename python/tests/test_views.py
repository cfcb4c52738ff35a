"""`as_strided`, which addresses the storage of its argument's base and not its argument; and views that a graph returns."""
import pytest
import torch

import kiln_torch

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
