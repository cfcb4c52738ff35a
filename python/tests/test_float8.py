"""Option `float8`: products of quantised operands, beside the same arithmetic in PyTorch."""
import pytest
import torch

import kiln_torch

F8 = torch.float8_e4m3fn
ROWS, IN, OUT = 64, 48, 96


def quantised(x, recipe):
    """A matrix as 8-bit floats hold it; rows have a scale each, or all elements one."""
    x = x.float()
    greatest = x.abs().amax(1, keepdim=True) if recipe == "rowwise" else x.abs().max()
    scale = 448 / greatest.clamp(min=1e-12)
    return (x * scale).to(F8).float() / scale


def product(x, y, recipe):
    """x @ y.T, whose operands are quantised along K."""
    return (quantised(x, recipe) @ quantised(y, recipe).T).bfloat16()


def options(recipe):
    return {"passes": f"instead of kiln-float8-products: kiln-float8-products{{recipe={recipe} min-size=1}}"}


def error(have, want):
    """Of the norm, with rows of one length."""
    have, want = have.double(), want.double()
    size = want.norm(dim=1, keepdim=True).clamp(min=1e-30)
    return ((have - want) / size).norm().item() / len(want) ** 0.5


def close(have, x, y, recipe):
    """Within bf16 and a few elements that are rounded to their other neighbour, as their scale is; quantising changes more."""
    want = product(x, y, recipe)
    assert error(have, want) < 1e-2 < error(x.float() @ y.float().T, want)


@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise"])
def test_a_linear_layer_and_its_gradients(recipe):
    x = torch.randn(4, ROWS // 4, IN).bfloat16().requires_grad_()
    w = (torch.randn(OUT, IN) * torch.logspace(-3, 1, OUT)[:, None]).bfloat16().requires_grad_()
    g = (torch.randn(4, ROWS // 4, OUT) * torch.logspace(-6, 0, OUT)).bfloat16()
    f = torch.compile(torch.nn.functional.linear, backend="kiln", dynamic=False, options=options(recipe))
    y = f(x, w)
    y.backward(g)
    x2, g2 = x.detach().flatten(0, 1), g.flatten(0, 1)
    close(y.detach().flatten(0, 1), x2, w.detach(), recipe)
    close(x.grad.flatten(0, 1), g2, w.detach().T, recipe)
    close(w.grad, g2.T, x2.T, recipe)


@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise"])
def test_zeros_and_what_is_not_finite(recipe):
    f = torch.compile(torch.nn.functional.linear, backend="kiln", dynamic=False, options=options(recipe))
    x, w = torch.zeros(ROWS, IN).bfloat16(), torch.randn(OUT, IN).bfloat16()
    assert torch.equal(f(x, w), torch.zeros(ROWS, OUT).bfloat16())
    x[3, 5] = torch.inf
    y = f(x, w)
    rows = y.isfinite().all(1)
    assert not rows[3] and (recipe == "tensorwise" or int(rows.sum()) == ROWS - 1)


def test_small_products_and_other_values_are_as_without():
    x, w = torch.randn(ROWS, IN).bfloat16(), torch.randn(OUT, IN).bfloat16()
    f = lambda: torch.compile(torch.nn.functional.linear, backend="kiln", dynamic=False, options={"float8": "rowwise"})
    plain = torch.compile(torch.nn.functional.linear, backend="kiln", dynamic=False)
    assert torch.equal(f()(x, w), plain(x, w))
    torch._dynamo.reset()
    with pytest.raises(Exception, match="off, tensorwise or rowwise"):
        torch.compile(torch.nn.functional.linear, backend="kiln", options={"float8": "blockwise"})(x, w)
