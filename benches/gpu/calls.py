#!/usr/bin/env python3
"""What a call of a compiled function costs the processor: torch.compile(backend="kiln") beside TorchInductor, eager and a backend that does nothing.

    calls.py [--device cuda] [--rounds 9] [--calls 2000] [--growth 100000] [--out FILE.json]

The backend that does nothing returns a tensor made before; its call is Dynamo's guards and frame, which every backend pays. Sides take turns. A round is a loop of
calls whose results are dropped; on a GPU the host's time is that of calls that do not wait, in loops short enough that the queue of launches does not fill. Growth
is of memory between the first tenth of many calls and their end. Threads call one compiled function at once, and compare each result.
"""
import argparse, gc, json, statistics, threading, time, types

import torch
import torch._dynamo

import kiln_torch

FUNCTIONS = {
    "pointwise, 1 tensor": (lambda x: torch.sin(x) * 2 + 1, [(64, 64)]),
    "linear and ReLU, 3 tensors": (lambda x, w, b: torch.relu(x @ w + b), [(32, 64), (64, 64), (64,)]),
    "sum of 16 tensors": (lambda *xs: sum(xs[1:], xs[0]), [(64, 64)] * 16),
}
LOOP = 50


def sides(device):
    """Each side's name, with a function that compiles."""

    def nothing(graph, inputs):
        made = [torch.empty(64, 64, device=device)]
        return lambda *args: made

    yield "nothing", lambda f: torch.compile(f, backend=nothing)
    yield "eager", lambda f: f
    for mode in ("default", "reduce-overhead") if device == "cuda" else ("default",):
        yield f"Inductor {mode}", lambda f, mode=mode: torch.compile(f, mode=mode)
        yield f"kiln {mode}", lambda f, mode=mode: torch.compile(f, backend="kiln", mode=mode)


def microseconds(fn, args, calls, wait):
    """Of a call on the host, in loops between which the device finishes."""
    spent = 0.0
    for _ in range(calls // LOOP):
        wait()
        start = time.perf_counter()
        for _ in range(LOOP):
            fn(*args)
        spent += time.perf_counter() - start
    return spent / (calls // LOOP * LOOP) * 1e6


def memory(device):
    """Bytes of the process, and those that PyTorch has on the device."""
    gc.collect()
    resident = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmRSS"))
    return resident, torch.cuda.memory_allocated() if device == "cuda" else 0


def growth(fn, args, calls, device, wait):
    for _ in range(calls // 10):
        fn(*args)
    wait()
    before = memory(device)
    for k in range(calls):
        fn(*args)
        if k % 1000 == 0:
            wait()
    wait()
    return [after - b for after, b in zip(memory(device), before)]


def in_threads(fn, args, device, threads=16, calls=1000):
    """How many results of many threads' calls differ from one thread's."""
    with torch.no_grad():
        want, wrong = fn(*args), []

    def run():
        with torch.no_grad():
            wrong.extend(k for k in range(calls) if not torch.equal(fn(*args), want))

    all_of = [threading.Thread(target=run) for _ in range(threads)]
    for t in all_of:
        t.start()
    for t in all_of:
        t.join()
    return len(wrong)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--calls", type=int, default=2000)
    p.add_argument("--growth", type=int, default=100_000)
    p.add_argument("--out", default="")
    a = p.parse_args()
    wait = torch.cuda.synchronize if a.device == "cuda" else lambda: None
    torch.set_num_threads(1)
    rows = []
    for name, (f, shapes) in FUNCTIONS.items():
        args = [torch.randn(s, device=a.device) for s in shapes]
        with torch.no_grad():
            torch._dynamo.reset()
            fns, us = {}, {}
            for side, compiled in sides(a.device):
                # Of one code object Dynamo would try the entries of all backends.
                fns[side] = compiled(types.FunctionType(f.__code__.replace(co_name=f"side_{len(fns)}"), f.__globals__))
                for _ in range(5):
                    fns[side](*args)
            for _ in range(a.rounds):
                for side, fn in fns.items():
                    us.setdefault(side, []).append(microseconds(fn, args, a.calls, wait))
        print(name)
        for side, all_of in us.items():
            # Of each round, since the processor's clock may change between rounds.
            beyond = [t - nothing for t, nothing in zip(all_of, us["nothing"])]
            print(f"  {side:26} {statistics.median(all_of):7.2f} us, beyond Dynamo's {statistics.median(beyond):7.2f} ({min(beyond):.2f} to {max(beyond):.2f})", flush=True)
        rows.append({"name": name, "us": us})
    f, shapes = FUNCTIONS["linear and ReLU, 3 tensors"]
    args = [torch.randn(s, device=a.device) for s in shapes]
    fn = torch.compile(f, backend="kiln")
    with torch.no_grad():
        fn(*args)
        grown = growth(fn, args, a.growth, a.device, wait)
    wrong = in_threads(fn, args, a.device)
    print(f"{a.growth} calls: the process grows by {grown[0]} bytes, the device's memory by {grown[1]}; 16 threads of 1000 calls: {wrong} results differ")
    rows.append({"name": "growth", "calls": a.growth, "process": grown[0], "device": grown[1], "wrong": wrong})
    if a.out:
        open(a.out, "w").write(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
