"""Attention in training: an op of kiln's with derivatives, where there are kernels for them."""
import pytest
import torch
import torch.nn.functional as F

from kiln_torch import attention, kiln, reports


OWN = {"train_attention": True}


@pytest.fixture
def everywhere(monkeypatch):
    """As on a GPU with kernels: programs of the host compute the same ops."""
    monkeypatch.setattr(attention, "has_kernels", lambda device: True)


def tensors(device, shapes, dtype=torch.bfloat16):
    torch.manual_seed(0)
    return [torch.randn(s, device=device, dtype=dtype, requires_grad=True) for s in shapes]


@pytest.mark.parametrize("groups, causal, scale", [(4, False, None), (2, True, 0.3)])
def test_the_op_has_pytorch_s_derivatives(groups, causal, scale):
    q, k, v = tensors("cpu", [(2, 4, 5, 16), (2, groups, 7, 16), (2, groups, 7, 24)], torch.float64)
    own = torch.ops.kiln.attention_with_lse
    torch.library.opcheck(own.default, (q, k, v, causal, scale), test_utils=("test_schema", "test_faketensor", "test_autograd_registration"))
    want = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale, enable_gqa=True)
    got, lse = own(q, k, v, causal, scale)
    assert not lse.requires_grad
    torch.testing.assert_close(got, want)
    g = torch.randn_like(want)
    torch.testing.assert_close(torch.autograd.grad(got, (q, k, v), g), torch.autograd.grad(want, (q, k, v), g))


@pytest.mark.parametrize("heads, groups, causal, dtype", [(4, 4, True, torch.bfloat16), (4, 2, False, torch.float16), (4, 2, True, torch.bfloat16)])
def test_gradients_as_eager(heads, groups, causal, dtype, everywhere, device):
    shapes = [(2, heads, 65, 16), (2, groups, 65, 16), (2, groups, 65, 32)]

    def fn(q, k, v):
        return F.scaled_dot_product_attention(q * 1, k, v, is_causal=causal, enable_gqa=True).transpose(1, 2).flatten(2)

    inputs = tensors(device, shapes, dtype)
    got = torch.compile(fn, backend=kiln, options=OWN)(*inputs)
    wide = [t.detach().double().requires_grad_() for t in inputs]
    want = fn(*wide)
    g = torch.randn_like(got)
    tolerance = {"rtol": 2e-2, "atol": 2e-2}
    torch.testing.assert_close(got.double(), want, **tolerance)
    have, exact = torch.autograd.grad(got, inputs, g), torch.autograd.grad(want, wide, g.double())
    for a, b in zip(have, exact):
        torch.testing.assert_close(a.double(), b, **tolerance)
    assert [r.kind for r in reports] == ["forward", "backward"] and not any(r.eager for r in reports)


def test_a_dynamic_sequence_has_one_program(everywhere, device):
    fn = torch.compile(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True).sum(), backend=kiln, options=OWN)
    for n in (33, 64, 100):
        (q,) = tensors(device, [(1, 2, n, 32)])
        torch._dynamo.mark_dynamic(q, 2)
        fn(q).backward()
        wide = q.detach().double().requires_grad_()
        F.scaled_dot_product_attention(wide, wide, wide, is_causal=True).sum().backward()
        torch.testing.assert_close(q.grad.double(), wide.grad, rtol=2e-2, atol=6e-2)
    assert len(reports) == 2 and not any(r.eager for r in reports)


def test_autocast_casts_its_arguments(everywhere, device):
    if device == "cpu":
        pytest.skip("kiln's op is for GPUs' autocast")
    inputs = tensors(device, [(2, 2, 33, 32)] * 3, torch.float32)
    fn = lambda q, k, v: F.scaled_dot_product_attention(q, k, v)
    with torch.autocast("cuda", torch.bfloat16):
        got, want = torch.compile(fn, backend=kiln, options=OWN)(*inputs), fn(*inputs)
    assert got.dtype == want.dtype == torch.bfloat16
    torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)
    g = torch.randn_like(got)
    for a, b in zip(torch.autograd.grad(got, inputs, g), torch.autograd.grad(want, inputs, g)):
        torch.testing.assert_close(a, b, rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("change", [{"dropout_p": 0.5}, {"attn_mask": True}, {"width": 12}, {"dtype": torch.float32}])
def test_what_has_no_kernel_is_pytorch_s(change, everywhere):
    q, k, v = tensors("cpu", [(1, 2, 8, change.get("width", 16))] * 3, change.get("dtype", torch.bfloat16))
    mask = torch.ones(8, 8, dtype=torch.bool) if "attn_mask" in change else None
    assert not attention.has_gradient(q, k, v, mask, change.get("dropout_p", 0.0), False)
    assert attention.has_gradient(*tensors("cpu", [(1, 2, 8, 16)] * 3), None, 0.0, False)
