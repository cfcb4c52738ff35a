"""Random numbers: distributions, reproducibility, gradients through dropout."""
import pytest
import torch

from kiln_torch import kiln, reports

F = torch.nn.functional


def compiled(fn, **options):
    return torch.compile(fn, backend=kiln, options={"kiln.strict": True, **options})


def seeded(fn, *args, seed=0):
    torch.manual_seed(seed)
    return fn(*args)


def draw(x):
    d = x.device
    return torch.rand(1000, device=d), torch.randn_like(x), torch.randint(0, 9, (50,), device=d), F.dropout(x, 0.3), torch.bernoulli(x.sigmoid())


def test_numbers_follow_the_seed():
    fast, x = compiled(draw), torch.randn(40, 30)
    first, again, other = (seeded(fast, x, seed=s) for s in (1, 1, 2))
    for a, b, c in zip(first, again, other):
        assert torch.equal(a, b) and not torch.equal(a, c)
    # A later call goes on.
    assert not torch.equal(fast(x)[0], other[0])


def test_draws_of_a_program_are_independent(device):
    a, b = compiled(lambda: (torch.rand(10000, device=device), torch.rand(10000, device=device)))()
    assert abs(torch.corrcoef(torch.stack([a, b]))[0, 1]) < 0.05


DISTRIBUTIONS = {
    "rand": (lambda n, d: torch.rand(n, device=d), 0.5, 1 / 12),
    "randn": (lambda n, d: torch.randn(n, device=d), 0, 1),
    "uniform": (lambda n, d: torch.empty(n, device=d).uniform_(-2, 4), 1, 3),
    "normal": (lambda n, d: torch.empty(n, device=d).normal_(3, 2), 3, 4),
    "exponential": (lambda n, d: torch.empty(n, device=d).exponential_(4), 0.25, 1 / 16),
    "geometric": (lambda n, d: torch.empty(n, device=d).geometric_(0.2), 5, 20),
    "bernoulli": (lambda n, d: torch.empty(n, device=d).bernoulli_(0.3), 0.3, 0.21),
    "randint": (lambda n, d: torch.randint(-5, 6, (n,), device=d).double(), 0, 10),
    "randint of 16 bits": (lambda n, d: torch.randint(0, 100, (n,), dtype=torch.int16, device=d).double(), 49.5, 833.25),
    "bfloat16": (lambda n, d: torch.rand(n, dtype=torch.bfloat16, device=d).float(), 0.498, 1 / 12),
    "permutation": (lambda n, d: torch.randperm(n, device=d)[: n // 2].double() / n, 0.5, 1 / 12),
    "multinomial": (lambda n, d: torch.multinomial(torch.tensor([1.0, 0, 3], device=d), n, replacement=True).double(), 1.5, 0.75),
    "poisson": (lambda n, d: torch.poisson(torch.full((n,), 7.0, device=d)), 7, 7),
    "many poisson": (lambda n, d: torch.poisson(torch.full((n,), 70.0, device=d)), 70, 70),
    "binomial": (lambda n, d: torch.binomial(torch.full((n,), 100.0, device=d), torch.full((n,), 0.7, device=d)), 70, 21),
    "gamma": (lambda n, d: torch._standard_gamma(torch.full((n,), 3.0, device=d)), 3, 3),
    "alpha dropout": (lambda n, d: F.alpha_dropout(torch.randn(n, device=d), 0.4, training=True), 0, 1),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distribution(name, device):
    make, mean, variance = DISTRIBUTIONS[name]
    n = 20000
    got = seeded(compiled(lambda: make(n, device)))
    assert got.device.type == device
    got = got.double()
    # Five standard errors; of the variance generously.
    assert abs(got.mean() - mean) < 5 * (variance / n) ** 0.5 + 1e-3
    assert abs(got.var() - variance) < 0.15 * variance


def test_a_permutation_has_each_index_once(device):
    got = compiled(lambda: torch.randperm(1000, device=device))()
    assert torch.equal(got.sort()[0], torch.arange(1000)) and not torch.equal(got, torch.arange(1000))


def test_dropout_keeps_or_scales():
    x = torch.randn(100, 100)
    got = compiled(lambda x: F.dropout(x, 0.25))(x)
    kept = got != 0
    torch.testing.assert_close(got[kept], x[kept] / 0.75)
    assert abs(kept.double().mean() - 0.75) < 0.03


@pytest.mark.parametrize("form", [F.dropout, F.dropout2d, F.alpha_dropout], ids=lambda f: f.__name__)
def test_gradients_have_the_mask_of_the_forward_pass(form):
    x = torch.randn(4, 6, 5, 5, requires_grad=True)
    y = compiled(lambda x: form(x * 2, 0.5, training=True))(x)
    (grad,) = torch.autograd.grad(y.sum(), x)
    # Elements that were dropped are one constant, and have no gradient.
    dropped = grad == 0
    assert 0.2 < dropped.double().mean() < 0.8
    constant = y[dropped]
    assert torch.equal(constant, constant[0].expand_as(constant))
    slope = grad[~dropped]
    torch.testing.assert_close(slope, slope[0].expand_as(slope))
    torch.testing.assert_close(y[~dropped] - constant[0] * 0, y[~dropped])
    assert {r.kind for r in reports} == {"forward", "backward"} and not any(r.eager for r in reports)


def test_a_training_step_with_dropout_learns():
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(32, 1))
    fast, optimizer = compiled(model), torch.optim.SGD(model.parameters(), 0.05)
    x = torch.randn(64, 8)
    y = x.sum(1, keepdim=True)
    losses = []
    for _ in range(60):
        loss = F.mse_loss(fast(x), y)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < 0.2 * losses[0]


def test_fallback_random_gives_eager_numbers():
    x = torch.randn(40, 30)
    fast = torch.compile(draw, backend=kiln, options={"fallback_random": True})
    for a, b in zip(seeded(fast, x), seeded(draw, x)):
        torch.testing.assert_close(a, b)
    assert all("generator" in why for r in reports for why in r.eager.values())


def test_a_generator_of_ones_own_is_respected(device):
    make = lambda: torch.Generator(device).manual_seed(5)
    g = make()
    fast = torch.compile(lambda x: x + torch.rand(3, generator=g, device=device), backend=kiln)
    assert torch.equal(fast(torch.zeros(3)), torch.rand(3, generator=make(), device=device))


def test_dynamic_sizes():
    fast = torch.compile(lambda x: F.dropout(x, 0.5) + torch.rand_like(x), backend=kiln, dynamic=True)
    for n in (100, 301):
        assert fast(torch.ones(n, 7)).shape == (n, 7)


def test_each_replay_of_a_cuda_graph_draws_anew(device):
    if device == "cpu":
        pytest.skip("CUDA graphs")
    fast, x = torch.compile(lambda x: F.dropout(x, 0.5) + 1, backend=kiln, mode="reduce-overhead"), torch.ones(1000)
    seen = [fast(x).clone() for _ in range(6)]
    assert all(not torch.equal(a, b) for k, a in enumerate(seen) for b in seen[:k])
    first = [seeded(fast, x, seed=3).clone() for _ in range(2)]
    assert torch.equal(*first)


class Generator:
    """A default generator that records when its state is read."""

    def __init__(self, events: list):
        self.events, self.offset = events, 8

    def initial_seed(self):
        return 2**63 + 5

    def get_offset(self):
        self.events.append(self.offset)
        return self.offset

    def set_offset(self, offset):
        self.offset = offset


@pytest.fixture
def events(monkeypatch, device):
    """Programs on processors draw in the order of a GPU of 512 threads, from a generator that records."""
    from kiln_torch import random_order

    if device != "cpu":
        pytest.skip("test_random_cuda.py compares with eager")
    found = []
    made = Generator(found)
    monkeypatch.setattr(random_order, "DEVICES", {"cpu"})
    monkeypatch.setattr(random_order, "gpu_threads", lambda device: "512")
    monkeypatch.setattr(random_order, "generator", lambda device: made)
    return found


@torch.library.custom_op("kiln_test::draw", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,))
def eager_draw(x: torch.Tensor) -> torch.Tensor:
    EAGER.append("eager")
    return x.clone()


eager_draw.register_fake(lambda x: torch.empty_like(x))
EAGER: list = []


def aligned(fn, **options):
    return torch.compile(fn, backend=kiln, options={"align_random_eager": True}, **options)


def test_programs_and_eager_ops_draw_in_the_order_of_the_graph(events, monkeypatch):
    monkeypatch.setattr(f"{__name__}.EAGER", events)

    def f(x):
        # Nothing but the order of draws keeps the two programs apart, or the last one behind.
        first, other, last = torch.rand(3000), eager_draw(x), torch.rand(10)
        return first, other, last, (x.exp() + 1).sum(), eager_draw(other * 2), torch.randn(700, dtype=torch.float64)

    fast = aligned(f)
    fast(torch.ones(4))
    # 3000 numbers of 512 threads are two blocks a thread, 10 are one, 700 of 64 bits are one.
    assert events == [8, "eager", 16, "eager", 20]
    fast(torch.ones(4))
    assert events[5:] == [24, "eager", 32, "eager", 36]


def test_draws_of_one_program_keep_their_order(events):
    from kiln_torch import random_order

    def f(x):
        # A sort of the graph that keeps only what is read has the second draw before the first.
        return torch.rand_like((x + 1).exp()), torch.rand(3000, dtype=torch.float64), torch.rand_like(x)

    plain = lambda x: (torch.rand(50), torch.rand(3000, dtype=torch.float64), torch.rand(50))
    first = aligned(f)(torch.ones(50))
    random_order.generator(None).set_offset(8)
    second = aligned(plain)(torch.ones(50))
    assert events == [8, 8] and all(map(torch.equal, first, second))


def test_dynamic_sizes_move_the_generator_as_far_as_eager(events):
    fast = aligned(lambda x: torch.rand_like(x) + torch.bernoulli(x), dynamic=True)
    for n in (7, 3000, 0, 9000):
        fast(torch.full((n,), 0.5))
    # Blocks of each thread, and 12 for bernoulli; nothing of nothing.
    assert events == [8, 24, 44, 44]


def test_draws_in_the_order_of_memory_stay_eager(events):
    fast = aligned(lambda x: torch.rand_like(x) + 1)
    fast(torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last))
    assert any("not row-major" in why for r in reports for why in r.eager.values()) and not events


def test_aligned_draws_of_processors_are_eager(device):
    if device != "cpu":
        pytest.skip("for processors")
    x = torch.randn(40, 30)
    fast = torch.compile(draw, backend=kiln, options={"align_random_eager": True})
    for a, b in zip(seeded(fast, x), seeded(draw, x)):
        torch.testing.assert_close(a, b)
    assert any("align_random_eager" in why for r in reports for why in r.eager.values())
