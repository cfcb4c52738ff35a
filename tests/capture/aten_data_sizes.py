"""Cases of gen_aten.py whose results' sizes depend on data."""
import torch
from aten_support import A, Dim, case, f, i, nan


def some(*shape):
    """About half of the elements are 0."""
    return torch.relu(f(*shape))


def experts(x, w, choice):
    """A mixture of experts: each takes the rows that chose it."""
    out = torch.zeros_like(x)
    for e in range(w.shape[0]):
        (rows,) = torch.where(choice == e)
        out.index_add_(0, rows, x[rows] @ w[e])
    return out


def from_item(x, n):
    k = n.item()
    torch._check(k >= 2)
    torch._check(k < 100)
    return torch.arange(k, dtype=torch.float32) + x[:k].sum()


def few(counts):
    torch._check(counts.shape[0] < 100)
    return counts


def data_sizes():
    add = lambda fn, *a, **k: case("data_sizes", fn, *a, **k)
    n, m = Dim("n", min=2, max=64), Dim("m", min=2, max=64)

    for x in (some(4, 5), some(2, 3, 4), some(7), i(0, 2, 6), some(5) > 0, torch.zeros(3, 2), torch.tensor(2.0), torch.tensor(0)):
        add(lambda x: A.nonzero.default(x), x)
    add(lambda x: A.nonzero.default(x), some(4, 5), dyn=[{0: n, 1: m}])
    add(lambda x: A.nonzero_numpy.default(x), some(3, 4))
    add(lambda x: A.where.default(x > 0), f(3, 4), dyn=[{0: n}])
    add(lambda x: A.argwhere.default(x), some(3, 4))

    add(lambda x, y: A.masked_select.default(x, y > 0), f(4, 5), f(5))
    add(lambda x: A.masked_select.default(x, x > 0) * 2, f(4, 5), dyn=[{0: n}])
    add(lambda x: A.masked_select.default(x, x > 100), f(4))
    add(lambda x: x[x > 0].sum(), f(4, 5))
    add(lambda x, k: x[k > 0], f(4, 3, 2), f(4), dyn=[{0: n}, {0: n}])
    add(lambda x, k: x[:, k > 0], f(4, 3, 2), f(3, 2))
    add(lambda x, k: torch.softmax(x[:, k > 0], -1), f(4, 6), f(6))
    add(lambda x: torch.where(x > 0.5, x, -x)[x > 0].cumsum(0), f(9))

    def put(x):
        y = torch.zeros_like(x)
        y[x > 0] = x[x > 0] * 2
        return y

    add(put, f(3, 4))
    for x in (i(0, 4, 9), i(0, 4, 3, 5), i(0, 2, 5) > 0, torch.tensor([0.5, nan, -1.0, 0.5, nan]), i(0, 3, 6, dtype=torch.int32), i(0, 3, 1)):
        add(lambda x: A._unique2.default(x, True, True, True), x)
        add(lambda x: A.unique_consecutive.default(x, True, True), x)
    add(lambda x: A._unique2.default(x)[0] + 1, i(0, 4, 3, 5), dyn=[{0: n}])
    add(lambda x: A.unique_consecutive.default(x, False, False, 0)[0], i(0, 3, 7))

    # Sums: nothing bounds the number of repeats.
    add(lambda x, r: A.repeat_interleave.self_Tensor(x, r, 0).sum(0), f(3, 2), torch.tensor([2, 0, 3]))
    add(lambda r: (A.repeat_interleave.Tensor(r) + 1).prod(), torch.tensor([2, 1, 3]))

    add(from_item, f(200), torch.tensor(7))
    add(lambda x, s: x * A.item.default(s), f(3), torch.tensor(-1.5))
    add(lambda x, s: x + A._local_scalar_dense.default(s), f(3), torch.tensor(-4))
    add(experts, f(6, 4), f(3, 4, 4), torch.tensor([0, 2, 2, 0, 0, 2]))
    add(lambda x: x[x > 0][:, None] + x[x < 0], f(8))

    add(lambda x: few(A.bincount.default(x)), i(0, 6, 9))
    add(lambda x: few(A.bincount.default(x, None, 9)), i(0, 6, 5))
    add(lambda x, w: few(A.bincount.default(x, w)), i(0, 6, 9), f(9))
    add(lambda x, w: A.bincount.default(x, w, 3), i(0, 6, 9, dtype=torch.uint8), i(0, 6, 9))


def filled(x, size):
    return torch.nn.functional.pad(x, [0, size - x.shape[0]])


def padded(x, k, most):
    """The first k of a number of elements that depends on data, padded to a number that does not."""
    chosen = x[x > k]
    n = torch.sym_min(most, chosen.shape[0])
    first = torch.topk(chosen, n).values * 2
    return torch.nn.functional.pad(first, [0, most - n], value=-1.0) + torch.arange(most)


def selections():
    """Selections that may be empty, or as large as what they select from."""
    add = lambda fn, *a, **k: case("selections", fn, *a, **k)
    for least in (-100, 0, 100):
        add(lambda x, k: A.masked_scatter.default(x, x > k, x[x > k] * 2), f(3, 4), torch.tensor(float(least)))
        add(lambda x, k: A.masked_scatter.default(x, (x > k)[:, :1], x[(x > k)[:, 0]]), f(3, 1), torch.tensor(float(least)))
        add(lambda x, k: filled(x[x > k], 12), f(12), torch.tensor(float(least)))
        for most in (1, 4):
            add(lambda x, k, most=most: padded(x, k, most), f(9), torch.tensor(float(least)))
