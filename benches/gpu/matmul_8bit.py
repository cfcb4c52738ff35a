#!/usr/bin/env python3
"""Products of 8-bit floats and of int8 on a GPU: accuracy against float64, then time against torch (cuBLASLt) and TorchInductor.

    matmul_8bit.py --kiln KILN [--check] [--time] [--rounds 7] [--only TEXT,…] [--target cuda:sm_80] [--out FILE.json]

The float products are `_scaled_mm`, with f32 scales a row and a column, or one a tensor; those of int8 are `_int_mm`, scaled in f32, as torchao's
dynamic quantisation computes them. Results are bf16. Times are medians of CUDA events, the sides taking turns, both as CUDA graphs. torch's floats are
timed without `use_fast_accum`, as kiln sums, and with it.
"""
import json, statistics, sys, tempfile

import torch

from bench import Kiln, arguments, graph_us, ratio_text, wanted

BF16, F32, GPU = torch.bfloat16, torch.float32, "cuda"
E4M3, E5M2, I8 = torch.float8_e4m3fn, torch.float8_e5m2, torch.int8
# Half an ulp of the result, and slack for the order of the sum.
LIMIT = 2.5e-3


def floats(fast):
    return lambda x, w, a, b: torch._scaled_mm(x, w.t(), a, b, out_dtype=BF16, use_fast_accum=fast)


def integers(x, w, a, b):
    return (torch._int_mm(x, w.t()).float() * a * b).to(BF16)


def gated(x, v, w, a, b):
    product = lambda w: torch._scaled_mm(x, w.t(), a, b, out_dtype=BF16)
    return torch.nn.functional.silu(product(v)) * product(w)


def widened(x, w):
    return (x.to(BF16) @ w.to(BF16).t()).float()


def inputs(m, n, k, dtype, scales=True, weights=1):
    """Activations, weights, scales."""
    if dtype == I8:
        make = lambda *size: torch.randint(-128, 128, size, device=GPU, dtype=I8)
    else:
        make = lambda *size: (torch.randn(size, device=GPU) * 8).to(dtype)
    a, b = (torch.rand(m, 1, device=GPU), torch.rand(1, n, device=GPU)) if scales else (torch.rand((), device=GPU), torch.rand((), device=GPU))
    return [make(m, k), *[make(n, k) for _ in range(weights)], a + 0.5, b + 0.5]


def exact(f, all):
    wide = [x.double() for x in all]
    if f is widened:
        return wide[0] @ wide[1].t()
    *_, a, b = wide
    products = [wide[0] @ w.t() * a * b for w in wide[1:-2]]
    return products[0] if len(products) == 1 else torch.nn.functional.silu(products[0]) * products[1]


def cases():
    """name, function, inputs"""
    for m in [2, 15, 16, 17, 64, 128, 129, 1000]:
        yield f"f8 {m}x128x144", floats(False), inputs(m, 128, 144, E4M3)
    for n in [16, 48, 64, 144, 1008]:
        yield f"f8 129x{n}x64", floats(False), inputs(129, n, 64, E4M3)
    for k in [16, 32, 112, 128, 144, 2048, 16384]:
        yield f"f8 128x128x{k}", floats(False), inputs(128, 128, k, E4M3)
    for m, n, k in [(1024, 1024, 1024), (512, 4096, 4096), (2048, 6144, 4096), (300, 8192, 2048)]:
        yield f"f8 {m}x{n}x{k}", floats(False), inputs(m, n, k, E4M3)
        yield f"f8 a tensor {m}x{n}x{k}", floats(False), inputs(m, n, k, E4M3, scales=False)
        yield f"f8 gated {m}x{n}x{k}", gated, inputs(m, n, k, E4M3, weights=2)
        yield f"i8 {m}x{n}x{k}", integers, inputs(m, n, k, I8)
    for m, n, k in [(65, 129, 256), (1024, 1024, 1024)]:
        yield f"e5m2 widened {m}x{n}x{k}", widened, inputs(m, n, k, E5M2)[:2]
        yield f"f8 widened {m}x{n}x{k}", widened, inputs(m, n, k, E4M3)[:2]
    for m, n, k in [(17, 128, 128), (33, 64, 16), (129, 1000, 144), (64, 136, 8192), (1000, 8, 512)]:
        yield f"i8 {m}x{n}x{k}", integers, inputs(m, n, k, I8)


def check(kiln, only, more):
    bad = 0
    for name, f, all in cases():
        if not wanted(name, only):
            continue
        try:
            with tempfile.TemporaryDirectory() as folder:
                mine = Kiln(kiln, folder, "case", f, all, more)
                have = mine.result.to(GPU).double()
                mine.close()
            off, want = have - exact(f, all), exact(f, all)
            norm, most = float(off.norm() / want.norm()), float(off.abs().max() / want.abs().max())
            good = norm <= (2 * LIMIT) and most <= 4 * LIMIT
            bad += not good
            print(f"{name:36} {'agrees' if good else 'DIFFERS'}  {norm:.1e} {most:.1e}", flush=True)
        except Exception as e:  # goes on with the next case
            bad += 1
            print(f"{name:36} FAILS {type(e).__name__}: {str(e)[:300]}", flush=True)
    print(f"{bad} bad", flush=True)
    return bad


SIZES = [(4096, 4096, 4096), (8192, 8192, 8192), (2048, 2048, 2048), (2048, 6144, 4096), (2048, 16384, 2048), (16384, 1024, 4096), (512, 4096, 4096), (64, 4096, 4096), (17, 4096, 4096)]


def timed(kiln, rounds, only, out):
    rows = []
    for kind, dtype, f in [("f8", E4M3, floats(False)), ("i8", I8, integers)]:
        for m, n, k in SIZES:
            name = f"{kind} {m}x{n}x{k}"
            if not wanted(name, only):
                continue
            try:
                all = inputs(m, n, k, dtype)
                with tempfile.TemporaryDirectory() as folder:
                    mine = Kiln(kiln, folder, "case", f, all, ["--mode", "reduce-overhead"])
                    torch._dynamo.reset()
                    sides = {"torch": f, "fast accumulation": floats(True)} if kind == "f8" else {"inductor": torch.compile(f)}
                    [g(*all) for g in sides.values()]
                    samples = {s: [] for s in ["kiln", *sides]}
                    for _ in range(rounds):
                        samples["kiln"].append(mine(0.1))
                        for s, g in sides.items():
                            samples[s].append(graph_us(g, all))
                    mine.close()
                want = exact(f, [x[:128] if i in (0, 2) else x for i, x in enumerate(all)])
                off = lambda y: float((y[:128].to(GPU).double() - want).norm() / want.norm())
                text = ", ".join(f"{s} {statistics.median(v):.1f} us {2e-6 * m * n * k / statistics.median(v):.0f} T/s" for s, v in samples.items())
                ratios = "; ".join(f"{s} / kiln {ratio_text(samples['kiln'], samples[s])}" for s in sides)
                errors = {"kiln": off(mine.result), **{s: off(g(*all)) for s, g in sides.items()}}
                print(f"{name:24} {text}; {ratios}; errors {', '.join(f'{e:.1e}' for e in errors.values())}", flush=True)
                rows.append({"item": name, "samples": samples, "errors": errors})
            except Exception as e:  # goes on with the next item
                print(f"{name:24} FAILS {type(e).__name__}: {str(e)[:400]}", flush=True)
    if out:
        json.dump(rows, open(out, "w"), indent=1)


def main():
    p = arguments(__doc__)
    p.add_argument("--only", default="")
    p.add_argument("--target", default="", help="what kiln compiles for, if not the card that is there")
    a = p.parse_args()
    torch.manual_seed(0)
    bad = check(a.kiln, a.only, ["--target", a.target] if a.target else []) if a.check or not a.time else 0
    if a.time:
        timed(a.kiln, a.rounds, a.only, a.out)
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()
