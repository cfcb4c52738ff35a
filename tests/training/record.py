"""Makes network.safetensors: a convolutional network with batch norm that PyTorch trains for four
steps of AdamW; its state_dict before and after each, the loss of each, and what it gives in
evaluation mode afterwards. `network.rs` does the same. Also losses and their gradients, for
`losses.rs`. And recurrent.safetensors: recurrent layers with their gradients, for `recurrent.rs`; and
autocast.safetensors: a network under autocast, and a scaled one of f16, for `mixed.rs`.

    python record.py [DIR]
"""
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

F = nn.functional
STEPS = 4


def losses():
    """Losses and their gradients by the input, for each reduction."""
    x, y = torch.randn(4, 3), torch.randn(4, 3)
    p, q, log = torch.rand(4, 3), torch.rand(4, 3), torch.randn(4, 3).log_softmax(1)
    q[0, 0], w = 0.0, torch.rand(3) + 0.5
    t = torch.tensor([2, 0, 1, 1])
    cases = {
        "mse": (x, lambda x, r: F.mse_loss(x, y, reduction=r)),
        "l1": (x, lambda x, r: F.l1_loss(x, y, reduction=r)),
        "smooth_l1": (x, lambda x, r: F.smooth_l1_loss(x, y, beta=0.7, reduction=r)),
        "huber": (x, lambda x, r: F.huber_loss(x, y, delta=0.7, reduction=r)),
        "kl_div": (log, lambda x, r: F.kl_div(x, q, reduction=r)),
        "kl_div_log": (log, lambda x, r: F.kl_div(x, y.log_softmax(1), log_target=True, reduction=r)),
        "bce": (p, lambda x, r: F.binary_cross_entropy(x, q, reduction=r)),
        "bce_logits": (x, lambda x, r: F.binary_cross_entropy_with_logits(x, q, pos_weight=w, reduction=r)),
        "nll": (log, lambda x, r: F.nll_loss(x, t, weight=w, ignore_index=0, reduction=r)),
    }
    out = {"losses/x": x, "losses/y": y, "losses/p": p, "losses/q": q, "losses/log": log, "losses/w": w, "losses/t": t}
    for name, (given, loss) in cases.items():
        for reduction in ("none", "mean", "sum"):
            given = given.clone().requires_grad_()
            value = loss(given, reduction)
            (by,) = torch.autograd.grad(value.sum(), given)
            out |= {f"losses/{name}/{reduction}": value.detach(), f"losses/{name}/{reduction}/by": by}
    return {k: v.detach().clone() for k, v in out.items()}


def recurrent():
    """Outputs and final states of recurrent layers, and gradients of the sum of their squares by input, state and weights."""
    torch.manual_seed(0)
    out = {"x": torch.randn(2, 4, 3)}
    kinds = {"lstm": nn.LSTM, "gru": nn.GRU, "tanh": nn.RNN, "relu": lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k)}
    for name, kind in kinds.items():
        for form, options in {"one": {"bias": False}, "two": {"num_layers": 2, "bidirectional": True}}.items():
            net, x = kind(3, 5, batch_first=True, **options), out["x"].clone().requires_grad_()
            rows = net.num_layers * (1 + net.bidirectional)
            state = [torch.randn(rows, 2, 5, requires_grad=True) for _ in range(2 if name == "lstm" else 1)]
            y, last = net(x, tuple(state) if name == "lstm" else state[0])
            last = list(last) if name == "lstm" else [last]
            weights = dict(net.named_parameters())
            by = torch.autograd.grad(sum(t.square().sum() for t in [y, *last]), [x, *state, *weights.values()])
            found = {"y": y, "by/x": by[0]} | {f"state/{i}": s for i, s in enumerate(state)} | {f"last/{i}": s for i, s in enumerate(last)}
            found |= {f"by/{i}": b for i, b in enumerate(by[1 : 1 + len(state)])}
            found |= weights | {f"by/{k}": b for k, b in zip(weights, by[1 + len(state) :])}
            out |= {f"{name}/{form}/{k}": v for k, v in found.items()}
    return out


def autocast():
    """Two layers under autocast of processors: result, loss, gradients. A weight of f32 under torch.amp.GradScaler, whose
    gradients overflow in the second and fourth step: weight, momentum and scale after each."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    x, t = torch.randn(6, 8), torch.randint(4, (6,))
    with torch.autocast("cpu", torch.bfloat16):
        y = net(x)
        loss = F.cross_entropy(y, t)
    weights = dict(net.named_parameters())
    by = torch.autograd.grad(loss, list(weights.values()))
    out = {"x": x, "t": t, "y": y, "loss": loss} | weights | {f"by/{k}": b for k, b in zip(weights, by)}
    w = nn.Parameter(torch.tensor([1.0, -2.0]))
    sgd, scaler = torch.optim.SGD([w], lr=0.1, momentum=0.9), torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
    out["scaled/w"] = w.detach().clone()
    for step, factor in enumerate([1.0, float("inf"), 2.0, float("nan"), 3.0, 1.0, 0.5, 1.0]):
        sgd.zero_grad()
        scaler.scale((w.square() * factor).sum()).backward()
        scaler.step(sgd)
        scaler.update()
        out[f"scaled/{step}/w"], out[f"scaled/{step}/scale"] = w.detach().clone(), torch.tensor(scaler.get_scale())
    return out


def main(directory):
    torch.manual_seed(0)
    # No biases before batch norm: their gradient is 0 but for rounding, which AdamW scales up.
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, 6, bias=False),
        nn.BatchNorm1d(6, momentum=0.3),
        nn.Linear(6, 3),
    )
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.02)
    out = {"x": torch.randn(STEPS, 5, 2, 4, 4), "t": torch.randint(3, (STEPS, 5))}
    state = lambda at: {f"{at}/{name}": v.clone() for name, v in net.state_dict().items()}
    out |= state("first")
    for step in range(STEPS):
        loss = nn.functional.cross_entropy(net(out["x"][step]), out["t"][step])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        out |= state(step) | {f"{step}/loss": loss.detach()}
    net.eval()
    out["evaluated"] = net(out["x"][0]).detach()
    out |= losses()
    for name, found in {"network": out, "recurrent": recurrent(), "autocast": autocast()}.items():
        save_file({k: v.detach().contiguous() for k, v in found.items()}, Path(directory) / f"{name}.safetensors")


main(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)
