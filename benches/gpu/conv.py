#!/usr/bin/env python3
"""Channels-last bf16 and f16 convolutions on a GPU: accuracy against float64, then time against cuDNN.

    conv.py --kiln KILN [--check] [--time] [--rounds 7] [--jobs 8] [--only TEXT,…] [--modes default] [--target cuda:sm_80] [--out FILE.json]

Weights are parameters, and so frozen. A case is exported with channels last at its ends, run by kiln in a process of its own, and compared with a float64
convolution of the same values. Times are medians of CUDA events with random inputs, the sides taking turns, the peers' calls in CUDA graphs: cuDNN's plain convolution for `plain`; for
`relu` (bias and relu) and `residual` cuDNN's fused operation, and torch.compile in these modes.
"""
import json, statistics, sys, tempfile

import torch
import torch.nn.functional as F

import matmul
from bench import Kiln, arguments, graph_us, ratio_text

BF16, F16, GPU = torch.bfloat16, torch.float16, "cuda"


class Conv(torch.nn.Module):
    """A channels-last convolution with its epilogue."""

    def __init__(self, kind, c, k, window, stride, padding, dilation, groups, dtype):
        super().__init__()
        self.kind = kind
        self.conv = torch.nn.Conv2d(c, k, window, stride, padding, dilation, groups, bias=kind != "plain")
        self.norm = torch.nn.BatchNorm2d(k) if kind == "norm" else None
        if self.norm is not None:
            for p in (self.norm.weight, self.norm.bias, self.norm.running_mean):
                torch.nn.init.normal_(p)
        self.to(GPU, dtype).eval().requires_grad_(False)

    def forward(self, x, r=None):
        y = self.conv(x.permute(0, 3, 1, 2))
        if self.norm is not None:
            y = self.norm(y)
        if r is not None:
            y = y + r.permute(0, 3, 1, 2)
        if self.kind != "plain":
            y = F.relu(y)
        return y.permute(0, 2, 3, 1)

    def exact(self, *args):
        import copy

        return copy.deepcopy(self).double()(*[x.double() for x in args])


# images, channels, height, width, filters, window, stride, padding, dilation, and groups if not 1
SHAPES = [
    (32, 64, 56, 56, 64, 3, 1, 1, 1),
    (32, 128, 28, 28, 128, 3, 1, 1, 1),
    (32, 256, 14, 14, 256, 3, 1, 1, 1),
    (32, 512, 7, 7, 512, 3, 1, 1, 1),
    (32, 256, 56, 56, 64, 1, 1, 0, 1),
    (32, 1024, 14, 14, 2048, 1, 2, 0, 1),
    # First convolutions of resnet50, vit_base and mobilenetv3, and four depthwise ones of the latter.
    (32, 3, 224, 224, 64, 7, 2, 3, 1),
    (32, 3, 224, 224, 768, 16, 16, 0, 1),
    (32, 3, 224, 224, 16, 3, 2, 1, 1),
    (32, 16, 112, 112, 16, 3, 1, 1, 1, 16),
    (32, 64, 112, 112, 64, 3, 2, 1, 1, 64),
    (32, 120, 28, 28, 120, 5, 1, 2, 1, 120),
    (32, 960, 7, 7, 960, 5, 1, 2, 1, 960),
]
ODD = [
    (1, 64, 8, 8, 64, 3, 1, 1, 1),
    (3, 64, 13, 17, 72, 3, 1, 1, 1),
    (2, 72, 15, 9, 65, 3, 2, 1, 1),
    (2, 8, 20, 20, 16, 5, 1, 2, 1),
    (2, 136, 11, 12, 40, 3, 1, 2, 2),
    (1, 64, 9, 9, 128, (1, 3), 1, (0, 1), 1),
    (1, 64, 9, 9, 128, (3, 1), (2, 1), (1, 0), 1),
    (2, 128, 7, 7, 264, 7, 1, 3, 1),
    (2, 64, 10, 10, 64, 3, 1, 0, 1),
    (2, 64, 9, 11, 96, 1, 2, 0, 1),
    (2, 64, 9, 11, 96, 1, 1, 0, 1),
    (1, 96, 33, 65, 200, 3, 3, 1, 1),
    (2, 3, 31, 45, 24, 7, 2, 3, 1),
    (2, 3, 64, 64, 40, 16, 16, 0, 1),
    (3, 4, 33, 47, 70, 3, 2, 1, 1),
    (3, 1, 40, 40, 16, 5, 1, 2, 1),
    (2, 3, 50, 35, 16, (5, 3), (4, 1), (2, 1), 1),
    (2, 72, 15, 9, 72, 3, 2, 1, 1, 72),
    (2, 20, 17, 13, 20, 5, 1, 2, 1, 20),
    (1, 17, 19, 19, 17, 3, 1, 2, 2, 17),
    (2, 96, 14, 15, 96, 7, 1, 3, 1, 96),
    (1, 48, 12, 12, 48, (1, 3), 1, (0, 1), 1, 48),
    (2, 64, 14, 14, 64, 3, 1, 1, 1, 4),
    (2, 64, 14, 14, 128, 3, 2, 1, 1, 8),
]


def case(kind, shape, dtype):
    n, c, h, w, k, window, stride, padding, dilation, *groups = shape
    module = Conv(kind, c, k, window, stride, padding, dilation, *(groups or [1]), dtype)
    x = torch.randn(n, h, w, c, device=GPU, dtype=dtype)
    inputs = [x] + ([torch.randn_like(module(x))] if kind == "residual" else [])
    return module, inputs


def name_of(kind, shape, dtype):
    n, c, h, w, k, window, stride, padding, dilation, *groups = shape
    wide = window if isinstance(window, tuple) else (window, window)
    return f"{kind} {n}x{h}x{w}x{c} to {k}, {wide[0]}x{wide[1]} /{stride} +{padding} :{dilation}" + "".join(f" in {g} groups" for g in groups) + (" f16" if dtype == F16 else "")


def cases():
    """As `matmul.cases`: name, function, shapes, dtype, sizes of a dynamic first dimension."""
    for shape in ODD + SHAPES:
        for kind in ["plain", "relu"] + (["residual", "norm"] if shape in (ODD[1], ODD[2], SHAPES[1]) else []):
            yield kind, shape, F16 if shape in ODD[4:6] + ODD[13:14] + ODD[18:19] else BF16


def check(kiln, jobs, only, more):
    all_cases = []
    for kind, shape, dtype in cases():
        name = name_of(kind, shape, dtype)
        if matmul.wanted(name, only):
            module, inputs = case(kind, shape, dtype)
            all_cases.append((name, module, [tuple(x.shape) for x in inputs], dtype, None))
    return matmul.check(kiln, all_cases, jobs, more)


def timed(kiln, rounds, out, only, modes, more):
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    rows = []
    for shape in SHAPES:
        for kind in ("plain", "relu", "residual"):
            name = name_of(kind, shape, BF16)
            if not matmul.wanted(name, only):
                continue
            try:
                module, inputs = case(kind, shape, BF16)
                conv = module.conv.to(memory_format=torch.channels_last)
                args = (conv.stride, conv.padding, conv.dilation, conv.groups)
                sides = {"torch": module}
                if kind == "relu":
                    sides["cudnn"] = lambda x: torch.cudnn_convolution_relu(x.permute(0, 3, 1, 2), conv.weight, conv.bias, *args)
                if kind == "residual":
                    sides["cudnn"] = lambda x, r: torch.cudnn_convolution_add_relu(
                        x.permute(0, 3, 1, 2), conv.weight, r.permute(0, 3, 1, 2), 1.0, conv.bias, *args)
                torch._dynamo.reset()
                for mode in modes.split(",") if modes and kind != "plain" else []:
                    sides["inductor " + mode] = torch.compile(module, mode=mode)
                with tempfile.TemporaryDirectory() as folder:
                    mine = Kiln(kiln, folder, "case", module, inputs, more)
                    samples = {s: [] for s in ["kiln", *sides]}
                    for _ in range(rounds):
                        samples["kiln"].append(mine(0.1))
                        for s, g in sides.items():
                            samples[s].append(graph_us(g, inputs))
                    mine.close()
                exact = module.exact(*inputs)
                error = float((mine.result.to(GPU).double() - exact).norm() / exact.norm())
                text = ", ".join(f"{s} {statistics.median(v):.1f} us" for s, v in samples.items())
                peer = samples.get("cudnn", samples["torch"])
                print(f"{name:52} {text}, ratio {ratio_text(samples['kiln'], peer)}, error {error:.1e}", flush=True)
                rows.append({"item": name, "samples": samples, "error": error})
            except Exception as e:  # goes on with the next item
                print(f"{name:52} FAILS {type(e).__name__}: {str(e)[:400]}", flush=True)
    if out:
        json.dump(rows, open(out, "w"), indent=1)


def main():
    p = arguments(__doc__)
    p.add_argument("--jobs", type=int, default=8)
    p.add_argument("--only", default="")
    p.add_argument("--modes", default="default")
    p.add_argument("--target", default="")
    a = p.parse_args()
    more = ["--target", a.target] if a.target else []
    bad = check(a.kiln, a.jobs, a.only, more) if a.check or not a.time else 0
    if a.time:
        timed(a.kiln, a.rounds, a.out, a.only, a.modes, more)
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()
