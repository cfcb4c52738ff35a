#!/usr/bin/env python3
"""Whole bf16 models on a GPU: kiln against torch eager and TorchInductor.

    models.py --kiln KILN [--items resnet50_b32,gpt2_b8_s1024] [--rounds 5] [--modes default,reduce-overhead] [--kiln-args "--mode reduce-overhead"] [--out FILE.json]

Weights and inputs are random. Memory is what the card has less while a process of kiln holds the model, without what any process takes, and the most that torch
has allocated. Results are compared with the model in f32: kiln may be off twice as far as torch's own bf16, and 1e-2 besides. Times are medians of
CUDA events around calls in a row, the sides taking turns; the first calls are of fresh processes or of a fresh compile, kiln's without and with its cache.
Goes on after failures; the exit code is 0 if all agree.
"""
import argparse, gc, json, os, shlex, statistics, subprocess, sys, tempfile, time

import safetensors.torch
import torch

from bench import GPU, LIMIT, Worker, kernel_us


def timm_model(name, batch):
    import timm

    return timm.create_model(name, pretrained=False), [torch.randn(batch, 3, 224, 224)]


def hugging_face(kind, batch, length, **sizes):
    import transformers as t

    config, model = {"bert": (t.BertConfig, t.BertModel), "gpt2": (t.GPT2Config, t.GPT2LMHeadModel), "llama": (t.LlamaConfig, t.LlamaForCausalLM)}[kind]
    config = config(**({} if kind == "bert" else {"use_cache": False}), **sizes)
    return model(config), [torch.randint(0, config.vocab_size, (batch, length))]


LLAMA = dict(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8, vocab_size=128256)
ITEMS = {
    "resnet50_b32": lambda: timm_model("resnet50", 32),
    "vit_base_b32": lambda: timm_model("vit_base_patch16_224", 32),
    "mobilenetv3_b32": lambda: timm_model("mobilenetv3_large_100", 32),
    "bert_base_b16_s512": lambda: hugging_face("bert", 16, 512),
    "gpt2_b8_s1024": lambda: hugging_face("gpt2", 8, 1024),
    "llama1b_b1_s2048": lambda: hugging_face("llama", 1, 2048, **LLAMA),
    **{f"llama1b_b{b}_s1": lambda b=b: hugging_face("llama", b, 1, **LLAMA) for b in (1, 4, 16)},
    **{f"llama1b_int8_b{b}_s1": lambda b=b: linears(Int8Linear, *hugging_face("llama", b, 1, **LLAMA)) for b in (1, 4, 16)},
    **{f"llama1b_fp8_b{b}_s1": lambda b=b: linears(Float8Linear, *hugging_face("llama", b, 1, **LLAMA)) for b in (1, 4, 16)},
    "llama1b_fp8_dynamic_b1_s2048": lambda: linears(Float8Dynamic, *hugging_face("llama", 1, 2048, **LLAMA)),
    "llama1b_int8_dynamic_b1_s2048": lambda: linears(Int8Dynamic, *hugging_face("llama", 1, 2048, **LLAMA)),
    **{f"llama1b_int4_b{b}_s1": lambda b=b: linears(Int4Linear, *hugging_face("llama", b, 1, **LLAMA)) for b in (1, 4, 16)},
}


class Int8Linear(torch.nn.Module):
    """A linear layer of int8 weights with a scale a row, as torchao's Int8WeightOnlyConfig computes it."""

    def __init__(self, linear):
        super().__init__()
        scale = linear.weight.detach().abs().amax(1) / 127
        self.register_buffer("weight", (linear.weight.detach() / scale[:, None]).round().to(torch.int8))
        self.register_buffer("scale", scale)

    def forward(self, x):
        return torch.nn.functional.linear(x, self.weight.to(x.dtype)) * self.scale


class Float8Linear(torch.nn.Module):
    """A linear layer of 8-bit float weights with an f32 scale a row, as torchao's Float8WeightOnlyConfig computes it."""

    def __init__(self, linear):
        super().__init__()
        scale = linear.weight.detach().abs().amax(1, keepdim=True) / torch.finfo(torch.float8_e4m3fn).max
        self.register_buffer("weight", (linear.weight.detach() / scale).to(torch.float8_e4m3fn))
        self.register_buffer("scale", scale)

    def _apply(self, fn, recurse=True):
        # As torchao's tensors, both keep their dtypes where the model is converted.
        weight, scale = self.weight, self.scale
        super()._apply(fn, recurse)
        self.weight, self.scale = weight.to(self.scale.device), scale.to(self.scale.device)
        return self

    def forward(self, x):
        return torch.nn.functional.linear(x, (self.weight.to(torch.float32) * self.scale).to(x.dtype))


class Float8Dynamic(Float8Linear):
    """The same weights, and activations quantised with a scale a row, as torchao's Float8DynamicActivationFloat8WeightConfig(PerRow()); in f32,
    as a reference, activations are not quantised."""

    def forward(self, x):
        if x.dtype != torch.bfloat16:
            return super().forward(x)
        rows = x.flatten(0, -2)
        scale = rows.abs().amax(1, keepdim=True).float().clamp_min(1e-12) / torch.finfo(torch.float8_e4m3fn).max
        q = (rows / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
        y = torch._scaled_mm(q, self.weight.t(), scale, self.scale.t(), out_dtype=x.dtype, use_fast_accum=True)
        return y.unflatten(0, x.shape[:-1])


class Int8Dynamic(Int8Linear):
    """The same weights, and activations quantised with a scale a row, as torchao's Int8DynamicActivationInt8WeightConfig; in f32, as a
    reference, activations are not quantised."""

    def forward(self, x):
        if x.dtype != torch.bfloat16:
            return super().forward(x)
        rows = x.flatten(0, -2)
        scale = rows.abs().amax(1, keepdim=True).float().clamp_min(1e-5) / 127
        q = (rows / scale).round().clamp(-127, 127).to(torch.int8)
        y = torch._int_mm(q, self.weight.t()).float() * scale * self.scale
        return y.to(x.dtype).unflatten(0, x.shape[:-1])


class Int4Linear(torch.nn.Module):
    """A linear layer of int4 weights in groups of 128 along K, in the layout of PyTorch's CUDA kernels, as torchao's
    Int4WeightOnlyConfig makes it; in f32, as a reference, the same weights dequantised."""

    GROUP = 128

    def __init__(self, linear):
        super().__init__()
        w = linear.weight.detach().unflatten(1, (-1, self.GROUP))
        low, high = w.amin(-1), w.amax(-1)
        scale = ((high - low) / 15).bfloat16()
        zero = (low + 8 * scale.float()).bfloat16()
        q = ((w - low[..., None]) / scale.float()[..., None]).round().clamp(0, 15).flatten(1)
        bytes_ = (q[:, ::2] * 16 + q[:, 1::2]).to(torch.uint8)
        self.register_buffer("packed", torch._convert_weight_to_int4pack(bytes_.to(GPU), 8).to(w.device))
        self.register_buffer("scale_and_zero", torch.stack([scale.t(), zero.t()], -1).contiguous())
        self.q = q.to(torch.uint8)

    def forward(self, x):
        if x.dtype == torch.bfloat16:
            y = torch.ops.aten._weight_int4pack_mm(x.flatten(0, -2), self.packed, self.GROUP, self.scale_and_zero)
            return y.unflatten(0, x.shape[:-1])
        scale, zero = self.scale_and_zero.float().permute(2, 1, 0)[..., None].unbind(0)
        q = self.q.to(x.device).unflatten(1, (-1, self.GROUP)).float()
        return torch.nn.functional.linear(x, ((q - 8) * scale + zero).flatten(1))


def linears(make, model, inputs):
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, torch.nn.Linear):
                setattr(module, name, make(child))
    return model, inputs


class OneResult(torch.nn.Module):
    """Of what a model returns, the tensor that it is asked for."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        y = self.model(x)
        if torch.is_tensor(y):
            return y
        return y.logits if getattr(y, "logits", None) is not None else y.last_hidden_state


def taken(start):
    """Starts a worker; returns its device memory in GiB, and the worker."""
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    worker = start()
    return (before - torch.cuda.mem_get_info()[0]) / 2**30, worker


def context(a, folder):
    """Device memory of an empty process in GiB."""
    path = os.path.join(folder, "nothing")
    open(path + ".mlir", "w").write("func.func @main(%x: tensor<1xf32>) -> tensor<1xf32> {\n  %0 = kiln.add %x, %x : tensor<1xf32>\n  return %0 : tensor<1xf32>\n}\n")
    safetensors.torch.save_file({"input_0": torch.ones(1)}, path + ".safetensors")
    size, worker = taken(lambda: Worker(a.kiln, path + ".mlir", path + ".safetensors"))
    worker.close()
    return size


def measure(a, name, folder):
    torch.manual_seed(0)
    model, inputs = ITEMS[name]()
    model = OneResult(model).eval().to(GPU)
    inputs = [x.to(GPU) for x in inputs]
    path = os.path.join(folder, name)
    with torch.no_grad():
        # On the host: device memory would count to the peers' peaks.
        exact = model(*inputs).cpu()
        model = model.to(torch.bfloat16)
        inputs = [x.to(torch.bfloat16) if x.is_floating_point() else x for x in inputs]
        rounded = model(*inputs).cpu()
        torch.export.save(torch.export.export(model, tuple(inputs)), path + ".pt2")
    safetensors.torch.save_file({f"input_{i}": x.cpu().contiguous() for i, x in enumerate(inputs)}, path + ".safetensors")
    off = lambda y: float((y.float() - exact).norm() / exact.norm())

    # The driver caches code too, which would hide the cost of a first call.
    def caches(name):
        return dict(os.environ, KILN_CACHE_DIR=os.path.join(folder, name), CUDA_CACHE_PATH=os.path.join(folder, name + ".driver"))

    env = caches("cache")
    files, args = [path + ".pt2", path + ".safetensors"], shlex.split(a.kiln_args)
    run = subprocess.run([a.kiln, "run", files[0], "--device", "cuda", "--inputs", files[1], *args, "--outputs", path + ".out", "--repeat", "1"], capture_output=True, text=True, env=caches("other"), timeout=LIMIT)
    if run.returncode:
        raise RuntimeError((run.stderr or run.stdout).strip()[-400:])
    if a.tables:
        open(os.path.join(a.tables, name + ".txt"), "w").write(run.stdout)
    error, allowed = off(safetensors.torch.load_file(path + ".out")["output_0"]), 2 * off(rounded) + 1e-2
    cold = Worker(a.kiln, *files, *args, env=env)
    cold.close()
    empty = context(a, folder)
    size, kiln = taken(lambda: Worker(a.kiln, *files, *args, env=env))
    row = {"item": name, "error": error, "torch_error": off(rounded), "cold_s": cold.first, "warm_s": kiln.first, "kiln_GiB": size - empty}
    row["summary"] = [l for l in run.stdout.splitlines() if " launches of " in l or "memory between" in l]

    sides = {"eager": model}
    for mode in filter(None, a.modes.split(",")):
        torch._dynamo.reset()
        torch.cuda.reset_peak_memory_stats()
        start, f = time.perf_counter(), torch.compile(model, mode=mode)
        with torch.no_grad():
            f(*inputs)
        torch.cuda.synchronize()
        row[mode + "_first_s"] = time.perf_counter() - start
        row[mode + "_peak_GiB"] = torch.cuda.max_memory_allocated() / 2**30
        kernel_us(f, inputs, 3)
        sides[mode] = f
    samples = {s: [] for s in ["kiln", *sides]}
    for _ in range(a.rounds):
        samples["kiln"].append(kiln(a.seconds))
        for s, f in sides.items():
            samples[s].append(kernel_us(f, inputs, 10))
    kiln.close()
    row["samples"] = samples
    row["agrees"] = error <= allowed
    us = {s: statistics.median(v) for s, v in samples.items()}
    ratios = {s: statistics.median(x / y for x, y in zip(samples["kiln"], samples[s])) for s in sides}
    text = "; ".join(f"{s} {us[s] / 1e3:.3f} ms, ratio {ratios[s]:.2f}" for s in sides)
    first = ", ".join(f"{m} {row[m + '_first_s']:.1f} s" for m in filter(None, a.modes.split(",")))
    peak = ", ".join(f"{m} {row[m + '_peak_GiB']:.2f}" for m in filter(None, a.modes.split(",")))
    text += f"; GiB: kiln {row['kiln_GiB']:.2f}, {peak}"
    print(f"{name:20} kiln {us['kiln'] / 1e3:.3f} ms; {text}; error {error:.1e} (torch {row['torch_error']:.1e}) {'agrees' if row['agrees'] else 'DIFFERS'}; "
          f"first: kiln {cold.first:.2f} s, {kiln.first:.2f} s cached, {first}; {' '.join(row['summary'])}", flush=True)
    return row


def run_all(work, measure, out):
    """Rows of all items, each (name, arguments of `measure`); writes them to `out` as they come. Ends the process: with 0 if all agree."""
    rows, bad = [], 0
    for name, arguments in work:
        try:
            rows.append(measure(*arguments))
            bad += not rows[-1]["agrees"]
        except Exception as e:  # goes on with the next model
            bad += 1
            print(f"{name:20} FAILS {type(e).__name__}: {str(e)[:600]}", flush=True)
        gc.collect()
        torch.cuda.empty_cache()
        if out:
            json.dump(rows, open(out, "w"), indent=1)
    sys.exit(1 if bad else 0)


def in_folder(a, name):
    with tempfile.TemporaryDirectory() as folder:
        return measure(a, name, folder)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--kiln", required=True)
    p.add_argument("--items", default="")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=0.3)
    p.add_argument("--modes", default="default,reduce-overhead")
    p.add_argument("--kiln-args", default="")
    p.add_argument("--tables", default="", help="a folder for the tables that kiln run prints")
    p.add_argument("--out", default="")
    a = p.parse_args()
    run_all([(name, (a, name)) for name in [i for i in a.items.split(",") if i] or ITEMS], in_folder, a.out)


if __name__ == "__main__":
    main()
