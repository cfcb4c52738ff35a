"""Derivatives of attention as AOTAutograd emits them for GPUs, computed by programs on the host, where PyTorch has no kernels for them."""
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from kiln_torch import backend, reports
from kiln_torch.donation import Donation

aten = torch.ops.aten


def flash(g, q, k, v, out, lse, mask, none, causal, scale):
    return aten._scaled_dot_product_flash_attention_backward.default(g, q, k, v, out, lse, none, none, q.shape[2], k.shape[2], 0.0, causal, none, none, scale=scale)


def cudnn(g, q, k, v, out, lse, mask, none, causal, scale):
    return aten._scaled_dot_product_cudnn_attention_backward.default(
        g, q, k, v, out, lse.unsqueeze(-1), none, none, mask, none, none, q.shape[2], k.shape[2], 0.0, causal, scale=scale
    )


def efficient(g, q, k, v, out, lse, mask, none, causal, scale):
    lse = torch.nn.functional.pad(lse, (0, -lse.shape[-1] % 32))
    return aten._scaled_dot_product_efficient_attention_backward.default(g, q, k, v, mask, out, lse, none, none, 0.0, [True, True, True, False], causal, scale=scale)[:3]


@pytest.mark.parametrize("causal, scale, masked", [(False, None, False), (True, 0.3, False), (False, None, True)])
@pytest.mark.parametrize("op", [flash, cudnn, efficient], ids=lambda op: op.__name__)
def test_gradients_as_eager(op, causal, scale, masked, device):
    if device != "cpu" or op is flash and masked:
        pytest.skip("PyTorch computes it")
    q, k, v = (torch.randn(2, 3, 6, 8, requires_grad=True) for _ in range(3))
    # The first query sees no key.
    mask = torch.where(torch.randn(2, 3, 6, 6) > 0, 0.0, -torch.inf).index_fill(2, torch.tensor([0]), -torch.inf) if masked else torch.zeros(2, 3, 6, 6)
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask if masked else None, is_causal=causal, scale=scale)
    scores = (q @ k.mT * (8**-0.5 if scale is None else scale) + mask).detach()
    lse = (scores.masked_fill(torch.ones(6, 6, dtype=torch.bool).triu(1), -torch.inf) if causal else scores).logsumexp(-1)
    g, none = torch.randn_like(out), torch.zeros(0, dtype=torch.int64)
    want = torch.autograd.grad(out, (q, k, v), g)
    given = [t.detach() for t in (g, q, k, v, out, lse, mask, none)]
    graph = make_fx(lambda *t: op(*t, causal, scale), tracing_mode="fake")(*given)
    found, _ = backend.compile_graph("inference", backend.settings(None, None), graph, {}, [], Donation(False))
    got = found.function()(list(given))
    assert not reports[-1].eager
    torch.testing.assert_close(tuple(got), want)
