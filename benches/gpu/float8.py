#!/usr/bin/env python3
"""A linear layer and its gradients by 8-bit floats (option `float8`) on a GPU: errors, then time beside bf16, eager and TorchInductor.

    float8.py --kiln KILN [--check] [--time] [--rounds 5] [--only TEXT,…] [--out FILE.json]

Each side computes y = x wᵀ, g w and gᵀ x from bf16 operands. Inductor's 8 bits are `_scaled_mm` of operands that the compiled function quantises, each
row along K with a scale of its own, as torchao's rowwise recipe does. Errors are of the norm of y, beside the same quantised values in float64. Times are
medians of CUDA events, the sides taking turns, all as CUDA graphs.
"""
import json, statistics, sys, tempfile

import torch

from bench import Kiln, arguments, graph_us, ratio_text, wanted

BF16, GPU, E4M3 = torch.bfloat16, "cuda", torch.float8_e4m3fn
# Half an ulp of a bf16 result, and an element in a thousand that is rounded to its other neighbour.
LIMIT = 5e-3


def layer(x, w, g):
    return x @ w.t(), g @ w, g.t() @ x


def quantised(x, rowwise):
    """8-bit floats and the inverse of their scale."""
    x = x.float()
    greatest = (x.abs().amax(1, keepdim=True) if rowwise else x.abs().max()).clamp(min=1e-12)
    return (x * (448 / greatest)).to(E4M3), greatest / 448


def scaled(x, y):
    """x yᵀ by rowwise scales."""
    (a, s), (b, t) = quantised(x, True), quantised(y, True)
    return torch._scaled_mm(a, b.t(), s, t.t(), out_dtype=BF16)


def scaled_layer(x, w, g):
    return scaled(x, w), scaled(g, w.t().contiguous()), scaled(g.t().contiguous(), x.t().contiguous())


def exact(x, w, rowwise):
    (a, s), (b, t) = quantised(x, rowwise), quantised(w, rowwise)
    return (a.double() * s.double()) @ (b.double() * t.double()).t()


RECIPES = {"bf16": [], "rowwise": ["--option", "float8=rowwise"], "tensorwise": ["--option", "float8=tensorwise"]}
# rows, K, N: layers of GPT-2, and of llamas of 1 and 8 billion weights
SIZES = [(8192, 768, 3072), (8192, 2048, 2048), (8192, 2048, 8192), (8192, 8192, 2048), (8192, 4096, 4096), (8192, 4096, 14336)]
CHECKED = [(2400, 2400, 2400), (3072, 2416, 2560)]


def inputs(m, k, n):
    make = lambda rows, columns: torch.randn(rows, columns, device=GPU) * torch.rand(rows, 1, device=GPU)
    return [x.to(BF16) for x in (make(m, k), make(n, k) / 45, make(m, n) / 1000)]


def off(have, want):
    return float((have.to(GPU).double() - want).norm() / want.norm())


def check(kiln):
    bad = 0
    for size in CHECKED:
        all = inputs(*size)
        for recipe in ("rowwise", "tensorwise"):
            # Each of the three products is the first result in turn.
            for which in range(3):
                f = lambda x, w, g: layer(x, w, g)[which:] + layer(x, w, g)[:which]
                with tempfile.TemporaryDirectory() as folder:
                    mine = Kiln(kiln, folder, "case", f, all, RECIPES[recipe])
                    have = mine.result
                    mine.close()
                x, w, g = all
                pair = [(x, w), (g, w.t()), (g.t(), x.t())][which]
                want = exact(*pair, recipe == "rowwise")
                error, rounding = off(have, want), off(pair[0].float() @ pair[1].t().float(), want)
                good = error < LIMIT < rounding
                bad += not good
                print(f"{recipe} {size} product {which}: {'agrees' if good else 'DIFFERS'} {error:.1e}, unquantised {rounding:.1e}", flush=True)
    print(f"{bad} bad", flush=True)
    return bad


def timed(kiln, rounds, only, out):
    rows = []
    for size in SIZES:
        name = "x".join(map(str, size))
        if not wanted(name, only):
            continue
        all = inputs(*size)
        torch._dynamo.reset()
        sides = {"eager": layer, "inductor": torch.compile(layer), "inductor, rowwise": torch.compile(scaled_layer)}
        with tempfile.TemporaryDirectory() as folder:
            mine = {f"kiln, {r}": Kiln(kiln, folder, f"case_{r}", layer, all, ["--mode", "reduce-overhead", *more]) for r, more in RECIPES.items()}
            [f(*all) for f in sides.values()]
            samples = {s: [] for s in [*mine, *sides]}
            for _ in range(rounds):
                for s, f in mine.items():
                    samples[s].append(f(0.1))
                for s, f in sides.items():
                    samples[s].append(graph_us(f, all))
            [f.close() for f in mine.values()]
        x, w, _ = all
        want = x[:128].double() @ w.double().t()
        errors = {s: off(f.result[:128], want) for s, f in mine.items()} | {s: off(f(*all)[0][:128], want) for s, f in sides.items()}
        flops = 6 * size[0] * size[1] * size[2]
        text = ", ".join(f"{s} {statistics.median(v):.0f} us {flops / statistics.median(v) / 1e6:.0f} T/s" for s, v in samples.items())
        ratios = "; ".join(f"{s} / kiln, rowwise {ratio_text(samples['kiln, rowwise'], v)}" for s, v in samples.items() if s != "kiln, rowwise")
        print(f"{name:20} {text}; {ratios}; errors {', '.join(f'{e:.1e}' for e in errors.values())}", flush=True)
        rows.append({"item": name, "samples": samples, "errors": errors})
    if out:
        json.dump(rows, open(out, "w"), indent=1)


def main():
    p = arguments(__doc__, rounds=5)
    p.add_argument("--only", default="")
    a = p.parse_args()
    torch.manual_seed(0)
    bad = check(a.kiln) if a.check or not a.time else 0
    if a.time:
        timed(a.kiln, a.rounds, a.only, a.out)
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()
