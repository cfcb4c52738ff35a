"""Losses and gradients against eager."""
import copy
import itertools

import pytest
import torch

from kiln_torch import kiln, reports

nn = torch.nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 2, 8).permute(2, 0, 3, 1, 4)
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


MODELS = {
    "attention": (Attention, lambda: torch.randn(2, 9, 16)),
    "mlp": (lambda: nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)), lambda: torch.randn(5, 8)),
    "block": (lambda: nn.Sequential(Block(), Block()), lambda: torch.randn(2, 7, 16)),
    "convolution": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 3)), lambda: torch.randn(4, 3, 8, 8)),
    "convolution of channels by themselves": (lambda: nn.Sequential(nn.BatchNorm2d(72), nn.ReLU(), nn.Conv2d(72, 72, 5, 2, 2, groups=72, bias=False)), lambda: torch.randn(2, 72, 28, 28)),
    "embedding": (lambda: nn.Sequential(nn.Embedding(20, 8), nn.Flatten(), nn.Linear(40, 2)), lambda: torch.randint(0, 20, (6, 5))),
}


def close(a, b, what):
    error = (a - b).norm() / (b.norm() + 1e-6)
    assert error < 2e-5, f"{what}: {error}"


@pytest.mark.parametrize("name", MODELS)
def test_losses_and_gradients_as_eager(name):
    make, inputs = MODELS[name]
    model = make()
    twin = copy.deepcopy(model)
    x = inputs()
    fast = torch.compile(twin, backend=kiln)
    for _ in range(3):
        for m, call in ((model, model), (twin, fast)):
            loss = call(x).square().mean()
            loss.backward()
        for (what, p), q in zip(model.named_parameters(), twin.parameters()):
            close(q.grad, p.grad, what)
    for (what, p), q in zip(model.named_buffers(), twin.buffers()):
        close(q.float(), p.float(), what)
    assert {r.kind for r in reports} == {"forward", "backward"}


INDICES = torch.tensor([[1, 2, 4, 5], [4, 3, 2, 8]], device="cpu")

FUNCTIONS = {
    "an output padding that holds a window": (
        lambda x, w: nn.functional.conv_transpose2d(x, w, stride=(3, 2), padding=(1, 2), output_padding=(2, 3), groups=2, dilation=4),
        lambda: (torch.randn(2, 2, 4, 4), torch.randn(2, 2, 4, 5)),
    ),
    "a determinant": (lambda x: torch.logdet(x @ x.mT + x.abs()), lambda: (torch.eye(4) * 3 + torch.randn(4, 4) / 4,)),
    "determinants of transposes": (lambda x: torch.linalg.det(x.mT), lambda: (torch.randn(2, 3, 3),)),
    "a loss near its limit": (lambda x: nn.functional.soft_margin_loss(x, x.detach().sign() * 1.75), lambda: (torch.tensor([-8.0, 9.0]),)),
    **{
        f"samples of an image, {mode}, {padding}": (
            lambda x, at, mode=mode, padding=padding: nn.functional.grid_sample(x, at, mode, padding, align_corners=padding == "border"),
            lambda: (torch.randn(2, 3, 6, 5), torch.randn(2, 4, 3, 2)),
        )
        for mode in ("bilinear", "nearest", "bicubic")
        for padding in ("zeros", "border", "reflection")
    },
    "samples of a volume": (lambda x, at: nn.functional.grid_sample(x, at, align_corners=False), lambda: (torch.randn(2, 2, 3, 4, 5), torch.randn(2, 2, 3, 2, 3))),
    **{f"segments, {reduce}": (lambda x, reduce=reduce: torch.segment_reduce(x, reduce, lengths=torch.tensor([2, 1, 4], device=x.device)), lambda: (torch.randn(7, 3),)) for reduce in ("sum", "mean", "max", "prod")},
    **{f"bags of embeddings, {mode}": (lambda w, mode=mode: nn.functional.embedding_bag(INDICES.to(w.device), w, mode=mode, padding_idx=2), lambda: (torch.randn(9, 4),)) for mode in ("sum", "mean", "max")},
    "bags of embeddings with offsets and weights": (
        lambda w, by: nn.functional.embedding_bag(INDICES.to(w.device).flatten(), w, torch.tensor([0, 3, 3], device=w.device), mode="sum", per_sample_weights=by),
        lambda: (torch.randn(9, 4), torch.randn(8)),
    ),
    "padding of an empty batch": (lambda x: nn.functional.pad(x, (1, 2), mode="reflect"), lambda: (torch.randn(0, 3, 3),)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_of_functions_as_eager(name, device):
    fn, inputs = FUNCTIONS[name]
    given = [t.requires_grad_() for t in inputs()]
    found = []
    for call in (fn, torch.compile(fn, backend=kiln)):
        out = call(*given)
        torch.manual_seed(1)
        found.append(torch.autograd.grad(out, given, torch.randn(out.shape)))
    for want, got in zip(*found):
        assert got.shape == want.shape
        close(got, want, name)
    # On GPUs PyTorch's attention, convolutions and bags of embeddings have gradients of their own.
    assert device != "cpu" or not any(r.eager for r in reports)


# Kernel, stride, padding, ceil mode; windows overlap in the last two.
POOLS = [
    ((2, 2), (2, 2), (0, 0), False),
    ((2, 2), (2, 2), (1, 1), True),
    ((2, 3), (3, 3), (0, 1), True),
    ((1, 1), (2, 2), (0, 0), False),
    ((3, 3), (2, 2), (1, 1), False),
    ((2, 2), (1, 1), (0, 0), False),
]


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (1, 2, 7, 9), (3, 10, 11)])
@pytest.mark.parametrize("kernel, stride, padding, ceil", POOLS)
def test_gradients_of_pools_as_eager(shape, kernel, stride, padding, ceil):
    def largest(x):
        return nn.functional.max_pool2d(x, kernel, stride, padding, 1, ceil).relu().square().sum()

    def mean(x, padded):
        return nn.functional.avg_pool2d(x, kernel, stride, padding, ceil, padded).square().sum()

    forms = (torch.contiguous_format, torch.channels_last) if len(shape) == 4 else (torch.contiguous_format,)
    for fn, form in itertools.product((largest, lambda x: mean(x, True), lambda x: mean(x, False)), forms):
        torch._dynamo.reset()
        x = torch.randn(shape).to(memory_format=form).requires_grad_()
        # Of float64 on the host: PyTorch 2.11's mean of padded channels-last windows has wrong gradients on GPUs.
        exact = x.detach().cpu().double().requires_grad_()
        (want,) = torch.autograd.grad(fn(exact), exact)
        (got,) = torch.autograd.grad(torch.compile(fn, backend=kiln)(x), x)
        assert got.stride() == x.stride()
        close(got.cpu().double(), want, "the input's gradient")


def test_sgd_follows_eager():
    model = MODELS["mlp"][0]()
    twin = copy.deepcopy(model)
    fast = torch.compile(twin, backend=kiln)
    x, y = torch.randn(32, 8), torch.randn(32, 4)
    for m, call in ((model, model), (twin, fast)):
        optimizer = torch.optim.AdamW(m.parameters(), lr=1e-2)
        for _ in range(10):
            optimizer.zero_grad()
            nn.functional.mse_loss(call(x), y).backward()
            optimizer.step()
    for (what, p), q in zip(model.named_parameters(), twin.parameters()):
        assert (p - q).abs().max() < 1e-4, what


def test_autocast(device):
    model = MODELS["mlp"][0]()
    x = torch.randn(5, 8)
    with torch.autocast(device, torch.bfloat16), torch.no_grad():
        want = model(x)
        got = torch.compile(model, backend=kiln)(x)
    assert got.dtype == want.dtype == torch.bfloat16
    close(got.float(), want.float(), "result") if (got - want).abs().max() < 1e-6 else torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)
