#!/usr/bin/env python3
"""Dropout and random numbers of 8192 x 8192 elements on a GPU: torch.compile(backend="kiln") beside eager and TorchInductor in one process.

    random_numbers.py

Medians of nine rounds, the sides taking turns; least and most in brackets. A round takes the median of 20 calls in a row by CUDA events. The floor is
the bytes read and written over the GPU's bandwidth.
"""
import statistics

import torch

import kiln_torch  # noqa: F401  registers the backend
from bench import kernel_us, ratio_text

F = torch.nn.functional
CASES = {
    "dropout(x, 0.1) + x": lambda x: F.dropout(x, 0.1) + x,
    "randn_like(x) * x": lambda x: torch.randn_like(x) * x,
    "rand_like(x)": lambda x: torch.rand_like(x),
}


if __name__ == "__main__":
    print(torch.cuda.get_device_name())
    for dtype in (torch.bfloat16, torch.float32):
        x = torch.randn(8192, 8192, device="cuda", dtype=dtype)
        for name, fn in CASES.items():
            torch._dynamo.reset()
            sides = {"eager": fn, "Inductor": torch.compile(fn), "kiln": torch.compile(fn, backend="kiln", options={"kiln.strict": True})}
            us = {side: [] for side in sides}
            for side, f in sides.items():
                kernel_us(f, [x])
            for _ in range(9):
                for side, f in sides.items():
                    us[side].append(kernel_us(f, [x]))
            line = "  ".join(f"{side} {statistics.median(v):.1f} us [{min(v):.1f}, {max(v):.1f}]" for side, v in us.items())
            print(f"{name:20} {str(dtype)[6:]:9} {line}  Inductor / kiln {ratio_text(us['kiln'], us['Inductor'])}", flush=True)
