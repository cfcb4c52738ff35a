"""Cases of gen_aten.py on symbolic sizes: Python's operators on them, parts of dimensions, positions, and autocast regions."""
import math

import torch
from aten_support import A, Dim, case

AUTO, F = Dim.DYNAMIC, torch.nn.functional
gen = torch.Generator().manual_seed(7)


def f(*shape):
    return torch.randn(shape, generator=gen)


def symbolic():
    add = lambda fn, *a, **k: case("symbolic", fn, *a, **k)
    one = [{0: AUTO}]
    size = lambda g: lambda x: x + g(x.shape[0])
    # Integers.
    for g in (lambda n: -n, lambda n: n - 10, lambda n: 3 - n, lambda n: n * -2, lambda n: n // 3, lambda n: n % 3, lambda n: -n // 3,
              lambda n: (2 - n) // 3, lambda n: (2 - n) % 3, lambda n: n**2, lambda n: torch.sym_max(n, 4), lambda n: torch.sym_min(n - 9, 4),
              lambda n: torch.sym_max(n, -n), lambda n: n << 2, lambda n: (n * 5) >> 1):
        add(size(g), f(7, 2), dyn=one)
    # Floats.
    for g in (lambda n: n / 4, lambda n: n / 3, lambda n: 5 / n, lambda n: torch.sym_float(n), lambda n: n * 0.5, lambda n: n * 0.3, lambda n: n / 4 + n / 2,
              lambda n: n / 4 - 1.5, lambda n: (n / 2) / 3, lambda n: torch.sym_sqrt(n), lambda n: 1 / torch.sym_sqrt(n), lambda n: n**0.5, lambda n: n / 3 * 0.3,
              lambda n: torch.sym_max(n / 4, 1.25), lambda n: torch.sym_min(n, 2.5)):
        add(size(g), f(7, 2), dyn=one)
    # Back to integers, which are sizes.
    for g in (lambda n: math.trunc(n / 3), lambda n: math.trunc(n * 0.5), lambda n: int(n * 1.5), lambda n: math.trunc((3 - n) / 2) + 9,
              lambda n: torch.sym_int(n / 2 + 0.25)):
        add(lambda x, g=g: torch.arange(g(x.shape[0])) + x[0, 0], f(7, 2), dyn=one)
    add(lambda x: x[:, None].expand(-1, math.trunc(x.shape[0] * 0.7), -1).sum(1), f(7, 2), dyn=one)
    # Conditions.
    for g in (lambda n: n > 5, lambda n: torch.sym_not(n < 9), lambda n: (n > 5) & (n != 8), lambda n: (n < 3) | (n == 7), lambda n: (n < 3) | (n == 8)):
        add(lambda x, g=g: x * torch.sym_ite(g(x.shape[0]), x.shape[0], -x.shape[0]), f(7, 2), dyn=one)
    add(lambda x: x * torch.sym_ite(x.shape[0] % 2 == 0, 0.5, 1.5), f(7, 2), dyn=one)

    # Positions that count from the end, and starts of writes.
    add(lambda x, y: x[-y.shape[0] :], f(7, 2), f(3), dyn=[{0: AUTO}, {0: AUTO}])
    add(lambda x, y: x[: -y.shape[0]], f(7, 2), f(3), dyn=[{0: AUTO}, {0: AUTO}])
    add(lambda x, y: x[-y.shape[0]], f(7, 2), f(3), dyn=[{0: AUTO}, {0: AUTO}])
    add(lambda x, y: x[y.shape[0]], f(7, 2), f(3), dyn=[{0: AUTO}, {0: AUTO}])

    def put(x, y):
        z = x.clone()
        z[y.shape[0] :].mul_(2)
        z[-y.shape[0]] = 1
        return z

    add(put, f(7, 2), f(3), dyn=[{0: AUTO}, {0: AUTO}])
    add(lambda x: x.roll(x.shape[0] // 2, 0), f(7, 2), dyn=one)
    add(lambda x: x.roll((-x.shape[0] // 2, 3), (0, 1)), f(7, 5), dyn=one)
    add(lambda x: x.roll(-x.shape[0]), f(7, 2), dyn=one)
    add(lambda x, y: x.roll(y.shape[0], 1), f(7, 5), f(3), dyn=[None, {0: AUTO}])

    # Layouts, as numbers.
    add(lambda x: x[x[:, 0] > 0][1:].sum(0), f(7, 2))
    add(lambda x: x + x[x.shape[0] // 2 :].storage_offset(), f(7, 2), dyn=one)
    add(lambda x: x + x.t().stride(1) + A.sym_stride.int(x, -2), f(3, 7), dyn=[{1: AUTO}])


    # Ranges between numbers that data determines.
    ranged = lambda step, **k: lambda a, b: torch.arange(a.item(), b.item(), step, **k).double().sum()
    add(ranged(-2, dtype=torch.int64), torch.tensor(7.5), torch.tensor(-3.5))
    add(ranged(3), torch.tensor(-2), torch.tensor(8))


def split():
    add = lambda fn, *a, **k: case("split", fn, *a, **k)
    one = [{0: AUTO}]
    many = lambda g: lambda x: tuple(t * (k + 1) for k, t in enumerate(g(x)))
    for n, g in ((8, lambda x: x.chunk(2)), (7, lambda x: x.chunk(3)), (6, lambda x: x.split(3)), (7, lambda x: x.tensor_split(3)),
                 (7, lambda x: x.tensor_split([1, 4])), (7, lambda x: x.tensor_split([1], 0)), (7, lambda x: x.tensor_split([2, -1])),
                 (7, lambda x: x.tensor_split([-3, 3])), (7, lambda x: x.tensor_split([5, 20])), (7, lambda x: A.split.Tensor(x, x.shape[0] // 2)),
                 (7, lambda x: A.split_with_sizes.default(x, [x.shape[0] // 2, x.shape[0] - x.shape[0] // 2]))):
        add(many(g), f(n, 2), dyn=one)
    add(lambda x: torch.cat(torch.cat([x, x * 2]).chunk(2), 1), f(5, 2), dyn=one)
    add(lambda x: torch.stack(torch.stack([x, x * 2], 1).flatten(0, 1).unflatten(0, (-1, 2)).unbind(1)), f(5, 2), dyn=one)
    add(lambda x, y: torch.stack(x.tensor_split([y.shape[0]])[0].unbind(1)), f(7, 2), f(3), dyn=[{0: AUTO}, {0: AUTO}])
    add(lambda x: A.chunk.default(x[:0], 3)[2], f(4, 2))

    # As a mixture of experts splits its rows by the number of those that chose each.
    def by_counts(x, counts):
        return torch.stack([part.sum(0) * (k + 1) for k, part in enumerate(x.split(counts.tolist()))])

    add(by_counts, f(7, 2), torch.tensor([2, 0, 5]))
    add(by_counts, f(7, 2), torch.tensor([2, 0, 5]), dyn=[{0: AUTO}, None])


def einsum():
    add = lambda e, *a, **k: case("einsum", lambda *a: torch.ops.aten.einsum.default(e, list(a)), *a, **k)
    add("...ij,...jk->...ik", f(2, 3, 4), f(2, 4, 5))
    add("...ij,...jk", f(2, 3, 4), f(4, 5))
    add("b...i,ij->b...j", f(2, 3, 2, 4), f(4, 5))
    add("...i,...i", f(3, 2, 4), f(2, 4))
    add("...i,...i->...", f(3, 1, 4), f(2, 4))
    add("i...->...", f(3, 2, 4))
    add("...ij->ij", f(2, 3, 4))
    add("ii->i", f(4, 4))
    add("ii", f(4, 4))
    add("bii->b", f(3, 4, 4))
    add("ijij->ji", f(2, 3, 2, 3))
    add("...ii->...i", f(3, 2, 4, 4))
    add("ii,ij->j", f(4, 4), f(4, 3))
    add("ij,ij->ij", f(4, 1), f(4, 3))
    add("...ij,...jk->...ik", f(2, 3, 4), f(2, 4, 5), dyn=[{0: AUTO, 1: AUTO}, {0: AUTO}])
    add("...ii->...i", f(3, 4, 4), dyn=[{0: AUTO}])


class Region(torch.nn.Module):
    """Autocast regions of every kind."""

    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(8, 8), torch.nn.Conv2d(2, 3, 3)

    def forward(self, x, image):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.a(x)
            joined, error = torch.cat([y, x]).bfloat16(), F.mse_loss(y, y * 0.5).bfloat16()
            seen = self.b(image).relu().mean((2, 3))
            scores = F.scaled_dot_product_attention(y[None], y[None], x[None])
            with torch.autocast("cpu", enabled=False):
                z = (y.float() @ x.t()).bfloat16()
            product, double = z @ x, x.double() @ x.double().t()
        with torch.autocast("cpu", enabled=False):
            plain = x @ x.t()
        with torch.autocast("cuda"):
            other = x @ x.t() + 1
        with torch.enable_grad():
            traced = self.a(x) * 2
        return y, joined, error, seen, scores, z, product, double, plain, other, traced


def autocast():
    module = Region().requires_grad_(False)
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(f(*p.shape))
    case("autocast", module, f(5, 8), f(2, 2, 6, 6))


def mixture():
    """Groups of rows by transformers' operator, as its mixtures of experts call it."""
    import transformers.integrations.moe  # noqa: F401

    ends = lambda *at: torch.tensor(at, dtype=torch.int32)
    op = torch.ops.transformers.grouped_mm_fallback.default
    for at in ((2, 5, 8), (0, 8, 8), (3, 3, 6)):
        case("mixture", lambda x, w, o: op(x, w, o), f(8, 4), f(3, 4, 5), ends(*at))
    case("mixture", lambda x, w, o: op(x, w, o), f(8, 4).double(), f(3, 4, 5).double(), ends(1, 2, 8).long())
    case("mixture", lambda x, w, o: op(x, w, o), f(8, 4), f(3, 4, 5), ends(2, 5, 8), dyn=[{0: AUTO}, None, None])
