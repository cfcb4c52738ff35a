"""Cases of gen_aten.py on dtypes of mixed operands, and on writes to what may be a view or a copy."""
import torch
from aten_support import A, F, Dim, case

AUTO = Dim.DYNAMIC
gen = torch.Generator().manual_seed(11)


def f(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=gen).to(dtype)


def i(*shape, dtype=torch.int64):
    return torch.randint(0, 5, shape, generator=gen).to(dtype)


def promotion():
    add = lambda fn, *a: case("promotion", fn, *a)
    # Operands of rank 0 that take the result's rank before dtypes are promoted.
    add(torch.kron, i(1, 9, dtype=torch.uint8), i())
    add(torch.kron, f(), f(2, 3, dtype=torch.float64))
    add(torch.addr, f(dtype=torch.float64), f(3), f(2))
    add(torch.addr, i(dtype=torch.int64), i(3, dtype=torch.int32), i(2, dtype=torch.int32))
    add(torch.inner, f(), i(3))
    add(torch.inner, i(3, dtype=torch.int32), f(dtype=torch.float64))
    for name in ("all", "any"):
        op = getattr(A, name)
        for x in (i(3, 4, dtype=torch.uint8), i(3, 4, dtype=torch.int8)):
            add(op.default, x)
            add(lambda x, op=op: op.dim(x, 1, True), x)
            add(lambda x, op=op: op.dims(x, [0, 1]), x)
            add(lambda x, op=op: op.dims(x, []), x)
    for reduction in ("none", "mean", "sum"):
        loss = lambda x, y, r=reduction: F.soft_margin_loss(x, y, reduction=r)
        add(loss, f(3, 4), f(3, 4, dtype=torch.float64).sign())
        add(loss, f(3, 4, dtype=torch.bfloat16), f(3, 4).sign())
    # One token attends to itself.
    add(lambda x: F.scaled_dot_product_attention(x, x, x), f(1, 1))
    add(lambda x: F.scaled_dot_product_attention(x, x, x), f(2, 3, 1, 8))


def copies():
    add = lambda fn, *a, **k: case("copies", fn, *a, **k)

    def part(x):
        v = (x + 1).split(2, 2)[-1]
        v.flatten()[:2].add_(4)
        return v

    def rows(x):
        v = x * 2
        v.flatten(1)[:, :2].mul_(5)
        v.transpose(0, 1).reshape(-1)[:3].mul_(7)
        v.transpose(0, 1).contiguous()[:1].mul_(3)
        return v

    def disjoint(x):
        v = x + 0
        v.unfold(0, 2, 2)[1].fill_(9)
        v.as_strided((2, 2), (3, 1))[0].mul_(2)
        return v

    for fn in (part, rows):
        add(fn, f(3, 4, 7, 5))
        add(fn, f(3, 4, 7, 5), dyn=[{0: AUTO, 1: AUTO, 3: AUTO}])
    add(disjoint, f(7))

    def strided(x):
        y = x + 1
        z = (x * 2).t()
        y.as_strided((2,), (2,)).mul_(3)
        y.as_strided((2, 2), (2, 1), 1)[0].fill_(-2)
        return y, z.as_strided((3, 2), (2, 1)), y[1:].as_strided((2, 2), (2, 1))

    add(strided, f(3, 5), dyn=[{0: AUTO, 1: AUTO}])

    def expanded(x, y):
        v, w, u = x.sum(0, keepdim=True), x + 0, x[:1] * 2
        v.expand_as(x).fill_(3)
        w.expand(x.shape).mul_(2)
        u.expand(0, -1).add_(7)
        y.sum().expand_as(y).zero_()
        return v, w, u

    add(expanded, f(3, 5), f(4))
    add(expanded, f(3, 5), f(4), dyn=[{0: AUTO, 1: AUTO}, {0: AUTO}])
