"""Writes cases.json: inputs and PyTorch's results for the programs of programs.mlir. Run: python gen_cases.py > cases.json"""

import json
import sys

import torch
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

torch.manual_seed(0)
NAMES = {torch.float64: "f64", torch.int64: "i64"}
cases = []


def rand(*shape):
    # Few digits, for a short and exact file.
    return (torch.randn(*shape, dtype=torch.float64) * 64).round() / 64


def spell(t):
    return [NAMES[t.dtype], list(t.shape), t.flatten().tolist()]


def case(name, inputs, results):
    cases.append({"name": name, "in": [spell(t) for t in inputs], "out": [spell(t) for t in results]})


for x in (torch.tensor([1.0, -2.0, 0.5]).double(), torch.tensor([1.0, -1.0, 0.0]).double(), torch.tensor([1.0, 2.0, 0.5]).double()):
    case("if_by_sign", [x], [-x if x.sum() < 0 else x if x.sum() == 0 else x.exp()])

for a, n in ((2.0, 3), (9.0, 0)):
    x = a
    for _ in range(n):
        x = (x + a / x) * 0.5
    case("newton", [torch.tensor(a, dtype=torch.float64), torch.tensor(n)], [torch.tensor(x, dtype=torch.float64), torch.tensor(n)])

for steps in (4, 0):
    h, x, w = rand(2, 3), rand(steps, 2, 3), rand(3, 3)
    last, rows = h, []
    for i in range(steps):
        last = torch.tanh(torch.nn.functional.linear(last, w) + x[i])
        rows.append(last)
    case("rnn", [h, x, w], [last, torch.stack(rows) if rows else torch.zeros(0, 2, 3).double()])

x = rand(5, 2)
last, rows = torch.zeros(2).double(), []
for i in reversed(range(5)):
    last = last * 0.5 + x[i]
    rows.insert(0, last)
case("discounted_returns", [x], [last, torch.stack(rows)])

x = rand(3, 4)
case("scan_in_scan", [x], [x.sum(), x.flatten().cumsum(0).reshape(3, 4)])

q, k, v = rand(2, 4, 5, 8), rand(2, 2, 5, 8), rand(2, 2, 5, 3)
slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625]).double()
window = create_block_mask(lambda b, h, i, j: (j <= i) & (i - j <= 2), 2, 4, 5, 5, device="cpu", BLOCK_SIZE=8)
out, aux = flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + slopes[h] * (j - i), block_mask=window, enable_gqa=True, return_aux=AuxRequest(lse=True))
case("alibi_window", [q, k, v, slopes], [out, aux.lse])

q, k, v = rand(1, 2, 6, 4), rand(1, 2, 6, 4), rand(1, 2, 6, 4)
doc = torch.tensor([0, 0, 1, 1, 1, 2])
mask = create_block_mask(lambda b, h, i, j: (doc[i] == doc[j]) & (j <= i), 1, 2, 6, 6, device="cpu", BLOCK_SIZE=8)
out = flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: torch.tanh(s / 2.0) * 2.0, block_mask=mask)
case("softcap_documents", [q, k, v, doc], [out])

q, k, v, bias = rand(2, 2, 3, 4), rand(2, 2, 5, 4), rand(2, 2, 5, 6), rand(2, 1, 3, 5)
case("sdpa_bias", [q, k, v, bias], [scaled_dot_product_attention(q, k, v, attn_mask=bias.expand(2, 2, 3, 5), scale=0.3)])

sys.stdout.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]\n")
