"""Random numbers, by the names of PyTorch's tests: what holds for any numbers that a backend draws."""

import torch
import torch.nn.functional as F

from .case import case, zeros

aten = torch.ops.aten


def seeded(run, *args):
    """Two calls from one seed, and one from another: equal, and not."""
    out = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        out.append([t.clone() for t in run(*args)])
    first, again, other = out
    assert all(torch.equal(a, b) for a, b in zip(first, again)) and not all(torch.equal(a, b) for a, b in zip(first, other))
    return first


def same_layout(have, want):
    assert [(t.shape, t.dtype, t.stride()) for t in have] == [(t.shape, t.dtype, t.stride()) for t in want]


def bernoulli(draw, p):
    def check(compile):
        x = torch.full((200, 200), 0.3)
        assert abs(compile(draw)(x).mean() - p) < 0.02

    return check


def dropout(p, train=True):
    def check(compile):
        kept = seeded(compile(lambda x: [F.dropout(x, p, train)]), torch.ones(1000))[0]
        assert abs((kept == 0).double().mean() - p) < 0.1 and torch.all((kept == 0) | ((kept - 1 / (1 - p)).abs() < 1e-5))

    return check


def dropout_mask_in_gradients(compile):
    w = torch.ones(10000, requires_grad=True)
    fast = compile(lambda x, train: F.dropout(x * w, 0.33, train))
    for train in (False, True):
        (grad,) = torch.autograd.grad((y := fast(torch.ones(10000), train)).sum(), w)
        torch.testing.assert_close(grad, y)
    assert 0.3 < (y == 0).double().mean() < 0.36


def dropout_layers(compile):
    m = torch.nn.Sequential(torch.nn.Linear(32, 32, bias=False), torch.nn.Dropout(), torch.nn.Linear(32, 32, bias=False), torch.nn.Dropout())
    y = compile(m)(torch.randn(8, 32))
    y.sum().backward()
    assert 0.3 < (y == 0).double().mean() < 0.7 and all(p.grad is not None for p in m.parameters())


def independent_calls(compile):
    x, fast = torch.ones(1024), compile(lambda a: (torch.rand_like(a), torch.rand_like(a)))
    a, b = seeded(fast, x)
    c, d = fast(x)
    assert not torch.equal(a, b) and not torch.equal(a, c) and not torch.equal(c, d)
    assert all(torch.all((t >= 0) & (t < 1)) for t in (a, b, c, d))


def ranges(compile):
    def draw(x):
        return torch.randint(10, [1024]), torch.randint(-4, 7, [1024], dtype=torch.int32), torch.randint_like(x, 2**50)

    a, b, c = seeded(compile(draw), torch.zeros(40, 40))
    same_layout([a, b, c], draw(torch.zeros(40, 40)))
    assert (a.min(), a.max(), b.min(), b.max()) == (0, 9, -4, 6) and 0 <= c.min() and 2**40 < c.max() < 2**50


def even_ranges(compile):
    top = 3 * 2**30
    n = compile(lambda: torch.randint(top, (100000,)))()
    counts = (n // (top // 8)).bincount(minlength=8).double() / 12500
    assert (counts - 1).abs().max() < 0.05


def on_other_device(compile):
    assert compile(lambda x: torch.rand_like(x, device="cpu"))(torch.ones(10)).device.type == "cpu"


def own_generator(compile):
    x = torch.linspace(-10, 10, 41)
    assert compile(lambda a: torch.randn([20, 20]) + a.sum() * 0)(x).std() > 0.5
    made = lambda: torch.Generator(x.device).manual_seed(3)
    g = made()
    assert torch.equal(
        compile(lambda a: torch.randn([4, 5], generator=g, device=a.device))(x), torch.randn([4, 5], generator=made(), device=x.device)
    )


def remainder_of_draws(compile):
    n = compile(lambda: torch.randint(-5, 5, (20,), dtype=torch.int64) % 10)()
    assert torch.all((0 <= n) & (n < 10))


def recomputed(compile):
    """What is recomputed for the backward pass draws the same numbers."""
    from torch.utils.checkpoint import checkpoint

    x = torch.ones(1000, requires_grad=True)
    y = compile(lambda x: checkpoint(lambda t: F.dropout(t * 2, 0.5).sin(), x, use_reentrant=False))(x)
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(grad == 0, y == 0) and 300 < (y == 0).sum() < 700


RANDOM_CHECKS = {
    "functionalize_rng_wrappers": recomputed,
    "bernoulli1": bernoulli(lambda a: aten.bernoulli_(a.clone()), 0.5),
    "bernoulli2": bernoulli(aten.bernoulli, 0.3),
    "dropout": dropout(0.5),
    "dropout_deterministic": dropout(0.55),
    "dropout2": dropout_mask_in_gradients,
    "dropout3": dropout_layers,
    "rand_like_deterministic": independent_calls,
    "philox_rand": lambda compile: seeded(compile(lambda x: [torch.rand_like(x) * x, torch.rand_like(x) * x]), torch.ones(3)),
    "randint": ranges,
    "randint_distribution": even_ranges,
    "randint_int64_mod": remainder_of_draws,
    "randn_generator": own_generator,
    "like_rands2": lambda compile: seeded(compile(lambda x: [torch.rand_like(x, device=x.device.type)]), torch.ones(10)),
    "like_rands3": on_other_device,
    "graph_partition_no_inputs": lambda compile: compile(lambda: torch.randint(0, 5, (5,)))(),
}

RNG = {
    "dropout_trivial_0": case(lambda a: F.dropout(a, 0.0, True) + a, [(55,)]),
    "dropout_trivial_1": case(lambda a: F.dropout(a, 1.0, True) + a, [(55,)]),
    "randn_like_empty": case(lambda x: torch.randn_like(x.sum(1)), [zeros(10, 3, 0)], values=False),
    "randn_with_dtype_and_device": case(
        lambda v: torch.randn((12, v.shape[-1], 1, 6), dtype=v.dtype) + 1, [(4, 2, 6)], eager_random=True, alone=True
    ),
    "like_rands": case(lambda x: (torch.rand_like(x), torch.randn_like(x)), [zeros(20, 20)], eager_random=True, alone=True),
    "generate_rand_fp8": case(lambda x: x.to(torch.float8_e4m3fn).float() + 1, [(2, 3)]),
}
