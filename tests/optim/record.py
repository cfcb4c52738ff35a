"""Makes torch.safetensors: weights after each of four updates by PyTorch's optimizers, on gradients
of f32 that are recorded too, and the rates of its schedulers. `optim.rs` computes the same.

    python record.py [DIR]
"""
import contextlib
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.optim import lr_scheduler

STEPS = 4
SHAPES = {"matrix": (6, 4), "wide": (3, 5), "vector": (7,), "kernel": (3, 2, 2, 2)}
MATRICES = ["matrix", "wide"]


class Lion(torch.optim.Optimizer):
    """Algorithm 2 of Chen et al., 2023, which PyTorch does not have."""

    def __init__(self, parameters, lr, betas, weight_decay):
        super().__init__(parameters, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            a, b = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_((a * m + (1 - a) * p.grad).sign(), alpha=-group["lr"])
                m.lerp_(p.grad, 1 - b)


CASES = {
    "sgd": (lambda p: torch.optim.SGD(p, lr=0.1), SHAPES),
    "sgd_momentum": (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.25, weight_decay=0.01), SHAPES),
    "sgd_nesterov": (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01), SHAPES),
    "adam": (lambda p: torch.optim.Adam(p), SHAPES),
    "adam_penalty": (lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1), SHAPES),
    "adamw": (lambda p: torch.optim.AdamW(p), SHAPES),
    "adamw_decay": (lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.3), SHAPES),
    "lion": (lambda p: Lion(p, lr=0.01, betas=(0.9, 0.99), weight_decay=0.1), SHAPES),
    "adafactor": (lambda p: torch.optim.Adafactor(p), SHAPES),
    "adafactor_decay": (lambda p: torch.optim.Adafactor(p, lr=0.5, beta2_decay=-0.7, eps=(1e-6, 0.1), d=1.2, weight_decay=0.1), SHAPES),
    "muon": (lambda p: torch.optim.Muon(p), MATRICES),
    "muon_bf16": (lambda p: torch.optim.Muon(p), MATRICES),
    "muon_rms": (lambda p: torch.optim.Muon(p, lr=0.02, momentum=0.9, nesterov=False, weight_decay=0.3, adjust_lr_fn="match_rms_adamw"), MATRICES),
}


class WithoutBf16:
    """PyTorch's Muon orthogonalises in bf16; here in f32."""

    def __enter__(self):
        self.before, torch.Tensor.bfloat16 = torch.Tensor.bfloat16, torch.Tensor.clone

    def __exit__(self, *_):
        torch.Tensor.bfloat16 = self.before


def rates(schedule):
    """The rates of twelve updates."""
    p = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([p], lr=0.5)
    scheduler, all = schedule(optimizer), []
    for _ in range(12):
        all.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return torch.tensor(all, dtype=torch.float64)


def warmup_cosine(o):
    return lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, start_factor=0.1, total_iters=3), lr_scheduler.CosineAnnealingLR(o, 7, eta_min=0.05)], milestones=[3]
    )


def main(directory):
    torch.manual_seed(0)
    out = {f"{name}.weight": torch.randn(shape) for name, shape in SHAPES.items()}
    for step in range(STEPS):
        out |= {f"{name}.gradient.{step}": torch.randn(shape) for name, shape in SHAPES.items()}
    for case, (make, names) in CASES.items():
        weights = {name: torch.nn.Parameter(out[f"{name}.weight"].clone()) for name in names}
        optimizer = make(list(weights.values()))
        for step in range(STEPS):
            for name, p in weights.items():
                p.grad = out[f"{name}.gradient.{step}"].clone()
            with contextlib.nullcontext() if case == "muon_bf16" else WithoutBf16():
                optimizer.step()
            out |= {f"{case}.{name}.{step}": p.detach().clone() for name, p in weights.items()}
    gradients = [out[f"{name}.gradient.0"].clone() for name in SHAPES]
    parameters = [torch.nn.Parameter(torch.zeros_like(g)) for g in gradients]
    for p, g in zip(parameters, gradients):
        p.grad = g
    out["clip.norm"] = torch.nn.utils.clip_grad_norm_(parameters, 1.5)
    out |= {f"clip.{name}": p.grad for name, p in zip(SHAPES, parameters)}
    out["rates.linear"] = rates(lambda o: lr_scheduler.LinearLR(o, start_factor=1.0, end_factor=0.2, total_iters=8))
    out["rates.warmup_cosine"] = rates(warmup_cosine)
    save_file({k: v.contiguous() for k, v in out.items()}, Path(directory) / "torch.safetensors")


main(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)
