#!/usr/bin/env python3
"""Attention that is written out in plain ops, on a GPU: kiln against torch eager and TorchInductor, beside the same given as an op.

    written_attention.py --kiln KILN [--items PART,PART] [--rounds 7] [--out FILE.json]

Forms: `cap` (a soft cap of the scaled scores and a bool mask of [b, 1, s, s], in float32 around the softmax), `cap causal` (the mask made of
positions), `mask` (the bool mask without a cap), `plain`. Sides: kiln on the exported graph; kiln on the form as one kiln.attention with a score
function (`kiln op`; masks as a bias); eager and compiled torch of the graph; torch's scaled_dot_product_attention without a cap, and compiled flex_attention.
Times are medians of CUDA events, the sides taking turns; the ratio is the median of those of the rounds. Results are compared with float32: kiln may be off twice as far as eager, and 5e-3 besides.
"""
import json, math, os, statistics, subprocess, sys, tempfile

import safetensors.torch
import torch
import torch.nn.functional as F

from attention import kernel_us
from attention_cases import BF16, CAP, F16, GPU, Case, module
from bench import LIMIT, Worker, arguments, ratio_text


class Written(torch.nn.Module):
    def __init__(self, form):
        super().__init__()
        self.form = form

    def forward(self, q, k, v, mask):
        s = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        if "cap" in self.form:
            s = CAP * torch.tanh(s / CAP)
        if "causal" in self.form:
            at = torch.arange(q.shape[-2], device=q.device)
            mask = at[None, :] <= at[:, None]
        if self.form != "plain":
            s = s.masked_fill(~mask, -math.inf)
        return torch.softmax(s.float(), -1).to(q.dtype) @ v


def given(form, q, k, v, mask):
    """The same as torch's own ops."""
    causal = "causal" in form
    own = None if causal or form == "plain" else mask
    sides = {} if "cap" in form else {"sdpa": lambda: F.scaled_dot_product_attention(q, k, v, own, is_causal=causal)}
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._dynamo.reset()
    flex = torch.compile(flex_attention)
    seen = (lambda b, h, i, j: i >= j) if causal else (lambda b, h, i, j: mask[b, 0, i, j])
    block = None if form == "plain" else create_block_mask(seen, None if causal else q.shape[0], None, q.shape[2], k.shape[2], device=GPU)
    cap = (lambda s, b, h, i, j: CAP * torch.tanh(s / CAP)) if "cap" in form else None
    sides["flex"] = lambda: flex(q, k, v, score_mod=cap, block_mask=block)
    return sides


def measure(a, name, folder, form, b, h, s, d, dtype):
    torch.manual_seed(0)
    q, k, v = (torch.randn(b, h, s, d, device=GPU, dtype=dtype) for _ in range(3))
    mask = torch.rand(b, 1, s, s, device=GPU) < 0.7
    inputs, model = [q, k, v, mask], Written(form).eval()
    path = os.path.join(folder, "written")
    torch.export.save(torch.export.export(model, tuple(inputs)), path + ".pt2")
    safetensors.torch.save_file({f"input_{i}": x.cpu().contiguous() for i, x in enumerate(inputs)}, path + ".safetensors")
    command = [a.kiln, "run", path + ".pt2", "--device", "cuda", "--inputs", path + ".safetensors", "--outputs", path + ".out", "--repeat", "1"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    if run.returncode:
        raise RuntimeError((run.stderr or run.stdout).strip()[-400:])
    launches = [l.strip() for l in run.stdout.splitlines() if " launches of " in l]
    head = lambda x: x[:1, :1]
    with torch.no_grad():
        exact = model(head(q).float(), head(k).float(), head(v).float(), mask[:1])
        off = lambda y: float((head(y).float() - exact).norm() / exact.norm())
        rounded = off(model(*inputs))
    mine = off(safetensors.torch.load_file(path + ".out")["output_0"].to(GPU))

    case = Case(b=b, h=h, q=s, d=d, dtype=dtype, causal="causal" in form, score="softcap" if "cap" in form else "", mask=(b, 1, s, s) if form in ("cap", "mask") else ())
    if case.mask and case.score:
        # A bias comes before the score function, so only the cap is compared.
        case.mask = ()
    own = [q, k, v] + ([mask] if case.mask else [])
    op = os.path.join(folder, "op")
    open(op + ".mlir", "w").write(module([case], [own]))
    safetensors.torch.save_file({f"input_{i}": x.cpu().contiguous() for i, x in enumerate(own)}, op + ".safetensors")
    workers = {"kiln": Worker(a.kiln, path + ".pt2", path + ".safetensors"), "kiln op": Worker(a.kiln, op + ".mlir", op + ".safetensors")}
    torch._dynamo.reset()
    compiled = torch.compile(model)
    sides = {"eager": lambda: model(*inputs), "inductor": lambda: compiled(*inputs)}
    for side, f in {**sides, **given(form, q, k, v, mask)}.items():
        try:
            kernel_us(f, 0.01)
            sides[side] = f
        except Exception as e:
            sides.pop(side, None)
            print(f"{name:44} {side}: {type(e).__name__}: {str(e)[:100]}", flush=True)
    samples = {side: [] for side in [*workers, *sides]}
    for _ in range(a.rounds):
        for side, worker in workers.items():
            samples[side].append(worker(0.1))
        for side, f in sides.items():
            samples[side].append(kernel_us(f))
    for worker in workers.values():
        worker.close()
    work = 4e-6 * b * h * s * s * d * (0.5 if "causal" in form else 1)
    text = ", ".join(f"{side} {statistics.median(x):.4g} us {work / statistics.median(x):.3g} TFLOP/s" for side, x in samples.items())
    ratios = ", ".join(f"{ratio_text(samples['kiln'], x)} of {side}" for side, x in samples.items() if side != "kiln")
    good = mine <= 2 * rounded + 5e-3
    print(f"{name:44} {text}, {ratios}, error {mine:.1e} (eager {rounded:.1e}) {'agrees' if good else 'DIFFERS'}; {' '.join(launches)}", flush=True)
    return {"item": name, "samples": samples, "work": work, "error": mine, "eager_error": rounded, "agrees": good}


def main():
    p = arguments(__doc__)
    p.add_argument("--items", default="")
    a = p.parse_args()
    sizes = [(4, 16, 2048, 128), (4, 16, 4096, 128), (8, 16, 2048, 64)]
    cases = [(form, *size, BF16) for form in ("cap", "cap causal", "mask", "plain") for size in sizes] + [("cap", *sizes[0], F16)]
    rows, bad = [], 0
    for form, b, h, s, d, dtype in cases:
        name = f"{form} {str(dtype)[6:]} b{b} h{h} s{s} d{d}"
        if a.items and not any(i in name for i in a.items.split(",")):
            continue
        try:
            with tempfile.TemporaryDirectory() as folder:
                rows.append(measure(a, name, folder, form, b, h, s, d, dtype))
            bad += not rows[-1]["agrees"]
        except Exception as e:  # goes on with the next item
            bad += 1
            print(f"{name:44} FAILS {type(e).__name__}: {str(e)[:400]}", flush=True)
        torch.cuda.empty_cache()
        if a.out:
            json.dump(rows, open(a.out, "w"), indent=1)
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()
