"""Cases of attention.py: their sizes, inputs and exact results, and kiln's modules for them."""
import math
from dataclasses import dataclass, replace

import torch

BF16, F16, GPU = torch.bfloat16, torch.float16, "cuda"
NAMES = {BF16: "bf16", F16: "f16", torch.float32: "f32", torch.int64: "i64", torch.bool: "i1"}
# Weights and results are rounded, half an ulp each.
LIMITS = {BF16: 5e-3, F16: 8e-4}
CAP, WINDOW = 30.0, 1024
ARGS = "%s: tensor<f32>, %b: tensor<i64>, %h: tensor<i64>, %i: tensor<i64>, %j: tensor<i64>"
PLACE = "%b: tensor<i64>, %h: tensor<i64>, %i: tensor<i64>, %j: tensor<i64>"

# name: the tensor that regions read (NAME, with type SHAPE), the regions, and in torch: (score, b, h,
# i, j, tensor) to (score, mask)
SCORES = {
    "softcap": (None, f"""score {{
  ^bb0({ARGS}):
    %c = kiln.splat [], {CAP} : f32
    %0 = kiln.div %s, %c : tensor<f32>
    %1 = kiln.tanh %0 : tensor<f32>
    %2 = kiln.mul %1, %c : tensor<f32>
    kiln.yield %2 : tensor<f32>
  }}""", lambda s, b, h, i, j, t: (CAP * torch.tanh(s / CAP), None)),
    "alibi": ("heads", f"""score {{
  ^bb0({ARGS}):
    %0 = kiln.gather NAME[%h] dims = [0] : SHAPE[tensor<i64>]
    %1 = kiln.sub %j, %i : tensor<i64>
    %2 = kiln.convert %1 : tensor<i64> to f32
    %3 = kiln.mul %0, %2 : tensor<f32>
    %4 = kiln.add %s, %3 : tensor<f32>
    kiln.yield %4 : tensor<f32>
  }}""", lambda s, b, h, i, j, t: (s + t[h] * (j - i), None)),
    "window": (None, f"""mask {{
  ^bb0({PLACE}):
    %w = kiln.splat [], {WINDOW} : i64
    %0 = kiln.sub %i, %j : tensor<i64>
    %1 = kiln.compare lt %0, %w : tensor<i64>
    kiln.yield %1 : tensor<i1>
  }}""", lambda s, b, h, i, j, t: (s, i - j < WINDOW)),
    "documents": ("tokens", f"""mask {{
  ^bb0({PLACE}):
    %0 = kiln.gather NAME[%b, %i] dims = [0, 1] : SHAPE[tensor<i64>, tensor<i64>]
    %1 = kiln.gather NAME[%b, %j] dims = [0, 1] : SHAPE[tensor<i64>, tensor<i64>]
    %2 = kiln.compare eq %0, %1 : tensor<i64>
    kiln.yield %2 : tensor<i1>
  }}""", lambda s, b, h, i, j, t: (s, t[b, i] == t[b, j])),
}


@dataclass
class Case:
    """Sizes: batch, heads, key heads, queries, keys, elements of a query and of a value."""

    b: int = 1
    h: int = 2
    g: int = 0
    q: int = 128
    k: int = 0
    d: int = 64
    e: int = 0
    dtype: torch.dtype = BF16
    causal: bool = False
    bias: tuple = ()  # a shape; what is added to scores
    mask: tuple = ()  # a shape; where scores are seen
    score: str = ""
    scale: float = 0.0
    tokens: bool = False  # tensors are [b, tokens, heads, elements]
    lengths: str = ""  # "keys": how many count in each batch; "both": of queries as well

    def __post_init__(self):
        self.g, self.k, self.e = self.g or self.h, self.k or self.q, self.e or self.d

    def name(self):
        words = [f"{NAMES[self.dtype]} b{self.b} h{self.h}/{self.g} {self.q}x{self.k} d{self.d}/{self.e}"]
        words += [w for w, on in [("causal", self.causal), ("bias " + "x".join(map(str, self.bias)), self.bias), ("mask " + "x".join(map(str, self.mask)), self.mask), (self.score, self.score), ("lengths of " + self.lengths, self.lengths), ("tokens", self.tokens)] if on]
        return " ".join(words)

    def shapes(self):
        heads = [(self.b, self.h, self.q, self.d), (self.b, self.g, self.k, self.d), (self.b, self.g, self.k, self.e)]
        return [(b, s, h, d) for b, h, s, d in heads] if self.tokens else heads

    def inputs(self):
        all = [torch.randn(s, device=GPU, dtype=self.dtype) for s in self.shapes()]
        if self.bias:
            all.append(torch.randn(self.bias, device=GPU, dtype=self.dtype))
        if self.mask:
            all.append(torch.rand(self.mask, device=GPU) < 0.7)
        kind = SCORES[self.score][0] if self.score else None
        if kind == "heads":
            all.append(torch.exp2(-8.0 * torch.arange(1, self.h + 1, device=GPU) / self.h).float())
        if kind == "tokens":
            all.append(torch.sort(torch.randint(0, 4, (self.b, self.q), device=GPU), -1).values)
        for name, size in (("both", self.q), ("keys", self.k)):
            if self.lengths in ("both", name):
                # None, one and all are among many.
                n = torch.randint(0, size + 1, (self.b,), device=GPU)
                n[: min(3, self.b)] = torch.tensor([size, 0, 1], device=GPU)[: min(3, self.b)].roll(len(name))
                all.append(n)
        return all

    def counts(self, inputs):
        """Sequence lengths of queries and keys per batch."""
        own = list(inputs[len(inputs) - {"": 0, "keys": 1, "both": 2}[self.lengths] :])
        full = lambda n: torch.full((self.b,), n, device=GPU)
        return own.pop(0) if self.lengths == "both" else full(self.q), own.pop(0) if self.lengths else full(self.k)

    def spoiled(self, inputs):
        """With NaN in the padding."""
        queries, keys = self.counts(inputs)
        for x, n in zip(inputs[:3], (queries, keys, keys)):
            axis = 1 if self.tokens else 2
            place = torch.arange(x.shape[axis], device=GPU)
            beyond = place[None, :] >= n[:, None]
            x.masked_fill_(beyond[:, :, None, None] if self.tokens else beyond[:, None, :, None], math.nan)
        return inputs

    def exact(self, inputs):
        q, k, v, *rest = inputs
        queries, keys = self.counts(inputs)
        q, k, v = (t.nan_to_num(0.0) for t in (q, k, v)) if self.lengths else (q, k, v)
        q, k, v = ([t.transpose(1, 2) for t in (q, k, v)] if self.tokens else (q, k, v))
        k, v = (t.repeat_interleave(self.h // self.g, 1) for t in (k, v))
        parts = []
        # Head by head, so that the scores fit into memory.
        for n in range(self.h):
            s = q[:, n : n + 1].double() @ k[:, n : n + 1].double().transpose(-1, -2) * (self.scale or self.d**-0.5)
            own = list(rest)
            part = lambda t: t[..., n : n + 1, :, :] if t.dim() >= 3 and t.shape[-3] != 1 else t
            if self.bias:
                s = s + part(own.pop(0)).double()
            seen = torch.ones_like(s, dtype=torch.bool)
            if self.mask:
                seen = seen & part(own.pop(0))
            i, j = torch.arange(self.q, device=GPU)[:, None], torch.arange(self.k, device=GPU)[None, :]
            if self.score:
                b = torch.arange(self.b, device=GPU)[:, None, None, None]
                s, more = SCORES[self.score][2](s, b, n, i, j, own[0] if own else None)
                seen = seen if more is None else seen & more
            if self.causal:
                seen = seen & (j <= i)
            if self.lengths:
                seen = seen & (j < keys[:, None, None, None]) & (i < queries[:, None, None, None])
            w = torch.softmax(s.masked_fill(~seen, -math.inf), -1).nan_to_num(0.0)
            parts.append(w @ v[:, n : n + 1].double())
        r = torch.cat(parts, 1)
        return r.transpose(1, 2) if self.tokens else r


def tensor(shape, dtype):
    return "tensor<" + "".join(f"{n}x" for n in shape) + NAMES[dtype] + ">"


def ops(n, case, names, types):
    """The lines of case `n` on arguments of these names and types, and its result's name."""
    q, k, v = names[:3]
    rest, lines = list(zip(names[3:], types[3:])), []
    heads = replace(case, tokens=False).shapes() if case.tokens else None
    own = types[:3]
    if case.tokens:
        own = [t if "?" not in t else t for t in [tensor(s, case.dtype) for s in heads]]
        for i, (name, to) in enumerate(zip(names[:3], own)):
            lines.append(f"%t{n}_{i} = kiln.transpose {name} permutation = [0, 2, 1, 3] : {types[i]}")
        q, k, v = (f"%t{n}_{i}" for i in range(3))
    options = ""
    if case.bias:
        name, ty = rest.pop(0)
        options += f" bias {name} : {ty}"
    if case.mask:
        name, _ = rest.pop(0)
        ty = tensor(case.mask, case.dtype)
        lines.append(f"%z{n} = kiln.splat [{', '.join(map(str, case.mask))}], 0.0 : {NAMES[case.dtype]}")
        lines.append(f"%l{n} = kiln.splat [{', '.join(map(str, case.mask))}], {'0xFF80' if case.dtype == BF16 else '0xFC00'} : {NAMES[case.dtype]}")
        lines.append(f"%m{n} = kiln.select {name}, %z{n}, %l{n} : {tensor(case.mask, torch.bool)}, {ty}")
        options += f" bias %m{n} : {ty}"
    for word in {"": [], "keys": ["key_lengths"], "both": ["lengths", "key_lengths"]}[case.lengths]:
        name, ty = rest[len(rest) - (2 if case.lengths == "both" and word == "lengths" else 1)]
        options += f" {word} {name} : {ty}"
    options += " causal" if case.causal else ""
    region = ""
    if case.score:
        region = " " + SCORES[case.score][1]
        if SCORES[case.score][0]:
            name, ty = rest.pop(0)
            region = region.replace("NAME", name).replace("SHAPE", ty)
    scale = f" {{scale = {case.scale} : f64}}" if case.scale else ""
    lines.append(f"%r{n} = kiln.attention {q}, {k}, {v}{options} : {', '.join(own)}{region}{scale}")
    if case.tokens:
        lines.append(f"%u{n} = kiln.transpose %r{n} permutation = [0, 2, 1, 3] : {tensor((case.b, case.h, case.q, case.e), case.dtype)}")
        return lines, f"%u{n}", tensor((case.b, case.q, case.h, case.e), case.dtype)
    return lines, f"%r{n}", tensor((case.b, case.h, case.q, case.e), case.dtype)


def module(cases, inputs):
    args, lines, results, at = [], [], [], 0
    for n, (case, own) in enumerate(zip(cases, inputs)):
        names, types = [f"%a{at + i}" for i in range(len(own))], [tensor(x.shape, x.dtype) for x in own]
        at += len(own)
        args += [f"{a}: {t}" for a, t in zip(names, types)]
        more, name, ty = ops(n, case, names, types)
        lines += more
        results.append((name, ty))
    head = f"func.func @main({', '.join(args)}) -> ({', '.join(t for _, t in results)}) {{"
    end = f"return {', '.join(r for r, _ in results)} : {', '.join(t for _, t in results)}"
    return "\n  ".join([head, *lines, end]) + "\n}\n"


def open_module(case, queries="%q"):
    """Dynamic batch, queries and keys, with this number of queries."""
    args, lines = [], ["%b = kiln.sym @b {min = 1 : i64}", "%q = kiln.sym @q {min = 1 : i64}", "%k = kiln.sym @k {min = 1 : i64}"]
    types = []
    for i, (h, s, d) in enumerate([(case.h, queries, case.d), (case.g, "%k", case.d), (case.g, "%k", case.e)]):
        types.append(f"tensor<?x{h}x{s if s.isdigit() else '?'}x{d}x{NAMES[case.dtype]}>")
        args.append(f"%a{i}: {types[-1]}")
        lines.append(f"kiln.bind_shape %a{i}, [%b, {h}, {s}, {d}] : {types[-1]}")
    out = f"tensor<?x{case.h}x{queries if queries.isdigit() else '?'}x{case.e}x{NAMES[case.dtype]}>"
    lines.append(f"%r = kiln.attention %a0, %a1, %a2{' causal' if case.causal else ''} : {', '.join(types)}")
    return "\n  ".join([f"func.func @main({', '.join(args)}) -> {out} {{", *lines, f"return %r : {out}"]) + "\n}\n"
