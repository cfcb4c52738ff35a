#!/usr/bin/env python3
"""Derivatives of bf16 and f16 attention on a GPU, beside cuDNN's and flash attention's of PyTorch.

    attention_gradient.py --kiln KILN [--only TEXT,…] [--rounds 7] [--seconds 0.15] [--kiln-args "…"] [--out FILE.json]

kiln computes the row sums of cotangent times result and the three derivatives from queries, keys, values, result, log-sum-exp and cotangent, as PyTorch's ops do;
it is a process of its own, and the sides take turns. Inputs are random. Errors are the norms of the differences from float64 over the norm, of each derivative;
those of flash attention stand beside them. TFLOP/s count five products of the scores' size, half of them where the mask is causal. Goes on after failures; the exit code is 0 if all agree.
"""
import json, os, statistics, subprocess, sys, tempfile
from dataclasses import dataclass

import safetensors.torch
import torch

from attention import kernel_us, save
from bench import GPU, Worker, arguments, ratio_text, wanted

aten = torch.ops.aten
NAMES = {torch.bfloat16: "bf16", torch.float16: "f16"}
# Twice the error of flash attention, which rounds weights and their gradients alike.
LIMIT = 2.0


@dataclass
class Case:
    b: int
    h: int
    s: int
    d: int
    causal: bool = False
    dtype: torch.dtype = torch.bfloat16

    def name(self):
        return f"{self.b}x{self.h}x{self.s} d{self.d} {NAMES[self.dtype]}{' causal' if self.causal else ''}"

    def tflop(self):
        return 5 * 2 * self.b * self.h * self.s * self.s * self.d * (0.5 if self.causal else 1) / 1e12

    def module(self):
        rows, wide = f"{self.b}x{self.h}x{self.s}", f"tensor<{self.b}x{self.h}x{self.s}x{self.d}xf32>"
        t, l = f"tensor<{rows}x{self.d}x{NAMES[self.dtype]}>", f"tensor<{rows}xf32>"
        mask, types = " causal" if self.causal else "", f"{t}, {t}, {t}, {t}, {l}, {l}"
        return f"""func.func @main(%q: {t}, %k: {t}, %v: {t}, %o: {t}, %l: {l}, %g: {t}) -> ({t}, {t}, {t}) {{
  %0 = kiln.convert %g : {t} to f32
  %1 = kiln.convert %o : {t} to f32
  %2 = kiln.mul %0, %1 : {wide}
  %d = kiln.reduce sum %2 dims = [3] : {wide}
  %3 = kiln.attention_gradient %q, %k, %v, %g, %l, %d{mask} : {types}
  %4, %5 = kiln.attention_gradient by_keys %q, %k, %v, %g, %l, %d{mask} : {types}
  return %3, %4, %5 : {t}, {t}, {t}
}}"""


CASES = [Case(b, h, s, d, c) for d in (128, 64) for b, h, s in ((8, 16, 2048), (4, 16, 4096), (8, 16, 1024), (16, 12, 577), (64, 12, 197)) for c in (False, True)]
CASES += [Case(8, 16, 2048, 96, True), Case(8, 16, 2048, 128, True, torch.float16)]


def exact(case, q, k, v, g):
    """The derivatives in float64, head by head."""
    made = [torch.empty(t.shape, dtype=torch.float64, device=GPU) for t in (q, k, v)]
    for b in range(case.b):
        own = [t[b].double().requires_grad_() for t in (q, k, v)]
        scores = own[0] @ own[1].mT * case.d**-0.5
        if case.causal:
            scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
        for to, of in zip(made, torch.autograd.grad(scores.softmax(-1) @ own[2], own, g[b].double())):
            to[b] = of
    return made


def peers(case, q, k, v, g):
    """PyTorch's kernels: what they compute, and the result and log-sum-exp of flash attention."""
    none = torch.zeros(2, dtype=torch.int64, device=GPU)
    out, lse, *_, seed, offset, _ = aten._scaled_dot_product_flash_attention(q, k, v, 0.0, case.causal, False)
    flash = lambda: aten._scaled_dot_product_flash_attention_backward(g, q, k, v, out, lse, None, None, case.s, case.s, 0.0, case.causal, seed, offset)
    made, stats, *_, seed2, offset2, _ = aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, case.causal, False)
    cudnn = lambda: aten._scaled_dot_product_cudnn_attention_backward(g, q, k, v, made, stats, seed2, offset2, None, None, None, case.s, case.s, 0.0, case.causal)
    off = float((stats.reshape(lse.shape) - lse).abs().max())
    return {"cuDNN": cudnn, "flash": flash}, out, lse, off


def timed(case, kiln, rounds, seconds, more):
    q, k, v, g = (torch.randn(case.b, case.h, case.s, case.d, device=GPU, dtype=case.dtype) for _ in range(4))
    sides, out, lse, off = peers(case, q, k, v, g)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "case")
        open(path + ".mlir", "w").write(case.module())
        save(path + ".safetensors", [q, k, v, out, lse, g])
        command = [kiln, "run", path + ".mlir", "--device", "cuda", "--inputs", path + ".safetensors", "--outputs", path + ".out", "--repeat", "2", *more]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise RuntimeError((done.stderr or done.stdout).strip()[:500])
        made = safetensors.torch.load_file(path + ".out")
        have = [made[f"output_{i}"].to(GPU).double() for i in range(3)]
        want = exact(case, q, k, v, g)
        error = lambda some: [float((a.double() - b).norm() / b.norm()) for a, b in zip(some, want)]
        errors = {"kiln": error(have), "flash": error(sides["flash"]()[:3])}
        worker = Worker(kiln, path + ".mlir", path + ".safetensors", *more)
        try:
            samples = {name: [] for name in ("kiln", *sides)}
            for _ in range(rounds):
                samples["kiln"].append(worker(seconds))
                for name, f in sides.items():
                    samples[name].append(kernel_us(f, seconds))
        finally:
            worker.close()
    return samples, errors, off


def main():
    p = arguments(__doc__)
    p.add_argument("--only", default="")
    p.add_argument("--seconds", type=float, default=0.15)
    p.add_argument("--kiln-args", default="")
    a = p.parse_args()
    torch.manual_seed(0)
    rows, bad = [], 0
    print("| case | kiln us | TFLOP/s | cuDNN us | cuDNN / kiln | flash us | flash / kiln | error (flash's) |\n| --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for case in CASES:
        name = case.name()
        if not wanted(name, a.only):
            continue
        try:
            samples, errors, off = timed(case, a.kiln, a.rounds, a.seconds, a.kiln_args.split())
        except Exception as e:  # goes on with the next case
            bad += 1
            print(f"{name}: FAILS {type(e).__name__}: {str(e)[:400]}", flush=True)
            continue
        good = all(x <= LIMIT * y for x, y in zip(errors["kiln"], errors["flash"]))
        bad += not good
        middle = {k: statistics.median(v) for k, v in samples.items()}
        text = lambda k: f"{middle[k]:.1f} | {ratio_text(samples['kiln'], samples[k])}"
        of = lambda k: " ".join(f"{e:.1e}" for e in errors[k])
        print(f"| {name} | {middle['kiln']:.1f} | {case.tflop() / middle['kiln'] * 1e6:.0f} | {text('cuDNN')} | {text('flash')} | {of('kiln')} ({of('flash')}){'' if good else ' DIFFERS'} |", flush=True)
        rows.append({"item": name, "samples": samples, "errors": errors, "tflop": case.tflop(), "lse_difference": off})
    if rows:
        for peer in ("cuDNN", "flash"):
            ratios = [statistics.median(x / y for x, y in zip(r["samples"][peer], r["samples"]["kiln"])) for r in rows]
            print(f"{peer} / kiln: geometric mean {statistics.geometric_mean(ratios):.2f}, from {min(ratios):.2f} to {max(ratios):.2f}", flush=True)
        print("greatest difference of cuDNN's log-sum-exp from flash attention's:", max(r["lse_difference"] for r in rows), flush=True)
    if a.out:
        json.dump(rows, open(a.out, "w"), indent=1)
    sys.exit(bad != 0 or not rows)


if __name__ == "__main__":
    main()
