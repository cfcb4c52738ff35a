#!/usr/bin/env python3
"""Losses of 200 training steps by torch.compile(backend="kiln") beside eager's, and the seconds of the first step.

    curve.py [--models gpt2,resnet50,vit_base] [--steps 200] [--device cpu] [--inductor gpt2] [--out FILE.json]

Each side is a process of its own from the same weights and batches: eager in f32, eager under bf16 autocast, kiln under it with an empty cache, and kiln once
more with the cache that the first has filled. The optimizer is AdamW with a warm-up and clipped gradients: without them GPT-2's loss rises sixfold at step 20 in
eager, too, and what follows compares chances. GPT-2 is fed the bytes of the text of examples/gpt, networks of images 1,024 random images with random labels, which
they learn by heart. A loss is off by its difference relative to eager's in f32; noise is how far eager's own in bf16 is off. The first step counts from its call to the end of its kernels.
"""
import argparse, json, os, statistics, subprocess, sys, tempfile, time
from pathlib import Path

TEXT = Path(__file__).resolve().parents[2] / "examples" / "gpt"
IMAGES, CLASSES = 1024, 10
LR, WARMUP, NORM = 3e-4, 20, 1.0


def gpt2():
    import torch, transformers

    config = transformers.GPT2Config(use_cache=False, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    text = torch.frombuffer(bytearray(next(TEXT.glob("*.txt")).read_bytes()), dtype=torch.uint8).long()
    starts = torch.randint(0, len(text) - 1024, (64, 8))
    batches = [(torch.stack([text[s : s + 1024] for s in row]),) for row in starts]
    model = transformers.GPT2LMHeadModel(config)
    return model, batches, lambda x: model(input_ids=x, labels=x).loss


def images(name, batch):
    import timm, torch

    model = timm.create_model(name, num_classes=CLASSES)
    pixels = torch.randn(IMAGES, 3, 224, 224).split(batch)
    labels = torch.randint(0, CLASSES, (IMAGES,)).split(batch)
    return model, list(zip(pixels, labels)), lambda x, y: torch.nn.functional.cross_entropy(model(x), y)


MODELS = {"gpt2": gpt2, "resnet50": lambda: images("resnet50", 64), "vit_base": lambda: images("vit_base_patch16_224", 64)}


def train(name, side, steps, device):
    """The losses of a side and the seconds of its first step."""
    import torch

    torch.manual_seed(0)
    model, batches, loss_of = MODELS[name]()
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    model.to(device).train()
    batches = [[x.to(device) for x in batch] for batch in batches]
    if not side.startswith("eager"):
        loss_of = torch.compile(loss_of, backend=side.split()[0])
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, fused=True)
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / WARMUP))
    losses, first = [], 0.0
    wait()
    for step in range(steps):
        start = time.perf_counter()
        with torch.autocast(device, torch.bfloat16, enabled=side != "eager f32"):
            loss = loss_of(*batches[step % len(batches)])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), NORM)
        optimizer.step()
        warmup.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
        if step == 0:
            wait()
            first = time.perf_counter() - start
    return {"losses": torch.stack(losses).tolist(), "first_s": first}


def row_of(name, a):
    """Runs the sides of a model."""
    sides = {}
    with tempfile.TemporaryDirectory() as cache:
        env = {**os.environ, "KILN_CACHE_DIR": f"{cache}/kiln", "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor", "TRITON_CACHE_DIR": f"{cache}/triton"}
        all_of = ["eager f32", "eager", "kiln", "kiln again", *(["inductor"] if name in a.inductor.split(",") else [])]
        for side in all_of:
            ran = subprocess.run([sys.executable, __file__, "--one", name, side, "--steps", str(a.steps), "--device", a.device], env=env, capture_output=True, text=True)
            if ran.returncode:
                sys.exit(f"{name}, {side}: {ran.stderr[-2000:]}")
            sides[side] = json.loads(ran.stdout.splitlines()[-1])
    return {"model": name, "sides": sides}


def off(row, side):
    """How far the losses of a side are from eager's in f32, relatively."""
    pairs = zip(row["sides"][side]["losses"], row["sides"]["eager f32"]["losses"])
    return [abs(x - y) / abs(y) for x, y in pairs]


def report(row):
    print(row["model"])
    for side, s in row["sides"].items():
        far, losses = off(row, side), s["losses"]
        at = " ".join(f"{losses[k]:.4f}" for k in (0, len(losses) // 4, len(losses) // 2, len(losses) - 1))
        print(f"  {side:11} first {s['first_s']:6.2f} s, losses {at}, off by {statistics.mean(far):.1e} on the mean, {max(far):.1e} at most", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", default=",".join(MODELS))
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--device", default="cuda")
    p.add_argument("--inductor", default="", help="models whose first step Inductor takes too")
    p.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    p.add_argument("--out", default="")
    a = p.parse_args()
    if a.one:
        print(json.dumps(train(*a.one, a.steps, a.device)))
        return
    rows = []
    for name in a.models.split(","):
        rows.append(row_of(name, a))
        report(rows[-1])
        if a.out:
            Path(a.out).write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
