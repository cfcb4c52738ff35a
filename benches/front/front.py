"""Cost of calls and compilations, against torch.compile on the same machine.

    python benches/front/front.py --kiln target/release/kiln --calls target/release/deps/call-<hash> [--rounds 5] [ITEM ...]

Each round starts a process for kiln and one for torch, in turns; the table has the median over rounds with its range. Calls run on one thread and are timed by that
thread's own clock, so that other work counts little; compilations by the wall's. `--calls` is the binary of `cargo bench --bench call --no-run`. Items: calls, warm, layers.
"""
import argparse, json, os, re, statistics, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = os.path.join(HERE, "../../tests/models")


def seconds_a_call(call, seconds=0.3):
    """Thread CPU time, the minimum of five measurements."""
    for _ in range(50):
        call()
    n, best = 1, float("inf")
    while True:
        start = time.thread_time()
        for _ in range(n):
            call()
        took = time.thread_time() - start
        if took > seconds / 5:
            break
        n *= 2
    for _ in range(5):
        start = time.thread_time()
        for _ in range(n):
            call()
        best = min(best, (time.thread_time() - start) / n)
    return best


def torch_calls():
    """One small kernel, only the guards, graph breaks, and a call that recompiles."""
    import torch
    import torch._dynamo as dynamo

    torch.set_num_threads(1)
    out = {}

    def guards(function, arguments):
        # Only the guard check, on the frame's names.
        entry = dynamo.eval_frame._debug_get_cache_entry_list(function.__code__)[0]
        root = getattr(entry, "guard_manager").root
        return seconds_a_call(lambda: root.check(arguments), 0.1)

    def one(x):
        return x + 1

    def many(all):
        # All are used: torch does not guard unused arguments.
        total = all[0]
        for t in all[1:]:
            total = total + t
        return total

    x = torch.ones(8)
    for name, function, argument in [("1 tensor", one, x), ("100 tensors", many, [torch.ones(8) for _ in range(100)])]:
        compiled = torch.compile(function, dynamic=False)
        with torch.no_grad():
            compiled(argument)
            out[f"call, {name}"] = seconds_a_call(lambda: compiled(argument)) * 1e6
            try:
                out[f"guards, {name}"] = guards(function, {function.__code__.co_varnames[0]: argument}) * 1e6
            except Exception as e:
                print(f"guards of {name}: {e}", file=sys.stderr)
    for ops in [10, 110]:

        def read(x):
            for _ in range(ops):
                x = x + 1
            return x.item() + 1

        compiled, number = torch.compile(read, dynamic=False), torch.ones(1)
        with torch.no_grad():
            compiled(number)
            out[f"graph break behind {ops} ops"] = seconds_a_call(lambda: compiled(number)) * 1e6

    def sized(x):
        return x * 2 + 1

    compiled = torch.compile(sized, dynamic=False)
    with torch.no_grad():
        compiled(torch.ones(3))
        start = time.perf_counter()
        compiled(torch.ones(5))
        out["call that compiles anew"] = (time.perf_counter() - start) * 1e6
    return out


NAMES = {
    "call of one small kernel": "call, 1 tensor",
    "call that adds 100 tensors": "call, 100 tensors",
    "call with 100 tensors": "call, 100 tensors of which 1 is used",
    "100 handles made and dropped": "100 handles made and dropped",
    "call with 10 ops and a read": "graph break behind 10 ops",
    "call with 110 ops and a read": "graph break behind 110 ops",
    "a call that compiles anew": "call that compiles anew",
    "guards/static/1": "guards, 1 tensor",
    "guards/static/100": "guards, 100 tensors",
}
UNIT = {"ns": 1e-3, "µs": 1.0, "ms": 1e3, "s": 1e6}


def kiln_calls(options):
    out = {}
    for binary in filter(None, [options.calls, options.guards]):
        text = subprocess.run(
            [binary, "--bench", "--measurement-time", "0.5", "--warm-up-time", "0.2", "--sample-size", "10"],
            capture_output=True,
            text=True,
            env={**os.environ, "KILN_CACHE_DIR": "off"},
        ).stdout
        name = None
        for line in text.splitlines():
            found = re.match(r"^(\S.*?)?\s+time:\s+\[\S+ \S+ (\S+) (\S+) ", line)
            if found:
                key = NAMES.get((found.group(1) or name or "").strip())
                if key:
                    out[key] = float(found.group(2)) * UNIT[found.group(3)]
            elif line and not line.startswith(" "):
                name = line.strip()
    return out


def decoder(layers):
    """As in benches/compile.rs: [1, 64, 128], 4 heads, 512 inner features, separate weights per layer."""
    import torch
    from torch import nn
    import torch.nn.functional as F

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(128) for _ in range(2))
            self.qkv = nn.ModuleList(nn.Linear(128, 128, bias=False) for _ in range(3))
            self.out, self.up, self.down = nn.Linear(128, 128, bias=False), nn.Linear(128, 512, bias=False), nn.Linear(512, 128, bias=False)

        def forward(self, x):
            n = self.norms[0](x)
            q, k, v = (w(n).view(1, 64, 4, 32).transpose(1, 2) for w in self.qkv)
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(a.transpose(1, 2).reshape(1, 64, 128))
            return x + self.down(F.gelu(self.up(self.norms[1](x))))

    return nn.Sequential(*(Layer() for _ in range(layers))).eval()


def torch_first(model, folder):
    """Child process: milliseconds from the loaded model to its first result, with caches in `folder`."""
    code = f"""
import os, sys, time
start = time.perf_counter()
import torch
sys.path.insert(0, {HERE!r})
from front import decoder
import torch._inductor.config as config
config.fx_graph_cache = True
torch.manual_seed(0)
name = {model!r}
if name.startswith("decoder"):
    module, x = decoder(int(name[7:])), (torch.randn(1, 64, 128),)
else:
    import safetensors.torch
    module = torch.export.load(os.path.join({MODELS!r}, name + ".pt2")).module()
    data = safetensors.torch.load_file(os.path.join({MODELS!r}, name + ".safetensors"))
    x = tuple(data[k] for k in sorted(k for k in data if k.startswith("input_")))
ready = time.perf_counter()
with torch.no_grad():
    torch.compile(module, dynamic=False)(*x)
end = time.perf_counter()
print((end - ready) * 1e3, (end - start) * 1e3)
"""
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": folder}
    )
    if out.returncode:
        print(out.stderr[-2000:], file=sys.stderr)
        return None
    return [float(n) for n in out.stdout.split()[-2:]]


def kiln_first(kiln, path, inputs, folder):
    """As above, from the start of the process to its first result."""
    start = time.perf_counter()
    command = [kiln, "run", path, "--repeat", "1"] + (["--inputs", inputs] if inputs else [])
    out = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "KILN_CACHE_DIR": folder})
    if out.returncode:
        print(out.stderr[-2000:], file=sys.stderr)
        return None
    return [(time.perf_counter() - start) * 1e3]


def exported(layers, folder):
    import torch

    path = os.path.join(folder, f"decoder{layers}.pt2")
    torch.manual_seed(0)
    with torch.no_grad():
        torch.export.save(torch.export.export(decoder(layers), (torch.randn(1, 64, 128),)), path)
    return path


def row(name, have):
    have = [x for x in have if x is not None]
    return "—" if not have else f"{statistics.median(have):.4g} [{min(have):.4g}, {max(have):.4g}]"


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("items", nargs="*", default=[])
    parse.add_argument("--kiln", default="target/release/kiln")
    parse.add_argument("--calls", help="the binary of benches/call.rs")
    parse.add_argument("--guards", help="the binary of runtime/benches/guards.rs")
    parse.add_argument("--rounds", type=int, default=5)
    parse.add_argument("--torch-calls", action="store_true", help=argparse.SUPPRESS)
    options = parse.parse_args()
    if options.torch_calls:
        print(json.dumps(torch_calls()))
        return
    items = options.items or ["calls", "warm", "layers"]
    if "calls" in items:
        kiln, torch = {}, {}
        for _ in range(options.rounds):
            for name, us in kiln_calls(options).items():
                kiln.setdefault(name, []).append(us)
            done = subprocess.run([sys.executable, os.path.abspath(__file__), "--torch-calls"], capture_output=True, text=True)
            sys.stderr.write(done.stderr if done.returncode else "")
            for name, us in json.loads(done.stdout or "{}").items():
                torch.setdefault(name, []).append(us)
        print("| microseconds | kiln | torch.compile |\n| --- | --- | --- |")
        for name in [*torch, *(n for n in kiln if n not in torch)]:
            print(f"| {name} | {row(name, kiln.get(name, []))} | {row(name, torch.get(name, []))} |")
    with tempfile.TemporaryDirectory() as folder:
        if "warm" in items:
            print("\n| first result of a process with a filled cache, ms | kiln, all of the process | torch.compile: compiling and first call | with imports |\n| --- | --- | --- | --- |")
            for model in ["mlp", "gpt2_tiny"]:
                kiln, torch = [], []
                for n in range(options.rounds + 1):
                    path = os.path.join(MODELS, model)
                    a = kiln_first(options.kiln, path + ".pt2", path + ".safetensors", os.path.join(folder, "kiln"))
                    b = torch_first(model, os.path.join(folder, "torch"))
                    # The first round fills the caches.
                    if n and a and b:
                        kiln.append(a[0])
                        torch.append(b)
                print(f"| {model} | {row(model, kiln)} | {row(model, [t[0] for t in torch])} | {row(model, [t[1] for t in torch])} |")
        if "layers" in items:
            print("\n| first result without a cache, ms | kiln, all of the process | torch.compile |\n| --- | --- | --- |")
            medians = {}
            for layers in [4, 48]:
                path, kiln, torch = exported(layers, folder), [], []
                for n in range(options.rounds):
                    a = kiln_first(options.kiln, path, None, "off")
                    b = torch_first(f"decoder{layers}", os.path.join(folder, f"cold{layers}-{n}"))
                    if a and b:
                        kiln.append(a[0])
                        torch.append(b[0])
                medians[layers] = [statistics.median(kiln), statistics.median(torch)] if kiln else None
                print(f"| {layers} layers | {row('', kiln)} | {row('', torch)} |")
            if all(medians.values()):
                print(f"| ratio of the medians | {medians[48][0] / medians[4][0]:.2f} | {medians[48][1] / medians[4][1]:.2f} |")


if __name__ == "__main__":
    main()
