"""Makes gradients.pt2: the losses of ten small networks in training mode and the gradients of all their parameters, as autograd's ops,
with PyTorch's results. Whole models run so by `./x zoo --forms gradients`.

    python gradients.py [DIR]
"""
import sys
from pathlib import Path

import torch
from archive import save
from safetensors.torch import save_file
from torch import nn
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx

F = torch.nn.functional


class Attention(nn.Module):
    """A decoder's layer: causal attention of grouped heads, RMS norms, a gated projection."""

    def __init__(self, width=32, heads=4, groups=2):
        super().__init__()
        self.heads, self.groups, each = heads, groups, width // heads
        self.q, self.k, self.v = nn.Linear(width, width), nn.Linear(width, groups * each, bias=False), nn.Linear(width, groups * each)
        self.out, self.first, self.second = nn.Linear(width, width, bias=False), nn.RMSNorm(width), nn.RMSNorm(width)
        self.gate, self.up, self.down = (nn.Linear(a, b, bias=False) for a, b in ((width, 48), (width, 48), (48, width)))

    def forward(self, x):
        h = self.first(x)
        split = lambda t, n: t.unflatten(-1, (n, -1)).transpose(1, 2)
        q, k, v = split(self.q(h), self.heads), split(self.k(h), self.groups), split(self.v(h), self.groups)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2).flatten(2))
        h = self.second(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Tokens(nn.Module):
    """Embeddings, two decoder layers, and cross entropy with tied weights."""

    def __init__(self):
        super().__init__()
        self.table, self.layers = nn.Embedding(50, 32), nn.Sequential(Attention(), Attention())

    def forward(self, tokens):
        logits = self.layers(self.table(tokens[:, :-1])) @ self.table.weight.t()
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), label_smoothing=0.1)


class Pixels(nn.Module):
    """Patches with positions, encoder layers with biased attention, as vision transformers have them."""

    def __init__(self):
        super().__init__()
        self.patch, self.position = nn.Conv2d(3, 24, 4, stride=4), nn.Parameter(torch.randn(1, 9, 24) * 0.1)
        self.layer = nn.TransformerEncoderLayer(24, 3, 40, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)

    def forward(self, x):
        return self.layer(self.patch(x).flatten(2).transpose(1, 2) + self.position)


class Excited(nn.Module):
    """An inverted residual with squeeze and excitation."""

    def __init__(self):
        super().__init__()
        self.expand, self.depthwise = nn.Conv2d(8, 24, 1, bias=False), nn.Conv2d(24, 24, 3, padding=1, groups=24, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(n) for n in (24, 24, 8))
        self.less, self.more, self.project = nn.Conv2d(24, 6, 1), nn.Conv2d(6, 24, 1), nn.Conv2d(24, 8, 1, bias=False)

    def forward(self, x):
        h = F.hardswish(self.norms[0](self.expand(x)))
        h = F.hardswish(self.norms[1](self.depthwise(h)))
        h = h * F.hardsigmoid(self.more(F.relu(self.less(F.adaptive_avg_pool2d(h, 1)))))
        return x + self.norms[2](self.project(h))


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layer, self.head = kind(6, 10, num_layers=2, batch_first=True, bidirectional=True), nn.Linear(20, 3)

    def forward(self, x):
        return F.log_softmax(self.head(self.layer(x)[0]), -1)


class Mixture(nn.Module):
    """Experts that a router weighs."""

    def __init__(self):
        super().__init__()
        self.router, self.up, self.down = nn.Linear(16, 4), nn.Parameter(torch.randn(4, 16, 24) * 0.2), nn.Parameter(torch.randn(4, 24, 16) * 0.2)

    def forward(self, x):
        share, chosen = self.router(x).softmax(-1).topk(2)
        share = share.new_zeros(*x.shape[:-1], 4).scatter(-1, chosen, share)
        h = F.gelu(torch.einsum("nd,edh->enh", x, self.up))
        return torch.einsum("enh,ehd,ne->nd", h, self.down, share)


def networks():
    r = torch.randn
    norm = lambda n: (nn.BatchNorm2d(n), nn.ReLU())
    yield nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.LayerNorm(24), nn.Linear(24, 5), nn.Softmax(-1)), r(7, 12)
    yield nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 8, 3), nn.ELU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 10)), r(3, 1, 16, 16)
    yield nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), *norm(8), nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=2, bias=False), *norm(8), nn.GroupNorm(2, 8), nn.Conv2d(8, 4, 1)), r(2, 3, 11, 12)
    yield nn.Sequential(nn.Conv2d(2, 6, 3, padding=1), nn.LeakyReLU(0.1), nn.ConvTranspose2d(6, 4, 2, stride=2), nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(4, 1, 1)), r(2, 2, 5, 6)
    yield nn.Sequential(nn.Conv3d(2, 4, 3, padding=1, bias=False), nn.BatchNorm3d(4), nn.SiLU(), nn.MaxPool3d(2), nn.Flatten(2), nn.Conv1d(4, 6, 3)), r(2, 2, 4, 6, 5)
    yield Excited(), r(2, 8, 7, 6)
    yield Tokens(), torch.randint(0, 50, (2, 10))
    yield Pixels(), r(2, 3, 12, 12)
    yield Recurrent(nn.LSTM), r(2, 5, 6)
    yield Mixture(), r(9, 16)


class Steps(nn.Module):
    """Losses and gradients, network by network."""

    def __init__(self, nets):
        super().__init__()
        self.nets = nets

    def forward(self, *inputs):
        results, at = [], 0
        with torch.enable_grad():
            for net in self.nets:
                names = [n for n, _ in net.named_parameters()]
                x, values = inputs[at], [p.detach().requires_grad_() for p in inputs[at + 1 : at + 1 + len(names)]]
                at += 1 + len(names)
                buffers = {n: b.clone() for n, b in net.named_buffers()}
                loss = functional_call(net, {**dict(zip(names, values)), **buffers}, (x,)).square().mean()
                results += [loss.detach(), *(g.detach() for g in torch.autograd.grad(loss, values))]
        return tuple(results)


if __name__ == "__main__":
    out = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)
    torch.manual_seed(0)
    nets, inputs = zip(*networks())
    steps = Steps([net.train() for net in nets])
    args = tuple(t for net, x in zip(nets, inputs) for t in (x, *(p.detach() for p in net.parameters())))
    # As float64 gives them.
    wide = [a.double() if a.is_floating_point() else a for a in args]
    for net in nets:
        net.double()
    results = [r.float() for r in steps(*wide)]
    for net in nets:
        net.float()
    # Recurrent layers as ATen's ops, not as one of oneDNN's.
    with torch.backends.mkldnn.flags(enabled=False):
        program = torch.export.export(make_fx(steps)(*args), args, strict=False)
    save(program, out / "gradients.pt2")
    tensors = {f"input_{i}": a.contiguous() for i, a in enumerate(args)}
    save_file(tensors | {f"output_{i}": x.contiguous() for i, x in enumerate(results)}, str(out / "gradients.safetensors"))
