"""Training of convolutions whose gradients a library computes: what it reads is channels last in memory, or contiguous where there are groups."""
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kiln_torch import backend, channels_last, convolutions, kiln, partition, reports

nn = torch.nn


def network(name):
    block = lambda a, b, **more: [nn.Conv2d(a, b, 3, padding=1, bias=False, **more), nn.BatchNorm2d(b), nn.ReLU()]
    if name == "residual":

        class Residual(nn.Module):
            def __init__(self):
                super().__init__()
                self.stem = nn.Sequential(*block(3, 16, stride=2), nn.MaxPool2d(3, 2, 1))
                self.body = nn.Sequential(*block(16, 16), *block(16, 16)[:2])
                self.head = nn.Linear(16, 5)

            def forward(self, x):
                x = self.stem(x)
                return self.head(torch.relu(x + self.body(x)).mean((2, 3)))

        return Residual(), torch.randn(2, 3, 24, 24)
    if name == "grouped":
        return nn.Sequential(*block(4, 8), *block(8, 8, groups=2), *block(8, 8), nn.Flatten(), nn.Linear(8 * 144, 3)), torch.randn(2, 4, 12, 12)
    if name == "wide":
        wide = nn.Conv2d(8, 8, 7, padding=3, groups=8)
        return nn.Sequential(*block(4, 8), wide, nn.GELU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(8 * 36, 3)), torch.randn(2, 4, 12, 12)
    if name in ("depthwise", "strided"):
        steps = 2 if name == "strided" else 1
        return nn.Sequential(*block(4, 8), *block(8, 8, groups=8, stride=steps), nn.Upsample(scale_factor=steps), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(8 * 36, 3)), torch.randn(2, 4, 12, 12)

    # Attention has four dimensions, too, none of which are pixels.
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches, self.mix, self.head = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 24), nn.Linear(8, 2)

        def forward(self, x):
            x = self.patches(x).flatten(2).transpose(1, 2)
            q, k, v = self.mix(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
            x = (q @ k.transpose(-2, -1)).softmax(-1) @ v
            return self.head(x.transpose(1, 2).flatten(2).mean(1))

    return Mixed(), torch.randn(2, 3, 16, 16)


class Operands(TorchDispatchMode):
    """Notes which operands of gradients of convolutions are as the library wants them, of those with several channels and pixels, not of the user's
    images; whether it sums gradients of biases, and which of depthwise convolutions it computes."""

    def __init__(self, images):
        super().__init__()
        self.images, self.found, self.biases, self.depthwise = images.shape, [], [], set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.convolution_backward.default:
            images = [t for t in args[:2] if t.shape[1] > 1 and t.shape[2] * t.shape[3] > 1 and t.shape != self.images]
            self.biases.append(args[-1][2])
            if args[9] > 1 and args[2].shape[1] == 1:
                self.depthwise.add(tuple(args[-1][:2]))
            grouped = 1 < args[9] < args[1].shape[1]
            layout = torch.contiguous_format if grouped else torch.channels_last
            self.found += [t.is_contiguous(memory_format=layout) for t in images]
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["residual", "depthwise", "strided", "wide", "grouped", "mixed"])
def test_gradients_as_eager(name, device, monkeypatch):
    if device == "cpu":
        monkeypatch.setattr(channels_last, "DEVICES", {"cpu"})
        monkeypatch.setattr(convolutions, "DEVICES", {"cpu"})
        monkeypatch.setattr(backend, "faster_in_eager", lambda graph, _: partition.faster_in_eager(graph, torch.device("cuda")))
    torch.manual_seed(0)
    model, x = network(name)
    gradients = []
    for fn in (model, torch.compile(model, backend=kiln)):
        model.zero_grad()
        model.train()
        given = x.clone().requires_grad_()
        loss = fn(given).square().sum()
        # Dynamo compiles nothing within a mode.
        with Operands(x) as operands:
            loss.backward()
        gradients.append([given.grad, *(p.grad.clone() for p in model.parameters())])
    for got, want in zip(gradients[1], gradients[0]):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        assert [s for n, s in zip(got.shape, got.stride()) if n > 1] == [s for n, s in zip(want.shape, want.stride()) if n > 1]
    if device == "cpu":
        assert operands.found and all(operands.found) and not any(operands.biases)
        # The library computes those by strided inputs alone.
        assert operands.depthwise == ({(True, False)} if name == "strided" else set())


class Mixed(nn.Module):
    """The feed-forward part of a transformer block with a depthwise convolution, as in PVT v2 and Segformer."""

    def __init__(self):
        super().__init__()
        self.up, self.conv, self.down = nn.Linear(8, 64), nn.Conv2d(64, 64, 3, padding=1, groups=64), nn.Linear(64, 8)

    def forward(self, x, height, width):
        y = self.up(x).transpose(1, 2).unflatten(2, (height, width))
        return self.down(nn.functional.gelu(self.conv(y).flatten(2).transpose(1, 2)))


@pytest.mark.parametrize("dynamic", [False, True])
def test_activations_of_flattened_images_are_fused(dynamic, device):
    model = Mixed().eval()
    fn = torch.compile(model, backend=kiln, dynamic=dynamic, options={"freezing": True})
    with torch.no_grad():
        for batch, height, width in ((2, 32, 40), (3, 36, 32)):
            x = torch.randn(batch, height * width, 8)
            torch.testing.assert_close(fn(x, height, width), model(x, height, width), rtol=1e-4, atol=1e-5)
    assert all(r.programs == 1 and not r.eager for r in reports)
    if not dynamic:
        # Of each size two products, and the convolution with its activation; on the host also its padding.
        assert sum(r.kernels for r in reports) == 2 * (3 if device == "cuda" else 4)
