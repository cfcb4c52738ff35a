"""Cases of gen_aten.py on overloads that write to `out=` or in place, and on overloads that differ from others in a name."""
import torch
from aten_support import A, F, Dim, case

AUTO = Dim.DYNAMIC
gen = torch.Generator().manual_seed(13)


def f(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=gen).to(dtype)


def i(*shape, dtype=torch.int64):
    return torch.randint(1, 6, shape, generator=gen).to(dtype)


def into(op, *like):
    """A function that calls `op` with `out=` tensors like these, and reads them afterwards."""

    def call(*inputs):
        outs = [torch.full(shape, 7, dtype=dtype) for shape, dtype in like]
        found = op(*inputs, out=outs[0] if len(outs) == 1 else tuple(outs))
        found = found if isinstance(found, (tuple, list)) else (found,)
        return *outs, *(r + 0 for r in found)

    return call


def outputs():
    add = lambda op, like, *inputs: case("writes", into(op, *like), *inputs)
    same, wide, bools, words = (((3, 4), d) for d in (torch.float32, torch.float64, torch.bool, torch.int64))
    column = lambda d: ((3,), d)
    for op in (torch.add, torch.sub, torch.mul, torch.div, torch.true_divide, torch.atan2, torch.maximum, torch.fmod, torch.copysign, torch.pow):
        add(op, [same], f(3, 4), f(3, 4))
    for op in (torch.add, torch.sub, torch.mul, torch.maximum, torch.fmod):
        add(op, [wide], i(3, 4), i(4))
    for op in (torch.exp, torch.abs, torch.sigmoid, torch.neg, torch.erf, torch.ceil):
        add(op, [same], f(3, 4))
    add(lambda x, y, out: torch.div(x, y, rounding_mode="floor", out=out), [same], f(3, 4), f(3, 4))
    add(lambda x, out: torch.clamp(x, -0.5, 0.5, out=out), [same], f(3, 4))
    add(lambda x, out: torch.softmax(x, 1, out=out), [same], f(3, 4))
    add(lambda x, out: torch.round(x, decimals=1, out=out), [same], f(3, 4))
    add(torch.eq, [bools], i(3, 4), i(3, 4))
    add(torch.logical_and, [words], i(3, 4), i(3, 4))
    add(torch.bitwise_xor, [words], i(3, 4), i(3, 4))
    for op in (torch.sum, torch.mean, torch.std, torch.var, torch.logsumexp, torch.amax, torch.norm):
        dim = {"p": 2, "dim": 1} if op is torch.norm else {"dim": (1,)}
        add(lambda x, out, op=op, dim=dim: op(x, **dim, out=out), [column(torch.float32)], f(3, 4))
    add(lambda x, out: torch.prod(x, 1, out=out), [column(torch.float64)], f(3, 4))
    add(lambda x, out: torch.sum(x, 1, out=out), [column(torch.float64)], f(3, 4))
    add(lambda x, out: torch.cumsum(x, 1, out=out), [wide], f(3, 4))
    add(lambda x, out: torch.all(x, 1, out=out), [column(torch.bool)], i(3, 4) > 2)
    add(lambda x, out: torch.any(x, out=out), [((), torch.bool)], i(3, 4) > 2)
    add(lambda x, out: torch.max(x, out=out), [((), torch.float32)], f(3, 4))
    add(torch.max, [same], f(3, 4), f(3, 4))
    pair = [column(torch.float32), column(torch.int64)]
    for op in (torch.max, torch.min, torch.median, torch.mode, torch.nanmedian):
        add(lambda x, out, op=op: op(x, 1, out=out), pair, f(3, 4))
    add(lambda x, out: torch.kthvalue(x, 2, 1, out=out), pair, f(3, 4))
    add(lambda x, out: torch.argmax(x, 1, out=out), [column(torch.int64)], f(3, 4))
    add(lambda x, out: torch.topk(x, 2, out=out), [((3, 2), torch.float32), ((3, 2), torch.int64)], f(3, 4))
    add(lambda x, out: torch.sort(x, 1, out=out), [same, words], f(3, 4))
    add(lambda x, out: torch.sort(x, stable=True, dim=0, descending=True, out=out), [same, words], f(3, 4))
    add(torch.mm, [((3, 5), torch.float32)], f(3, 4), f(4, 5))
    add(torch.matmul, [((2, 3, 5), torch.float32)], f(2, 3, 4), f(4, 5))
    add(torch.bmm, [((2, 3, 5), torch.float32)], f(2, 3, 4), f(2, 4, 5))
    add(lambda b, x, y, out: torch.addmm(b, x, y, beta=0.5, out=out), [((3, 5), torch.float32)], f(5), f(3, 4), f(4, 5))
    add(lambda x, y, out: torch.cat((x, y), 1, out=out), [((3, 7), torch.float32)], f(3, 4), f(3, 3))
    add(lambda x, y, out: torch.stack((x, y), out=out), [((2, 3, 4), torch.float32)], f(3, 4), f(3, 4))
    add(lambda m, x, y, out: torch.where(m, x, y, out=out), [same], i(3, 4) > 2, f(3, 4), f(3, 4))
    add(lambda x, j, out: torch.index_select(x, 0, j, out=out), [((2, 4), torch.float32)], f(5, 4), i(2) - 1)
    add(lambda x, j, out: torch.gather(x, 1, j, out=out), [words], i(3, 6), i(3, 4))
    add(lambda x, out: torch.tril(x, out=out), [same], f(3, 4))
    add(lambda x, out: torch.linalg.vector_norm(x, out=out), [((), torch.float32)], f(3, 4))
    add(lambda x, out: torch.add(torch.zeros(3, out=out[0]), x, out=out[1]), [column(torch.float64), column(torch.float32)], f(3))
    add(lambda x, out: torch.add(torch.arange(1, 7, 2, out=out[0]), x, out=out[1]), [column(torch.float32), column(torch.float32)], f(3))


def others():
    add = lambda fn, *a, **k: case("writes", fn, *a, **k)

    def part(x, y):
        buffer = torch.zeros(3, 4)
        torch.mul(x, y, out=buffer[1])
        row = buffer.t()[0]
        torch.add(x[:3], y[:3], out=row)
        return buffer, row + 1

    add(part, f(4), f(4))
    add(lambda x, y: torch.cat((x, y), out=torch.empty(0)), f(3, 4), f(2, 4))
    add(lambda x, y: torch.add(x, y, out=torch.empty(0, dtype=torch.float64)), i(3, 4), i(4))

    def read(x, y):
        y = y * 3
        torch.add(x, y, out=y)
        return y * 2

    add(read, f(3, 4), f(3, 4))
    for name in ("pow_", "float_power_", "floor_divide_", "ldexp_", "copysign_", "fmod_", "remainder_", "xlogy_"):
        wide = torch.float64 if name == "float_power_" else torch.float32
        add(lambda x, y, name=name: getattr(x.abs() + 0.5, name)(y), f(3, 4, dtype=wide), f(4, dtype=wide))
    for name, dtypes in (("bitwise_and", (torch.int64, torch.bool)), ("bitwise_or", (torch.uint8,)), ("bitwise_xor", (torch.int32,)),
                         ("bitwise_left_shift", (torch.int64,)), ("bitwise_right_shift", (torch.int32,))):
        for dtype in dtypes:
            add(lambda x, name=name: getattr(A, name).Scalar_Tensor(6, x), i(3, 4, dtype=dtype))
    add(lambda x: A.remainder.Scalar_Tensor(-7, x), i(3, 4))
    add(lambda x: A.remainder.Scalar_Tensor(2.5, x), i(3, 4))
    add(lambda x: A.split.sizes(x, [1, 0, 3], 1), f(2, 4))
    add(lambda x, y: (A.to.other(x, y), A.to.other(y, x)), f(3), i(3))
    add(lambda x: x.topk(min(3, x.shape[1])), f(2, 6), dyn=[{1: AUTO}])
    add(lambda x: x.topk(x.shape[0] - 3, 0, largest=False), f(7, 2), dyn=[{0: AUTO}])
    add(lambda x: torch.arange(x.shape[0], -x.shape[0], -1.0) + x[0], f(7), dyn=[{0: AUTO}])
    add(lambda x: torch.arange(0.0, x.shape[0], 2.0), f(7), dyn=[{0: AUTO}])
    # Attentions that write slices of a result.
    halves = lambda q, k, v: torch.cat([F.scaled_dot_product_attention(q, k, t, is_causal=True).transpose(1, 2) for t in v.chunk(2, 1)], -1)
    add(halves, f(2, 2, 6, 8), f(2, 2, 6, 8), f(2, 4, 6, 8), dyn=[{0: Dim("b", min=2), 2: Dim("s", min=2)}] * 3)
    add(halves, f(2, 2, 6, 8), f(2, 2, 6, 8), f(2, 4, 6, 8))
    # A product over a padded length, cut back to the length of what it is added to.
    def chunks(x, w):
        batch, length, width = x.shape
        whole = F.pad(x, (0, 0, 0, (-length) % 4))
        apart = whole.reshape(batch, whole.shape[1] // 4, 4, width)
        return x + apart.reshape(batch, -1, width)[:, :length] @ w

    add(chunks, f(2, 7, 8), f(8, 8), dyn=[{0: AUTO, 1: AUTO}, None])
    # Windows that exceed the image.
    for pool in (F.avg_pool2d, F.max_pool2d):
        add(lambda x, pool=pool: pool(x, 64, ceil_mode=True), f(1, 2, 3, 3))
        add(lambda x, pool=pool: pool(x, (6, 2), stride=(4, 2), padding=(1, 0), ceil_mode=True), f(1, 2, 3, 5))
    add(lambda x: F.avg_pool2d(x, 7, stride=6, padding=1, ceil_mode=True, count_include_pad=False), f(1, 2, 3, 3))


def writes():
    outputs()
    others()
