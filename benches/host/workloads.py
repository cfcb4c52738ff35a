"""The workloads of the host benches as torch modules with example inputs; every peer gets the same weights and inputs."""
import math

import torch
import torch.nn.functional as F
from torch import nn


def rand(*shape, scale=1.0, dtype=torch.float32):
    return (torch.randn(*shape) * scale).to(dtype)


class Elementwise(nn.Module):
    def forward(self, x, a, b, c):
        return F.gelu(x * a + b) * torch.sigmoid(c)


class Softmax(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)


class LayerNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(1024)
        nn.init.normal_(self.norm.weight, 1.0, 0.1)
        nn.init.normal_(self.norm.bias, 0.0, 0.1)

    def forward(self, x):
        return self.norm(x)


class Matmul(nn.Module):
    def forward(self, a, b):
        return a @ b


class MatmulEpilogue(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(rand(1024, 4096, scale=0.05))
        self.bias = nn.Parameter(rand(4096))

    def forward(self, x):
        return F.relu(torch.addmm(self.bias, x, self.weight))


class Convolution(nn.Module):
    def __init__(self, channels=64, filters=64, size=3, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, size, stride, padding=size // 2)

    def forward(self, x):
        return F.relu(self.conv(x))


class Attention(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Fourier(nn.Module):
    """A transform of torch.fft; complex tensors are real ones with a last dimension of 2."""

    def __init__(self, name, of_complex):
        super().__init__()
        self.transform, self.of_complex = getattr(torch.fft, name), of_complex

    def forward(self, x):
        x = self.transform(torch.view_as_complex(x) if self.of_complex else x)
        return torch.view_as_real(x) if x.is_complex() else x


class Filter(nn.Module):
    """A filter in the frequency domain, as of FNet, FNO and long convolutions."""

    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(rand(n // 2 + 1, 2))

    def forward(self, x):
        return torch.fft.irfft(torch.fft.rfft(x) * torch.view_as_complex(self.weight), n=x.shape[-1])


class Block(nn.Module):
    """A pre-norm transformer block, width 768, 12 heads."""

    def __init__(self, width=768, heads=12):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, s, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, s, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, s, w)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Lstm(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.layer = nn.LSTM(width, width, batch_first=True)

    def forward(self, x):
        return self.layer(x)[0]


class First(nn.Module):
    """A Hugging Face model reduced to one tensor."""

    def __init__(self, model, pick):
        super().__init__()
        self.model, self.pick = model, pick

    def forward(self, ids):
        return self.pick(self.model(ids, use_cache=False) if "gpt" in type(self.model).__name__.lower() else self.model(ids))


def resnet(depth, batch):
    import torchvision

    return getattr(torchvision.models, f"resnet{depth}")(), (rand(batch, 3, 224, 224),)


def image(name, batch):
    import timm

    return timm.create_model(name), (rand(batch, 3, 224, 224),)


def bert(batch):
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig(num_hidden_layers=6))
    return First(model, lambda r: r.last_hidden_state), (torch.randint(0, 30522, (batch, 128)),)


def gpt2(batch):
    from transformers import GPT2Config, GPT2LMHeadModel

    return First(GPT2LMHeadModel(GPT2Config()), lambda r: r.logits), (torch.randint(0, 50257, (batch, 64)),)


def square(n, dtype=torch.float32):
    return Matmul(), (rand(n, n, dtype=dtype), rand(n, n, scale=0.05, dtype=dtype))


def elementwise(*shape):
    return Elementwise(), tuple(rand(*shape) for _ in range(4))


def block():
    return Block(), (rand(4, 128, 768),)


# name: (constructor, flops, bytes moved at least)
N16 = 4096 * 4096
WORKLOADS = {
    "ew16m": (lambda: elementwise(4096, 4096), 0, 5 * 4 * N16),
    "ew4k": (lambda: elementwise(4096), 0, 5 * 4 * 4096),
    "softmax": (lambda: (Softmax(), (rand(4096, 1024),)), 0, 2 * 4 * 4096 * 1024),
    "layernorm": (lambda: (LayerNorm(), (rand(4096, 1024),)), 0, 2 * 4 * 4096 * 1024),
    "mm512": (lambda: square(512), 2 * 512**3, 0),
    "mm1024": (lambda: square(1024), 2 * 1024**3, 0),
    "mm2048": (lambda: square(2048), 2 * 2048**3, 0),
    "mmepi": (lambda: (MatmulEpilogue(), (rand(1024, 1024),)), 2 * 1024 * 1024 * 4096, 0),
    "mm2048bf16": (lambda: square(2048, torch.bfloat16), 2 * 2048**3, 0),
    "conv": (lambda: (Convolution(), (rand(32, 64, 56, 56),)), 2 * 32 * 64 * 64 * 9 * 56 * 56, 0),
    "conv32": (lambda: (Convolution(128, 32), (rand(3, 128, 56, 56),)), 2 * 3 * 128 * 32 * 9 * 56 * 56, 0),
    "attn": (lambda: (Attention(), tuple(rand(4, 12, 512, 64) for _ in range(3))), 4 * 4 * 12 * 64 * (512 * 513 // 2), 0),
    "block": (block, 2 * 512 * 768 * 768 * 12 + 4 * 4 * 12 * 128 * 128 * 64, 0),
    "lstm": (lambda: (Lstm(), (rand(8, 64, 256),)), 2 * 8 * 64 * 1024 * 512, 0),
    "rfft": (lambda: (Fourier("rfft", False), (rand(512, 4096),)), 0, 2 * 4 * 512 * 4096),
    "irfft": (lambda: (Fourier("irfft", True), (rand(512, 2049, 2),)), 0, 2 * 4 * 512 * 4096),
    "fft": (lambda: (Fourier("fft", True), (rand(512, 4096, 2),)), 0, 2 * 8 * 512 * 4096),
    "fft1000": (lambda: (Fourier("fft", True), (rand(2048, 1000, 2),)), 0, 2 * 8 * 2048 * 1000),
    "fft2": (lambda: (Fourier("fft2", True), (rand(8, 1024, 1024, 2),)), 0, 2 * 8 * 8 * 1024 * 1024),
    "rfft2": (lambda: (Fourier("rfft2", False), (rand(64, 256, 256),)), 0, 2 * 4 * 64 * 256 * 256),
    "filter": (lambda: (Filter(4096), (rand(512, 4096),)), 0, 2 * 4 * 512 * 4096),
    "conv1x1": (lambda: (Convolution(256, 64, 1), (rand(8, 256, 56, 56),)), 2 * 8 * 256 * 64 * 56 * 56, 0),
    "conv1x1s2": (lambda: (Convolution(256, 512, 1, 2), (rand(8, 256, 56, 56),)), 2 * 8 * 256 * 512 * 28 * 28, 0),
    "conv3x3s2": (lambda: (Convolution(128, 128, 3, 2), (rand(8, 128, 56, 56),)), 2 * 8 * 128 * 128 * 9 * 28 * 28, 0),
    "conv5x5s2": (lambda: (Convolution(64, 128, 5, 2), (rand(8, 64, 56, 56),)), 2 * 8 * 64 * 128 * 25 * 28 * 28, 0),
    "resnet18_b1": (lambda: resnet(18, 1), 0, 0),
    "resnet18_b8": (lambda: resnet(18, 8), 0, 0),
    "resnet50_b1": (lambda: resnet(50, 1), 0, 0),
    "resnet50_b8": (lambda: resnet(50, 8), 0, 0),
    "vit_b1": (lambda: image("vit_tiny_patch16_224", 1), 0, 0),
    "vit_b8": (lambda: image("vit_tiny_patch16_224", 8), 0, 0),
    "swin_b1": (lambda: image("swin_tiny_patch4_window7_224", 1), 0, 0),
    "bert_b1": (lambda: bert(1), 0, 0),
    "bert_b8": (lambda: bert(8), 0, 0),
    "gpt2_b1": (lambda: gpt2(1), 0, 0),
    "gpt2_b8": (lambda: gpt2(8), 0, 0),
}
TOLERANCE = {"mm2048bf16": 2e-2}


def make(name):
    torch.manual_seed(0)
    module, inputs = WORKLOADS[name][0]()
    return module.eval(), inputs


def error(have, want):
    """max |have - want| / max |want|, in float64; infinity where a result is missing or not finite."""
    have, want = have.double(), want.double()
    e = float((have - want).abs().max() / want.abs().max())
    return e if math.isfinite(e) else math.inf
