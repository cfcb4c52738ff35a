#!/usr/bin/env python3
"""A linear layer and the cross entropy of its logits, forward and backward, on a GPU: time, and memory beside inputs and gradients.

    loss_head.py [--shapes 8192x2048x128256,…] [--rounds 7] [--calls 3] [--dtypes bfloat16,autocast] [--sides eager,…] [--chunk-bytes 64M,256M] [--out FILE.json]

`bfloat16` has weights in bf16; `autocast` has them in f32 under bf16 autocast, and logits that become f32 before the loss, as Hugging Face's models do.
One label in 16 is ignored. Sides are eager, Inductor, kiln and kiln with `chunk_bytes=0`, which stores the logits, and kiln with each of `--chunk-bytes`.
Times are medians of CUDA events around `--calls` calls, the sides taking turns. Memory is the most that PyTorch has allocated in a call beside what was
allocated before it and the gradients. Results are compared with a loss and gradients in f32 from chunks of rows: `error` is the norm of the difference
over the norm. Goes on after failures; the exit code is 0 if all agree.
"""
import argparse, gc, json, statistics, sys, time

import torch

import kiln_torch  # noqa: F401

F = torch.nn.functional
MOST = {"loss": 1e-2, "x": 2e-2, "weight": 2e-2}
"""Largest errors, by what they are of."""


def head(x, weight, target, autocast):
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=autocast):
        logits = F.linear(x, weight)
    return F.cross_entropy(logits.float(), target, ignore_index=-100)


def exact(x, weight, target):
    """The loss and its gradients, in f32, 256 rows at a time."""
    count, w = (target != -100).sum(), weight.detach().float()
    by_x, by_w, loss = torch.empty_like(x, dtype=torch.float32), torch.zeros_like(w), torch.zeros((), device="cuda")
    for rows in range(0, len(x), 256):
        part, own = x.detach()[rows : rows + 256].float(), target[rows : rows + 256]
        logits = (part @ w.T).requires_grad_()
        total = F.cross_entropy(logits, own, ignore_index=-100, reduction="sum") / count
        (by_logits,) = torch.autograd.grad(total, logits)
        loss += total.detach()
        by_x[rows : rows + 256] = by_logits @ w
        by_w += by_logits.T @ part
    return {"loss": loss, "x": by_x, "weight": by_w}


def error(a, b):
    return ((a.float() - b).norm() / b.norm()).item()


def step(fn, inputs):
    x, weight, target = inputs
    x.grad = weight.grad = None
    loss = fn(x, weight, target)
    loss.backward()
    return loss.detach()


def sides(a):
    yield "eager", lambda f: f
    yield "Inductor", lambda f: torch.compile(f, dynamic=False)
    yield "kiln", lambda f: torch.compile(f, backend="kiln", dynamic=False)
    yield "kiln, logits stored", lambda f: torch.compile(f, backend="kiln", dynamic=False, options={"chunk_bytes": 0})
    for limit in filter(None, a.chunk_bytes.split(",")):
        yield f"kiln {limit}", lambda f, limit=limit: torch.compile(f, backend="kiln", dynamic=False, options={"chunk_bytes": limit})


def measure(a, shape, dtype):
    rows, width, classes = map(int, shape.split("x"))
    autocast = dtype == "autocast"
    kind = torch.float32 if autocast else getattr(torch, dtype)
    torch.manual_seed(0)
    x = torch.randn(rows, width, device="cuda", dtype=kind).requires_grad_()
    weight = (torch.randn(classes, width, device="cuda", dtype=kind) * width**-0.5).requires_grad_()
    target = torch.randint(0, classes, (rows,), device="cuda")
    target[::16] = -100
    inputs, want = (x, weight, target), exact(x, weight, target)
    gradients = x.numel() * x.element_size() + weight.numel() * weight.element_size()
    fns, found, wrong = {}, {}, []
    for name, make in sides(a):
        if a.sides and name not in a.sides.split(","):
            continue
        try:
            torch._dynamo.reset()
            gc.collect()
            start = time.perf_counter()
            fn = make(lambda x, weight, target: head(x, weight, target, autocast))
            step(fn, inputs)
            torch.cuda.synchronize()
            first = time.perf_counter() - start
            step(fn, inputs)
            x.grad = weight.grad = None
            gc.collect()
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            loss = step(fn, inputs)
            torch.cuda.synchronize()
            beside = torch.cuda.max_memory_allocated() - before - gradients
            errors = {"loss": error(loss, want["loss"]), "x": error(x.grad, want["x"]), "weight": error(weight.grad, want["weight"])}
            wrong += [f"{name}: {what}" for what, e in errors.items() if not e <= MOST[what]]
            fns[name] = fn
            found[name] = {"first_s": first, "beside_gib": beside / 2**30, "errors": errors, "ms": []}
        except Exception as failure:  # the others are measured
            wrong.append(f"{name}: {type(failure).__name__}: {failure}")
            print(f"{shape} {dtype} {wrong[-1]}", file=sys.stderr)
        x.grad = weight.grad = None
    for _ in range(a.rounds):
        for name, fn in fns.items():
            step(fn, inputs)
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(a.calls):
                step(fn, inputs)
            end.record()
            torch.cuda.synchronize()
            found[name]["ms"].append(begin.elapsed_time(end) / a.calls)
            x.grad = weight.grad = None
    for name, row in found.items():
        errors = " ".join(f"{what} {e:.1e}" for what, e in row["errors"].items())
        ms = row["ms"]
        print(f"{shape:18} {dtype:9} {name:20} {statistics.median(ms):8.2f} ms ({min(ms):.2f} to {max(ms):.2f})  {row['beside_gib']:6.3f} GiB  first {row['first_s']:6.1f} s  errors {errors}", flush=True)
    return {"shape": shape, "dtype": dtype, "sides": found, "wrong": wrong}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="8192x2048x128256,5000x1536x50257")
    parser.add_argument("--dtypes", default="bfloat16,autocast")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=3)
    parser.add_argument("--sides", default="")
    parser.add_argument("--chunk-bytes", default="")
    parser.add_argument("--out")
    a = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    rows = [measure(a, shape, dtype) for shape in a.shapes.split(",") for dtype in a.dtypes.split(",")]
    if a.out:
        with open(a.out, "w") as out:
            json.dump({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows}, out, indent=1)
    wrong = [w for row in rows for w in row["wrong"]]
    print("\n".join(wrong) or "all agree")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
