#!/usr/bin/env python3
"""A layer of experts whose rows `torch.where` chooses: eager, kiln, and kiln without `kiln-bound-sizes`, which reads each number of rows.

    experts.py KILN [--tokens 1,16,64] [--out FILE.json]

Exports the layer, compares kiln's result with eager's, and times both on a GPU: eager as the median of 50 calls that are waited for, kiln by `kiln ablate`.
"""
import argparse, json, statistics, subprocess, tempfile, time
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn import functional as F

EXPERTS, WIDTH, INNER, CHOSEN = 8, 1024, 3584, 2


class Experts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = torch.nn.Linear(WIDTH, EXPERTS, bias=False)
        self.up = torch.nn.ModuleList(torch.nn.Linear(WIDTH, INNER, bias=False) for _ in range(EXPERTS))
        self.down = torch.nn.ModuleList(torch.nn.Linear(INNER, WIDTH, bias=False) for _ in range(EXPERTS))

    def forward(self, x):
        weights, chosen = torch.topk(torch.softmax(self.gate(x).float(), -1), CHOSEN, -1)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        mask = F.one_hot(chosen, EXPERTS).permute(2, 1, 0)
        out = torch.zeros_like(x)
        for e in range(EXPERTS):
            place, rows = torch.where(mask[e])
            y = self.down[e](F.silu(self.up[e](x[rows]))) * weights[rows, place, None]
            out.index_add_(0, rows, y.to(x.dtype))
        return out


def eager_us(model, x):
    times = []
    with torch.no_grad():
        for i in range(60):
            begin = time.perf_counter()
            model(x)
            torch.cuda.synchronize()
            times.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(times[10:])


def kiln(binary, *args):
    done = subprocess.run([binary, *args, "--device", "cuda"], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{args[0]}: {done.stdout[-500:]}{done.stderr[-2000:]}")
    return done.stdout


def measured(binary, tokens, folder):
    torch.manual_seed(0)
    model, x = Experts().eval().to(torch.bfloat16), torch.randn(tokens, WIDTH, dtype=torch.bfloat16)
    archive, inputs, outputs = (str(folder / name) for name in ("m.pt2", "in.safetensors", "out.safetensors"))
    torch.export.save(torch.export.export(model, (x,)), archive)
    model, given = model.cuda(), x.cuda()
    with torch.no_grad():
        save_file({"output_0": model(given).cpu()}, outputs)
    save_file({"input_0": x}, inputs)
    said = kiln(binary, "run", archive, "--inputs", inputs, "--expect", outputs)
    error = next(line for line in said.splitlines() if line.startswith("output_0"))
    rows = {line.split("  ")[0].strip(): line.split() for line in kiln(binary, "ablate", archive, "--inputs", inputs).splitlines()[1:]}
    bounded, read = (rows[name] for name in ("(nothing)", "kiln-bound-sizes"))
    return {
        "tokens": tokens,
        "eager_us": round(eager_us(model, given), 1),
        "kiln_us": float(bounded[-2]),
        "read_us": float(read[-2]),
        "launches": int(bounded[1]),
        "read_launches": int(read[1]),
        "error": error,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kiln")
    parser.add_argument("--tokens", default="1,16,64")
    parser.add_argument("--out")
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for tokens in map(int, given.tokens.split(",")):
            rows.append(measured(given.kiln, tokens, Path(folder)))
            print(rows[-1], flush=True)
    if given.out:
        Path(given.out).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
