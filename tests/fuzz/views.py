"""Rows of views, joins, repetitions and paddings."""
from maker import Skip
from rows import row, templates

templates("view", """
    {xa}.t()
    {xa}.mT
    {xa}.view_as({xa})
    {xa}.flatten()
    {xa}.ravel()
    {xa}.reshape(-1)
    {xa}.view(-1)
    {xa}.squeeze()
    {xa}.squeeze({axis})
    {xa}.squeeze({axes})
    {xa}.unsqueeze({axis})
    {xa}.unsqueeze(-1)
    {xa}[None]
    {xa}[..., None]
    {xa}[..., 0]
    {xa}[0]
    {xa}[-1]
    {xa}[1:]
    {xa}[:-1]
    {xa}[::2]
    {xa}[..., 1::2]
    {xa}[:, 1:]
    {xa}[:, -2:]
    {xa}.unbind({axis})
    {xa}.unbind({axis})[-1]
    {xa}.chunk(2, {axis})
    {xa}.chunk(3, {axis})[0]
    {xa}.split(2, {axis})
    {xa}.split(2, {axis})[-1]
    torch.tensor_split({xa}, 2, {axis})
    {xa}.diagonal()
    {xa}.detach()
    {xa}.expand_as({ya})
    torch.atleast_2d({xa})
    torch.broadcast_tensors({xa}, {ya})
""", exact=True)

templates("join", """
    torch.flip({xa}, {axes})
    torch.tile({xa}, (2,))
    {xa}.repeat(2, *[1] * {xa}.dim())
    torch.repeat_interleave({xa}, 2, {axis})
    torch.repeat_interleave({xa}, 3)
    torch.roll({xa}, 1, {axis})
    torch.roll({xa}, -2, {axis})
    torch.roll({xa}, 3)
    torch.rot90({xa})
    torch.fliplr({xa})
    torch.tril({xa})
    torch.triu({xa}, 1)
    torch.diag_embed({xa})
    torch.block_diag({xn}, {yn})
    torch.hstack([{xa}, {xa}])
    torch.stack([{xa}, {xa}], {axis})
    torch.cat([{xa}, {xa}], {axis})
    torch.arange({xa}.shape[0])
    torch.arange({xa}.numel()).view({xa}.shape) + {xa}
    torch.eye({xa}.shape[-1]) + {xn}
    {xa}.new_zeros({xa}.shape)
    torch.kron({xn}, {yn})
    torch.meshgrid({xn}.flatten(), {yn}.flatten(), indexing='ij')[0]
""", exact=True)


@row("view", exact=True)
def permute(g):
    x = g.tensor(ranks=(2, 5))
    order = list(range(x.rank))
    g.random.shuffle(order)
    return f"{x.name}.permute({', '.join(map(str, order))})"


@row("view", exact=True)
def transpose(g):
    x = g.tensor(ranks=(2, 5))
    return f"{x.name}.{g.pick('transpose', 'swapaxes')}({g.axis(x)}, {g.axis(x)})"


@row("view", exact=True)
def movedim(g):
    x = g.tensor(ranks=(2, 5))
    return f"{x.name}.movedim({g.axis(x)}, {g.axis(x)})"


@row("view", exact=True)
def expand(g):
    x = g.tensor(ranks=(0, 4))
    sizes = [str(g.int(0, 4)) if n == 1 and g.chance(0.7) else g.pick("-1", g.size(x, d)) for d, n in enumerate(x.shape)]
    front = [str(g.int(1, 3))] if g.chance(0.4) else []
    return f"{x.name}.expand({', '.join(front + sizes) or '2'})"


@row("view", exact=True)
def slice(g):
    x = g.tensor(ranks=(1, 5))
    d, n = g.int(0, x.rank - 1), None
    n = x.shape[d]
    low, high = g.pick("", "0", "1", str(-g.int(1, 3))), g.pick("", "-1", str(g.int(0, n + 1)), f"{x.name}.shape[{d}] - 1", f"{x.name}.shape[{d}] // 2")
    step = g.pick("", "", ":2", ":3")
    return f"{x.name}[{':, ' * d}{low}:{high}{step}]"


@row("view", exact=True)
def select(g):
    x = g.tensor(ranks=(1, 5), full=True)
    d = g.axis(x)
    return f"{x.name}.select({d}, {g.int(-x.shape[d], x.shape[d] - 1)})"


@row("view", exact=True)
def narrow(g):
    x = g.tensor(ranks=(1, 5))
    d = g.axis(x)
    start = g.int(0, x.shape[d])
    length = g.int(0, x.shape[d] - start)
    return f"{x.name}.narrow({d}, {start}, {length})" if g.chance(0.5) else f"{x.name}.narrow({d}, {min(1, start)}, {g.size(x, d)} - 1)"


@row("view", exact=True)
def unfold(g):
    x = g.tensor(ranks=(1, 4))
    d = g.axis(x)
    return f"{x.name}.unfold({d}, {g.int(1, max(1, min(3, x.shape[d])))}, {g.int(1, 2)})"


@row("view", exact=True)
def diagonal(g):
    x = g.tensor(ranks=(2, 5))
    return f"{x.name}.diagonal({g.int(-1, 1)}, {g.axis(x)}, {g.axis(x)})"


@row("view", exact=True)
def flatten(g):
    x = g.tensor(ranks=(2, 5))
    a, b = g.some(range(x.rank), 2)[:: x.rank] or [0], x.rank - 1
    return f"{x.name}.flatten({a[0]}, {g.int(a[0], b)})"


@row("view", exact=True)
def merged(g):
    """A view of two adjacent dimensions as one."""
    x = g.tensor(ranks=(2, 5))
    d = g.int(0, x.rank - 2)
    sizes = [g.size(x, k) for k in range(x.rank)]
    sizes[d : d + 2] = [g.pick("-1", f"{sizes[d]} * {sizes[d + 1]}")]
    return f"{x.name}.{g.pick('view', 'reshape', 'reshape')}({', '.join(sizes)})"


@row("view", exact=True)
def parted(g):
    """A view of one dimension as two."""
    x = g.tensor(ranks=(1, 4), full=True)
    d = g.int(0, x.rank - 1)
    divisor = g.pick(*[k for k in range(1, x.shape[d] + 1) if x.shape[d] % k == 0])
    if g.chance(0.3):
        return f"{x.name}.unflatten({d}, ({g.pick('-1', x.shape[d] // divisor)}, {divisor}))"
    sizes = [g.size(x, k) for k in range(x.rank)]
    sizes[d : d + 1] = g.pick(["-1", str(divisor)], [str(divisor), f"{sizes[d]} // {divisor}"], [str(divisor), "-1"])
    return f"{x.name}.{g.pick('view', 'reshape')}({', '.join(sizes)})"


@row("view", exact=True)
def reshape_to(g):
    """Another shape of as many elements."""
    x = g.tensor(ranks=(0, 5), full=True)
    y = [v for v in g.values if v.tensor.numel() == x.tensor.numel() and v.shape != x.shape]
    if y and g.chance(0.6):
        value = g.use(g.pick(*y))
        return f"{x.name}.reshape({value.name}.shape)"
    n, sizes = x.tensor.numel(), []
    while n > 1 and len(sizes) < 3:
        k = g.pick(*[k for k in range(2, n + 1) if n % k == 0])
        sizes.append(k)
        n //= k
    sizes = [str(s) for s in sizes] + (["-1"] if n > 1 or g.chance(0.4) else [])
    return f"{x.name}.reshape([{', '.join(sizes)}])"


@row("view", exact=True)
def as_strided(g):
    """Of a contiguous value, within its storage."""
    x = g.tensor(ranks=(1, 4), full=True, fits=lambda v: v.tensor.is_contiguous())
    n = x.tensor.numel()
    a, b = g.int(1, 3), g.int(1, 3)
    s, t, offset = g.int(0, 3), g.int(1, 2), g.pick("", "", ", 0", ", 1")
    if (a - 1) * s + (b - 1) * t + 1 >= n:
        raise Skip
    return f"{x.name}.as_strided(({a}, {b}), ({s}, {t}){offset})"


@row("view", exact=True)
def view_dtype(g):
    x = g.tensor("i", ranks=(1, 4), fits=lambda v: v.tensor.element_size() == 1)
    return f"{x.name}.view(torch.{g.pick('uint8', 'int8')})"


@row("join", exact=True)
def cat(g):
    x = g.tensor(ranks=(1, 4))
    d = g.int(0, x.rank - 1)
    ok = lambda v: v.rank == x.rank and all(a == b for k, (a, b) in enumerate(zip(v.shape, x.shape)) if k != d)
    parts = [x, *(g.tensor(fits=ok) for _ in range(g.int(1, 3)))]
    return f"torch.cat([{', '.join(p.name for p in parts)}], {d})"


@row("join", exact=True)
def stack(g):
    x = g.tensor(ranks=(0, 3))
    parts = [x, *(g.tensor(fits=lambda v: v.shape == x.shape and v.tensor.dtype == x.tensor.dtype) for _ in range(g.int(1, 2)))]
    return f"torch.stack([{', '.join(p.name for p in parts)}], {g.int(-x.rank - 1, x.rank)})"


@row("join", exact=True)
def pad(g):
    x = g.tensor(ranks=(1, 4))
    amounts = [g.int(-1, 2) for _ in range(2 * g.int(1, min(2, x.rank)))]
    return f"F.pad({x.name}, {amounts}, value={g.scalar(x)})"


@row("join", exact=True)
def pad_by_elements(g):
    x = g.tensor("n", ranks=(2, 3), full=True)
    mode = g.pick("reflect", "replicate", "circular")
    return f"F.pad({x.name}, {[g.int(0, 2), g.int(0, 2)]}, mode='{mode}')"


@row("join", exact=True)
def roll(g):
    x = g.tensor(ranks=(1, 4))
    axes = g.some(range(x.rank), 2)
    return f"torch.roll({x.name}, {[g.int(-3, 4) for _ in axes]}, {axes})"


@row("join", exact=True)
def repeat(g):
    x = g.tensor(ranks=(0, 3))
    times = [g.int(0, 2) if g.chance(0.2) else g.int(1, 2) for _ in range(x.rank + g.int(0, 1))]
    return f"{x.name}.{g.pick('repeat', 'tile')}({times or [2]})"


@row("join", exact=True)
def full(g):
    x = g.tensor(ranks=(1, 3))
    sizes = ", ".join(g.size(x, d) for d in range(x.rank))
    return g.pick(f"torch.full([{sizes}], 2.5)", f"torch.zeros({sizes}, dtype=torch.int64)", f"torch.ones({sizes})", f"torch.arange({g.size(x, 0)}, dtype=torch.float32)")
