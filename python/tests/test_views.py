"""`as_strided`, which addresses the storage of its argument's base and not its argument."""
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
