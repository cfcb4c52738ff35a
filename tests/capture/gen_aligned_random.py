"""Writes aligned_random.pt2 and .safetensors, draws of one size, and aligned_random.dynamic.pt2 with results for some sizes: the numbers of
PyTorch's CUDA kernels as `cuda_generator.py` computes them, for a GPU of 512 threads and the generator state of the file.

  python tests/capture/gen_aligned_random.py
"""
import pathlib
import sys

import torch
from cuda_generator import Generator
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
sys.path.append(str(HERE.parent / "models"))
import archive
F = torch.nn.functional
N, THREADS = 2600, 512
SEED, OFFSET = -0x123456789ABCDEF, 8
f64, f32, f16, bf16, i64 = torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64


class Draws(torch.nn.Module):
    def forward(self, x):
        new = lambda d=f32, n=N: torch.empty(n, dtype=d)
        half = x * 0 + 0.5
        image = x.reshape(65, 40, 1, 1)
        return (
            torch.rand(N), torch.rand(N, dtype=f64), torch.rand(N, dtype=bf16), torch.rand(N, dtype=f16), torch.rand([]), torch.rand(N // 13, 13),
            new().uniform_(-2, 4.5), new(f64).uniform_(-2, 4.5), new(bf16).uniform_(1, 3),
            torch.randn(N), torch.randn(N, dtype=f64), new().normal_(3, 2), torch.randn(N, dtype=bf16), torch.randn(200),
            torch.normal(3.0, 2.0, (N,)), torch.normal(half, 2.0), torch.normal(1.0, half), torch.normal(half, half),
            new().log_normal_(0, 0.25), new().exponential_(4), new(f64).exponential_(4), new(f16).exponential_(1),
            new().cauchy_(1, 0.5), new(f64).cauchy_(1, 0.5), new().geometric_(0.2), new(i64).geometric_(0.2),
            torch.randint(9, (N,)), torch.randint(-5, 1 << 40, (N,)), torch.randint_like(x, 3), new(bf16).random_(1000), new(i64).random_(7),
            torch.randint((1 << 62) - 5, (N,)), new(i64).random_(), new(f64).random_(), new().random_(), new(torch.uint8).random_(), new(torch.bool).random_(),
            new(torch.int32).random_(),
            torch.bernoulli(half), torch.bernoulli(x, 0.3), new(f64).bernoulli_(0.3), new().bernoulli_(half), new(f64).bernoulli_(half),
            F.dropout(x, 0.25), F.dropout(x.to(bf16), 0.25), F.dropout(x.to(f64), 0.25), F.dropout(x[1:], 0.5), F.dropout(x[2:].to(f16), 0.5),
            *torch.native_dropout(x, 0.1, True), F.dropout2d(image, 0.5), F.alpha_dropout(x, 0.4, training=True),
            torch.multinomial(x.abs() + 0.1, 1), torch.multinomial(x.abs() + 0.1, 5),
            torch.rand(3),
        )


def draws(x: torch.Tensor, g: Generator) -> list[torch.Tensor]:
    """The results of Draws."""
    half = x * 0 + 0.5
    a = 1.7580993408473766
    scale = ((a * a * 0.4 + 1) * 0.6) ** -0.5

    def alpha():
        kept = g.bernoulli_(N, f32, 0.6).bool()
        return torch.where(kept, x, -a) * scale + scale * a * 0.4

    def multinomial(count):
        return (x.abs() + 0.1).div(g.exponential_(N)).topk(count).indices

    return [
        g.uniform_(N), g.uniform_(N, f64), g.uniform_(N, bf16), g.uniform_(N, f16), g.uniform_(1).reshape([]), g.uniform_(N).reshape(N // 13, 13),
        g.uniform_(N, f32, -2.0, 4.5), g.uniform_(N, f64, -2.0, 4.5), g.uniform_(N, bf16, 1.0, 3.0),
        g.normal_(N), g.normal_(N, f64), g.normal_(N, f32, 3, 2), g.normal_(N, bf16), g.normal_(200),
        g.normal_(N, f32, 3, 2), g.normal_(N, f32, 0, 2) + half, g.normal_(N) * half + 1, g.normal_(N) * half + half,
        g.log_normal_(N, 0, 0.25), g.exponential_(N, f32, 4), g.exponential_(N, f64, 4), g.exponential_(N, f16, 1),
        g.cauchy_(N, f32, 1, 0.5), g.cauchy_(N, f64, 1, 0.5), g.geometric_(N, f32, 0.2), g.geometric_(N, i64, 0.2),
        g.integers(N, 0, 9), g.integers(N, -5, 1 << 40), g.integers(N, 0, 3, f32), g.integers(N, 0, 996, bf16), g.integers(N, 0, 7),
        g.integers(N, 0, (1 << 62) - 5), g.random_(N, i64), g.random_(N, f64), g.random_(N, f32), g.random_(N, torch.uint8), g.random_(N, torch.bool),
        g.random_(N, torch.int32),
        g.bernoulli_tensor(half, f32), g.bernoulli_(N, f32, 0.3), g.bernoulli_(N, f64, 0.3), g.bernoulli_tensor(half, f32), g.bernoulli_tensor(half, f64),
        g.dropout(x, 0.25)[0], g.dropout(x.to(bf16), 0.25)[0], g.dropout(x.to(f64), 0.25)[0], g.dropout(x[1:], 0.5)[0], g.dropout(x[2:].to(f16), 0.5)[0],
        *g.dropout(x, 0.1), x.reshape(65, 40, 1, 1) * g.bernoulli_(N, f32, 0.5).reshape(65, 40, 1, 1) * 2, alpha(), multinomial(1), multinomial(5),
        g.uniform_(3),
    ]


class Dynamic(torch.nn.Module):
    def forward(self, x):
        wide = torch.randint_like(x, 1 << 30, dtype=i64)
        return torch.rand_like(x), wide, F.dropout(x, 0.5), F.dropout(x.to(bf16), 0.5), torch.bernoulli(x * 0 + 0.5), torch.randn_like(x, dtype=f64), torch.rand_like(x)


def dynamic(x: torch.Tensor, g: Generator) -> list[torch.Tensor]:
    """The results of Dynamic."""
    n = x.numel()
    wide = g.integers(n, 0, 1 << 30)
    return [
        g.uniform_(n), wide, g.dropout(x, 0.5)[0], g.dropout(x.to(bf16), 0.5)[0], g.bernoulli_tensor(x * 0 + 0.5, f32),
        g.normal_(n, f64), g.uniform_(n),
    ]


def save(name: str, x: torch.Tensor, made):
    """Input, state, how far it moves, and results."""
    g = Generator(SEED % (1 << 64), OFFSET, THREADS)
    results = made(x, g)
    tensors = {"input_0": x, "input_1": torch.tensor([SEED, OFFSET]), "increment": torch.tensor(g.offset - OFFSET)}
    tensors |= {f"output_{k}": t.contiguous() for k, t in enumerate(results)}
    save_file(tensors, HERE / name)


with torch.no_grad():
    torch.manual_seed(0)
    x = torch.randn(N)
    archive.save(torch.export.export(Draws(), (x,)), HERE / "aligned_random.pt2")
    save("aligned_random.safetensors", x, draws)
    s = torch.export.Dim("s", min=2)
    archive.save(torch.export.export(Dynamic(), (x,), dynamic_shapes=({0: s},)), HERE / "aligned_random.dynamic.pt2")
    for n in (3, 256, 258, 1028, 2600, 4099):
        save(f"aligned_random.{n}.safetensors", torch.randn(n), dynamic)
