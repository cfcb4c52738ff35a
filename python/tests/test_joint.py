"""Training graphs that kiln differentiates and partitions itself (`joint_graph`): losses and gradients beside eager's."""
import copy

import pytest
import torch
from test_training import FUNCTIONS, MODELS, close
from torch.utils.checkpoint import checkpoint

from kiln_torch import _kiln, backend, convolutions, kiln, reports

nn = torch.nn
JOINT = {"joint_graph": True}


def by(fn, *given, options=JOINT):
    """Results and gradients, compiled, of a random projection of the results."""
    out = torch.compile(fn, backend=kiln, options=options)(*given)
    out = [t for t in (out if isinstance(out, tuple) else (out,))]
    torch.manual_seed(1)
    total = sum((t.double() * torch.randn(t.shape)).sum() for t in out if t.requires_grad)
    return out, torch.autograd.grad(total, [t for t in given if t.requires_grad])


def eager(fn, *given):
    out = fn(*given)
    out = [t for t in (out if isinstance(out, tuple) else (out,))]
    torch.manual_seed(1)
    total = sum((t.double() * torch.randn(t.shape)).sum() for t in out if t.requires_grad)
    return out, torch.autograd.grad(total, [t for t in given if t.requires_grad])


def agree(fn, *given, joint=True):
    """Compares with eager; `joint`: whether the gradients must be kiln's."""
    (out, grads), (want, wanted) = by(fn, *given), eager(fn, *given)
    for a, b in zip([*out, *grads], [*want, *wanted], strict=True):
        assert (a.shape, a.dtype, a.requires_grad) == (b.shape, b.dtype, b.requires_grad)
        close(a.double(), b.double(), "a result or gradient")
    assert all((r.gradients == "kiln's") == joint for r in reports), [r.gradients for r in reports]


@pytest.mark.parametrize("name", MODELS)
def test_models_train_as_in_eager(name):
    make, inputs = MODELS[name]
    model = make()
    twin, x = copy.deepcopy(model), inputs()
    fast = torch.compile(twin, backend=kiln, options=JOINT)
    for m, call in ((model, model), (twin, fast)):
        optimizer = torch.optim.SGD(m.parameters(), lr=0.05)
        for _ in range(3):
            # Gradients of two calls add up.
            (call(x).square().mean() + call(x).mean()).backward()
            optimizer.step()
            optimizer.zero_grad()
    for (what, p), q in zip(model.state_dict().items(), twin.state_dict().values()):
        close(q.double(), p.double(), what)
    assert {(r.kind, r.programs, r.gradients) for r in reports} == {("forward", 1, "kiln's"), ("backward", 1, "kiln's")}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_of_functions(name):
    fn, inputs = FUNCTIONS[name]
    given = [t.requires_grad_() for t in inputs()]
    (out, grads), (want, wanted) = by(fn, *given), eager(fn, *given)
    for a, b in zip([*out, *grads], [*want, *wanted], strict=True):
        close(a.double(), b.double(), name)


# Window, stride, padding, dilation of a pool of 6 by 8: windows that are tiles of the image, along one axis or both, and others.
POOLS = [
    (2, 2, 0, 1), ((3, 2), (3, 2), 0, 1), ((2, 3), (2, 2), 0, 1), (4, 4, 0, 1), (2, 2, 1, 1), (3, 2, 1, 1), (2, 3, 0, 1), (2, 2, 0, 2), ((1, 8), (1, 8), 0, 1),
]


@pytest.mark.parametrize("pool", POOLS, ids=str)
@pytest.mark.parametrize("values", ["random", "equal", "least", "nan"])
def test_gradients_of_max_pools(pool, values):
    """Of equal elements the first has the gradient, but the last NaN."""
    x = torch.randn(2, 3, 6, 8)
    x = {"random": x, "equal": x.round(), "least": torch.full_like(x, -torch.inf), "nan": torch.where(x > 0.5, torch.nan, x)}[values]
    fn = lambda x: torch.nn.functional.max_pool2d(x, *pool)
    agree(lambda x: fn(x).nan_to_num(1.0, 1.0, -1.0) + torch.where(fn(x).isnan(), 0.0, fn(x).clamp(-9, 9)), x.requires_grad_())


def without_gradient(x):
    with torch.no_grad():
        scale = x.abs().amax()
    return x / scale * x


STOPS = {
    "detach": lambda x: x * x.detach(),
    "no_grad": without_gradient,
    "a detached result": lambda x: (x.exp(), x.detach().sin()),
    "a constant like a tensor": lambda x: x * torch.ones_like(x).sin(),
    "indices": lambda x: x.max(dim=1)[0] * x.argmax(dim=1),
    "a straight-through estimate": lambda x: x + (x.round() - x).detach(),
}


@pytest.mark.parametrize("name", STOPS)
def test_gradients_stop_where_they_do_in_eager(name):
    agree(STOPS[name], torch.randn(4, 5, requires_grad=True))


BOUNDS = {
    "relu": torch.relu,
    "relu6": nn.functional.relu6,
    "hardtanh": nn.functional.hardtanh,
    "hardswish": nn.functional.hardswish,
    "leaky_relu": nn.functional.leaky_relu,
    "threshold": lambda x: nn.functional.threshold(x, 1.0, 2.0),
    "softshrink": lambda x: nn.functional.softshrink(x, 1.0),
    "hardshrink": lambda x: nn.functional.hardshrink(x, 1.0),
    "elu": nn.functional.elu,
    "clamp": lambda x: x.clamp(-1, 1),
    "clamp from below": lambda x: x.clamp(min=0),
    "clamp from above": lambda x: x.clamp_max(1),
    "clamp by tensors": lambda x: torch.clamp(x, torch.zeros(6), torch.ones(6)),
    "maximum": lambda x: torch.maximum(x, torch.zeros(6)),
    "largest of a row": lambda x: x.view(2, 3).amax(1),
    "abs": torch.abs,
    "norm of zeros": lambda x: (x * 0).norm(),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_gradients_at_bounds(name):
    agree(BOUNDS[name], torch.tensor([-1.0, 0.0, 1.0, 6.0, 1.0, 0.0], requires_grad=True))


RESULTS = {
    "several": lambda x, w: ((x @ w).relu(), x.sum(), w.exp()),
    "one twice": lambda x, w: ((y := x @ w), y, y.sin()),
    "a view and its base": lambda x, w: ((y := x @ w), y.view(-1)),
    "integers": lambda x, w: (x @ w, x.argmax(1)),
    "an argument": lambda x, w: (x @ w, x),
    "transposed": lambda x, w: (x @ w).mT,
}


@pytest.mark.parametrize("name", RESULTS)
def test_results(name):
    (out, grads), (want, wanted) = (f(RESULTS[name], torch.arange(12.0).view(3, 4).div(9).requires_grad_(), torch.eye(4, 5, requires_grad=True)) for f in (by, eager))
    for a, b in zip([*out, *grads], [*want, *wanted], strict=True):
        assert (a.shape, a.stride(), a.dtype, a.requires_grad) == (b.shape, b.stride(), b.dtype, b.requires_grad)
        close(a.double(), b.double(), name)


class Twice(torch.autograd.Function):
    """A derivative that is not that of what it computes."""

    @staticmethod
    def forward(ctx, x):
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        return 2 * g


def test_what_has_no_gradient_has_none():
    x = torch.randn(4, 5, requires_grad=True)
    torch.compile(lambda x: x.norm(0), backend=kiln, options=JOINT)(x).backward()
    assert x.grad is None or not x.grad.any()


def test_bits_of_numbers_have_autograd_s_gradients():
    agree(lambda x: torch.frexp(x)[0], torch.randn(4, 5, requires_grad=True), joint=False)


def written(x):
    y = x * 2
    with torch.no_grad():
        y.mul_(3)
    return y * y


AUTOGRAD = {
    "a derivative of its own": lambda x: Twice.apply(x) * x,
    "a checkpoint": lambda x: checkpoint(lambda x: x.sin().exp(), x, use_reentrant=False),
    "a write without gradient": written,
}


@pytest.mark.parametrize("name", AUTOGRAD)
def test_what_only_autograd_knows_is_its(name):
    agree(AUTOGRAD[name], torch.randn(4, 5, requires_grad=True), joint=False)


def test_dynamic_sizes_are_autograds():
    w = torch.randn(4, 3, requires_grad=True)
    fast = torch.compile(lambda x: (x @ w).sin(), backend=kiln, options=JOINT, dynamic=True)
    (got,) = torch.autograd.grad(fast(torch.ones(6, 4)).sum(), w)
    (want,) = torch.autograd.grad((torch.ones(6, 4) @ w).sin().sum(), w)
    close(got, want, "the gradient")
    assert "dynamic" in reports[0].gradients


@pytest.mark.parametrize("p", [0.0, 0.5])
def test_dropout_drops_the_same_elements_again(p):
    x = torch.randn(64, 32, requires_grad=True)
    fast = torch.compile(lambda x: nn.functional.dropout(x.exp(), p), backend=kiln, options=JOINT)
    for _ in range(2):
        y = fast(x)
        (got,) = torch.autograd.grad(y.sum(), x)
        close(got, y.detach(), "the gradient of exp, dropped alike")
    assert p == 0 or 0.4 < (y == 0).float().mean() < 0.6


def test_a_kept_graph_gives_the_same_gradients_again():
    x, w = torch.randn(64, 64, requires_grad=True), torch.randn(64, 64, requires_grad=True)
    y = torch.compile(lambda x: ((x @ w).exp() @ w).sin().mean(), backend=kiln, options=JOINT)(x)
    first = torch.autograd.grad(y, (x, w), retain_graph=True)
    again = torch.autograd.grad(y, (x, w))
    assert all(torch.equal(a, b) for a, b in zip(first, again))


def test_a_budget_bounds_what_is_saved():
    layers = nn.Sequential(*(m for _ in range(6) for m in (nn.Linear(32, 32), nn.GELU())))
    x, bytes_of = torch.randn(128, 32), {}
    for budget in (1.0, 0.0):
        torch._dynamo.reset()
        saved = []
        with torch._functorch.config.patch(activation_memory_budget=budget):
            pack = lambda t: saved.append(t) or t
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
                torch.compile(layers, backend=kiln, options=JOINT)(x).sum().backward()
        parameters = {p.data_ptr() for p in layers.parameters()} | {x.data_ptr()}
        bytes_of[budget] = sum(t.numel() * 4 for t in saved if t.data_ptr() not in parameters)
    assert bytes_of[0.0] == 0 and bytes_of[1.0] == 6 * 128 * 32 * 4


class Network(nn.Module):
    """Eight dense convolutions; `last` follows them."""

    def __init__(self, last=None, channels=8):
        super().__init__()
        sizes = [3, *[channels] * 8]
        self.layers = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1, bias=False) for a, b in zip(sizes, sizes[1:]))
        self.norm, self.last = nn.BatchNorm2d(channels), last

    def forward(self, x):
        for layer in self.layers:
            x = self.norm(layer(x)).relu()
        x = x if self.last is None else self.last(x)
        return x.float().mean()


def heads(x):
    """Attention between pixels."""
    q = x.flatten(2).transpose(1, 2).unsqueeze(1)
    return torch.nn.functional.scaled_dot_product_attention(q, q, q)


# Their gradients are autograd's by default.
OTHERS = {
    "groups that TMA does not take": lambda: Network(nn.Conv2d(8, 12, 3, groups=2)), "dilation": lambda: Network(nn.Conv2d(8, 8, 3, dilation=2)), "attention": lambda: Network(heads),
    "channels that TMA does not take": lambda: Network(channels=12), "a transposed convolution": lambda: Network(nn.ConvTranspose2d(8, 8, 3)),
}


def is_near(got, want, exact, most):
    """Whether a tensor is another one within this part of its norm, or as near to the exact one."""
    return (got - want).norm() <= most * want.norm() + 1e-6 or (got - exact).norm() <= 1.1 * (want - exact).norm()


def trained(make, mode=None, dtype=torch.bfloat16, images=2, near=2e-5, **options):
    """The ways in which gradients were computed, of a step. Losses and gradients are eager's within the noise of 16 bits on a processor, or as near to those of
    float64 (which of its kernels for 16 bits PyTorch has depends on the processor); `benches/gpu/public.py` compares networks on a GPU, where eager's own
    differ as much. `near`: of the loss."""
    torch._dynamo.reset()
    reports.clear()
    torch.manual_seed(0)
    model, x = make(), torch.randn(images, 3, 9, 9)
    fast = torch.compile(copy.deepcopy(model), backend=kiln, options={**options, **({"mode": mode} if mode else {})})
    exact = copy.deepcopy(model).double()
    (true := exact(x.double())).backward()
    with torch.autocast(x.device.type, dtype, enabled=dtype != torch.float32):
        (want := model(x)).backward()
        (loss := fast(x)).backward()
    if x.device.type == "cpu":
        assert is_near(loss, want, true, near), "the loss"
        for (name, p), q, e in zip(model.named_parameters(), fast.parameters(), exact.parameters()):
            assert is_near(q.grad, p.grad, e.grad, 0.05), name
    return {r.gradients for r in reports}


def test_networks_of_convolutions_are_kiln_s_by_default(monkeypatch):
    monkeypatch.setattr(convolutions, "has_kernels", lambda device: True)
    assert trained(Network) == {"kiln's"}
    depthwise = lambda: Network(nn.Conv2d(8, 8, 3, stride=2, groups=8))
    assert trained(depthwise) == {"kiln's"}
    groups = lambda: Network(nn.Sequential(nn.Conv2d(8, 16, 3, groups=2, padding=1), nn.Conv2d(16, 8, 3, groups=4, stride=2)))
    assert trained(groups) == {"kiln's"}
    assert trained(lambda: Network(channels=12), images=8) == {"kiln's"}
    squeezed = lambda: Network(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 6, 1), nn.Conv2d(6, 8, 1)))
    assert trained(squeezed) == {"kiln's"}
    assert "kiln's" not in trained(Network, joint_graph=False)
    assert "kiln's" not in trained(Network, dtype=torch.float32)
    assert "kiln's" not in trained(Network, mode="reduce-overhead")


class Mixer(nn.Module):
    """Linear layers between patches and within them."""

    def __init__(self, layers=4, between=lambda x: x):
        super().__init__()
        self.patches, self.between = nn.Conv2d(3, 16, 3, stride=3), between
        self.layers = nn.ModuleList(nn.ModuleList([nn.LayerNorm(16), nn.Linear(9, 9), nn.Linear(16, 16)]) for _ in range(layers))

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        for norm, tokens, channels in self.layers:
            x = x + tokens(norm(x).transpose(1, 2)).transpose(1, 2)
            x = x + torch.nn.functional.gelu(channels(self.between(x)))
        return x.float().square().mean()


def test_networks_of_linear_layers_are_kiln_s_by_default(monkeypatch):
    monkeypatch.setattr(convolutions, "has_kernels", lambda device: True)
    # Its loss adds up 16-bit values that are rounded elsewhere than in eager.
    ways = lambda make, **how: trained(make, near=1e-2, **how)
    assert ways(Mixer) == {"kiln's"}
    assert "kiln's" not in ways(lambda: Mixer(layers=3))
    assert "kiln's" not in ways(Mixer, dtype=torch.float32)
    assert "kiln's" not in ways(lambda: Mixer(between=lambda x: (x @ x.mT).softmax(-1) @ x))


@pytest.mark.parametrize("name", OTHERS)
def test_other_networks_are_autograd_s_by_default(name, monkeypatch):
    monkeypatch.setattr(convolutions, "has_kernels", lambda device: True)
    assert "kiln's" not in trained(OTHERS[name])


@pytest.mark.parametrize("part", ["forward", "backward"])
def test_gradients_are_autograd_s_where_kiln_s_do_not_compile(part, monkeypatch):
    monkeypatch.setattr(convolutions, "has_kernels", lambda device: True)
    program = backend.program_of_part

    def failing(kind, *rest):
        if kind == part:
            raise _kiln.CompileError("a defect\nat a kernel")
        return program(kind, *rest)

    monkeypatch.setattr(backend, "program_of_part", failing)
    assert "kiln's" not in trained(Network)
    with pytest.raises(Exception, match="a defect"):
        trained(Network, joint_graph=True)


def test_without_kernels_networks_are_autograd_s_by_default(monkeypatch):
    monkeypatch.setattr(convolutions, "has_kernels", lambda device: False)
    assert "kiln's" not in trained(Network)
