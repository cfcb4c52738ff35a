#!/usr/bin/env python3
"""Times kiln against its peers: one process per peer, interleaved rounds, the median of paired ratios.

    bench.py --kiln target/release/kiln [--items mm1024,softmax] [--peers eager,inductor] [--threads 2] [--rounds 9] [--out FILE.json]

Every workload is exported once to a .pt2 archive with its inputs and PyTorch's float64 result. A worker starts its stack, compiles, makes the
first call (timed from the start of the process's own work), checks its result against the reference, and then sleeps on a pipe. Rounds wake one
worker after the other for a burst; a ratio is kiln's median of a round over the peer's in the same round, and the table holds the median of the
ratios with their range. Peers write to outputs that they keep (eager: out= where torch has it, else its allocator's); kiln writes to memory of
the caller. Frozen is compared with frozen: kiln packs weights at load, inductor-frz, onnxruntime, OpenVINO and IREE do the same.
A peer whose package is missing is skipped. --python PEER=PATH gives a peer another interpreter. --isa avx2 holds all that can be held to AVX2: torch,
oneDNN and MKL, OpenVINO, XLA, IREE and kiln; onnxruntime has no switch and is left out.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# Limits each peer to 256-bit vectors by its documented switch; kiln and IREE get the CPU name instead.
AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "DNNL_MAX_CPU_ISA": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "BENCH_CPU": "haswell"}
PEERS = ["eager", "inductor", "inductor-frz", "jax", "ort", "openvino", "iree"]


def prepare(folder, name):
    """Exports a workload; returns the archive's path."""
    sys.path.insert(0, HERE)
    import safetensors.torch
    import torch
    import workloads

    path = os.path.join(folder, name + ".pt2")
    if os.path.exists(path):
        return path
    module, inputs = workloads.make(name)
    with torch.no_grad():
        torch.export.save(torch.export.export(module, inputs), path)
        exact = [t.double() if t.is_floating_point() else t for t in inputs]
        reference = module.double()(*exact)
    tensors = {f"input_{i}": t.contiguous().clone() for i, t in enumerate(inputs)}
    safetensors.torch.save_file(tensors, os.path.join(folder, name + ".safetensors"))
    torch.save(reference, os.path.join(folder, name + ".ref"))
    return path


def onnx(folder, name):
    import torch
    import workloads

    path = os.path.join(folder, name + ".onnx")
    if not os.path.exists(path):
        module, inputs = workloads.make(name)
        torch.onnx.export(module, inputs, path, dynamo=True, external_data=False)
    return path


def torch_side(peer, name, threads):
    import torch
    import workloads

    torch.set_num_threads(threads)
    module, inputs = workloads.make(name)
    if peer != "eager":
        torch._inductor.config.freezing = peer.endswith("frz")
        module = torch.compile(module, dynamic=False)
    def call():
        with torch.no_grad():
            return module(*inputs)
    return call, lambda r: r


def jax_side(name, threads, folder):
    import jax
    import jax.numpy as jnp
    import numpy as np

    data = dict(np.load(os.path.join(folder, name + ".npz")))
    x = [jnp.asarray(data[f"input_{i}"]) for i in range(len([k for k in data if k.startswith("input_")]))]
    gelu = lambda v: jax.nn.gelu(v, approximate=False)
    def attention(q, k, v):
        s = q @ jnp.swapaxes(k, -1, -2) / jnp.sqrt(jnp.float32(q.shape[-1]))
        n = s.shape[-1]
        return jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((n, n), bool)), s, -jnp.inf), -1) @ v
    def norm(v):
        m = v.mean(-1, keepdims=True)
        return (v - m) / jnp.sqrt(((v - m) ** 2).mean(-1, keepdims=True) + 1e-5) * data["norm.weight"] + data["norm.bias"]
    def conv(v):
        r = jax.lax.conv_general_dilated(v, data["conv.weight"], (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"))
        return jnp.maximum(r + data["conv.bias"][None, :, None, None], 0)
    functions = {
        "ew": lambda a, b, c, d: gelu(a * b + c) * jax.nn.sigmoid(d), "softmax": lambda v: jax.nn.softmax(v, -1), "layernorm": norm,
        "mmepi": lambda v: jnp.maximum(v @ data["weight"] + data["bias"], 0), "mm": lambda a, b: a @ b, "conv": conv, "attn": attention,
    }
    key = next(k for k in functions if name.startswith(k))
    if name.endswith("bf16"):
        x = [v.astype(jnp.bfloat16) for v in x]
    f = jax.jit(functions[key])
    return lambda: f(*x).block_until_ready(), lambda r: np.asarray(r.astype(jnp.float32))


def ort_side(name, threads, folder):
    import numpy as np
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(os.path.join(folder, name + ".onnx"), options, providers=["CPUExecutionProvider"])
    data = dict(np.load(os.path.join(folder, name + ".npz")))
    binding = session.io_binding()
    for i, one in enumerate(session.get_inputs()):
        binding.bind_cpu_input(one.name, data[f"input_{i}"])
    shape = np.load(os.path.join(folder, name + ".shape.npy"))
    out = ort.OrtValue.ortvalue_from_numpy(np.zeros(shape, np.float32))
    binding.bind_ortvalue_output(session.get_outputs()[0].name, out)
    return lambda: (session.run_with_iobinding(binding), out)[1], lambda r: r.numpy()


def openvino_side(name, threads, folder):
    import numpy as np
    import openvino as ov

    core = ov.Core()
    config = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads}
    request = core.compile_model(os.path.join(folder, name + ".onnx"), "CPU", config).create_infer_request()
    data = dict(np.load(os.path.join(folder, name + ".npz")))
    for i in range(len([k for k in data if k.startswith("input_")])):
        request.set_input_tensor(i, ov.Tensor(data[f"input_{i}"], shared_memory=True))
    # The request's tensors do not own the arrays.
    def call(arrays=data):
        request.infer()
        return request.get_output_tensor(0)
    return call, lambda r: r.data


def iree_side(name, threads, folder):
    import iree.compiler as compiler
    import iree.runtime as rt
    import numpy as np

    path = os.path.join(folder, name + ".onnx")
    subprocess.run([sys.executable, "-m", "iree.compiler.tools.import_onnx", path, "-o", path + ".mlir"], check=True)
    options = [f"--iree-llvmcpu-target-cpu={os.environ.get('BENCH_CPU', 'host')}", "--iree-opt-data-tiling", "--iree-opt-const-eval"]
    code = compiler.compile_file(path + ".mlir", target_backends=["llvm-cpu"], extra_args=options)
    rt.flags.parse_flags(f"--task_topology_group_count={threads}")
    config = rt.Config("local-task")
    module = rt.VmModule.copy_buffer(config.vm_instance, code)
    context = rt.SystemContext(vm_modules=[rt.create_hal_module(config.vm_instance, config.device), module], config=config)
    f = context.modules.module["main_graph"]
    data = dict(np.load(os.path.join(folder, name + ".npz")))
    x = [rt.asdevicearray(config.device, data[f"input_{i}"]) for i in range(len([k for k in data if k.startswith("input_")]))]
    return lambda: f(*x), lambda r: r.to_host()


def worker(peer, name, threads, folder):
    sys.path.insert(0, HERE)
    start = time.perf_counter()
    if peer in ("eager", "inductor", "inductor-frz"):
        call, numbers = torch_side(peer, name, threads)
    else:
        call, numbers = {"jax": jax_side, "ort": ort_side, "openvino": openvino_side, "iree": iree_side}[peer](name, threads, folder)
    result = call()
    first = time.perf_counter() - start
    import numpy as np

    result = numbers(result)
    if not isinstance(result, np.ndarray):
        result = result.float().numpy()
    np.save(os.path.join(folder, f"{name}.{peer}.npy"), result)
    print(json.dumps({"first_s": first}), flush=True)
    serve(call)


def serve(call):
    """Answers each line of standard input, seconds of a burst, with the times of the calls in it."""
    for line in sys.stdin:
        seconds, times, begin = float(line), [], time.perf_counter()
        while len(times) < 3 or time.perf_counter() - begin < seconds:
            one = time.perf_counter()
            call()
            times.append(time.perf_counter() - one)
        print(json.dumps({"median_us": statistics.median(times) * 1e6, "least_us": min(times) * 1e6, "calls": len(times)}), flush=True)


class Side:
    """A worker process."""

    def __init__(self, command, env):
        self.log = open(os.devnull, "w") if not os.environ.get("BENCH_LOG") else open(os.environ["BENCH_LOG"], "a")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, env=env)
        self.first = self.answer()

    def answer(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise RuntimeError("ended")

    def burst(self, seconds):
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def compare(folder, name, have):
    """Error against the float64 reference."""
    import numpy as np
    import torch
    import workloads

    want = torch.load(os.path.join(folder, name + ".ref"))
    return workloads.error(torch.from_numpy(np.asarray(have, dtype=np.float32)).reshape(want.shape), want)


def kiln_result(args, path, name):
    import safetensors.torch

    out = os.path.join(args.folder, name + ".kiln.safetensors")
    command = [args.kiln, "run", path, "--inputs", path[:-4] + ".safetensors", "--outputs", out, "--repeat", "1", "--threads", str(args.threads), *args.target]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return safetensors.torch.load_file(out)["output_0"].float().numpy()


def measure(args, name):
    import numpy as np
    import torch
    import workloads

    path = prepare(args.folder, name)
    module, inputs = workloads.make(name)
    arrays = {f"input_{i}": t.float().numpy() if t.is_floating_point() else t.numpy() for i, t in enumerate(inputs)}
    arrays.update({k: v.detach().numpy() for k, v in module.named_parameters()} if len(list(module.parameters())) < 3 else {})
    np.savez(os.path.join(args.folder, name + ".npz"), **arrays)
    np.save(os.path.join(args.folder, name + ".shape.npy"), np.array(torch.load(os.path.join(args.folder, name + ".ref")).shape))
    env = dict(os.environ, OMP_NUM_THREADS=str(args.threads), MKL_NUM_THREADS=str(args.threads), XLA_FLAGS=f"--xla_cpu_multi_thread_eigen={'true' if args.threads > 1 else 'false'}")
    env.update({"MALLOC_MMAP_THRESHOLD_": "1000000000", "MALLOC_TRIM_THRESHOLD_": "2000000000", "MALLOC_TOP_PAD_": "500000000"})
    if args.isa == "avx2":
        env.update(AVX2, XLA_FLAGS=env["XLA_FLAGS"] + " --xla_cpu_max_isa=AVX2")
    sides, row, tolerance = {}, {"item": name, "peers": {}}, workloads.TOLERANCE.get(name, 1e-3)
    error = compare(args.folder, name, kiln_result(args, path, name))
    row["error"] = error
    if error > tolerance:
        row["wrong"] = True
    kiln = [args.kiln, "bench", path, "--inputs", path[:-4] + ".safetensors", "--worker", "--threads", str(args.threads), *args.target]
    for cold in (True, False):
        one = Side(kiln + (["--no-cache"] if cold else []), env)
        row["cold_s" if cold else "warm_s"] = one.first["first_s"]
        one.close()
    sides["kiln"] = Side(kiln, env)
    for peer in args.peers:
        python = args.python.get(peer, sys.executable)
        try:
            if peer in ("ort", "openvino", "iree"):
                onnx(args.folder, name)
            sides[peer] = Side([python, os.path.abspath(__file__), "--worker", peer, name, str(args.threads), args.folder], env)
            row["peers"][peer] = {"first_s": sides[peer].first["first_s"], "error": compare(args.folder, name, np.load(os.path.join(args.folder, f"{name}.{peer}.npy")))}
        except Exception as e:  # a missing package, or an op that the peer does not know
            print(f"{name}: {peer} skipped: {str(e).splitlines()[0][:100] if str(e) else type(e).__name__}", file=sys.stderr)
    samples = {s: [] for s in sides}
    for s in sides.values():
        s.burst(args.seconds)
    for r in range(args.rounds):
        order = list(sides) if r % 2 == 0 else list(sides)[::-1]
        for s in order:
            samples[s].append(sides[s].burst(args.seconds)["median_us"])
    for s in sides.values():
        s.close()
    row["kiln_us"] = statistics.median(samples["kiln"])
    flops, moved = workloads.WORKLOADS[name][1:]
    row["gflops"] = flops / row["kiln_us"] / 1e3 if flops else None
    row["gbytes"] = moved / row["kiln_us"] / 1e3 if moved else None
    for peer in row["peers"]:
        ratios = [k / p for k, p in zip(samples["kiln"], samples[peer])]
        row["peers"][peer].update(us=statistics.median(samples[peer]), ratio=statistics.median(ratios), range=[min(ratios), max(ratios)])
    return row


def table(rows):
    print("| item | kiln us | rate | error | cold s | warm s | kiln / peer: median of paired ratios [range] |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for r in rows:
        rate = f"{r['gflops']:.0f} GF/s" if r["gflops"] else f"{r['gbytes']:.1f} GB/s" if r["gbytes"] else ""
        peers = sorted(((n, p) for n, p in r["peers"].items() if "ratio" in p), key=lambda x: -x[1]["ratio"])
        text = "; ".join(f"{n} {p['ratio']:.2f} [{p['range'][0]:.2f}, {p['range'][1]:.2f}]" for n, p in peers)
        print(f"| {r['item']} | {r['kiln_us']:.1f} | {rate} | {r['error']:.1e}{' WRONG' if r.get('wrong') else ''} | {r['cold_s']:.2f} | {r['warm_s']:.3f} | {text} |")


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "--worker":
        return worker(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kiln", default="target/release/kiln")
    parser.add_argument("--items", default="")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--isa", choices=["host", "avx2"], default="host")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.25)
    parser.add_argument("--folder", default="/tmp/kiln-bench")
    parser.add_argument("--python", action="append", default=[], metavar="PEER=PATH")
    parser.add_argument("--out")
    args = parser.parse_args()
    sys.path.insert(0, HERE)
    import workloads

    args.python = dict(p.split("=", 1) for p in args.python)
    args.target = ["--target", "x86_64:haswell"] if args.isa == "avx2" else []
    args.peers = [p for p in args.peers.split(",") if p and not (args.isa == "avx2" and p == "ort")]
    os.makedirs(args.folder, exist_ok=True)
    rows = []
    for name in [i for i in args.items.split(",") if i] or list(workloads.WORKLOADS):
        try:
            rows.append(measure(args, name))
            table(rows[-1:])
        except Exception as e:
            print(f"{name}: kiln failed: {e}", file=sys.stderr)
        if args.out:
            with open(args.out, "w") as f:
                json.dump(rows, f, indent=1)
    print()
    table(rows)


if __name__ == "__main__":
    main()
