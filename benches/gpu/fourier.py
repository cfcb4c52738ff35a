#!/usr/bin/env python3
"""Fourier transforms on a GPU: torch.compile(backend="kiln"), by kernels and by cuFFT, beside eager and TorchInductor in one process.

    fourier.py [--only REGEX] [--out FILE.json]

Medians of nine rounds, the sides taking turns; least and most in brackets. A round takes the median of 20 calls in a row by CUDA events. The error is
relative, of the norm, against float64. The floor is the bytes of operands and results, once each, over the rate of a copy.
"""
import argparse, json, re, statistics

import torch

import kiln_torch  # noqa: F401  registers the backend
from bench import kernel_us, ratio_text

fft = torch.fft
SPECTROGRAM = {"n_fft": 400, "hop_length": 160, "return_complex": True}


def convolved(x, w):
    return fft.irfft(fft.rfft(x) * w, n=x.shape[-1])


def spectrogram(x, window):
    return torch.stft(x, window=window, **SPECTROGRAM).abs().square()


def rows(*shape, dtype=torch.complex64):
    return torch.randn(shape, device="cuda", dtype=dtype)


CASES = {
    "fft 16384x1024": (fft.fft, lambda: [rows(16384, 1024)]),
    "fft 4096x4096": (fft.fft, lambda: [rows(4096, 4096)]),
    "fft 16384x1000": (fft.fft, lambda: [rows(16384, 1000)]),
    "fft 256x65536": (fft.fft, lambda: [rows(256, 65536)]),
    "fft 16x1048576": (fft.fft, lambda: [rows(16, 1048576)]),
    "fft 4096x4099": (fft.fft, lambda: [rows(4096, 4099)]),
    "rfft 16384x1024": (fft.rfft, lambda: [rows(16384, 1024, dtype=torch.float32)]),
    "irfft 16384x513": (fft.irfft, lambda: [rows(16384, 513)]),
    "fft2 64x512x512": (fft.fft2, lambda: [rows(64, 512, 512)]),
    "rfft, product, irfft 8192x2048": (convolved, lambda: [rows(8192, 2048, dtype=torch.float32), rows(1025)]),
    "spectrogram 64x160000": (spectrogram, lambda: [rows(64, 160000, dtype=torch.float32), torch.hann_window(400, device="cuda")]),
}


def wide(x):
    return x.to(torch.complex128 if x.is_complex() else torch.float64)


def measured(fn, inputs):
    """The median microseconds of each side in each round, the error of each, and the floor's microseconds."""
    torch._dynamo.reset()

    def kiln(**options):
        return torch.compile(fn, backend="kiln", options={"kiln.strict": True, **options})

    sides = {"eager": fn, "Inductor": torch.compile(fn), "kiln": kiln(), "kiln, cuFFT": kiln(cufft=True)}
    exact = fn(*map(wide, inputs))
    us, errors, copied = {}, {}, 0
    for side, f in list(sides.items()):
        try:
            made = f(*inputs)
            errors[side] = float(torch.linalg.vector_norm(wide(made) - exact) / torch.linalg.vector_norm(exact))
            copied = sum(t.numel() * t.element_size() for t in (*inputs, made))
            kernel_us(f, inputs)
            us[side] = []
        except Exception as e:  # noqa: BLE001  one side's failure leaves the others
            print(f"  {side}: {str(e)[:300]}", flush=True)
    del exact, made
    for _ in range(9):
        for side in us:
            us[side].append(kernel_us(sides[side], inputs))
    a = torch.empty(max(copied // 2, 1), device="cuda", dtype=torch.uint8)
    return us, errors, kernel_us(lambda x: x.clone(), [a])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", default="")
    p.add_argument("--out")
    a = p.parse_args()
    torch.manual_seed(0)
    print(torch.cuda.get_device_name())
    found = []
    for name, (fn, make) in CASES.items():
        if not re.search(a.only, name):
            continue
        us, errors, floor = measured(fn, make())
        print(f"{name}: a copy of its bytes {floor:.1f} us", flush=True)
        for side, v in us.items():
            ratio = ratio_text(v, us["eager"])
            print(f"  {side:12} {statistics.median(v):9.1f} us [{min(v):.1f}, {max(v):.1f}]  error {errors[side]:.1e}  eager / it {ratio}", flush=True)
        found.append({"name": name, "us": us, "errors": errors, "floor_us": floor})
    if a.out:
        with open(a.out, "w") as f:
            json.dump({"gpu": torch.cuda.get_device_name(), "cases": found}, f, indent=1)


if __name__ == "__main__":
    main()
