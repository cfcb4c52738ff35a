#!/usr/bin/env python3
"""A step of AdamW over the weights of a model: `torch.compile(optimizer.step)` by kiln and TorchInductor, beside PyTorch's fused kernels.

    optimizers.py [--sides fused,inductor,kiln] [--models llama,gpt2] [--rounds 9] [--out FILE.json]

Weights, gradients and states are in f32: a step reads 16 bytes of each and writes 12. Sides take turns; a round is ten steps between two events. The sum of a
step's kernels is the profiler's.
"""
import argparse, json, math, statistics, time

import torch
import torch._dynamo

import kiln_torch

BYTES = 28
LLAMA = [(2048, 2048), (512, 2048), (512, 2048), (2048, 2048), (8192, 2048), (8192, 2048), (2048, 8192), (2048,), (2048,)]
GPT2 = [(768,), (768,), (2304, 768), (2304,), (768, 768), (768,), (768,), (768,), (3072, 768), (3072,), (768, 3072), (768,)]
MODELS = {
    # Of the embedding a quarter.
    "llama": [(32064, 2048), *LLAMA * 16, (2048,)],
    "gpt2": [(50257, 768), (1024, 768), *GPT2 * 12, (768,), (768,)],
}


def step_of(shapes, side):
    torch.manual_seed(0)
    weights = [torch.nn.Parameter(torch.randn(size, device="cuda") / 50) for size in shapes]
    for w in weights:
        w.grad = torch.randn_like(w)
    optimizer = torch.optim.AdamW(weights, lr=1e-3, fused=side == "fused", foreach=None if side == "fused" else True)
    return weights, optimizer.step if side == "fused" else torch.compile(optimizer.step, backend=side)


def milliseconds(step, steps=10):
    start, end = torch.cuda.Event(True), torch.cuda.Event(True)
    start.record()
    for _ in range(steps):
        step()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / steps


def kernels(step):
    """Number and milliseconds of a step's kernels."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step()
        torch.cuda.synchronize()
    spent = [e.time_range.elapsed_us() for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    return len(spent), sum(spent) / 1e3


def measure(name, sides, rounds):
    made, first, weights = {}, {}, {}
    for side in sides:
        start = time.perf_counter()
        weights[side], made[side] = step_of(MODELS[name], side)
        for _ in range(4):
            made[side]()
        torch.cuda.synchronize()
        first[side] = time.perf_counter() - start
    reference = weights[sides[0]]
    error = {side: max((a - b).abs().max().item() for a, b in zip(weights[side], reference)) for side in sides}
    times = {side: [] for side in sides}
    for _ in range(rounds):
        for side in sides:
            times[side].append(milliseconds(made[side]))
    elements = sum(map(math.prod, MODELS[name]))
    rows = []
    for side in sides:
        count, busy = kernels(made[side])
        median = statistics.median(times[side])
        rate = lambda ms: elements * BYTES / ms / 1e9
        row = {"model": name, "side": side, "ms": median, "range": [min(times[side]), max(times[side])], "TB/s": rate(median), "kernels": count}
        rows.append(row | {"kernels_ms": busy, "kernels_TB/s": rate(busy), "first_s": first[side], "off": error[side]})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sides", default="fused,inductor,kiln")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out")
    a = parser.parse_args()
    print(torch.cuda.get_device_name(), torch.__version__, kiln_torch.__version__)
    # Each model and side is a function of its own.
    torch._dynamo.config.recompile_limit = 64
    rows = [row for name in a.models.split(",") for row in measure(name, a.sides.split(","), a.rounds)]
    if a.out:
        with open(a.out, "w") as file:
            json.dump(rows, file, indent=1)


main()
