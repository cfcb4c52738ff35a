"""The table of operations: what a row is, and those rows that are one line of text."""
from dataclasses import dataclass
from typing import Callable


@dataclass
class Row:
    """`make` gives the text of a line, or raises Skip. An exact row rounds nothing where its result can be held.
    A row that jumps is not continuous: its operands have to be exact. One that writes is a statement without results."""

    name: str
    family: str
    make: Callable
    exact: bool = False
    jumps: bool = False
    writes: bool = False


ROWS = []


def row(family, exact=False, jumps=False, writes=False):
    """Adds a function of a maker as a row."""

    def add(make):
        ROWS.append(Row(make.__name__, family, make, exact, jumps, writes))
        return make

    return add


def templates(family, text, **flags):
    """Adds a row for each line of text."""
    for template in filter(None, map(str.strip, text.splitlines())):
        ROWS.append(Row(template, family, lambda g, t=template: g.filled(t), **flags))


DTYPES = ("torch.float32", "torch.float64", "torch.bfloat16", "torch.float16", "torch.int64", "torch.int32", "torch.uint8", "torch.int8", "torch.bool")


def casts_to(g, x):
    """A dtype that holds the elements of `x`, or to which integers wrap."""
    finite = x.tensor.isfinite().all()
    small = x.kind != "float" or finite and (x.tensor.numel() == 0 or x.tensor.abs().max() < 120)
    positive = x.kind != "float" or finite and (x.tensor.numel() == 0 or x.tensor.min() >= 0)
    ok = lambda d: "float" in d or d == "torch.bool" or small and (positive or d != "torch.uint8")
    return g.pick(*filter(ok, DTYPES))


@row("cast", exact=True)
def to(g):
    x = g.tensor()
    return f"{x.name}.to({casts_to(g, x)})"


@row("cast", exact=True)
def type_as(g):
    x, y = g.tensor("d"), g.tensor()
    return f"{x.name}.{g.pick('type_as', 'to')}({y.name})"


templates("cast", """
    {xd}.float()
    {xa}.double()
    {xa}.bool()
    {xi}.to(torch.uint8)
    {xa}.to(torch.float32, copy=True)
""", exact=True)

templates("pointwise", """
    {xn} + {ya}
    {xa} + {yn}
    {xn} - {yn}
    {xa} * {ya}
    torch.add({xn}, {yn}, alpha=2)
    torch.sub({xn}, {yn}, alpha=3)
    {xn} + {s}
    {s} - {xn}
    {xa} * {s}
    torch.rsub({xn}, {yn})
    -{xn}
    {xn}.abs()
    {xn}.square()
    {xn}.relu()
    torch.maximum({xa}, {ya})
    torch.minimum({xa}, {ya})
    torch.fmax({xn}, {yn})
    torch.fmin({xn}, {yn})
    {xn}.clamp({s}, 3)
    {xn}.clamp(min={s})
    {xn}.clamp_max({s})
    torch.clamp({xn}, {yn}, {yn2})
    torch.where({xb}, {ya}, {ya2})
    torch.where({xb}, {ya}, {s})
    torch.where({xb}, {s}, {ya})
    {xa}.masked_fill({yb}, {s})
    {xa}.clone()
    {xa}.contiguous()
    torch.positive({xn})
    F.relu6({xn})
    F.hardtanh({xf})
    F.leaky_relu({xf}, 0.5)
    torch.addcmul({xf}, {yf}, {yf2}, value=2)
    torch.lerp({xf}, {yf}, 0.5)
    torch.copysign({xn}, {yn})
    {xf}.nan_to_num(0.5, 2.0, -2.0)
    torch.ldexp({xf}, {yi}.clamp(-2, 3))
    torch.zeros_like({xa})
    torch.ones_like({xa})
    torch.full_like({xa}, {s})
    {xn}.float() / 2
""", exact=True)

templates("pointwise", """
    {xn} // 3
    torch.floor_divide({xn}, 2)
    {xn} % 3
    {xn}.remainder(-2)
    torch.fmod({xn}, 3)
    torch.fmod({xn}, {yn}.abs() + 1)
    torch.remainder({xn}, {yn}.abs() + 1)
    torch.div({xn}, 2, rounding_mode='trunc')
    torch.div({xn}, {yn}.abs() + 1, rounding_mode='floor')
    torch.div({xi}, {yi}.abs() + 1, rounding_mode='trunc')
    {xf}.round()
    {xf}.floor()
    {xf}.ceil()
    {xf}.trunc()
    {xf}.frac()
    {xn}.sign()
    {xn}.sgn()
    torch.heaviside({xf}, {xf})
    F.hardshrink({xf}, 1.0)
    F.threshold({xn}, 1, 20)
    {xn} == {yn}
    {xa} != {ya}
    {xn} < {yn}
    {xa} <= {ya}
    {xn} > {s}
    {xa} >= {s}
    {xa} == {s}
    torch.isclose({xf}, {yf})
    {xf}.isnan()
    {xf}.isfinite()
    {xf}.isinf()
    {xn}.signbit()
    torch.logical_and({xa}, {ya})
    torch.logical_or({xa}, {ya})
    torch.logical_xor({xa}, {ya})
    torch.logical_not({xa})
    ~{xd}
    {xd} & {yd}
    {xd} | {yd}
    {xd} ^ {yd}
    {xi} & 6
    {xi} << 1
    {xi} >> 1
    {xi} ** 2
    torch.gcd({xi}, {yi})
    torch.lcm({xi}.clamp(-9, 9), {yi}.clamp(-9, 9))
    torch.isin({xi}, {yi})
    torch.eq({xn}, {yn}).sum()
    torch.bucketize({xn}, torch.tensor([-2.0, 0.0, 1.5, 4.0]))
""", exact=True, jumps=True)

templates("pointwise", """
    {xa} / {s}
    {xn} / ({yn}.abs() + 0.5)
    {xa} / {yn}
    torch.true_divide({xd}, 4)
    {xn}.exp().clamp(max=50)
    torch.exp(-{xn}.abs())
    torch.expm1({xf}.clamp(-3, 3))
    torch.log({xn}.abs() + 0.5)
    torch.log1p({xn}.abs())
    torch.log2({xn}.abs() + 1)
    {xn}.abs().sqrt()
    torch.rsqrt({xn}.abs() + 0.25)
    {xa}.sin()
    {xa}.cos()
    {xn}.tanh()
    {xn}.sigmoid()
    torch.atan({xn})
    torch.atan2({xf}, {yf}.abs() + 0.5)
    torch.asinh({xf})
    torch.erf({xn})
    torch.erfc({xf})
    torch.sinh({xf}.clamp(-2, 2))
    torch.cosh({xf}.clamp(-2, 2))
    torch.asin({xf}.clamp(-1, 1))
    torch.reciprocal({xn}.abs() + 0.5)
    F.gelu({xf})
    F.gelu({xf}, approximate='tanh')
    F.silu({xf})
    F.softplus({xf})
    F.elu({xf})
    F.mish({xf})
    F.hardswish({xf})
    F.hardsigmoid({xf})
    F.logsigmoid({xf})
    F.selu({xf})
    F.celu({xf}, 1.5)
    F.softsign({xf})
    F.softshrink({xf}, 0.25)
    F.tanhshrink({xf})
    torch.pow({xf}, 3)
    torch.pow({xf}.abs() + 0.5, 0.5)
    torch.pow({xn}.abs() + 1, {yf}.clamp(-2, 2))
    torch.pow(2, {xn}.clamp(0, 6))
    torch.float_power({xn}, 2)
    torch.logaddexp({xf}, {yf})
    torch.hypot({xf}, {yf})
    torch.xlogy({xf}, {yf}.abs() + 0.5)
    torch.addcdiv({xf}, {yf}, {yf2}.abs() + 1, value=0.5)
    torch.lerp({xf}, {yf}, {yf2})
    torch.sinc({xf})
    torch.deg2rad({xn})
    torch.special.entr({xf}.abs())
    torch.logit({xf}, 0.1)
    torch.lgamma({xf}.abs() + 0.5)
    torch.digamma({xf}.abs() + 0.5)
""")

templates("reduce", """
    {xa}.sum()
    {xa}.sum({axis})
    {xa}.sum({axes}, keepdim={keep})
    {xa}.sum({axis}, dtype=torch.float32)
    {xn}.sum(dtype=torch.int32)
    {xa}.amax({axes}, {keep})
    {xa}.amin({axis})
    {xn}.max()
    {xn}.min()
    {xa}.max({axis}).values
    {xn}.aminmax(dim={axis}, keepdim={keep})
    torch.cumsum({xa}, {axis})
    torch.cumsum({xd}, {axis}, dtype=torch.int32)
    torch.cummax({xn}, {axis}).values
    torch.cummin({xn}, {axis}).values
    torch.nansum({xf}, {axis})
    {xi}.prod({axis})
    {xb}.prod()
    torch.sort({xa}, {axis}).values
    torch.sort({xn}, {axis}, descending=True).values
    torch.msort({xn})
    {xn}.median()
    torch.median({xn}, {axis}).values
    torch.diff({xn}, dim={axis})
    torch.trace({xn})
""", exact=True)

templates("reduce", """
    {xn}.max({axis})
    {xa}.min({axis}, keepdim={keep})
    {xn}.argmax()
    {xn}.argmax({axis})
    {xn}.argmin({axis}, keepdim={keep})
    torch.cummax({xn}, {axis})
    torch.cummin({xn}, {axis})
    {xa}.any()
    {xa}.any({axis}, keepdim={keep})
    {xa}.all()
    {xa}.all({axis})
    torch.sort({xa}, stable=True, dim={axis})
    torch.sort({xa}, stable=True, dim={axis}, descending=True)
    torch.argsort({xa}, dim={axis}, stable=True)
    torch.count_nonzero({xa}, {axis})
    torch.count_nonzero({xa})
    torch.mode({xn}, {axis}).values
    torch.searchsorted(torch.sort({xn}, -1).values, {xn})
    torch.nonzero({xa})
    torch.bincount({xi}.abs().flatten(), minlength=4)
    torch.unique({xn})
    torch.equal({xn}, {xn}) * {xn}
""", exact=True, jumps=True)

templates("reduce", """
    {xf}.mean()
    {xf}.mean({axes}, keepdim={keep})
    {xd}.mean({axis}, dtype=torch.float32)
    {xf}.var({axis})
    {xf}.std({axes}, correction=0, keepdim={keep})
    torch.var_mean({xf}, {axis}, keepdim={keep})
    {xf}.norm()
    torch.linalg.vector_norm({xf}, 2, {axes}, {keep})
    torch.linalg.vector_norm({xf}, float('inf'), {axis})
    torch.linalg.vector_norm({xf}, 1, {axis})
    {xf}.prod({axis})
    {xf}.logsumexp({axes}, keepdim={keep})
    torch.logcumsumexp({xf}, {axis})
    torch.cumprod({xf}, {axis})
    torch.softmax({xf}, {axis})
    torch.log_softmax({xf}, {axis})
    torch.softmax({xa}, {axis}, dtype=torch.float32)
    torch.quantile({xf}, 0.25)
    {xf}.nanmean({axis})
    F.normalize({xf}, dim={axis})
    F.glu({xf}, {axis})
    torch.dist({xf}, {yf})
    F.cosine_similarity({xf}, {yf}, dim={axis})
    F.mse_loss({xf}, {xf2})
    F.l1_loss({xf}, {yf}, reduction='none')
    F.smooth_l1_loss({xf}, {yf})
    F.huber_loss({xf}, {yf}, reduction='sum')
    F.binary_cross_entropy_with_logits({xf}, {yf}.sigmoid())
    F.kl_div({xf}, {yf}.sigmoid(), reduction='sum')
    F.soft_margin_loss({xf}, {yf})
""")
