"""Cases of gen_aten.py that mutate aliased views."""
import torch
from aten_support import b, case, f


def in_place():
    """Reads of a base and its views after a write to one of them."""
    add = lambda fn, *a, **k: case("in_place", fn, *a, **k)

    def relu(x):
        y = x * 2
        z = y.relu_()
        return y + 1, z

    def slice_(x):
        y = x.clone()
        row, column, before = y[1], y[:, 1], y[0] + 0
        y[1:3, ::2].add_(10)
        return y, row, column, before

    def select(x):
        y = x.clone()
        flat, t = y.view(-1), y.t()
        y.select(1, 2).mul_(-1)
        t[0].add_(5)
        return y, flat, t

    def transposed(x):
        y = x.clone()
        y.t().add_(torch.arange(4.0).unsqueeze(1))
        y.view(2, -1)[1].sub_(1, alpha=2)
        return y, y.sum(0)

    def twice(x):
        y = x.clone()
        a = y[1:]
        c = a[1:]
        c.fill_(0.5)
        a[0].copy_(y[0])
        return y, a, c

    def masked(x, m):
        y = x.clone()
        v = y[1:]
        v.masked_fill_(m, -1.0)
        return y, v + y[:-1]

    def put(x, ix):
        y = x.clone()
        w = y.t()
        y.index_put_((ix,), torch.tensor(3.0))
        y[ix] += 1
        return y, w

    def mixed(x):
        y = torch.zeros(3, 4, dtype=torch.int64)
        y[1] = x[0].long() + 2
        y[:, 1:].add_(1)
        y[-1, -1] = 9
        return y, y.unsqueeze(0).permute(2, 0, 1)

    def split(x):
        y = x + 0
        a, c = y.split(2, 1)
        a.mul_(2)
        c.add_(a)
        return y, a, c

    def copies(x):
        y = x.clone()
        a, c, d, e = y.t().contiguous(), y.t().reshape(-1), y.contiguous(), y.type_as(x)
        a.add_(1), c.mul_(2), d.sub_(3), e[0].fill_(torch.tensor(7)), y[1].zero_()
        const = torch.tensor([1.0, 2.0])
        const.add_(1)
        return y, a, c, d, e, const

    for fn in (copies, relu, slice_, select, transposed, twice, mixed, split):
        add(fn, f(3, 4) if fn is not transposed else f(4, 4)[:, :4])
    add(masked, f(3, 4), b(2, 4))
    add(put, f(3, 4), torch.tensor([2, 0]))
    add(lambda x: (x.clone().copy_(torch.ones(4, dtype=torch.int64)), x), f(3, 4))

    def dropped(x):
        y = x * 2
        z = y[1:]
        torch.ops.aten.feature_dropout_(torch.dropout_(y, 0.5, False), 0.5, False)
        torch.dropout_(z, 1.0, True)
        return y, z

    # Inputs that draw no random numbers leave those of later families as they are.
    add(dropped, torch.arange(12.0).view(3, 4))
    for op in (torch.ops.aten._is_all_true, torch.ops.aten._is_any_true):
        add(lambda x, op=op: (op(x), op(x[0])), torch.eye(3, dtype=torch.bool))
