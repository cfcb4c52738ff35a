"""Random numbers of programs on a GPU beside eager's, for the same seed, with `align_random_eager`: every case says how far it is off.

  python test_random_cuda.py    prints all cases, in one table
"""
import pytest
import torch

from kiln_torch import kiln, reports

F = torch.nn.functional
SIZES = (1, 255, 257, 70_000, 1_200_000, 5_000_001)
FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
f32, f64, f16, bf16, i64, i32 = torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def new(n, d):
    return torch.empty(n, dtype=d, device="cuda")


def dropout_gradient(n, d):
    x = (torch.arange(n, device="cuda") % 97).to(d).requires_grad_()
    y = F.dropout(x * 2, 0.3)
    return y, torch.autograd.grad(y.sum(), x)[0]


# name: (function of a number of elements and a dtype, dtypes, whether bits are eager's). PyTorch's logarithm, exponential, sine and tangent of
# f32 are approximate, so what is made of these is not.
OPS = {
    "rand": (lambda n, d: torch.rand(n, dtype=d, device="cuda"), FLOATS, True),
    "rand_like": (lambda n, d: torch.rand_like(new(n, d)), FLOATS, True),
    "uniform_": (lambda n, d: new(n, d).uniform_(-2, 4.5), (f32, bf16, f16), True),
    "uniform_ f64": (lambda n, d: new(n, d).uniform_(-2, 4.5), (f64,), False),
    "randn": (lambda n, d: torch.randn(n, dtype=d, device="cuda"), FLOATS, False),
    "normal_": (lambda n, d: new(n, d).normal_(3, 2), FLOATS, False),
    "normal of tensors": (lambda n, d: torch.normal(torch.ones(n, dtype=d, device="cuda"), torch.full((n,), 0.5, dtype=d, device="cuda")), (f32, f64), False),
    "log_normal_": (lambda n, d: new(n, d).log_normal_(0, 0.25), (f32, f64), False),
    "exponential_": (lambda n, d: new(n, d).exponential_(4), FLOATS, False),
    "cauchy_ clamped": (lambda n, d: new(n, d).cauchy_(1, 0.5).clamp(-50, 50), (f32, f64), False),
    "geometric_": (lambda n, d: new(n, d).geometric_(0.2), (f32, f64, i64), False),
    "randint": (lambda n, d: torch.randint(0, 1000, (n,), dtype=d, device="cuda"), (i64, i32, f32, bf16), True),
    "randint of 40 bits": (lambda n, d: torch.randint(-5, 1 << 40, (n,), dtype=d, device="cuda"), (i64,), True),
    "random_": (lambda n, d: new(n, d).random_(), (i64, i32, torch.uint8, torch.bool, *FLOATS), True),
    "bernoulli": (lambda n, d: torch.bernoulli(torch.full((n,), 0.3, dtype=d, device="cuda")), FLOATS, True),
    "bernoulli_ of p": (lambda n, d: new(n, d).bernoulli_(0.3), (*FLOATS, i64), True),
    "dropout": (lambda n, d: F.dropout(torch.ones(n, dtype=d, device="cuda"), 0.3), FLOATS, True),
    "dropout, gradient": (dropout_gradient, FLOATS, True),
    "dropout2d": (lambda n, d: F.dropout2d(torch.ones(n, 2, 1, 1, dtype=d, device="cuda"), 0.5), (f32, bf16), True),
    "multinomial": (lambda n, d: torch.multinomial(torch.ones(min(n, 70_000), dtype=d, device="cuda"), 1), (f32, f64), True),
}


def sequence(n, d):
    """Draws of several kernels, of which one stays eager."""
    x = torch.rand(n, dtype=d, device="cuda")
    late = torch.rand_like((x + 1).exp())
    order = torch.randperm(min(n, 1000), device="cuda")
    return x, late, torch.randint(0, 1 << 30, (n,), device="cuda"), order, F.dropout(x + 1, 0.5), torch.rand(n, dtype=f64, device="cuda")


OPS["in sequence"] = (sequence, (f32, bf16), True)


def seeded(fn, seed=42):
    """The results, the number that eager draws afterwards, and the generator's offset."""
    torch.manual_seed(seed)
    torch.rand(5, device="cuda")
    made = fn()
    made = made if isinstance(made, tuple) else (made,)
    offset = torch.cuda.default_generators[torch.cuda.current_device()].get_offset()
    return [t.detach() for t in made], torch.rand(7, device="cuda"), offset


def off(a: torch.Tensor, b: torch.Tensor) -> float:
    """The greatest difference; infinite between different shapes, dtypes or where only one is NaN."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return float("inf")
    a, b = a.double(), b.double()
    difference = torch.where((a == b) | a.isnan() & b.isnan(), 0.0, (a - b).abs())
    return torch.nan_to_num(difference, nan=float("inf")).max().item() if a.numel() else 0.0


def wrong(name: str, n: int, d: torch.dtype, dynamic: bool = False) -> tuple[list[str], str]:
    """What differs from eager, and a line about it."""
    torch._dynamo.reset()
    reports.clear()
    fn, _, exact = OPS[name]
    # A size that the graph knows, or one that it takes from an argument.
    call = (lambda t: fn(t.shape[0], d)) if dynamic else (lambda t: fn(n, d))
    like = torch.empty(n, device="cuda")
    fast = torch.compile(call, backend=kiln, options={"align_random_eager": True}, dynamic=dynamic)
    want, after, offset = seeded(lambda: call(like))
    have, later, moved = seeded(lambda: fast(like))
    apart = [off(a, b) for a, b in zip(have, want)]
    eager = [why for r in reports for why in r.eager.values()]
    drawn = sum(r.programs for r in reports)
    # Of results that are rounded to 16 bits an approximate function may give the neighbour; of integers it may round the other way.
    scale = [max(1.0, b.double().nan_to_num(posinf=0, neginf=0).abs().max().item()) if b.numel() else 1.0 for b in want]
    least = {f32: 2e-5, f64: 1e-12, bf16: 2e-2, f16: 2e-3}.get(d, 1.0)
    limits = [0.0] * len(apart) if exact else [least * s if name != "geometric_" else 1.0 for s in scale]
    found = [f"result {k} is off by {x:.3g}" for k, (x, limit) in enumerate(zip(apart, limits)) if not x <= limit]
    found += [] if moved == offset else [f"the offset is {moved}, not {offset}"]
    found += [] if torch.equal(later, after) else ["what eager draws afterwards differs"]
    found += [] if drawn else ["nothing was compiled"]
    line = f"{name:22} {n:>9} {str(d)[6:]:9} {'dynamic' if dynamic else 'static':7} off by {max(apart):.3g}{'; eager: ' + '; '.join(sorted(set(eager))) if eager else ''}"
    return found, line + (f"  WRONG: {'; '.join(found)}" if found else "")


@pytest.mark.parametrize("dynamic", (False, True), ids=("static", "dynamic"))
@pytest.mark.parametrize("name", OPS)
def test_numbers_are_eager_s(name, dynamic, device):
    if device != "cuda":
        pytest.skip("of GPUs")
    found = []
    for d in OPS[name][1]:
        for n in SIZES[2:4] if dynamic else SIZES:
            bad, line = wrong(name, n, d, dynamic)
            print(line)
            found += [line] if bad else []
    assert not found, "\n".join(found)


def test_a_model_in_training_is_eager_s(device):
    if device != "cuda":
        pytest.skip("of GPUs")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.GELU(), torch.nn.Dropout(0.2), torch.nn.Linear(96, 64), torch.nn.Dropout(0.5)).cuda()
    fast, x = torch.compile(model, backend=kiln, options={"align_random_eager": True}), torch.randn(333, 64, device="cuda")

    def step(f):
        model.zero_grad()
        torch.manual_seed(3)
        losses = []
        for _ in range(3):
            loss = f(x).square().mean()
            loss.backward()
            losses.append(loss.detach())
        return [*losses, *[p.grad.clone() for p in model.parameters()]]

    for a, b in zip(step(fast), step(model)):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_graphs_that_draw_are_not_captured(device, caplog):
    if device != "cuda":
        pytest.skip("of GPUs")
    fast = torch.compile(lambda x: F.dropout(x, 0.5) + torch.rand_like(x), backend=kiln, options={"align_random_eager": True, "mode": "reduce-overhead"})
    x = torch.ones(1000, device="cuda")
    with caplog.at_level("INFO", logger="kiln_torch"):
        for call in range(4):
            have, later, _ = seeded(lambda: fast(x), seed=call)
            want, after, _ = seeded(lambda: F.dropout(x, 0.5) + torch.rand_like(x), seed=call)
            assert torch.equal(have[0], want[0]) and torch.equal(later, after)
    assert "align_random_eager" in caplog.text


if __name__ == "__main__":
    cases = [(name, n, d, False) for name, (_, dtypes, _) in OPS.items() for d in dtypes for n in SIZES]
    cases += [(name, n, d, True) for name, (_, dtypes, _) in OPS.items() for d in dtypes[:2] for n in SIZES[2:4]]
    bad = 0
    for case in cases:
        try:
            found, line = wrong(*case)
        except Exception as error:  # the other cases say more
            found, line = [str(error)], f"{case}: {type(error).__name__}: {str(error).splitlines()[0][:200]}"
        bad += bool(found)
        print(line, flush=True)
    print(f"{len(cases) - bad} of {len(cases)} cases agree")
