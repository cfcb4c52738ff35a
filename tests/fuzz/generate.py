"""A seed's random function."""
import random

from maker import Maker, Skip
from program import Function, Line, State, Unfit
from rows import ROWS
from values import DTYPES, LAYOUTS, SIZES, Input

import others  # noqa: F401  (its rows)
import views  # noqa: F401

FAMILIES = {"pointwise": 10, "view": 9, "reduce": 6, "join": 5, "index": 4, "product": 3, "layer": 2, "cast": 2, "write": 5}
BY_FAMILY = {f: [r for r in ROWS if r.family == f] for f in FAMILIES}
ATTEMPTS = 80


def drawn_inputs(draw, dynamic):
    """Inputs whose shapes often broadcast with each other. Dynamic sizes are at least 2: export specialises 0 and 1."""
    sizes = [n for n in SIZES if n > 1] if dynamic else SIZES
    if not dynamic and draw.random() < 0.05:
        sizes = (1,)
    base = [draw.choice(sizes) for _ in range(draw.choice((1, 2, 2, 3, 3, 4)))]
    square = draw.random() < 0.2
    found = []
    for k in range(draw.choice((1, 2, 2, 3, 3, 4))):
        shape = base[draw.randint(0, len(base)) :] if k and draw.random() < 0.5 else list(base)
        if square and len(shape) > 1:
            shape[-1] = shape[-2]
        if k and draw.random() < 0.3:
            shape = [1 if draw.random() < 0.4 else n for n in shape]
        if k and draw.random() < 0.15:
            draw.shuffle(shape)
        found.append(Input(f"x{k}", draw.choice(DTYPES), tuple(shape), draw.choice(LAYOUTS), draw.randrange(1 << 30)))
    return found


def drawn_line(draw, state, count, symbolic):
    """One more line, or None if the drawn row does not fit."""
    family = draw.choices(list(FAMILIES), FAMILIES.values())[0]
    row = draw.choice(BY_FAMILY[family])
    maker = Maker(draw, state.values.values(), symbolic)
    try:
        text = row.make(maker)
    except (Skip, IndexError, ValueError):
        return None
    operands = tuple(dict.fromkeys(v.name for v in maker.used))
    return Line(() if row.writes else (f"v{count}",), text, operands, row.name, row.exact, row.jumps)


def generate(seed, dynamic=False):
    """The function of a seed: the same one always, also across versions of PyTorch as far as they accept the same lines."""
    draw = random.Random(f"{seed} {dynamic}")
    function = Function(seed, drawn_inputs(draw, dynamic))
    state, wanted, count = State(function), draw.randint(3, 12), 0
    for _ in range(ATTEMPTS):
        if len(function.lines) == wanted:
            break
        line = drawn_line(draw, state, count, dynamic)
        if line is None:
            continue
        try:
            state.step(line)
        except Unfit as e:
            # Results of a list are as many names; the first two or three are enough.
            if line.names and str(e) == "another number of results":
                line = Line((f"v{count}", f"v{count + 1}"), f"({line.text})[:2]", line.operands, line.row, line.exact, line.jumps)
                try:
                    state.step(line)
                except Unfit:
                    line = None
            elif not line.names:
                state, line = function.evaluated(), None
            else:
                line = None
            if line is None:
                for name in [n for n in state.values if n.startswith("v") and int(n[1:]) >= count]:
                    del state.values[name]
                continue
        function.lines.append(line)
        count += len(line.names)
    read = {n for line in function.lines for n in line.operands}
    leaves = [n for n in state.values if n not in read and n.startswith("v")]
    others_ = [n for n in state.values if n not in leaves]
    function.results = leaves + draw.sample(others_, min(len(others_), draw.randint(0, 2)))
    if draw.random() < 0.05:
        function.results.append(function.results[0])
    return function if function.results and function.lines else None
