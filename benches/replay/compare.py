"""Matches the kernels of two builds by what they are, then by name, and prints differences."""

import collections
import difflib
import hashlib
import json
import re

import normal

# What a program says of its kernels to readers, and what follows from the package's format.
DESCRIPTIONS = {"name", "object", "kind", "ops", "sources", "not_fused", "bytes", "flops"}
# Below this share of common lines, two kernels are not versions of one.
ALIKE = 0.5


def digest(data):
    data = data.encode() if isinstance(data, str) else data
    return hashlib.sha256(data).hexdigest()


class Matches:
    """same: pairs of symbols; changed: pairs; removed, added: symbols of BASE, of the work."""

    def __init__(self):
        self.same, self.changed, self.removed, self.added = [], [], [], []

    def names(self):
        """Symbols of either side to what they are called in the comparison of programs."""
        base, work = {}, {}
        for i, (b, w) in enumerate(self.same + self.changed):
            base[b] = work[w] = f"kernel{i}"
        base |= {b: f"removed_{i}" for i, b in enumerate(self.removed)}
        work |= {w: f"added_{i}" for i, w in enumerate(self.added)}
        return base, work


def take_equal(base, work, key):
    """Removes pairs with equal keys from both lists, equal names first, and returns them."""
    waiting = collections.defaultdict(list)
    for w in work:
        waiting[key(1, w)].append(w)
    pairs = []
    for b in list(base):
        found = waiting.get(key(0, b))
        if found:
            w = b if b in found else found[0]
            found.remove(w)
            base.remove(b)
            work.remove(w)
            pairs.append((b, w))
    return pairs


def match(base, work, text):
    """Matches kernels. `base` and `work` map symbols to (name, bytes); `text(side, symbols)` gives
    the normal forms of some, by symbol."""
    found, left = Matches(), (list(base), list(work))
    sides = (base, work)
    found.same = take_equal(*left, lambda side, k: (k, digest(sides[side][k][1])))
    texts = (text(0, left[0]), text(1, left[1])) if left[0] and left[1] else ({}, {})
    if left[0] and left[1]:
        found.same += take_equal(*left, lambda side, k: texts[side][k])
        found.changed = take_equal(*left, lambda side, k: sides[side][k][0])
    counts = [
        {
            k: collections.Counter(map(normal.masked, texts[side].get(k, "").splitlines()))
            for k in left[side]
        }
        for side in (0, 1)
    ]
    alike = [(share(counts[0][b], counts[1][w]), b, w) for b in left[0] for w in left[1]]
    for how, b, w in sorted(alike, reverse=True):
        if how >= ALIKE and b in left[0] and w in left[1]:
            left[0].remove(b)
            left[1].remove(w)
            found.changed.append((b, w))
    found.removed, found.added = left
    return found, texts


def share(a, b):
    """The share of lines that two multisets have in common, from 0 to 1."""
    return 2 * (a & b).total() / max(1, a.total() + b.total())


def program(value, names, exprs=(), memo=None):
    """The normal form of a program's manifest: sizes written out, kernels by `names`, no
    descriptions."""
    if isinstance(value, list):
        return [program(v, names, exprs, memo) for v in value]
    if not isinstance(value, dict):
        return value
    if "kernels" in value and "exprs" in value:
        exprs, memo = value["exprs"], {}
        value = {k: v for k, v in value.items() if k not in ("exprs", "format")}
    if len(value) == 1 and next(iter(value)) in ("known", "symbol", "expr"):
        return size(value, exprs, memo if memo is not None else {})
    if "role" in value and "source" in value:
        value = value | {"source": value["source"].rsplit("/", 1)[-1]}
    is_kernel = "symbol" in value and "ops" in value
    out = {}
    for key, v in value.items():
        if is_kernel and key in DESCRIPTIONS or key == "source" and "role" not in value:
            # A source that is no weight's is a line of the input.
            continue
        if isinstance(v, str) and v in names and key in ("symbol", "entry"):
            v = names[v]
        out[key] = program(v, names, exprs, memo)
    return out


OPERATORS = {"add": "+", "sub": "-", "mul": "*"}


def size(value, exprs, memo):
    """A size as text."""
    if "known" in value:
        return str(value["known"])
    if "symbol" in value:
        return f"s{value['symbol']}"
    at = value["expr"]
    if at not in memo and isinstance(at, int) and at < len(exprs):
        e = exprs[at]
        sides = [size(e[k], exprs, memo) for k in ("lhs", "rhs") if isinstance(e.get(k), dict)]
        kind = e.get("kind")
        infix = kind in OPERATORS and len(sides) == 2
        text = f"({f' {OPERATORS[kind]} '.join(sides)})" if infix else f"{kind}({', '.join(sides)})"
        # Shared parts would make it exponential.
        memo[at] = text if len(text) < 500 else f"size_{digest(text)[:12]}"
    return memo.get(at, f"expr {at}")


def descriptions(value):
    """What a manifest says to readers, of every kernel; files without their folders."""
    if isinstance(value, list):
        return [d for v in value for d in descriptions(v)]
    if not isinstance(value, dict):
        return []
    own = [{k: value.get(k) for k in DESCRIPTIONS - {"bytes", "flops"}}] if "ops" in value else []
    for kernel in own:
        kernel["sources"] = [re.sub(r"[^\s()]*/", "", s) for s in kernel["sources"] or ()]
    return own + [d for v in value.values() for d in descriptions(v)]


def program_text(manifest, names):
    return json.dumps(program(manifest.get("program", {}), names), indent=1, sort_keys=True) + "\n"


def diff(base, work, base_label, work_label, context=3):
    """A unified diff, aligned by lines without register numbers: a register that is numbered
    otherwise is no difference, unless nothing else differs."""
    a, b = base.splitlines(), work.splitlines()
    keys = [list(map(normal.masked, lines)) for lines in (a, b)]
    if keys[0] == keys[1]:
        keys = [a, b]
    out = [f"--- {base_label}", f"+++ {work_label}"]
    groups = difflib.SequenceMatcher(None, *keys, autojunk=False).get_grouped_opcodes(context)
    for group in groups:
        (_, a0, _, b0, _), (_, _, a1, _, b1) = group[0], group[-1]
        out.append(f"@@ -{a0 + 1},{a1 - a0} +{b0 + 1},{b1 - b0} @@")
        for tag, i0, i1, j0, j1 in group:
            if tag == "equal":
                out += [" " + line for line in b[j0:j1]]
            else:
                out += ["-" + line for line in a[i0:i1]] + ["+" + line for line in b[j0:j1]]
    return "\n".join(out) + "\n"
