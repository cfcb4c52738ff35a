#!/usr/bin/env python3
"""Two builds of kiln beside each other on a GPU: what a change of lowering does to the time of GEMMs and attention.

    builds.py --kiln KILN --base KILN [--only TEXT,…] [--rounds 9] [--seconds 0.1] [--out FILE.json]

Each case is compiled by both builds and run in a process of each. Rounds alternate which build is first. A row has the median times, and the median and
range of the rounds' ratios (build over base); its inputs are random. Results of the two builds are compared by the norm. Goes on after failures; the exit
code is 0 if all results agree and nothing failed.
"""
import argparse, json, os, statistics, sys, tempfile

import torch

import attention, matmul
from attention_cases import BF16, F16, Case
from bench import GPU, Kiln

# Results of one algorithm: what the order of a sum may change.
LIMIT = 2e-3


def attention_cases():
    """Case and the function that starts a build on it, by name."""
    sizes = [(8, 16, 2048), (4, 32, 4096), (16, 12, 577), (8, 16, 1500), (64, 12, 197)]
    found = [Case(b=b, h=h, q=s, d=d, causal=c) for d in (128, 64) for b, h, s in sizes for c in (False, True)]
    found += [Case(b=4, h=32, g=8, q=4096, d=128, causal=True, dtype=F16), Case(b=8, h=16, q=1024, d=256), Case(b=8, h=16, q=1024, d=80, causal=True)]
    found += [Case(b=8, h=16, q=2048, d=d, causal=True, score=s) for d in (128, 64) for s in ("softcap", "alibi", "window")]
    found += [Case(b=16, h=16, q=2048, d=128, causal=True, lengths="both"), Case(b=64, h=8, q=49, d=32, bias=(64, 8, 49, 49))]
    for case in found:
        yield "attention " + case.name(), lambda kiln, folder, inputs, case=case: attention.Single(kiln, folder, case, inputs), case.inputs


def matmul_cases():
    """The same of matmuls."""
    plain = [(f, g, n, n, n) for f, g in (("nt", matmul.nt), ("nn", matmul.nn), ("tn", matmul.tn), ("tt", matmul.tt)) for n in (1024, 4096)]
    plain += [("nt", matmul.nt, *s) for s in [(8192, 8192, 8192), (16384, 3072, 768), (512, 768, 3072), (4096, 64, 4096), (8192, 50257, 768)]]
    plain += [("nt split", matmul.nt, 512, 512, 16384), ("nn", matmul.nn, 512, 512, 16384)]
    for kind, f, m, n, k in plain:
        shapes = [(k, m) if kind in ("tn", "tt") else (m, k), (n, k) if kind[:2] in ("nt", "tt") else (k, n)]
        yield f"{kind} {m}x{n}x{k}", f, shapes, BF16, ()
    for name, f, m, n, k, more in [("gelu", matmul.gelu, 16384, 3072, 768, [("n",)]), ("residual", matmul.residual, 4096, 4096, 4096, [("n",), ("m", "n")]),
                                   ("gated", matmul.gated, 4096, 14336, 4096, [("n", "k")]), ("pair", matmul.pair, 4096, 3072, 768, [("n",)])]:
        of = {"m": m, "n": n, "k": k}
        yield f"{name} {m}x{n}x{k}", f, [(m, k), (n, k)] + [tuple(of[d] for d in s) for s in more], BF16, ()
    yield "batched 96x512x512x64", matmul.nn, [(96, 512, 64), (96, 64, 512)], F16, ()
    yield "tf32 4096x4096x4096", matmul.nt, [(4096, 4096), (4096, 4096)], torch.float32, ("--target", "cuda:sm_90a:+tf32")
    convolution = lambda x, w: torch.nn.functional.conv2d(x, w, padding=1)
    yield "conv 32x128x56x56", convolution, [(32, 128, 56, 56), (128, 128, 3, 3)], BF16, ()


def cases():
    yield from attention_cases()
    for name, f, shapes, dtype, more in matmul_cases():
        make = lambda shapes=shapes, dtype=dtype: [torch.randn(s, device=GPU, dtype=dtype) for s in shapes]
        more = [*more, "--mode", "reduce-overhead"]
        yield name, lambda kiln, folder, inputs, f=f, more=more: Kiln(kiln, folder, "case", f, inputs, more), make


def measured(builds, start, inputs, rounds, seconds):
    """Times of each build, and the norm of the difference of their results over the norm."""
    with tempfile.TemporaryDirectory() as folder:
        workers, samples = {}, {name: [] for name in builds}
        try:
            for name, kiln in builds.items():
                own = os.path.join(folder, name)
                os.mkdir(own)
                workers[name] = start(kiln, own, inputs)
            for i in range(rounds):
                for name in list(builds)[:: 1 if i % 2 else -1]:
                    samples[name].append(workers[name](seconds))
        finally:
            for worker in workers.values():
                worker.close()
    have, base = (w.result.to(GPU).double() for w in workers.values())
    return samples, float((have - base).norm() / base.norm().clamp_min(1e-30))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--kiln", required=True)
    p.add_argument("--base", required=True)
    p.add_argument("--only", default="")
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--seconds", type=float, default=0.1)
    p.add_argument("--out", default="")
    a = p.parse_args()
    torch.manual_seed(0)
    bad, rows = 0, []
    print("| case | base us | build us | build / base | difference of results |\n| --- | --- | --- | --- | --- |", flush=True)
    for name, start, make in cases():
        if not matmul.wanted(name, a.only):
            continue
        try:
            samples, off = measured({"kiln": a.kiln, "base": a.base}, start, make(), a.rounds, a.seconds)
        except Exception as e:  # goes on with the next case
            bad += 1
            print(f"{name}: FAILS {type(e).__name__}: {str(e)[:300]}", flush=True)
            continue
        ratios = sorted(x / y for x, y in zip(samples["kiln"], samples["base"]))
        median = statistics.median(ratios)
        middle = {k: statistics.median(v) for k, v in samples.items()}
        ratio = f"{median:.3f} [{ratios[0]:.3f}, {ratios[-1]:.3f}]"
        bad += not off <= LIMIT
        print(f"| {name} | {middle['base']:.1f} | {middle['kiln']:.1f} | {ratio} | {off:.1e}{'' if off <= LIMIT else ' DIFFERS'} |", flush=True)
        rows.append({"item": name, "samples": samples, "difference": off, "ratio": median})
    if rows:
        all_of = [r["ratio"] for r in rows]
        print(f"geometric mean {statistics.geometric_mean(all_of):.3f} of {len(rows)}, from {min(all_of):.3f} to {max(all_of):.3f}; {bad} bad", flush=True)
    else:
        sys.exit(f"no case has '{a.only}' in its name, or all failed")
    if a.out:
        json.dump(rows, open(a.out, "w"), indent=1)
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()
