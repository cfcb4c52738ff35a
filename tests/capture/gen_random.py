"""Writes random.pt2, with every op that draws random numbers, random.core.pt2, the same after run_decompositions(), random_layers.pt2, with
dropout between recurrent layers, random_in_loop.pt2, which draws in a loop, random_in_condition.pt2, which draws in the condition of a loop and
in a loop in a branch, and random_dead.pt2, which reads no draw.

  python tests/capture/gen_random.py
"""
import pathlib
import sys

import torch
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

HERE = pathlib.Path(__file__).parent
sys.path.append(str(HERE.parent / "models"))
import archive

F = torch.nn.functional
N = 2000


class Random(torch.nn.Module):
    def forward(self, x):
        new = lambda *shape, **kw: torch.empty(shape or (N,), **kw)
        image = x.reshape(50, 40, 1, 1)
        half = torch.full((N,), 0.5)
        query = x.reshape(1, 1, 50, 40)
        # Mean and variance of each result are in random.rs, in this order.
        return (
            torch.rand(N), torch.rand_like(x, dtype=torch.float64), new().uniform_(-2, 4),
            torch.randn(N), torch.randn_like(x), torch.normal(3.0, 2.0, (N,)), torch.normal(half, 2.0),
            torch.normal(1.0, half), torch.normal(half, half), new().normal_(3, 2), new().log_normal_(0, 0.25),
            new().exponential_(4), new().cauchy_(1, 0.5).clamp(-1, 3), new().geometric_(0.2),
            torch.randint(9, (N,)), torch.randint(-5, 6, (N,)), torch.randint_like(x, 3), torch.randint_like(x, -1, 2),
            new(dtype=torch.int64).random_(7), new(dtype=torch.uint8).random_(),
            torch.randperm(N), torch.bernoulli(half), torch.bernoulli(x, 0.3), new().bernoulli_(0.3), new().bernoulli_(half),
            torch.multinomial(torch.tensor([[1.0, 0, 3], [1, 1, 0]]), N, replacement=True), torch.multinomial(torch.ones(N), N // 2),
            F.dropout(x, 0.25), F.dropout2d(image, 0.5), F.alpha_dropout(x, 0.4, training=True), F.feature_alpha_dropout(image, 0.5, training=True),
            *torch.native_dropout(x, 0.1, True), F.rrelu(x - 2, 0.1, 0.3, training=True),
            F.scaled_dot_product_attention(query, query, query, dropout_p=0.5),
            # With a generator that is not given.
            torch.rand(N, generator=None), torch.randn(N, generator=None), torch.randint(9, (N,), generator=None),
            torch.randint(-5, 6, (N,), generator=None), torch.randperm(N, generator=None),
            torch.poisson(half * 6), torch.poisson(x * 50), torch.binomial(x * 10, half), torch.binomial(x * 200, half * 0.4),
            torch.binomial(x * 200, half * 1.8), torch._standard_gamma(half), torch._standard_gamma(x * 4),
            torch._sample_dirichlet(torch.stack([x, x * 3], 1))[:, 0],
        )


class Layers(torch.nn.Module):
    """Recurrent layers with dropout between them."""

    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTM(4, 3, num_layers=2, dropout=0.5)

    def forward(self, x):
        return self.lstm(x)[0]


class Loop(torch.nn.Module):
    """Draws before, in and after loops, one of them in another: each is a row of its own."""

    def forward(self, x):
        row = lambda like: torch.rand_like(like)
        drawn = row(x[0])

        def step(i, rows):
            return i + 1, torch.cat([rows[1:], row(rows[:1])])

        _, steps = while_loop(lambda i, rows: i < 4, step, (torch.tensor(0), torch.cat([x, x[:1]])))

        def outer(count, one):
            _, inner = while_loop(lambda i, rows: i < 2, step, (count * 0, torch.stack([one, one])))
            return count + 1, torch.cat([inner, row(one)[None]])

        _, scanned = scan(outer, torch.tensor(0), x)
        return drawn, steps, scanned, row(x[0])


class Condition(torch.nn.Module):
    """One number a draw: before, in the condition and the steps of a loop, in a loop in a branch or in the other branch, and after."""

    def forward(self, x):
        first = torch.rand(())
        push = lambda all: torch.cat([all[1:], torch.rand(1)])
        more = lambda i, all: (torch.rand(()) < 0.8) & (i < 16)
        count, steps = while_loop(more, lambda i, all: (i + 1, push(all)), (torch.tensor(0), torch.zeros(16)))

        def three(x):
            return while_loop(lambda i, all: i < 3, lambda i, all: (i + 1, push(all)), (torch.zeros((), dtype=torch.int64), x))[1]

        branch = torch.cond(x.sum() > 0, three, push, (x,))
        return first, count, steps, branch, torch.rand(())


class Dead(torch.nn.Module):
    """Draws that no result depends on, as of layers that are dropped in training only."""

    def forward(self, x):
        F.dropout(x, 0.5)
        torch.rand([]) + torch.randn_like(x)
        return x * 2


with torch.no_grad():
    torch.manual_seed(0)
    program = torch.export.export(Random(), (torch.ones(N),))
    torch.export.save(program, HERE / "random.pt2")
    torch.export.save(program.run_decompositions(), HERE / "random.core.pt2")
    torch.export.save(torch.export.export(Layers().train(), (torch.ones(5, 2, 4),)), HERE / "random_layers.pt2")
    torch.export.save(torch.export.export(Dead(), (torch.ones(4),)), HERE / "random_dead.pt2")
    archive.save(torch.export.export(Loop(), (torch.ones(3, 500),)), HERE / "random_in_loop.pt2")
    archive.save(torch.export.export(Condition(), (torch.ones(3),)), HERE / "random_in_condition.pt2")
