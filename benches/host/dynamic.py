#!/usr/bin/env python3
"""Times programs with dynamic sizes against static ones: interleaved rounds, the median of paired
ratios dynamic / static.

    dynamic.py --kiln target/release/kiln [--items mm1024,softmax] [--threads 2] [--rounds 9] [--seconds 0.1]
"""
import argparse
import os
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import bench
import workloads

# The dynamic dimensions of each workload; equal names are one size.
OPEN = {
    "ew16m": [{0: "n"}] * 4,
    "softmax": [{0: "n"}],
    "layernorm": [{0: "n"}],
    "mm1024": [{0: "n"}, {}],
    "mm2048": [{0: "n"}, {}],
    "mmepi": [{0: "n"}],
    "conv": [{0: "n"}],
    "conv32": [{0: "n"}],
    "attn": [{0: "n"}] * 3,
    "block": [{0: "n"}],
    "bert_b8": [{0: "n"}],
}


def export(folder, name):
    import torch

    path = os.path.join(folder, name + ".open.pt2")
    if not os.path.exists(path):
        module, inputs = workloads.make(name)
        dims = {}
        shapes = tuple({d: dims.setdefault(n, torch.export.Dim(n, min=1, max=65536)) for d, n in one.items()} for one in OPEN[name])
        with torch.no_grad():
            torch.export.save(torch.export.export(module, inputs, dynamic_shapes=shapes), path)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kiln", default="target/release/kiln")
    parser.add_argument("--items", default=",".join(OPEN))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--folder", default="/tmp/kiln-bench")
    args = parser.parse_args()
    os.makedirs(args.folder, exist_ok=True)
    print("| item | fixed us | open us | open / fixed: median of paired ratios [range] |")
    print("| --- | --- | --- | --- |")
    for name in args.items.split(","):
        fixed, data = bench.prepare(args.folder, name), os.path.join(args.folder, name + ".safetensors")
        command = lambda path: [args.kiln, "bench", path, "--inputs", data, "--worker", "--threads", str(args.threads)]
        sides = [bench.Side(command(path), dict(os.environ)) for path in (fixed, export(args.folder, name))]
        times = [[], []]
        for r in range(args.rounds + 1):
            for i in (0, 1) if r % 2 == 0 else (1, 0):
                took = sides[i].burst(args.seconds)["median_us"]
                if r > 0:
                    times[i].append(took)
        ratios = [o / f for f, o in zip(*times)]
        fixed_us, open_us = (statistics.median(t) for t in times)
        print(f"| {name} | {fixed_us:.1f} | {open_us:.1f} | {statistics.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}] |", flush=True)
        for s in sides:
            s.close()


if __name__ == "__main__":
    main()
