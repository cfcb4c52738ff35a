#!/usr/bin/env python3
"""Accuracy of f32 functions on a GPU against float64, by default and with `fast_math`.

    functions.py --kiln KILN

A million arguments, half of them within 2 of 0 and half within 1,000 (of logarithms and roots above 0); the largest error in units in the last place of the exact result, and the
largest absolute one where that is of a result below 1, else relative.
"""
import argparse, os, subprocess, tempfile

import safetensors.torch
import torch

from bench import Item

COUNT = 1 << 20
FUNCTIONS = {"exp": torch.exp, "log": torch.log, "log2": torch.log2, "log10": torch.log10, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt,
             "sin": torch.sin, "cos": torch.cos, "tanh": torch.tanh, "erf": torch.erf, "sigmoid": torch.sigmoid, "silu": torch.nn.functional.silu}
POSITIVE = ("log", "log2", "log10", "sqrt", "rsqrt")


def arguments(name):
    x = torch.cat([4 * torch.rand(COUNT // 2) - 2, 2000 * torch.rand(COUNT // 2) - 1000])
    if name == "exp":
        x = x.clamp(-80, 80)
    if name in ("sigmoid", "silu"):
        # Below, e^-x overflows in f32, and the result is 0, as in PyTorch.
        x = x.clamp(min=-87)
    return x.abs() + 1e-6 if name in POSITIVE else x


def errors(kiln, folder, name, f, x, *more):
    path = os.path.join(folder, name)
    torch.export.save(torch.export.export(Item(f), (x,)), path + ".pt2")
    safetensors.torch.save_file({"input_0": x}, path + ".safetensors")
    command = [kiln, "run", path + ".pt2", "--device", "cuda", "--inputs", path + ".safetensors", "--outputs", path + ".out", *more]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError((done.stderr or done.stdout).strip()[:300])
    have, exact = safetensors.torch.load_file(path + ".out")["output_0"].double(), f(x.double())
    near = exact.float()
    unit = (torch.nextafter(near.abs(), torch.tensor(float("inf"))) - near.abs()).double()
    off = (have - exact).abs()
    return float((off / unit).max()), float((off / exact.abs().clamp_min(1)).max())


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--kiln", required=True)
    a = p.parse_args()
    torch.manual_seed(0)
    print(f"{'':10} {'ulp':>10} {'error':>9}   fast_math: {'ulp':>10} {'error':>9}")
    with tempfile.TemporaryDirectory() as folder:
        for name, f in FUNCTIONS.items():
            x = arguments(name)
            (ulp, off), (fast_ulp, fast_off) = (errors(a.kiln, folder, name, f, x, *more) for more in ([], ["--option", "fast_math=true"]))
            print(f"{name:10} {ulp:10.2f} {off:9.1e}              {fast_ulp:10.1f} {fast_off:9.1e}", flush=True)


if __name__ == "__main__":
    main()
