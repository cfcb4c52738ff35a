#!/usr/bin/env python3
"""torch.compile(backend="kiln") beside eager and TorchInductor on a GPU, inference and training, in one process.

    backend.py [--items resnet50_b32,…] [--training gpt2_b8_s1024,…] [--rounds 5] [--inductor default,reduce-overhead] [--kiln default,train_attention=true] [--kernels 12] [--out FILE.json]

Weights and inputs are random. Inference is in bf16, training under bf16 autocast with the fused AdamW. Results of inference and losses of training are
compared with the same in f32: a backend may be off twice as far as eager's bf16, and 1e-2 besides. Times are medians of CUDA events around calls in a
row, the sides taking turns. Memory is the most that PyTorch has allocated in a call. Goes on after failures; the exit code is 0 if all agree.
"""
import argparse, copy, gc, statistics, time

import torch

import kiln_torch
from bench import GPU, kernel_us
from models import ITEMS, OneResult, run_all


def sides(a, model):
    """Each side's name, with a function that compiles a model."""
    yield "eager", lambda m: m
    for mode in filter(None, a.inductor.split(",")):
        yield f"Inductor {mode}", lambda m, mode=mode: torch.compile(m, mode=mode)
    for mode in filter(None, a.kiln.split(",")):
        options = dict(option.split("=") for option in mode.split("+") if "=" in option)
        how = {"options": {name: value == "true" for name, value in options.items()}} if options else {"mode": mode}
        yield f"kiln {mode}", lambda m, how=how: torch.compile(m, backend="kiln", **how)
    if a.freezing:
        yield "kiln frozen", lambda m: torch.compile(m, backend="kiln", options={"freezing": True, "mode": "reduce-overhead"})


def timed(make, inputs, call):
    """A compiled function, the seconds of its first call and of its phases, the most GiB that a later call has allocated beside what the sides before
    keep, and its result."""
    torch._dynamo.reset()
    torch._dynamo.utils.compilation_time_metrics.clear()
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    start, fn = time.perf_counter(), make()
    call(fn, inputs)
    torch.cuda.synchronize()
    first = {"first_s": time.perf_counter() - start, **phases()}
    call(fn, inputs)
    torch.cuda.reset_peak_memory_stats()
    result = call(fn, inputs)
    torch.cuda.synchronize()
    return fn, first, (torch.cuda.max_memory_allocated() - before) / 2**30, result.float().cpu()


def phases():
    """Seconds of the phases of a first call: Dynamo alone, the backend with AOTAutograd, the compiler itself."""
    spent = {name: sum(times) for name, times in torch._dynamo.utils.compilation_time_metrics.items()}
    backend = spent.get("OutputGraph.call_user_compiler", 0)
    compiler = spent.get("kiln_compile", 0) + spent.get("compile_fx_inner", 0)
    return {"dynamo_s": spent.get("_compile.compile_inner", 0) - backend, "backend_s": backend, "compiler_s": compiler}


def kernels_of(call, most):
    """The kernels that take most of a call: name, launches, ms; the first is all of them."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as found:
        call()
        torch.cuda.synchronize()
    all_of = sorted(((e.key, e.count, e.self_device_time_total / 1e3) for e in found.key_averages()), key=lambda e: -e[2])
    return [("all", sum(e[1] for e in all_of), sum(e[2] for e in all_of)), *all_of[:most]]


def infer(fn, inputs):
    with torch.no_grad():
        return fn(*inputs)


class Step:
    """A training step: loss, gradients, optimizer."""

    def __init__(self, model, compiled):
        self.model = model
        self.fn = compiled(lambda *inputs: self.loss(*inputs))
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def loss(self, *inputs):
        with torch.autocast("cuda", torch.bfloat16):
            y = self.model(*inputs)
        return y.float().square().mean()

    def __call__(self, *inputs):
        with torch.enable_grad():
            self.optimizer.zero_grad()
            loss = self.fn(*inputs)
            loss.backward()
            self.optimizer.step()
        return loss.detach()


def compare(a, name, training):
    torch.manual_seed(0)
    model, inputs = ITEMS[name]()
    model = OneResult(model).to(GPU)
    model = model.train() if training else model.eval()
    for m in model.modules():
        if isinstance(m, torch.nn.Dropout):
            m.p = 0.0
        # timm's stochastic depth, whose draws differ between the sides.
        if isinstance(getattr(m, "drop_prob", None), float):
            m.drop_prob = 0.0
    inputs = [x.to(GPU) for x in inputs]
    row = {"item": name, "training": training, "sides": {}}
    if training:
        call = lambda fn, xs: fn(*xs)
        exact = model(*inputs).float().square().mean().detach().cpu()
        made = lambda compiled: lambda: Step(copy.deepcopy(model), compiled)
    else:
        call, exact = infer, infer(model, inputs).cpu()
        model = model.to(torch.bfloat16)
        inputs = [x.to(torch.bfloat16) if x.is_floating_point() else x for x in inputs]
        made = lambda compiled: lambda: compiled(model)
    fns = {}
    for side, compiled in sides(a, model):
        kiln_torch.reports.clear()
        try:
            fns[side], first, peak, result = timed(made(compiled), inputs, call)
        except Exception as e:
            row.setdefault("failed", {})[side] = f"{type(e).__name__}: {str(e)[:300]}"
            print(f"{name:20} {side} FAILS {row['failed'][side]}", flush=True)
            continue
        # Of a training step the loss of the third, which the updates before have lowered alike.
        reference = exact if not training else row["sides"].get("eager", {}).get("loss", result.item())
        # A head that is initialised with zeros gives zeros.
        scale = float(exact.norm() if not training else abs(reference)) or 1.0
        error = float((result - reference).norm()) / scale
        row["sides"][side] = {**first, "peak_GiB": peak, "error": error, "us": []}
        if training:
            row["sides"][side]["loss"] = result.item()
        if kiln_torch.reports:
            row["sides"][side]["graphs"] = [[r.kind, r.programs, r.kernels, len(r.eager)] for r in kiln_torch.reports]
            row["sides"][side]["eager_ops"] = sorted({op.split(" at ")[0] for r in kiln_torch.reports for op in r.eager})
            row["sides"][side]["gradients"] = sorted({r.gradients for r in kiln_torch.reports})
    allowed = 2 * row["sides"]["eager"]["error"] + 1e-2
    once = lambda fn: kernel_us(lambda *xs: call(fn, xs), inputs, 10)
    for fn in fns.values():
        once(fn)
    for _ in range(a.rounds):
        for side, fn in fns.items():
            row["sides"][side]["us"].append(once(fn))
    if a.kernels:
        for side, fn in fns.items():
            row["sides"][side]["kernels"] = kernels_of(lambda: call(fn, inputs), a.kernels)
    row["agrees"] = all(s["error"] <= allowed for s in row["sides"].values())
    report(row)
    return row


def report(row):
    print(f"{row['item']} {'training' if row['training'] else 'inference'} {'agrees' if row['agrees'] else 'DIFFERS'}")
    best = min((statistics.median(s["us"]) for n, s in row["sides"].items() if n.startswith("Inductor")), default=None)
    for name, s in row["sides"].items():
        us = statistics.median(s["us"])
        ratio = f"{us / best:5.2f} of Inductor's best" if best and name.startswith("kiln") else ""
        print(f"  {name:26} {us / 1e3:8.3f} ms ({min(s['us']) / 1e3:.3f} to {max(s['us']) / 1e3:.3f}), first {s['first_s']:6.1f} s (compiler {s['compiler_s']:.1f} s), {s['peak_GiB']:6.2f} GiB, "
              f"error {s['error']:.1e} {ratio} {s.get('graphs', '')} {s.get('eager_ops', '')} {s.get('gradients', '')}", flush=True)
        for kernel, launches, ms in s.get("kernels", []):
            print(f"    {ms:9.3f} ms {launches:5} x {kernel[:100]}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--items", default="resnet50_b32,vit_base_b32,bert_base_b16_s512,gpt2_b8_s1024")
    p.add_argument("--training", default="gpt2_b8_s1024,bert_base_b16_s512,vit_base_b32,resnet50_b32")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--inductor", default="default,reduce-overhead")
    p.add_argument("--kiln", default="default,reduce-overhead")
    p.add_argument("--freezing", action="store_true", help="kiln with frozen parameters too")
    p.add_argument("--kernels", type=int, default=0, help="lists that many kernels of each side, those that take most of a call")
    p.add_argument("--out", default="")
    a = p.parse_args()
    chosen = [(name, False) for name in a.items.split(",") if name] + [(name, True) for name in a.training.split(",") if name]
    run_all([(name, (a, name, training)) for name, training in chosen], compare, a.out)


if __name__ == "__main__":
    main()
