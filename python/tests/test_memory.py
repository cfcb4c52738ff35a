"""Backward graphs that are split so that activations are freed early, and norms that are computed again."""
import pytest
import torch
from torch import nn

import kiln_torch
from kiln_torch import backend, donation, memory


@pytest.fixture
def small(monkeypatch):
    """Splits graphs of any size."""
    monkeypatch.setattr(memory, "LEAST", 1)


class Blocks(nn.Module):
    def __init__(self, count=6, width=16):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(count))

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return x


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.SiLU())))

    def forward(self, x):
        return self.layers(x)


def gradients(model, fn, x):
    model.zero_grad()
    x = x.clone().requires_grad_()
    fn(x).square().mean().backward()
    return [x.grad, *(p.grad.clone() for p in model.parameters())]


@pytest.mark.parametrize("make, shape", [(Blocks, (3, 5, 16)), (Images, (2, 4, 6, 6))], ids=["blocks", "images"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_split_backward_graphs_give_the_same_gradients(small, make, shape, dynamic):
    model, x = make(), torch.randn(shape)
    want = gradients(model, model, x)
    got = gradients(model, torch.compile(model, backend="kiln", dynamic=dynamic), x)
    for a, b in zip(got, want):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    backward = kiln_torch.reports[-1]
    # Eager ops, such as gradients of convolutions on GPUs, split it besides.
    assert backward.kind == "backward" and 4 <= backward.programs <= memory.PROGRAMS + 1 + len(backward.eager)


def test_graphs_of_few_activations_are_one_program(device):
    model = Blocks()
    gradients(model, torch.compile(model, backend="kiln"), torch.randn(3, 5, 16))
    assert [r.programs for r in kiln_torch.reports] == [1, 1]


def saved_tensors(model, x):
    """The tensors that a forward pass keeps for the backward one, beside parameters and the input, and the result."""
    kept, own = [], {t.untyped_storage().data_ptr() for t in (x, *model.parameters(), *model.buffers())}

    def keep(t):
        kept.append(t)
        return t

    fn = torch.compile(model, backend="kiln")
    fn(x)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        y = fn(x)
    return [t for t in kept if t.untyped_storage().data_ptr() not in own], y


def saved_bytes(model, x):
    """The bytes of these."""
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in saved_tensors(model, x)[0]}.values())


def test_batch_norms_are_computed_again():
    x = torch.randn(2, 4, 32, 32)
    image = x.numel() * x.element_size()
    # Of each of the four layers the convolution's result, and for the next convolution's gradient its input.
    assert saved_bytes(Images(), x) < 8 * image


class Slices(nn.Module):
    """Slices of one product, as queries, keys and values are."""

    def __init__(self, read):
        super().__init__()
        self.linear, self.read = nn.Linear(8, 24), read

    def forward(self, x):
        a, b, c = self.linear(x).unflatten(-1, (3, 8)).permute(1, 0, 2).unbind()
        return (a @ b.mT @ (c if self.read == 3 else x)).sum()


@pytest.mark.parametrize("read, elements", [(3, [36, 144]), (2, [48, 48])])
def test_slices_that_are_all_of_a_tensor_are_saved_as_it(read, elements, device):
    model, x = Slices(read), torch.randn(6, 8)
    saved, y = saved_tensors(model, x)
    assert sorted(t.numel() for t in saved) == elements and all(t.is_contiguous() or read == 2 for t in saved)
    y.backward()
    found = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model(x).backward()
    torch.testing.assert_close(found, [p.grad for p in model.parameters()])


class Logits(nn.Module):
    """Logits of 16 bits and a loss in f32."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(16, 512, bias=False, dtype=torch.bfloat16)

    def forward(self, x):
        return nn.functional.cross_entropy(self.head(x).float(), torch.arange(x.shape[0], device=x.device))


class Attention(nn.Module):
    """A block of a vision transformer."""

    def __init__(self, width=32, heads=2):
        super().__init__()
        self.heads, self.norm, self.project, self.last = heads, nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        q, k, v = self.project(self.norm(x)).reshape(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind()
        x = x + self.last(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mlp(x)


def test_tensors_that_are_saved_for_views_have_names_of_their_own(small, device):
    """A backward graph has values of its own under the names of the forward graph's, such as `getitem_17`."""
    model, x = nn.Sequential(*(Attention() for _ in range(12))), torch.randn(2, 10, 32)
    # Attention, which may draw, stays eager between programs: the code of the graph around them runs.
    found = gradients(model, torch.compile(model, backend="kiln", options={"fallback_random": True}), x)
    torch.testing.assert_close(found, gradients(model, model, x), rtol=1e-4, atol=1e-6)


def test_logarithms_of_softmax_are_computed_again(device):
    x = torch.randn(32, 16, dtype=torch.bfloat16)
    # The logits, of 16 bits, and two numbers a row.
    assert saved_bytes(Logits(), x) <= 32 * (2 * 512 + 2 * 4) + 512


class Wide(nn.Module):
    """Norms in f32 of an activation of 16 bits, as under autocast on GPUs."""

    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(64), nn.Linear(64, 64, dtype=torch.bfloat16)

    def forward(self, x):
        y = x * 2
        return y + self.linear(self.norm(y.float()).bfloat16()).tanh()


def test_conversions_before_norms_are_computed_again():
    x = torch.randn(32, 64, dtype=torch.bfloat16)
    rows = x.numel() * x.element_size()
    # The norm's input and result and the hyperbolic tangent, of 16 bits, and two statistics a row.
    assert saved_bytes(Wide(), x) <= 3 * rows + 2 * 4 * 32 + 512


def test_activations_are_freed_while_the_backward_graph_runs(small, device):
    if device == "cpu":
        pytest.skip("PyTorch counts the memory of GPUs alone")
    model = Blocks(8, 256).to(device)
    fn, x = torch.compile(model, backend="kiln"), torch.randn(64, 128, 256, device=device)

    def peak():
        gradients(model, fn, x)
        torch.cuda.reset_peak_memory_stats()
        loss = fn(x).square().mean()
        saved = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        loss.backward()
        return torch.cuda.max_memory_allocated() / saved

    # One program would hold all activations and compute all gradients beside them.
    assert peak() < 1.3


RETURNED = {
    "nothing else": lambda y: (y * y).sum(),
    "what is saved": lambda y: ((y * y).sum(), y),
    "a view of it": lambda y: ((y * y).sum(), y[1:]),
}


@pytest.mark.parametrize("returned", RETURNED)
def test_activations_are_donated_that_no_one_else_sees(monkeypatch, returned):
    donated = []

    class Recorded(backend.Program):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            donated.append(len(self.source.donated))

    monkeypatch.setattr(backend, "Program", Recorded)
    monkeypatch.setattr(donation, "LEAST", 1)
    x, w = torch.randn(8, 16, requires_grad=True), torch.randn(16, 16, requires_grad=True)
    loss = lambda x: RETURNED[returned]((x @ w).exp())
    first = lambda out: out[0] if isinstance(out, tuple) else out
    first(torch.compile(loss, backend="kiln")(x)).backward()
    # The forward program is given arguments alone.
    assert donated == ([0, 1] if returned == "nothing else" else [0, 0])


def test_donated_activations_of_a_graph_that_is_kept(monkeypatch, device):
    monkeypatch.setattr(donation, "LEAST", 1)
    x, w = (torch.randn(2048, 2048, device=device) / 64 for _ in range(2))
    v = torch.randn(2048, 8, device=device)

    def gradients(fn, *keep):
        a, b = x.clone().requires_grad_(), w.clone().requires_grad_()
        loss = fn(a, b)
        for kept in keep:
            a.grad = b.grad = None
            loss.backward(retain_graph=kept)
        return a.grad, b.grad

    loss = lambda a, b: ((a @ b).tanh() @ v).square().mean()
    want = gradients(loss, False)
    compiled = torch.compile(loss, backend="kiln")
    for keep in ((False,), (True, True, False), (False,)):
        for have, expected in zip(gradients(compiled, *keep), want):
            torch.testing.assert_close(have, expected, rtol=1e-3, atol=1e-5)


def test_attention_in_f64_has_gradients(device):
    """On processors its logarithms are in f64, where PyTorch's metadata has f32; the op is eager's where random numbers are."""
    model, x = Attention().double(), torch.randn(2, 10, 32, dtype=torch.float64)
    found = gradients(model, torch.compile(model, backend="kiln", options={"fallback_random": True}), x)
    torch.testing.assert_close(found, gradients(model, model, x))
