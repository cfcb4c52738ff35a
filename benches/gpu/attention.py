#!/usr/bin/env python3
"""bf16 and f16 attention on a GPU: accuracy against float64, then time against torch.

    attention.py --kiln KILN [--check [--quick] [--ragged]] [--time [--items PART,PART] [--rounds 7] [--out FILE.json]]

--quick prints only what disagrees; --ragged checks cases with lengths only; --items takes the cases whose name, with " ;" behind it, has one of these parts.

Cases are written as modules of kiln.attention ops, several in one module, and run by kiln in a process of its own; PyTorch computes the same in float64 from
the same inputs. What is compared is the norm of the difference over the norm of the result, and the largest difference over the largest element. Goes on
after failures, but for a first case that hangs; the exit code is 0 if all agree. Times are medians of CUDA events with random inputs, the sides taking turns:
with few queries the rate at which keys and values are read. Peers: torch's scaled_dot_product_attention with cuDNN and with flash attention, and compiled flex_attention where scores have an expression of their own.
Where batches have lengths: kiln without these, compiled flex_attention with a mask of blocks, and flash attention of what counts, packed beforehand. In checks queries, keys and values that do
not count are no numbers.
"""
import json, math, os, statistics, subprocess, sys, tempfile
from dataclasses import replace

import safetensors.torch
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from attention_cases import BF16, CAP, F16, GPU, LIMITS, SCORES, WINDOW, Case, module, open_module, tensor
from bench import Worker, arguments, ratio_text


def save(path, inputs):
    safetensors.torch.save_file({f"input_{i}": x.cpu().contiguous().clone() for i, x in enumerate(inputs)}, path)


def run(kiln, path, count):
    """Results of a module, or an error message."""
    command = [kiln, "run", path + ".mlir", "--device", "cuda", "--inputs", path + ".safetensors", "--outputs", path + ".out", "--repeat", "2"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except subprocess.TimeoutExpired:
        return "HANGS"
    if done.returncode:
        return f"FAILS {done.returncode}: {(done.stderr or done.stdout).strip()[:600]}"
    made = safetensors.torch.load_file(path + ".out")
    return [made[f"output_{i}"] for i in range(count)]


def verdict(case, have, inputs):
    exact = case.exact(inputs)
    off, limit = have.to(GPU).double() - exact, LIMITS[case.dtype]
    norm, most = float(off.norm() / exact.norm().clamp_min(1e-30)), float(off.abs().max() / exact.abs().max().clamp_min(1e-30))
    good = have.shape == exact.shape and norm <= limit and most <= 3 * limit
    return f"{'agrees' if good else 'DIFFERS'}  {norm:.1e} {most:.1e}", good


def ragged_groups():
    """Modules of cases with lengths."""
    sizes = [(1, 1), (17, 17), (64, 64), (65, 129), (128, 128), (129, 127), (300, 300)]
    for lengths in ("keys", "both"):
        yield [Case(b=b, h=4, g=2, q=q, k=k, d=d, causal=c, lengths=lengths) for q, k in sizes for d in (64, 128) for c in (False, True) for b in (1, 5)]
        yield [Case(b=4, q=300, d=d, causal=c, lengths=lengths, dtype=F16) for d in (32, 80, 256) for c in (False, True)]
        yield [Case(b=5, h=4, q=300, d=64, causal=True, score=s, lengths=lengths) for s in SCORES] + [Case(b=5, h=4, q=300, d=128, bias=(5, 1, 1, 300), lengths=lengths)]
        yield [Case(b=4, h=8, g=g, q=q, k=k, d=d, lengths=lengths, causal=c) for q, c in [(1, False), (5, False), (16, True)] for k in (1, 15, 63, 1000, 4096) for d, g in [(64, 2), (128, 8), (256, 1)]]
        yield [Case(b=3, h=8, g=2, q=300, d=64, lengths=lengths, tokens=True), Case(b=40, h=32, q=700, d=64, causal=True, lengths=lengths), Case(b=12, h=20, q=1000, d=128, lengths=lengths)]


def groups(quick):
    """Modules of cases, the smallest first."""
    lengths = [1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 1000]
    yield [Case(q=128, d=64)]
    yield [Case(q=n, d=64) for n in lengths]
    yield [Case(q=n, d=64, causal=True, dtype=F16) for n in lengths]
    yield [Case(q=n, d=128, causal=True) for n in lengths]
    yield [Case(q=n, d=128, dtype=F16) for n in lengths]
    yield [Case(q=q, k=k, d=d, causal=c, b=2, h=3) for d in (64, 128) for c in (False, True) for q, k in [(5, 300), (300, 5), (129, 128), (128, 129), (257, 640)]]
    yield [Case(q=n, d=d, h=4, b=2, bias=(2, 1, 1, n), causal=c) for n in (17, 128, 200) for d in (64, 128) for c in (False, True)] + [
        Case(q=130, k=70, h=3, b=2, bias=s) for s in [(2, 3, 130, 70), (130, 70), (3, 1, 70), (1, 1, 130, 1)]]
    yield [Case(q=n, d=64, h=2, b=2, mask=(2, 1, n, n), causal=c, dtype=t) for n in (3, 65, 300) for c in (False, True) for t in (BF16, F16)] + [
        Case(q=200, k=4, b=4, mask=(4, 1, 1, 4)), Case(q=200, k=3, b=4, mask=(4, 1, 200, 3), d=128)]
    yield [Case(q=300, h=8, g=2, causal=c, d=d, tokens=t) for d in (64, 128) for c in (False, True) for t in (False, True)] + [Case(q=65, h=4, g=1, b=2)]
    yield [Case(q=257, d=d, e=e, causal=c) for d, e in [(32, 32), (96, 96), (256, 256), (80, 80), (72, 136), (192, 128), (8, 8)] for c in (False, True)]
    yield [Case(q=n, h=4, b=2, score=s, causal=c, d=d, dtype=t) for s in SCORES for n, c, d, t in [(65, False, 64, BF16), (300, True, 128, BF16), (300, True, 64, F16)]] + [
        Case(q=1300, score="window", causal=True), Case(q=100, scale=0.3, d=64)]
    yield from few_groups(lengths)
    yield from ragged_groups()
    yield [Case(b=8, h=32, q=1100, d=64, causal=True), Case(b=8, h=20, q=1024, d=128), Case(b=16, h=16, q=900, d=128, causal=True, dtype=F16)]


def few_groups(lengths):
    """Modules of decoding cases (few queries, split keys)."""
    yield [Case(q=1, k=n, h=4, g=1, b=2, d=d) for n in [*lengths, 3000, 20000] for d in (64, 128)]
    yield [Case(q=q, k=n, h=h, g=2, b=3, d=d, dtype=F16) for q, h in [(1, 2), (1, 16), (2, 8), (16, 2), (3, 32)] for n, d in [(1, 64), (700, 128), (4096, 64)]]
    yield [Case(q=q, k=2001, h=4, g=2, d=d, e=e) for q in (1, 5) for d, e in [(32, 32), (96, 96), (256, 256), (80, 80), (72, 136), (192, 128), (8, 8)]]
    yield [Case(q=q, k=3000, h=4, b=2, d=128, score=s, causal=c) for q in (1, 9) for s in ("", "softcap", "alibi", "window") for c in (False, True) if s or c]
    yield [Case(q=q, k=1500, h=4, g=2, b=2, d=64, bias=(2, 1, 1, 1500), tokens=t) for q in (1, 7) for t in (False, True)] + [
        Case(q=q, k=2100, h=4, b=2, mask=(2, 1, q, 2100), dtype=F16) for q in (1, 7)] + [Case(q=1, k=256, b=256, h=32, g=8, d=128)]


def check(kiln, quick, ragged=False):
    torch.manual_seed(0)
    bad, first = 0, True
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "case")
        for cases in ragged_groups() if ragged else groups(quick):
            inputs = [c.spoiled(c.inputs()) if c.lengths else c.inputs() for c in cases]
            open(path + ".mlir", "w").write(module(cases, inputs))
            save(path + ".safetensors", [x for own in inputs for x in own])
            made = run(kiln, path, len(cases))
            if isinstance(made, str):
                bad += 1
                print(f"{cases[0].name()} and {len(cases) - 1} more: {made}", flush=True)
                if first:
                    return bad
                continue
            for case, have, own in zip(cases, made, inputs):
                text, good = verdict(case, have, own)
                bad += not good
                if not good or not quick:
                    print(f"{case.name():60} {text}", flush=True)
            print(f"{cases[0].name()} … {len(cases)} cases done", flush=True)
            first = False
        if ragged:
            print(f"{bad} bad", flush=True)
            return bad
        sizes = [(1, 1, 1), (3, 64, 65), (2, 129, 128), (1, 1000, 300), (2, 17, 1000)]
        few = [(1, 1), (3, 63), (2, 128), (1, 5000), (40, 1000)]
        cases = [(Case(h=2, d=64, causal=True), "%q", sizes), (Case(h=4, g=2, d=128), "%q", sizes)]
        cases += [(Case(h=h, g=2, q=q, d=d), str(q), [(b, q, k) for b, k in few]) for h, q, d in [(2, 1, 64), (8, 1, 128), (4, 4, 64)]]
        for case, queries, all in cases:
            open(path + ".mlir", "w").write(open_module(case, queries))
            for b, q, k in all:
                case = replace(case, b=b, q=q, k=k)
                own = case.inputs()
                save(path + ".safetensors", own)
                made = run(kiln, path, 1)
                text, good = (made, False) if isinstance(made, str) else verdict(case, made[0], own)
                bad += not good
                print(f"open {case.name():55} {text}", flush=True)
    print(f"{bad} bad", flush=True)
    return bad


def check_lse(kiln):
    """Checks the log-sum-exp with the result; returns the number of failures."""
    torch.manual_seed(0)
    bad = 0
    for case in [Case(q=130, k=200, h=4, g=2), Case(q=300, d=128, causal=True), Case(q=1, k=3000, h=8, g=2, d=128), Case(q=5, k=77, b=2, dtype=F16)]:
        inputs = case.inputs()
        types = [tensor(x.shape, x.dtype) for x in inputs]
        out = [tensor((case.b, case.h, case.q, case.e), case.dtype), tensor((case.b, case.h, case.q), torch.float32)]
        arguments = ", ".join(f"%a{i}: {t}" for i, t in enumerate(types))
        text = f"func.func @main({arguments}) -> ({', '.join(out)}) {{\n  %r, %l = kiln.attention %a0, %a1, %a2{' causal' if case.causal else ''} with_lse : {', '.join(types)}\n  return %r, %l : {', '.join(out)}\n}}\n"
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "case")
            open(path + ".mlir", "w").write(text)
            save(path + ".safetensors", inputs)
            made = run(kiln, path, 2)
        if isinstance(made, str):
            bad += 1
            print(f"log-sum-exp {case.name()}: {made}", flush=True)
            continue
        q, k = inputs[0].double(), inputs[1].repeat_interleave(case.h // case.g, 1).double()
        s = q @ k.transpose(-1, -2) * case.d**-0.5
        if case.causal:
            s = s.masked_fill(torch.ones(case.q, case.k, device=GPU, dtype=torch.bool).triu(1), -math.inf)
        off = float((made[1].to(GPU).double() - torch.logsumexp(s, -1)).abs().max())
        text, good = verdict(case, made[0], inputs)
        good = good and off < 1e-4
        bad += not good
        print(f"log-sum-exp {case.name():48} {text}, off by {off:.1e}{'' if good else '  DIFFERS'}", flush=True)
    return bad


class Single(Worker):
    """A case, and its result of one run."""

    def __init__(self, kiln, folder, case, inputs):
        path = os.path.join(folder, "case")
        open(path + ".mlir", "w").write(module([case], [inputs]))
        save(path + ".safetensors", inputs)
        made = run(kiln, path, 1)
        if isinstance(made, str):
            raise RuntimeError(made)
        self.result = made[0]
        super().__init__(kiln, path + ".mlir", path + ".safetensors")


def kernel_us(f, seconds=0.1):
    """Median time of back-to-back calls that fill the time: at its power limit a GPU is slower than
    after idling."""
    def row(calls):
        events = [torch.cuda.Event(enable_timing=True) for _ in range(calls + 1)]
        events[0].record()
        for e in events[1:]:
            f()
            e.record()
        torch.cuda.synchronize()
        return [a.elapsed_time(b) * 1e3 for a, b in zip(events, events[1:])]

    with torch.no_grad():
        f()
        return statistics.median(row(max(5, min(2000, int(seconds * 1e6 / min(row(3)))))))


def peers(case, inputs):
    """The same by torch."""
    q, k, v, *rest = inputs
    group = case.g != case.h
    if case.lengths:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        queries, keys = case.counts(inputs)
        seen = lambda b, h, i, j: (i < queries[b]) & (j < keys[b]) & ((i >= j) if case.causal else (i >= 0))
        torch._dynamo.reset()
        flex, block = torch.compile(flex_attention), create_block_mask(seen, case.b, None, case.q, case.k, device=GPU)
        packed = [torch.cat([x[b, :, :n].transpose(0, 1) for b, n in enumerate(own.tolist())]).contiguous() for x, own in ((q, queries), (k, keys), (v, keys))]
        ends = [F.pad(n.cumsum(0), (1, 0)).int() for n in (queries, keys)]
        varlen = lambda: torch.ops.aten._flash_attention_forward(*packed, *ends, case.q, case.k, 0.0, case.causal, False)
        return {"flex": lambda: flex(q, k, v, block_mask=block, enable_gqa=group), "flash packed": varlen}
    if case.score:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        t = rest[0] if rest else None
        kinds = {"softcap": lambda s, b, h, i, j: CAP * torch.tanh(s / CAP), "alibi": lambda s, b, h, i, j: s + t[h] * (j - i)}
        past = lambda b, h, i, j: i >= j
        seen = {"window": lambda b, h, i, j: (i >= j) & (i - j < WINDOW)}.get(case.score, past)
        torch._dynamo.reset()
        flex = torch.compile(flex_attention)
        block = create_block_mask(seen, None, None, case.q, case.k, device=GPU)
        return {"flex": lambda: flex(q, k, v, score_mod=kinds.get(case.score), block_mask=block, enable_gqa=group)}

    def by(backend):
        def f():
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, is_causal=case.causal, enable_gqa=group)
        return f

    return {"cudnn": by(SDPBackend.CUDNN_ATTENTION), "flash": by(SDPBackend.FLASH_ATTENTION)}


def seen(case, inputs):
    """Unmasked query-key pairs over all batches."""
    if case.lengths:
        return sum(seen(replace(case, b=1, q=q, k=k, lengths=""), []) for q, k in zip(*(n.tolist() for n in case.counts(inputs))) if q and k)
    i = torch.arange(case.q)
    ends = torch.clamp(i + 1, max=case.k) if case.causal else torch.full((case.q,), case.k)
    starts = torch.clamp(i + 1 - WINDOW, min=0) if case.score == "window" else 0 * i
    return case.b * int((ends - starts).sum())


def timed(kiln, rounds, items, out):
    torch.manual_seed(0)
    sizes = [(4, 16, 2048), (4, 32, 4096)]
    cases = [Case(b=b, h=h, q=s, d=d, causal=c) for d in (128, 64) for b, h, s in sizes for c in (False, True)]
    cases += [Case(b=4, h=32, g=8, q=4096, d=d, causal=True) for d in (128, 64)]
    decodes = [(1, 32, 8, 1, 2048, 64), (1, 32, 8, 1, 8192, 128), (8, 32, 8, 1, 4096, 128), (32, 32, 8, 1, 4096, 128), (1, 32, 32, 1, 4096, 128), (64, 16, 16, 1, 1024, 64), (8, 32, 8, 16, 4096, 128)]
    cases += [Case(b=b, h=h, g=g, q=q, k=k, d=d) for b, h, g, q, k, d in decodes]
    cases += [Case(b=16, h=16, q=2048, d=d, causal=c, lengths="both") for d in (128, 64) for c in (False, True)]
    cases += [Case(b=b, h=32, g=8, q=1, k=k, d=128, lengths="keys") for b, k in [(1, 8192), (32, 4096)]]
    cases += [Case(b=b, h=h, q=s, d=d, causal=True, score=m) for d in (128, 64) for b, h, s in sizes for m in ("softcap", "alibi", "window")]
    rows = []
    for case in [c for c in cases if not items or any(i in c.name() + " ;" for i in items.split(","))]:
        try:
            inputs = case.inputs()
            with tempfile.TemporaryDirectory() as folder:
                mine = Single(kiln, folder, case, inputs)
                sides = {}
                for name, f in peers(case, inputs).items():
                    try:
                        kernel_us(f, 0.01)
                        sides[name] = f
                    except Exception as e:
                        print(f"{case.name():48} {name}: {type(e).__name__}: {str(e)[:100]}", flush=True)
                samples = {s: [] for s in ["kiln", *sides]}
                own = os.path.join(folder, "whole")
                os.mkdir(own)
                whole = Single(kiln, own, replace(case, lengths=""), inputs[:3]) if case.lengths else None
                if whole:
                    samples["kiln without lengths"] = []
                for _ in range(rounds):
                    samples["kiln"].append(mine(0.1))
                    if whole:
                        samples["kiln without lengths"].append(whole(0.1))
                    for s, f in sides.items():
                        samples[s].append(kernel_us(f))
                mine.close()
                if whole:
                    whole.close()
            work = 2e-6 * case.h * (case.d + case.e) * seen(case, inputs)
            unit = "TFLOP/s"
            if case.q <= 16:
                # Keys and values once: what fits into L2 is read from there.
                work, unit = 2e-6 * case.g * int(case.counts(inputs)[1].sum()) * (case.d + case.e), "TB/s"
            text = ", ".join(f"{s} {statistics.median(v):.4g} us {work / statistics.median(v):.3g} {unit}" for s, v in samples.items())
            ratios = {s: ratio_text(samples["kiln"], v) for s, v in samples.items() if s != "kiln"}
            few = replace(case, b=1, h=case.h // case.g, g=1)
            own = [x[:1, : n] for x, n in zip(inputs, (few.h, 1, 1))] + ([inputs[3][: few.h]] if case.score and len(inputs) > 3 else [])
            own += [n[:1] for n in inputs[3:]] if case.lengths else []
            wrong, _ = verdict(few, mine.result[:1, : few.h], own) if case.q <= 4096 else ("", True)
            print(f"{case.name():48} {text}, " + ", ".join(f"{r} of {s}" for s, r in ratios.items()) + f", {wrong}", flush=True)
            rows.append({"item": case.name(), "samples": samples, "work": work})
        except Exception as e:  # goes on with the next item
            print(f"{case.name():48} FAILS {type(e).__name__}: {str(e)[:400]}", flush=True)
    if out:
        json.dump(rows, open(out, "w"), indent=1)


def main():
    p = arguments(__doc__)
    p.add_argument("--quick", action="store_true")
    p.add_argument("--ragged", action="store_true")
    p.add_argument("--items", default="")
    a = p.parse_args()
    bad = check(a.kiln, a.quick, a.ragged) + check_lse(a.kiln) if a.check or not a.time else 0
    if a.time:
        timed(a.kiln, a.rounds, a.items, a.out)
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()
