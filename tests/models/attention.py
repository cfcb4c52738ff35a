"""Makes written_attention.pt2 (float32) and written_attention.bf16.pt2: attention as models write it out, one result a form, with PyTorch's
results beside them (NAME.safetensors, eager on the CPU; for bfloat16 those of the same inputs in float32). PyTorch 2.11.

    python attention.py [OUT_DIR]
"""
import math, sys, torch
from pathlib import Path
from safetensors.torch import save_file

B, H, G, S, D = 2, 4, 2, 16, 16


def soft_cap(q, k, v, mask):
    """Of the score as a whole, with a bool mask, in float32 (Gemma 2)."""
    s = 30 * torch.tanh((q @ k.mT) * D**-0.5 / 30)
    return torch.softmax(s.masked_fill(~mask, -math.inf).float(), -1).to(q.dtype) @ v


def gpt2(q, k, v):
    """A buffer of ones below the diagonal; masked scores have the least number."""
    s = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(D)
    causal = torch.tril(torch.ones(64, 64, dtype=torch.bool))[None, None, :S, :S]
    s = torch.where(causal, s, torch.full([], torch.finfo(s.dtype).min, dtype=s.dtype))
    return torch.matmul(torch.softmax(s, -1).type(v.dtype), v)


def t5(q, k, v, table):
    """A bias by relative position, without a scale."""
    at = torch.arange(S)
    bucket = (at[None, :] - at[:, None]).clamp(-4, 4) + 4
    s = torch.matmul(q, k.transpose(3, 2)) + table[bucket].permute(2, 0, 1)[None]
    return torch.matmul(torch.softmax(s.float(), -1).type_as(s), v)


def llama(q, k, v, padding):
    """Repeated heads of keys and values, and an additive mask."""
    repeat = lambda x: x[:, :G, None].expand(B, G, H // G, S, D).reshape(B, H, S, D)
    low = torch.finfo(q.dtype).min
    at = torch.arange(S)
    seen = (at[None, :] <= at[:, None])[None, None] & padding[:, None, None, :]
    mask = torch.zeros(seen.shape, dtype=q.dtype).masked_fill(~seen, low)
    s = torch.matmul(q, repeat(k).transpose(2, 3)) * D**-0.5 + mask
    return torch.matmul(torch.softmax(s, -1, dtype=torch.float32).to(q.dtype), repeat(v))


def vit(q, k, v):
    """A scaled query."""
    return ((q * D**-0.5) @ k.transpose(-2, -1)).softmax(-1) @ v


def swin(q, k, v, bias, mask):
    """Windows in the batch: a bias by head and a mask by window, in rank 5."""
    q, k, v = (x[:, :, :16].repeat(2, 1, 1, 1) for x in (q, k, v))
    s = (q * D**-0.5) @ k.transpose(-2, -1) + bias[None]
    s = s.view(B, 2, H, 16, 16) + mask[:, None][None]
    return s.view(-1, H, 16, 16).softmax(-1) @ v


def batched(q, k, v):
    """One batch dimension, and an ALiBi bias."""
    q, k, v = (x.reshape(B * H, S, D) for x in (q, k, v))
    slope = torch.exp2(-torch.arange(1, H + 1, dtype=torch.float32)).repeat(B)[:, None, None]
    at = torch.arange(S)
    bias = (slope * (at[None, :] - at[:, None])[None]).to(q.dtype)
    return torch.bmm(torch.softmax(torch.baddbmm(bias, q, k.mT, alpha=D**-0.5), -1), v)


def einsum(q, k, v):
    """Heads behind tokens."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    p = torch.softmax(torch.einsum("bqhd,bkhd->bhqk", q, k) * D**-0.5, -1)
    return torch.einsum("bhqk,bkhd->bqhd", p, v)


def grouped(q, k, v):
    """Rank 5, keys that the heads of a group share."""
    q, k, v = q.reshape(B, G, H // G, S, D), k[:, :G, None], v[:, :G, None]
    return torch.softmax(q @ k.mT / D**0.5, -1) @ v


def by_hand(q, k, v):
    """The softmax itself written out, with rows that see no key: NaN."""
    s = (q @ k.mT) * 0.25
    at = torch.arange(S)
    s = s + torch.where((at[None, :] < at[:, None]) & (at[:, None] != 5), 0.0, -math.inf).to(s.dtype)
    e = torch.exp(s - s.amax(-1, keepdim=True))
    return (e / e.sum(-1, keepdim=True)) @ v


class Written(torch.nn.Module):
    def forward(self, q, keys, v, mask, padding, table, bias, windows):
        # Keys of their own, since equal scores would have several readers.
        k = keys.unbind()
        return (soft_cap(q, k[0], v, mask), gpt2(q, k[1], v), t5(q, k[2], v, table), llama(q, k[3], v, padding), vit(q, k[4], v),
                swin(q, k[5], v, bias, windows), batched(q, k[6], v), einsum(q, k[7], v), grouped(q, k[8], v), by_hand(q, k[9], v))


if __name__ == "__main__":
    out = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)
    for name, dtype in [("written_attention", torch.float32), ("written_attention.bf16", torch.bfloat16)]:
        torch.manual_seed(0)
        r = lambda *s: torch.randn(*s).to(dtype)
        padding = torch.arange(S)[None] >= torch.tensor([0, 7])[:, None]
        mask = torch.rand(B, 1, S, S) < 0.7
        mask[0, 0, 3] = False
        windows = torch.where(torch.rand(2, 16, 16) < 0.7, 0.0, -100.0).to(dtype)
        args = (r(B, H, S, D), r(10, B, H, S, D), r(B, H, S, D), mask, padding, r(9, H), r(H, 16, 16), windows)
        with torch.no_grad():
            # bf16 rounds weights as well: the results are those in float32.
            wide = [a.float() if a.dtype == torch.bfloat16 else a for a in args]
            results = [r.to(dtype) for r in Written()(*wide)]
            program = torch.export.export(Written().eval(), args)
        torch.export.save(program, out / f"{name}.pt2")
        tensors = {f"input_{i}": a.contiguous() for i, a in enumerate(args)}
        save_file(tensors | {f"output_{i}": x.contiguous() for i, x in enumerate(results)}, str(out / f"{name}.safetensors"))
