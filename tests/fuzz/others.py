"""Rows of indexing, of products and layers, and of writes."""
from maker import Skip
from rows import row, templates

templates("index", """
    {xa}[{yb}]
    torch.masked_select({xa}, {yb})
    torch.take_along_dim({xa}, torch.argsort({xa}, dim={axis}, stable=True), {axis})
    {xa}.index_put([torch.tensor([0, -1])], {xa}[0])
    torch.where({xb}, {xb}, ~{xb})
""", exact=True, jumps=True)


@row("index", exact=True)
def index(g):
    x = g.tensor(ranks=(1, 4), full=True)
    d = g.int(0, x.rank - 1)
    return f"{x.name}[{':, ' * d}{g.index(x, d)}]"


@row("index", exact=True)
def index_two(g):
    x = g.tensor(ranks=(2, 4), full=True)
    a, b = g.index(x, 0, 3), g.index(x, x.rank - 1, 3)
    return f"{x.name}[{a}, {'..., ' if x.rank > 2 else ''}{b}]"


@row("index", exact=True)
def index_select(g):
    x = g.tensor(ranks=(1, 4), full=True)
    d = g.int(0, x.rank - 1)
    return f"{x.name}.index_select({d}, torch.tensor({[g.int(0, x.shape[d] - 1) for _ in range(g.int(1, 4))]}))"


@row("index", exact=True)
def gather(g):
    x = g.tensor(ranks=(1, 3), full=True)
    i = g.tensor("i", fits=lambda v: str(v.tensor.dtype) == "torch.int64" and v.rank == x.rank)
    d = g.int(0, x.rank - 1)
    return f"{x.name}.gather({d}, {i.name}.remainder({g.size(x, d)}))"


@row("index", exact=True)
def scatter(g):
    x = g.tensor(ranks=(1, 3), full=True)
    d = g.int(0, x.rank - 1)
    i = f"torch.zeros_like({x.name}, dtype=torch.int64)"
    if g.chance(0.5):
        found = g.tensor("i", fits=lambda v: str(v.tensor.dtype) == "torch.int64" and v.rank == x.rank)
        i = f"{found.name}.remainder({g.size(x, d)})"
    if g.chance(0.3):
        return f"{x.name}.scatter({d}, {i}, {g.scalar(x)})"
    y = g.tensor(fits=lambda v: v.rank == x.rank and v.tensor.dtype == x.tensor.dtype)
    if g.chance(0.5):
        return f"{x.name}.scatter_reduce({d}, {i}, {y.name}, '{g.pick('sum', 'amax', 'amin')}', include_self={g.chance(0.5)})"
    return f"{x.name}.scatter_add({d}, {i}, {y.name})"


@row("index", exact=True)
def index_add(g):
    x = g.tensor(ranks=(1, 3), full=True)
    y = g.tensor(fits=lambda v: v.shape[1:] == x.shape[1:] and v.rank == x.rank and v.shape[0] and v.tensor.dtype == x.tensor.dtype)
    at = f"torch.tensor({[g.int(0, x.shape[0] - 1) for _ in range(y.shape[0])]})"
    return f"{x.name}.index_add(0, {at}, {y.name})"


@row("index", exact=True)
def index_copy(g):
    x = g.tensor(ranks=(1, 3), full=True)
    at = g.random.sample(range(x.shape[0]), g.int(1, x.shape[0]))
    return f"{x.name}.index_copy(0, torch.tensor({at}), {x.name}[:{len(at)}])"


@row("index", exact=True)
def index_put(g):
    x = g.tensor(ranks=(1, 3), full=True)
    at = g.index(x, 0, g.int(1, 3))
    if g.chance(0.5):
        return f"{x.name}.index_put(({at},), {x.name}[0], accumulate=True)"
    return f"{x.name}.index_put(({at},), torch.tensor({g.scalar(x)}, dtype={x.tensor.dtype}))"


@row("index", exact=True)
def index_fill(g):
    x = g.tensor(ranks=(1, 3), full=True)
    d = g.int(0, x.rank - 1)
    return f"{x.name}.index_fill({d}, {g.index(x, d, 2)}, {g.scalar(x)})"


@row("index", exact=True)
def take(g):
    x = g.tensor(ranks=(1, 3), full=True)
    i = g.tensor("i", fits=lambda v: str(v.tensor.dtype) == "torch.int64")
    return f"{x.name}.take({i.name}.remainder({x.tensor.numel()}))"


@row("index", exact=True)
def embedding(g):
    x = g.tensor("f", ranks=(2, 2), full=True)
    i = g.tensor("i", fits=lambda v: str(v.tensor.dtype) in ("torch.int64", "torch.int32"))
    return f"F.embedding({i.name}.remainder({g.size(x, 0)}), {x.name})"


@row("index", exact=True)
def one_hot(g):
    i = g.tensor("i", fits=lambda v: str(v.tensor.dtype) == "torch.int64", full=True)
    return f"F.one_hot({i.name}.remainder(5), 5)"


@row("index", exact=True)
def written_part(g):
    """select_scatter, slice_scatter, diagonal_scatter."""
    x = g.tensor(ranks=(1, 3), full=True)
    return g.pick(
        f"torch.select_scatter({x.name}, {x.name}[-1], 0, 0)",
        f"torch.slice_scatter({x.name}, {x.name}[:1], 0, 1, 2)",
        f"torch.slice_scatter({x.name}, {x.name}[::2] * 2, 0, 0, None, 2)",
    )


def partner(g, x, fits):
    return g.tensor("n", fits=lambda v: v.tensor.dtype == x.tensor.dtype and fits(v))


@row("product", exact=True)
def matmul(g):
    x = g.tensor("n", ranks=(1, 4))
    y = partner(g, x, lambda v: v.rank and v.shape[max(v.rank - 2, 0)] == x.shape[-1])
    return f"{x.name} @ {y.name}"


@row("product", exact=True)
def matmul_transposed(g):
    x = g.tensor("n", ranks=(2, 4))
    y = partner(g, x, lambda v: v.rank > 1 and v.shape[-1] == x.shape[-1])
    return f"torch.matmul({x.name}, {y.name}.transpose(-1, -2))"


@row("product", exact=True)
def linear(g):
    x = g.tensor("f", ranks=(1, 4))
    y = partner(g, x, lambda v: v.rank == 2 and v.shape[-1] == x.shape[-1])
    bias = [v for v in g.values if v.tensor.dtype == x.tensor.dtype and v.shape == y.shape[:1]]
    return f"F.linear({x.name}, {y.name}{', ' + g.use(g.pick(*bias)).name if bias else ''})"


@row("product", exact=True)
def einsum(g):
    x = g.tensor("n", ranks=(2, 2))
    y = partner(g, x, lambda v: v.rank == 2)
    return f"torch.einsum('{g.pick('ij,kj->ik', 'ij,jk->ki', 'ij,ij->i', 'ij,ij->', 'ij,kl->ijkl', 'ij,ik->jk', 'ij,ij->ji')}', {x.name}, {y.name})"


templates("product", """
    torch.outer({xn}.flatten(), {yn}.flatten())
    torch.mm({xn}, {xn}.t())
    torch.bmm({xn}, {xn}.mT)
    torch.dot({xn}.flatten(), {xn}.flatten())
    torch.addmm({yn}, {xn}, {xn}.t(), beta=2, alpha=3)
    torch.baddbmm({yn}, {xn}, {xn}.mT)
    torch.mv({xn}, {xn}[0])
    torch.inner({xn}, {xn})
    torch.tensordot({xn}, {xn}, 1)
    torch.linalg.vecdot({xf}, {yf})
    torch.cross({xn}, {xn}, dim=-1)
    torch.linalg.matrix_power({xf}, 2)
    torch.cdist({xf}, {xf}, compute_mode="donot_use_mm_for_euclid_dist")
    torch.addr({yn}, {xn}.flatten(), {xn}.flatten())
""", exact=True)

templates("layer", """
    F.layer_norm({xf}, {xf}.shape[-1:])
    F.rms_norm({xf}, {xf}.shape[-1:], eps=0.01)
    F.scaled_dot_product_attention({xf}, {xf}, {xf})
    F.instance_norm({xf})
    F.avg_pool1d({xf}, 2)
    F.adaptive_avg_pool1d({xf}, 3)
    F.adaptive_avg_pool2d({xf}, 2)
    F.avg_pool2d({xf}, 2, stride=1, padding=1)
    F.avg_pool2d({xf}, (1, 2), ceil_mode=True, count_include_pad=False)
    F.interpolate({xf}, scale_factor=2, mode='bilinear')
    F.interpolate({xf}, size=(3, 5), mode='bilinear', align_corners=True)
    F.interpolate({xf}, size=5, mode='linear')
    F.lp_pool1d({xf}.abs(), 2, 2)
    F.local_response_norm({xf}, 2)
    torch.cdist({xf}, {yf}, compute_mode="donot_use_mm_for_euclid_dist")
""")

templates("layer", """
    F.max_pool1d({xn}, 2)
    F.max_pool1d({xn}, 3, stride=1, padding=1)
    F.max_pool2d({xn}, 2)
    F.max_pool2d({xn}, (2, 1), stride=1, ceil_mode=True)
    F.adaptive_max_pool1d({xf}, 2)
    F.interpolate({xf}, scale_factor=2)
    F.interpolate({xf}, size=(3, 4), mode='nearest')
    F.interpolate({xf}, size=5, mode='nearest-exact')
    F.pixel_shuffle({xa}, 2)
    F.pixel_unshuffle({xa}, 2)
    F.channel_shuffle({xa}, 2)
    F.unfold({xf}, (2, 2))
""", exact=True)


def same_dtype(x):
    return f", dtype={x.tensor.dtype}"


@row("layer")
def group_norm(g):
    x = g.tensor("f", ranks=(2, 4), full=True)
    groups = g.pick(*[k for k in range(1, x.shape[1] + 1) if x.shape[1] % k == 0])
    return f"F.group_norm({x.name}, {groups})"


@row("layer")
def batch_norm(g):
    x = g.tensor("f", ranks=(2, 4))
    n = g.size(x, 1)
    return f"F.batch_norm({x.name}, torch.ones({n}{same_dtype(x)}), torch.full(({n},), 0.5{same_dtype(x)}))"


@row("layer", exact=True)
def conv1d(g):
    x = g.tensor("f", ranks=(2, 3), full=True)
    channels = x.shape[-2]
    groups = g.pick(1, 1, channels)
    k = g.int(1, 3)
    weight = f"torch.arange({(2 * groups) * (channels // groups) * k}{same_dtype(x)}).remainder(5).view({2 * groups}, {channels // groups}, {k})"
    return f"F.conv1d({x.name}, {weight}, stride={g.int(1, 2)}, padding={g.int(0, 2)}, dilation={g.int(1, 2)}, groups={groups})"


@row("layer", exact=True)
def conv2d(g):
    x = g.tensor("f", ranks=(3, 4), full=True)
    channels = x.shape[-3]
    groups = g.pick(1, 1, channels)
    k, m = g.int(1, 3), g.int(1, 2)
    size = (2 * groups, channels // groups, k, m)
    weight = f"torch.arange({size[0] * size[1] * k * m}{same_dtype(x)}).remainder(3).view{size}"
    if g.chance(0.25):
        return f"F.conv_transpose2d({x.name}, {weight.replace(f'view{size}', f'view({channels}, 2, {k}, {m})').replace(str(size[0] * size[1] * k * m), str(channels * 2 * k * m), 1)}, stride={g.int(1, 2)})"
    return f"F.conv2d({x.name}, {weight}, stride=({g.int(1, 2)}, 1), padding={g.int(0, 1)}, groups={groups})"


@row("layer")
def cross_entropy(g):
    x = g.tensor("f", ranks=(2, 2), full=True)
    n, c = x.shape
    how = g.pick("mean", "sum", "none")
    return f"F.{g.pick('cross_entropy', 'nll_loss')}({x.name}, torch.tensor({[g.int(0, c - 1) for _ in range(n)]}), reduction='{how}')"


templates("write", """
    {xn}.add_({yn})
    {xn}.sub_({s})
    {xa}.mul_({ya})
    {xa}.copy_({ya})
    {xa}.fill_({s})
    {xa}.zero_()
    {xn}.neg_()
    {xn}.abs_()
    {xn}.clamp_(-2, 3)
    {xn}.relu_()
    {xn} += {yn}
    {xn} *= {s}
    {xa}[0] = {s}
    {xa}[-1] = {xa}[0]
    {xn}[1:] += 2
    {xn}[..., 0] -= 1
    {xn}[::2] *= 2
    {xn}[:, 1:].add_(3)
    {xa}[:, 0] = {s}
    {xa}[1:] = {xa}[:-1].clone()
    {xa}[...] = {ya}
    {xn}.t().mul_(2)
    {xn}.view(-1)[0] = 5
    {xn}.view(-1)[1:].add_(1)
    {xn}.flatten()[:2].add_(4)
    {xn}.reshape(-1)[-1:].sub_(2)
    {xn}.diagonal().add_(7)
    {xa}.diagonal().fill_({s})
    {xn}.unsqueeze(0).add_(1)
    {xn}.transpose(0, 1)[0].copy_({xn}[:, -1])
    {xn}.select(-1, 0).neg_()
    {xn}.unbind()[0].add_(1)
    {xn}.chunk(2)[0].add_(1)
    {xn}.squeeze().add_(1)
    {xa}.masked_fill_({yb}, {s})
    {xa}[{yb}] = {s}
    {xn}.contiguous().add_(1)
    {xb}.logical_not_()
    {xa}.index_fill_(0, torch.tensor([0]), {s})
    {xn}.index_add_(0, torch.tensor([0]), {xn}[:1].clone())
    {xa}[torch.tensor([0])] = {s}
    {xn}[torch.tensor([0, 0])] += 1
    {xa}.swapaxes(0, -1).copy_({ya})
    {xa}.expand_as({ya}).fill_(1)
    {xn}.cumsum_(0)
    {xa}.triu_()
    {xn}.permute(*reversed(range({xn}.dim()))).add_(1)
    {xa}.as_strided((2,), (1,)).fill_({s})
""", exact=True, writes=True)

templates("write", """
    {xf}.floor_()
    {xf}.round_()
    {xn}.sign_()
    {xn}.remainder_(3)
    {xn}.ge_(1)
    {xn}[{xn} > 0] = 1
""", exact=True, jumps=True, writes=True)

templates("write", """
    {xf}.exp_().clamp_(max=9)
    {xf}.sigmoid_()
    {xf}.tanh_()
    {xf}.div_(3)
    {xf}[0] /= 3
    {xf}.t().cos_()
    F.silu({xf}, inplace=True)
    F.elu({xf}, inplace=True)
""", writes=True)


@row("write", exact=True, writes=True)
def scatter_(g):
    x = g.tensor(ranks=(1, 3), full=True)
    i = g.tensor("i", fits=lambda v: str(v.tensor.dtype) == "torch.int64" and v.rank == x.rank)
    y = g.tensor(fits=lambda v: v.rank == x.rank and v.tensor.dtype == x.tensor.dtype)
    return f"{x.name}.scatter_add_(0, {i.name}.remainder({g.size(x, 0)}), {y.name}.clone())"


@row("write", exact=True, writes=True)
def view_write(g):
    """A write of one value to another where their shapes agree after a transpose."""
    x = g.tensor(ranks=(2, 3))
    y = g.tensor(fits=lambda v: v.shape == (*x.shape[:-2], x.shape[-1], x.shape[-2]))
    return f"{x.name}.mT.{g.pick('copy_', 'add_', 'mul_')}({y.name})"
