"""Masks of attention that a graph computes from sizes alone."""
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from kiln_torch import attention, kiln, masks


def found(fn, *inputs, dynamic=False):
    """What the masks of a function's attention are taken for, and its graph."""
    seen = []

    def backend(graph, _):
        calls = graph.graph.find_nodes(op="call_function", target=F.scaled_dot_product_attention)
        kinds = {}
        for call in calls:
            masks.simplify(call, kinds)
            seen.append((call.kwargs.get("attn_mask"), call.kwargs.get("is_causal")) if call.kwargs else "kept")
        graph.recompile()
        return graph

    got = torch.compile(fn, backend=backend, dynamic=dynamic)(*inputs)
    # PyTorch chooses another kernel, which may round to tf32.
    torch.testing.assert_close(got, fn(*inputs), rtol=1e-2, atol=1e-2)
    return seen


def attend(make):
    return lambda x: F.scaled_dot_product_attention(x, x, x, make(x.shape[-2]))


PLACE = {}


@pytest.fixture(autouse=True)
def place(device):
    """Dynamo traces `arange` and NumPy without the default device, so functions name theirs."""
    PLACE["device"] = device


def arange(n):
    return torch.arange(n, device=PLACE["device"])


def by_arange(n):
    rows = arange(n)
    return rows[None, :] <= rows[:, None]


def added(n, hidden=-torch.inf):
    return torch.zeros(n, n, device=PLACE["device"]).masked_fill(~by_arange(n), hidden)


def banded(width):
    return lambda n: by_arange(n) & (arange(n)[None, :] > arange(n)[:, None] - width)


def written(n):
    mask = torch.ones(n, n, dtype=torch.bool, device=PLACE["device"]).tril()
    mask[3, 1] = False
    return mask


def written_by_a_view(n):
    mask = torch.ones(n, n, dtype=torch.bool, device=PLACE["device"]).tril()
    row = mask[3]
    row.zero_()
    return mask


def written_by_an_op(n):
    mask = added(n)
    torch.ops.aten.mul_.Tensor(mask[3], 0.0)
    return mask.nan_to_num(0.0)


def written_by_a_flag(n):
    mask = -added(n)
    F.hardtanh(mask[2], 0.0, 1.0, True)
    return -mask


def written_later(n):
    mask = torch.zeros(n, n, dtype=torch.bool, device=PLACE["device"])
    mask |= by_arange(n)
    return mask


CAUSAL = {
    "compared": by_arange,
    "of all batches": lambda n: by_arange(n).expand(2, 1, n, n),
    "lower triangle": lambda n: torch.ones(n, n, dtype=torch.bool, device=PLACE["device"]).tril(),
    "added": added,
    "added least number": lambda n: added(n, torch.finfo(torch.float32).min),
    "wide band": banded(9),
    "updated": written_later,
    "in place": lambda n: torch.full((n, n), -torch.inf, device=PLACE["device"]).triu_(1),
}
OTHER = {"band": banded(3), "transposed": lambda n: by_arange(n).mT, "small numbers": lambda n: added(n, -5.0), "with a hole": written, "with a hidden row": written_by_a_view, "by an op": written_by_an_op, "by a flag": written_by_a_flag, "random": lambda n: by_arange(n) & (torch.rand(n, n, device=PLACE["device"]) < 2)}


def written_by_numpy(n):
    array = np.tril(np.ones((n, n), bool))
    array[5, 2] = False
    return torch.from_numpy(array).to(PLACE["device"])


def written_by_a_number(n):
    mask = -added(n)
    F.hardtanh(mask[2], 0.0, 1.0, inplace=1)
    return -mask


def written_by_a_method(n):
    mask = torch.ones(n, n, dtype=torch.bool, device=PLACE["device"]).tril()
    mask[2].__iand__(torch.zeros(n, dtype=torch.bool, device=PLACE["device"]))
    return mask


OTHER |= {"by numpy": written_by_numpy, "by a number": written_by_a_number, "by a method": written_by_a_method}


@pytest.mark.parametrize("name", CAUSAL)
def test_causal_masks_are_found(name, device):
    assert found(attend(CAUSAL[name]), torch.randn(2, 2, 8, 16)) == [(None, True)]


@pytest.mark.parametrize("name", OTHER)
def test_other_masks_are_kept(name, device):
    assert found(attend(OTHER[name]), torch.randn(2, 2, 8, 16)) == ["kept"]


class Meta(torch.overrides.TorchFunctionMode):
    """A default device."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **{**(kwargs or {}), **({"device": "meta"} if func is torch.arange else {})})


def test_the_default_device_does_not_matter(device):
    kinds = []

    def backend(graph, _):
        (call,) = graph.graph.find_nodes(op="call_function", target=F.scaled_dot_product_attention)
        with Meta():
            assert torch.arange(2).device.type == "meta"
            kinds.append(masks.kind(call.args[3], 8, 8))
        return graph

    torch.compile(attend(by_arange), backend=backend)(torch.randn(2, 2, 8, 16))
    assert kinds == ["causal"]


def test_a_mask_that_hides_nothing_is_dropped(device):
    assert found(attend(lambda n: torch.ones(n, n, dtype=torch.bool, device=PLACE["device"])), torch.randn(2, 2, 8, 16)) == [(None, False)]


def test_masks_of_inputs_and_of_symbolic_sizes_are_kept(device):
    assert found(lambda x, m: F.scaled_dot_product_attention(x, x, x, by_arange(8) & m), torch.randn(1, 2, 8, 16), torch.rand(8, 8) < 0.9) == ["kept"]
    assert found(attend(by_arange), torch.randn(2, 2, 8, 16), dynamic=True) == ["kept"]


def test_more_keys_than_queries(device):
    def fn(x, y):
        rows, columns = arange(x.shape[-2]), arange(y.shape[-2])
        first = columns[None, :] <= rows[:, None]
        last = columns[None, :] <= rows[:, None] + 3
        return F.scaled_dot_product_attention(x, y, y, first) + F.scaled_dot_product_attention(x, y, y, last)

    assert found(fn, torch.randn(1, 2, 5, 16), torch.randn(1, 2, 8, 16)) == [(None, True), "kept"]


@pytest.mark.parametrize("own", [False, True])
def test_gradients_with_repeated_heads_and_a_mask(own, device, monkeypatch):
    monkeypatch.setattr(attention, "has_kernels", lambda device: True)
    monkeypatch.setattr(attention, "fills", lambda key: True)
    seen, of_kiln = [], attention.has_gradient
    monkeypatch.setattr(attention, "has_gradient", lambda q, k, *rest: of_kiln(q, k, *rest) and not seen.append(k.shape[1]))

    def fn(q, k, v):
        repeat = lambda t: t[:, :, None, :, :].expand(2, 2, 2, 8, 16).reshape(2, 4, 8, 16)
        return F.scaled_dot_product_attention(q, repeat(k), repeat(v), by_arange(8)[None, None])

    inputs = [torch.randn(2, h, 8, 16, dtype=torch.bfloat16, requires_grad=True) for h in (4, 2, 2)]
    got, want = torch.compile(fn, backend=kiln, options={"train_attention": own})(*inputs), fn(*inputs)
    assert set(seen) == ({2} if own else set())
    torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)
    g = torch.randn_like(want)
    torch.testing.assert_close(torch.autograd.grad(got, inputs, g), torch.autograd.grad(want, inputs, g), rtol=2e-2, atol=4e-2)


def test_repeated_heads_that_are_written_to_are_not_shared(device, monkeypatch):
    monkeypatch.setattr(attention, "has_kernels", lambda device: True)
    repeat = lambda t: t[:, :, None, :, :].expand(2, 2, 2, 8, 16).reshape(2, 4, 8, 16)

    def source(q, k, v):
        k = k * 1
        repeated = repeat(k)
        k.mul_(3)
        return F.scaled_dot_product_attention(q, repeated, repeat(v))

    def copy(q, k, v):
        repeated = repeat(k)
        repeated.mul_(3)
        return F.scaled_dot_product_attention(q, repeated, repeat(v))

    inputs = [torch.randn(2, h, 8, 16, dtype=torch.bfloat16, requires_grad=True) for h in (4, 2, 2)]
    for fn in (source, copy):
        torch.testing.assert_close(torch.compile(fn, backend=kiln)(*inputs), fn(*inputs), rtol=2e-2, atol=2e-2)


def test_values_with_other_heads_than_keys(device, monkeypatch):
    monkeypatch.setattr(attention, "has_kernels", lambda device: True)
    q, k, v = (torch.randn(2, h, 8, 16, dtype=torch.bfloat16, requires_grad=True) for h in (4, 4, 2))
    assert not attention.has_gradient(q, k, v, None, 0.0, True)


@pytest.mark.parametrize("transform", [torch.func.grad, torch.vmap], ids=["grad", "vmap"])
@pytest.mark.parametrize("masked", [False, True])
def test_transforms_of_functions_with_attention(masked, transform, device, monkeypatch):
    monkeypatch.setattr(attention, "has_kernels", lambda device: True)

    def fn(x):
        mask = by_arange(8) if masked else None
        return transform(lambda x: F.scaled_dot_product_attention(x, x, x, mask).sum())(x)

    # Four dimensions in all, and beside the batch's.
    for x in (torch.randn(3, 2, 8, 16, dtype=torch.bfloat16), torch.randn(3, 2, 2, 8, 16, dtype=torch.bfloat16)):
        torch.testing.assert_close(torch.compile(fn, backend=kiln)(x), fn(x), rtol=2e-2, atol=2e-2)
