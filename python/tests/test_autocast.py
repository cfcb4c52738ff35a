"""Option `autocast`: f32 models with products of 16-bit floats, beside PyTorch's autocast and float64."""
import copy

import pytest
import torch
from test_training import MODELS

import kiln_torch
from kiln_torch import kiln

nn = torch.nn


class Network(nn.Module):
    """Convolutions with batch norms, a softmax, and a residual connection."""

    def __init__(self):
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x):
        y = self.norm(self.convolution(x)).relu().flatten(2).mT
        y = y + self.down(nn.functional.gelu(self.up(y)))
        return y.softmax(-1) @ y.mT


NETWORKS = {**MODELS, "network": (Network, lambda: torch.randn(2, 3, 8, 8))}


def results(model, call, x, autocast):
    """The result and the gradients by all parameters, in float64."""
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        y = call(x)
    (y.double() ** 2).sum().backward()
    assert all(p.grad.dtype == p.dtype for p in model.parameters())
    return [y.detach().double(), *(p.grad.double() for p in model.parameters())]


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_errors_are_at_most_those_of_pytorch_s_autocast(name, joint, device):
    if device != "cpu":
        pytest.skip("PyTorch's autocast of processors")
    make, inputs = NETWORKS[name]
    model, x = make(), inputs()
    fast, exact = (copy.deepcopy(model) for _ in range(2))
    wide = exact.double()
    want = results(wide, wide, x.double() if x.is_floating_point() else x, False)
    theirs = results(model, model, x, True)
    compiled = torch.compile(fast, backend=kiln, options={"autocast": "bf16", "joint_graph": joint})
    ours = results(fast, compiled, x, False)
    error = lambda got: sum(((a - b).norm() / (b.norm() + 1e-9)) ** 2 for a, b in zip(got, want)).sqrt()
    # Products have lost bits, but no more than in eager.
    assert 1e-5 < error(ours) < 1.5 * error(theirs) + 4e-3


def test_with_a_joint_graph_saved_tensors_have_16_bits(device):
    model, x = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)), torch.randn(16, 32)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        torch.compile(model, backend=kiln, options={"autocast": "bf16", "joint_graph": True})(x).sum().backward()
    parameters = {p.data_ptr() for p in model.parameters()} | {x.data_ptr()}
    assert {t.dtype for t in saved if t.data_ptr() not in parameters} == {torch.bfloat16}


class Normed(nn.Module):
    """A norm of what a product gives, between products."""

    def __init__(self, first, norm, last):
        super().__init__()
        self.first, self.norm, self.last = first, norm, last

    def forward(self, x):
        x = self.first(x)
        return x + self.last(self.norm(x))


NORMS = {
    "layer": (lambda: Normed(nn.Linear(16, 16), nn.LayerNorm(16), nn.Linear(16, 16)), (8, 16)),
    "layer, images": (lambda: Normed(nn.Linear(8, 8), nn.LayerNorm((4, 8)), nn.Linear(8, 8)), (3, 4, 8)),
    "group": (lambda: Normed(nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.Conv2d(8, 8, 1)), (2, 8, 6, 6)),
    "batch": (lambda: Normed(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 1)), (2, 8, 6, 6)),
    "instance": (lambda: Normed(nn.Conv2d(8, 8, 3, padding=1), nn.InstanceNorm2d(8, affine=True), nn.Conv2d(8, 8, 1)), (2, 8, 6, 6)),
    "batch, with running statistics": (lambda: Normed(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8).eval(), nn.Conv2d(8, 8, 1)), (2, 8, 6, 6)),
}


@pytest.mark.parametrize("name", NORMS)
def test_norms_of_16_bits_by_weights_of_32_have_gradients(name, device):
    """On processors autocast leaves norms to their input's dtype, and their statistics are in f32, whatever PyTorch's metadata says."""
    make, shape = NORMS[name]
    model, x = make(), torch.randn(*shape)

    def gradients(fn, enabled=True):
        model.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=enabled):
            y = fn(x)
        y.float().square().mean().backward()
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    exact = gradients(model, enabled=False)
    off = [(gradients(fn) - exact).norm() / exact.norm() for fn in (model, torch.compile(model, backend=kiln))]
    assert off[1] <= 2 * off[0] + 1e-3


def test_elements_of_another_width_are_refused(device):
    """A program reads memory by the dtypes that its graph states."""
    torch.compile(lambda x: x + 1, backend=kiln)(torch.randn(4))
    compiled = kiln_torch.reports[-1].compiled[0]()
    if device == "cpu":
        with pytest.raises(RuntimeError, match="elements of 16 bits, the graph takes f32"):
            compiled.call([torch.randn(4, dtype=torch.bfloat16)], [torch.empty(4)])


def test_explain_tells_casts(device):
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8))
    text = str(kiln_torch.explain(model, torch.randn(16, 32), options={"autocast": "bf16"}))
    assert "remark: kiln-autocast: casts an operand of kiln.matmul from f32 to bf16" in text, text
