#!/usr/bin/env python3
"""Attention with a bias or a mask in memory, on a GPU: torch.compile(backend="kiln") beside PyTorch's own kernels.

    attention_bias.py [--rounds 5] [--only REGEX] [--results FILE.json]

The bias has an element for each query and key, of one batch entry or of all, in bf16; `bool` is a mask. PyTorch's scaled_dot_product_attention takes it by
cuDNN or by its memory-efficient kernel; flash attention takes none. Times are of all kernels of a call, by the profiler, the sides taking turns; the ratio is
the median of those of the rounds. Results are compared with float32: kiln may be off twice as far as eager, and 5e-3 besides.
"""
import argparse, json, re, statistics
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import kiln_torch  # noqa: F401, the backend

GPU, BF16, CALLS = "cuda", torch.bfloat16, 10
# batch, heads, tokens, head size, batch entries of the bias, its heads
SHAPES = [
    (64, 12, 196, 32, 1, 12), (64, 24, 49, 32, 1, 24), (64, 12, 197, 64, 1, 12), (16, 12, 577, 64, 1, 12), (8, 16, 1024, 64, 1, 16), (8, 8, 1500, 64, 8, 1),
    (4, 16, 2048, 64, 1, 16), (4, 16, 2048, 128, 1, 16), (4, 16, 2048, 128, "bool", 1), (8, 16, 2048, 64, "bool", 1),
]
PEERS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "memory-efficient": SDPBackend.EFFICIENT_ATTENTION}


def attention(q, k, v, bias):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)


def kernels_us(call):
    """The time of a call's kernels."""
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(CALLS):
            call()
        torch.cuda.synchronize()
    return sum(e.self_device_time_total for e in found.key_averages()) / CALLS


def measure(rounds, b, h, n, d, entries, heads):
    torch.manual_seed(0)
    torch._dynamo.reset()
    q, k, v = (torch.randn(b, h, n, d, device=GPU, dtype=BF16) for _ in range(3))
    masked = entries == "bool"
    bias = torch.rand(b, 1, n, n, device=GPU) < 0.7 if masked else torch.randn(entries, heads, n, n, device=GPU).to(BF16)
    fast = torch.compile(attention, backend="kiln")
    sides = {"kiln": lambda: fast(q, k, v, bias)}
    for name, backend in PEERS.items():
        def peer(backend=backend):
            with sdpa_kernel([backend]):
                return attention(q, k, v, bias)

        sides[name] = peer
    first = lambda x: x[:1] if x.dtype == torch.bool else x[:1].float()
    with torch.no_grad():
        exact = attention(*map(first, (q, k, v, bias)))
        off = lambda y: float((y[:1].float() - exact).norm() / exact.norm())
        errors = {name: off(side()) for name, side in sides.items()}
        for side in sides.values():
            side()
        us = {name: [] for name in sides}
        for _ in range(rounds):
            for name, side in sides.items():
                us[name].append(kernels_us(side))
    if errors["kiln"] > 2 * errors["cuDNN"] + 5e-3:
        raise RuntimeError(f"is off by {errors['kiln']:.1e}, cuDNN by {errors['cuDNN']:.1e}")
    kiln, peers = us.pop("kiln"), {}
    for name, times in us.items():
        each = sorted(x / y for x, y in zip(kiln, times))
        peers[name] = {"time": round(statistics.median(times), 1), "ratio": round(statistics.median(each), 2), "low": round(each[0], 2), "high": round(each[-1], 2)}
    form = "bool" if masked else f"{entries}x{heads}"
    values = {"flops": str(round(4 * b * h * n * n * d / statistics.median(kiln) / 1e6)), "error": f"{errors['kiln']:.1e} ({errors['cuDNN']:.1e})"}
    return {"name": f"{b}x{h}x{n} d{d}, {form}", "shape": "", "kiln": round(statistics.median(kiln), 1), "peers": peers, "values": values}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--only", default="")
    p.add_argument("--results", help="a file of benches/results whose rows are replaced")
    a = p.parse_args()
    rows = []
    for shape in SHAPES:
        if re.search(a.only, "x".join(map(str, shape))):
            rows.append(measure(a.rounds, *shape))
            print(json.dumps(rows[-1]), flush=True)
    if a.results:
        suite = json.loads(Path(a.results).read_text())
        Path(a.results).write_text(json.dumps({**suite, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
