#!/usr/bin/env python3
"""Training on several GPUs of one host under DDP and FSDP2: torch.compile(backend="kiln") beside eager and TorchInductor.

    torchrun --nproc-per-node 2 distributed.py [--models gpt2,llama1b] [--wraps ddp,fsdp,none] [--sides eager,inductor,kiln] [--steps 50] [--out FILE.json]

Weights and tokens are random, equal for all sides, other tokens on each GPU. A step is forward, cross entropy of the next token, backward under bf16
autocast and the fused AdamW. Losses are means over the GPUs; those of a side may differ from eager's by 2e-2 of eager's at every step, the noise of bf16
after some updates. `none` trains each GPU by itself. Tokens a second are of the last half of the steps, between two device synchronisations. The exit code is 0 if all agree.
"""
import argparse, gc, json, os, time

import torch
import torch.distributed as dist
import transformers as t
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

LLAMA = dict(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8, vocab_size=128256)
MODELS = {
    "gpt2": (lambda: t.GPT2LMHeadModel(t.GPT2Config(use_cache=False, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0)), 8, 1024),
    "llama1b": (lambda: t.LlamaForCausalLM(t.LlamaConfig(use_cache=False, **LLAMA)), 2, 2048),
}
TOLERANCE = 2e-2


def layers(model):
    return next(m for m in model.modules() if isinstance(m, torch.nn.ModuleList))


def run(name, wrap, side, steps):
    """Losses of all steps, tokens a second of a GPU, seconds of the first step, peak GiB."""
    make, batch, length = MODELS[name]
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = make().train()
    if wrap == "fsdp":
        for layer in layers(model):
            fully_shard(layer)
        fully_shard(model)
    elif wrap == "ddp":
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    forward = model if side == "eager" else torch.compile(model, backend=side)
    generator = torch.Generator("cuda").manual_seed(dist.get_rank())
    vocabulary = (model.module if wrap == "ddp" else model).config.vocab_size
    losses, start, first = [], 0.0, 0.0
    for step in range(steps):
        tokens = torch.randint(0, min(vocabulary, 1000), (batch, length), device="cuda", generator=generator)
        if step == steps // 2:
            torch.cuda.synchronize()
            start = time.perf_counter()
        began = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16):
            logits = forward(tokens).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 0:
            torch.cuda.synchronize()
            first = time.perf_counter() - began
        losses.append(loss.detach())
    torch.cuda.synchronize()
    rate = (steps - steps // 2) * batch * length / (time.perf_counter() - start)
    means = torch.stack(losses)
    dist.all_reduce(means, dist.ReduceOp.AVG)
    return means.tolist(), rate, first, torch.cuda.max_memory_allocated() / 2**30


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", default="gpt2,llama1b")
    p.add_argument("--wraps", default="ddp,fsdp")
    p.add_argument("--sides", default="eager,inductor,kiln")
    p.add_argument("--steps", type=int, default=50)
    p.add_argument("--out", default="")
    a = p.parse_args()
    dist.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    rows, bad, lead = [], 0, dist.get_rank() == 0
    for name in a.models.split(","):
        for wrap in a.wraps.split(","):
            reference = None
            for side in a.sides.split(","):
                try:
                    losses, rate, first, peak = run(name, wrap, side, a.steps)
                except Exception as e:  # goes on with the next side
                    bad += 1
                    if lead:
                        print(f"{name} {wrap} {side} FAILS {type(e).__name__}: {str(e)[:600]}", flush=True)
                    continue
                reference = reference or losses
                off = max(abs(x - y) / abs(y) for x, y in zip(losses, reference))
                bad += off > TOLERANCE
                rows.append({"model": name, "wrap": wrap, "side": side, "losses": losses, "tokens_per_s": rate, "first_s": first, "peak_GiB": peak, "off": off})
                if lead:
                    print(f"{name:8} {wrap:5} {side:9} {rate / 1e3:8.1f} k tokens/s a GPU, first step {first:6.1f} s, {peak:6.2f} GiB, loss {losses[0]:.4f} to {losses[-1]:.4f}, "
                          f"off eager's by at most {off:.1e} {'agrees' if off <= TOLERANCE else 'DIFFERS'}", flush=True)
                    if a.out:
                        json.dump(rows, open(a.out, "w"), indent=1)
    dist.destroy_process_group()
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    main()
