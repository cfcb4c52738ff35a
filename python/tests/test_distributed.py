"""Two processes: DDP and FSDP2 train as in eager."""
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

VOCABULARY, WIDTH, HEADS, STEPS = 64, 32, 4, 6


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        n, s, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, s, 3, HEADS, w // HEADS).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, s, w))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)
        self.blocks = nn.Sequential(Block(), Block())

    def forward(self, tokens):
        return self.head(self.blocks(self.embedding(tokens)))


def sharded(model, kind):
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def losses(rank, kind, backend, folder):
    """Trains in one of two processes, on data of its own, and saves the losses."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/{backend}", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = sharded(Language(), kind)
    call = torch.compile(model, backend=backend)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data, found = torch.Generator().manual_seed(rank), []
    for _ in range(STEPS):
        tokens = torch.randint(0, VOCABULARY, (4, 17), generator=data)
        optimizer.zero_grad()
        loss = F.cross_entropy(call(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    kernels = 0
    if backend == "kiln":
        import kiln_torch

        kernels = sum(r.kernels for r in kiln_torch.reports)
        assert not any(r.eager for r in kiln_torch.reports)
    torch.save((found, kernels), f"{folder}/{backend}.{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.skipif(not dist.is_available(), reason="PyTorch without torch.distributed")
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_losses_are_eagers(kind, tmp_path):
    for backend in ("eager", "kiln"):
        torch.multiprocessing.spawn(losses, (kind, backend, str(tmp_path)), nprocs=2)
    for rank in range(2):
        (want, _), (have, kernels) = (torch.load(tmp_path / f"{backend}.{rank}.pt") for backend in ("eager", "kiln"))
        assert kernels > 20
        torch.testing.assert_close(torch.tensor(have), torch.tensor(want), rtol=1e-5, atol=0)
