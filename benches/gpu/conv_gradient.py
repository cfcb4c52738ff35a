#!/usr/bin/env python3
"""Gradients of channels-last bf16 convolutions on a GPU, by the weight or the input: accuracy against float64, and time against cuDNN.

    conv_gradient.py --kiln KILN [--rounds 7] [--only TEXT,…] [--out FILE.json]

The gradient is exported as `aten.convolution_backward`, with channels last at its ends, and run by kiln in a process of its own. Times are medians of CUDA
events with random inputs, the sides taking turns; cuDNN's algorithms are measured first (`cudnn.benchmark`), and its calls run in CUDA graphs.
"""
import json, statistics, sys, tempfile

import torch

from bench import Kiln, arguments, graph_us, ratio_text, wanted

# images, channels, height, width, filters (0: depthwise), window, stride, padding; groups, if there are several
SHAPES = [
    (128, 64, 56, 56, 64, 3, 1, 1),
    (128, 128, 28, 28, 128, 3, 1, 1),
    (128, 256, 14, 14, 256, 3, 1, 1),
    (128, 512, 7, 7, 512, 3, 1, 1),
    (128, 128, 56, 56, 128, 3, 2, 1),
    (128, 256, 56, 56, 64, 1, 1, 0),
    (128, 1024, 14, 14, 256, 1, 1, 0),
    (128, 256, 56, 56, 512, 1, 2, 0),
    (64, 96, 56, 56, 192, 2, 2, 0),
    (32, 48, 30, 34, 72, 5, 1, 2),
    (128, 3, 224, 224, 64, 7, 2, 3),
    (64, 3, 224, 224, 768, 16, 16, 0),
    (128, 3, 224, 224, 16, 3, 2, 1),
    (64, 96, 56, 56, 0, 7, 1, 3),
    (64, 192, 28, 28, 0, 7, 1, 3),
    (64, 384, 14, 14, 0, 7, 1, 3),
    (64, 768, 7, 7, 0, 7, 1, 3),
    (128, 16, 112, 112, 0, 3, 1, 1),
    (128, 240, 28, 28, 0, 5, 1, 2),
    (128, 672, 14, 14, 0, 3, 1, 1),
    (128, 960, 7, 7, 0, 5, 1, 2),
    (128, 64, 112, 112, 0, 3, 2, 1),
    (64, 128, 56, 56, 128, 3, 1, 1, 32),
    (64, 512, 14, 14, 512, 3, 1, 1, 32),
    (64, 576, 14, 14, 576, 3, 1, 1, 24),
    (64, 216, 56, 56, 216, 3, 2, 1, 9),
    (64, 48, 56, 56, 48, 3, 1, 1, 2),
]


def groups_of(shape):
    return shape[8] if len(shape) > 8 else 1 if shape[4] else shape[1]


class Gradient(torch.nn.Module):
    """Of a convolution whose result has the gradient `g`, by the weight or the input."""

    def __init__(self, which, shape):
        super().__init__()
        n, c, h, w, k, window, stride, padding = shape[:8]
        self.which, self.stride, self.padding, self.groups = which, stride, padding, groups_of(shape)
        each = c // self.groups
        weight = torch.randn(k or c, each, window, window, device="cuda", dtype=torch.bfloat16) * (each * window * window) ** -0.5
        self.register_buffer("weight", weight.to(memory_format=torch.channels_last))

    def forward(self, x, g):
        two, mask = [self.stride] * 2, [self.which == "input", self.which == "weight", False]
        made = torch.ops.aten.convolution_backward(g.permute(0, 3, 1, 2), x.permute(0, 3, 1, 2), self.weight, None, two, [self.padding] * 2, [1, 1], False, [0, 0], self.groups, mask)
        return made[0 if self.which == "input" else 1].permute(0, 2, 3, 1)

    def exact(self, x, g):
        """In float64, a few images at a time."""
        total, parts = 0, []
        for rows in range(0, len(x), 8):
            a, b = x[rows : rows + 8].double().permute(0, 3, 1, 2), g[rows : rows + 8].double().permute(0, 3, 1, 2)
            a, w = a.requires_grad_(self.which == "input"), self.weight.double().requires_grad_(self.which == "weight")
            y = torch.nn.functional.conv2d(a, w, None, self.stride, self.padding, 1, self.groups)
            (made,) = torch.autograd.grad(y, a if self.which == "input" else w, b)
            total, parts = (total, [*parts, made]) if self.which == "input" else (total + made, parts)
        return (torch.cat(parts) if parts else total).permute(0, 2, 3, 1)


def main():
    p = arguments(__doc__)
    p.add_argument("--only", default="")
    a = p.parse_args()
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    rows, bad = [], 0
    for shape in SHAPES:
        n, c, h, w, k, window, stride, padding = shape[:8]
        groups = groups_of(shape)
        for which in ("weight", "input"):
            name = f"{which} {n}x{h}x{w}x{c} to {k or 'each'}, {window}x{window} /{stride} +{padding}" + (f" of {groups} groups" if 1 < groups < c else "")
            # The first layer's input has no gradient.
            if not wanted(name, a.only) or which == "input" and c == 3:
                continue
            try:
                module = Gradient(which, shape)
                out = [(size + 2 * padding - window) // stride + 1 for size in (h, w)]
                inputs = [torch.randn(n, h, w, c, device="cuda", dtype=torch.bfloat16), torch.randn(n, *out, k or c, device="cuda", dtype=torch.bfloat16)]
                with tempfile.TemporaryDirectory() as folder:
                    mine = Kiln(a.kiln, folder, "case", module, inputs, ("--mode", "reduce-overhead"))
                    samples = {"kiln": [], "cudnn": []}
                    for _ in range(a.rounds):
                        samples["kiln"].append(mine(0.1))
                        samples["cudnn"].append(graph_us(module, inputs))
                    mine.close()
                exact = module.exact(*inputs)
                error, peer = (float((y.to("cuda").double() - exact).norm() / exact.norm()) for y in (mine.result, module(*inputs)))
                bad += not error <= 2 * peer + 1e-3
                text = ", ".join(f"{s} {statistics.median(v):.1f} us" for s, v in samples.items())
                flops = 2 * n * out[0] * out[1] * c * ((k or c) // groups) * window * window
                rate = flops / statistics.median(samples["kiln"]) / 1e6
                print(f"{name:44} {text}, ratio {ratio_text(samples['kiln'], samples['cudnn'])}, {rate:.0f} TFLOP/s, error {error:.1e} ({peer:.1e})", flush=True)
                rows.append({"item": name, "samples": samples, "error": error, "cudnn's error": peer})
            except Exception as e:  # goes on with the next item
                bad += 1
                print(f"{name:44} FAILS {type(e).__name__}: {str(e)[:400]}", flush=True)
    if a.out:
        json.dump(rows, open(a.out, "w"), indent=1)
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()
