"""Arguments that a graph writes: what they hold afterwards, and in how many calls."""
import copy

import pytest
import torch

from kiln_torch import kiln

nn = torch.nn


def test_statistics_of_norms_are_copied_in_one_call_a_dtype(device, monkeypatch):
    model = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)))).to(device)
    own, x = copy.deepcopy(model), torch.randn(2, 3, 8, 8)
    copied, copies = [], torch._foreach_copy_
    monkeypatch.setattr(torch, "_foreach_copy_", lambda to, of: copied.append(len(to)) or copies(to, of))
    compiled = torch.compile(own, backend=kiln)
    for step in range(3):
        torch.testing.assert_close(compiled(x), model(x))
        assert sorted(copied[2 * step :]) == [4, 8]
    for (name, want), got in zip(model.state_dict().items(), own.state_dict().values()):
        torch.testing.assert_close(got, want, msg=name)


def swap(x, y):
    t = x.clone()
    x.copy_(y)
    y.copy_(t)
    return x + y


def turn(x, y):
    t = x.clone()
    x.copy_(y)
    y.copy_(t.t())
    return (x * 2).t()


def shift(x, y):
    x[1:] = x[:-1].clone()
    y += x.flip(0)
    return x.view(-1), y


def resize(x, y):
    x.t_()
    y[0] = x[0]
    return x.sum(), y


@pytest.mark.parametrize("fn", [swap, turn, shift, resize], ids=lambda fn: fn.__name__)
def test_arguments_that_read_one_another(fn, device):
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    a, b = x.clone(), y.clone()
    want, got = fn(x, y), torch.compile(fn, backend=kiln)(a, b)
    torch.testing.assert_close((got, a, b), (want, x, y))
    assert (a.stride(), b.stride()) == (x.stride(), y.stride())
