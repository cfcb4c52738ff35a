"""Chooses operands and arguments of a line among the values that a function has so far."""
import re


class Skip(Exception):
    """A row that finds no operands."""


KINDS = {"f": ("float",), "i": ("int",), "b": ("bool",), "n": ("int", "float"), "d": ("int", "bool"), "a": ("float", "int", "bool")}
SCALARS = {"float": ("0.5", "-1.5", "2.0", "3", "0.25", "-2"), "int": ("1", "2", "3", "-1", "5"), "bool": ("True", "False")}


def broadcast(a, b):
    """Whether shapes broadcast together."""
    return all(x == y or 1 in (x, y) for x, y in zip(reversed(a), reversed(b)))


class Maker:
    def __init__(self, random, values, symbolic):
        self.random, self.values, self.symbolic = random, list(values), symbolic
        self.used = []

    def chance(self, p):
        return self.random.random() < p

    def pick(self, *of):
        return self.random.choice(of)

    def int(self, low, high):
        """An integer of [low, high]."""
        return self.random.randint(low, high)

    def some(self, of, most=None):
        of = list(of)
        return sorted(self.random.sample(of, self.random.randint(1, min(len(of), most or len(of))))) if of else []

    def use(self, value):
        self.used.append(value)
        return value

    def tensor(self, kinds="a", ranks=(0, 9), full=False, fits=None):
        """A value of these kinds; the later, the likelier."""
        ok = lambda v: v.kind in KINDS[kinds] and ranks[0] <= v.rank <= ranks[1] and (v.tensor.numel() or not full)
        found = [v for v in self.values if ok(v) and (fits is None or fits(v))]
        if not found:
            raise Skip
        return self.use(self.random.choices(found, [1 + 2 * k for k in range(len(found))])[0])

    def mate(self, x, kinds="a"):
        """A value that broadcasts with `x`."""
        return self.tensor(kinds, fits=lambda v: broadcast(v.shape, x.shape))

    def axis(self, x):
        """A dimension, counted from either end."""
        if not x.rank:
            raise Skip
        d = self.int(0, x.rank - 1)
        return d - x.rank if self.chance(0.4) else d

    def size(self, x, d):
        """The text of a size: of a symbol where sizes are dynamic."""
        return f"{x.name}.shape[{d}]" if self.chance(0.8 if self.symbolic else 0.1) else str(x.shape[d])

    def scalar(self, x):
        kind = x.kind if self.chance(0.8) else self.pick("float", "int")
        if x.tensor.dtype.is_floating_point or str(x.tensor.dtype) != "torch.uint8":
            return self.pick(*SCALARS[kind])
        return self.pick("1", "2", "3", "0.5")

    def index(self, x, d, shape=None):
        """The text of valid positions along a dimension."""
        n = x.shape[d]
        if n == 0:
            raise Skip
        found = [v for v in self.values if v.kind == "int" and v.rank == 1 and v.tensor.numel() and str(v.tensor.dtype) == "torch.int64"]
        if shape is None and found and self.chance(0.4):
            value = self.use(self.pick(*found))
            return self.pick(f"{value.name}.remainder({self.size(x, d)})", f"{value.name}.clamp(0, {self.size(x, d)} - 1)")
        count = self.int(1, 4) if shape is None else shape
        low = -n if self.chance(0.2) and shape is None else 0
        return f"torch.tensor({[self.int(low, n - 1) for _ in range(count)]})"

    def filled(self, template):
        """A template's text. {x…} is the first operand and {y…} broadcasts with it; then a letter of KINDS. {s}: a number."""
        first, chosen = None, {}

        def replaced(match):
            nonlocal first
            key = match[1]
            if key in chosen:
                return chosen[key]
            if key[0] == "x":
                value = self.tensor(key[1])
                first, chosen[key] = first or value, value.name
            elif key[0] == "y":
                chosen[key] = self.mate(first, key[1]).name
            elif key == "s":
                return self.scalar(first)
            elif key == "axis":
                chosen[key] = str(self.axis(first))
            elif key == "axes":
                chosen[key] = str(self.some(range(first.rank)) or [])
            elif key == "keep":
                chosen[key] = str(self.chance(0.5))
            return chosen[key]

        # The first operand comes first, wherever it stands.
        for match in re.finditer(r"\{(x\w+)\}", template):
            replaced(match)
        return re.sub(r"\{(\w+)\}", replaced, template)
