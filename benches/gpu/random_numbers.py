#!/usr/bin/env python3
"""Dropout and random numbers of 8192 x 8192 elements on a GPU: torch.compile(backend="kiln") beside eager and TorchInductor in one process.

    random_numbers.py

Medians of CUDA events around 20 calls in a row, nine rounds, the sides taking turns; least and most in brackets. The floor is the bytes read and
written over the GPU's bandwidth.
"""
import statistics

import torch

import kiln_torch  # noqa: F401  registers the backend

F = torch.nn.functional
CASES = {
    "dropout(x, 0.1) + x": lambda x: F.dropout(x, 0.1) + x,
    "randn_like(x) * x": lambda x: torch.randn_like(x) * x,
    "rand_like(x)": lambda x: torch.rand_like(x),
}


def times(sides, x, rounds=9, calls=20):
    """Microseconds a call of each side: median, least, most."""
    for f in sides.values():
        for _ in range(3):
            f(x)
    torch.cuda.synchronize()
    got = {name: [] for name in sides}
    for _ in range(rounds):
        for name, f in sides.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(calls):
                f(x)
            end.record()
            end.synchronize()
            got[name].append(start.elapsed_time(end) / calls * 1e3)
    return {name: (statistics.median(v), min(v), max(v)) for name, v in got.items()}


if __name__ == "__main__":
    print(torch.cuda.get_device_name())
    for dtype in (torch.bfloat16, torch.float32):
        x = torch.randn(8192, 8192, device="cuda", dtype=dtype)
        for name, fn in CASES.items():
            torch._dynamo.reset()
            sides = {"eager": fn, "Inductor": torch.compile(fn), "kiln": torch.compile(fn, backend="kiln", options={"kiln.strict": True})}
            got = times(sides, x)
            line = "  ".join(f"{side} {m:.1f} us [{low:.1f}, {high:.1f}]" for side, (m, low, high) in got.items())
            print(f"{name:20} {str(dtype)[6:]:9} {line}  kiln / Inductor {got['kiln'][0] / got['Inductor'][0]:.2f}", flush=True)
