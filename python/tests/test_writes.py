"""Arguments that a graph writes: what they hold afterwards, and in how many calls."""
import copy

import pytest
import torch

from kiln_torch import kiln

nn = torch.nn


@pytest.fixture
def copied(monkeypatch):
    """How many tensors each call of PyTorch's has copied after a graph."""
    counts, copies = [], torch._foreach_copy_
    monkeypatch.setattr(torch, "_foreach_copy_", lambda to, of: counts.append(len(to)) or copies(to, of))
    return counts


def norms():
    return nn.Sequential(*(layer for _ in range(4) for layer in (nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3))))


def test_statistics_of_norms_are_written_in_place(device, copied):
    model = norms().to(device)
    own, x = copy.deepcopy(model), torch.randn(2, 3, 8, 8)
    compiled = torch.compile(own, backend=kiln)
    for _ in range(3):
        versions = [b._version for b in own.buffers()]
        torch.testing.assert_close(compiled(x), model(x))
        assert all(b._version > before for b, before in zip(own.buffers(), versions))
    # A GPU's kernels of reductions overwrite none of their inputs.
    assert copied == ([] if device == "cpu" else [8] * 3)
    for (name, want), got in zip(model.state_dict().items(), own.state_dict().values()):
        torch.testing.assert_close(got, want, msg=name)


def test_what_is_not_written_in_place_is_copied_in_one_call_a_dtype(device, copied):
    """A slice with gaps has no memory that a kernel could write."""
    held = [torch.randn(4, 6), torch.randn(4, 6), torch.randn(4, 6, dtype=torch.float64)]
    want = [t.clone() for t in held]

    def update(*ts):
        for t in ts:
            t.mul_(2).add_(1)

    torch.compile(update, backend=kiln)(*(t[:, ::2] for t in held))
    update(*(t[:, ::2] for t in want))
    torch.testing.assert_close(held, want)
    assert sorted(copied) == [1, 2]


OPTIMIZERS = {
    "AdamW": lambda ps: torch.optim.AdamW(ps, lr=1e-2),
    "AdamW, foreach": lambda ps: torch.optim.AdamW(ps, lr=1e-2, foreach=True),
    "SGD": lambda ps: torch.optim.SGD(ps, lr=1e-2, momentum=0.9),
    "RMSprop": lambda ps: torch.optim.RMSprop(ps, lr=1e-2, momentum=0.5),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_optimizer_writes_weights_and_states_in_place(device, copied, optimizer):
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 8)).to(device)
    own = copy.deepcopy(model)
    theirs, ours = OPTIMIZERS[optimizer](model.parameters()), OPTIMIZERS[optimizer](own.parameters())
    step = torch.compile(ours.step, backend=kiln)
    addresses = [p.data_ptr() for p in own.parameters()]
    for _ in range(4):
        for p, q in zip(model.parameters(), own.parameters()):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        theirs.step()
        step()
    torch.testing.assert_close([*own.parameters()], [*model.parameters()])
    for p, q in zip(model.parameters(), own.parameters()):
        for name, want in theirs.state[p].items():
            if isinstance(want, torch.Tensor):
                torch.testing.assert_close(ours.state[q][name], want, check_device=False)
    assert not copied and [p.data_ptr() for p in own.parameters()] == addresses


def test_a_write_is_after_all_reads(device):
    """Ops that stay eager, and later programs, read an argument that an earlier program computes the new value of."""

    def fn(x, y):
        new = x * 2
        x.copy_(new)
        z = torch.bincount(y.long()).sum() + new
        return z, x + 1, y

    x, y = torch.randn(4, 4), torch.arange(4.0)
    a = x.clone()
    want, got = fn(x, y), torch.compile(fn, backend=kiln)(a, y)
    torch.testing.assert_close((got, a), (want, x))


def test_autograd_sees_a_write_in_place():
    x = torch.ones(4, requires_grad=True)
    held = torch.ones(4)
    loss = (x * held).sum()
    torch.compile(lambda t: t.add_(1), backend=kiln)(held)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


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
