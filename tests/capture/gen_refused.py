"""Calls of ATen overloads that eager PyTorch refuses or takes: those of aten_*.pt2 with something changed.

    python gen_refused.py CALLS.json [COUNT [SEED]]   makes so many, with what eager says of each ("" if it runs)
    KILN_ATEN_CALLS=CALLS.json cargo test --test all -- --ignored --nocapture calls_of_a_file > SAID    where kiln differs
    python gen_refused.py --keep CALLS.json...        adds to refused.json: one call for each overload and reason

Each call is {target, tensors: {name: {dtype, sizes}}, inputs: [{name, arg}], eager}; dtypes are torch.export's numbers,
arguments its JSON. Needs torch to make them; tests/capture/refused.rs reads the file. Calls that data decide about are left
out, and those that one kernel of the CPU lacks.
"""
import copy, glob, json, random, re, sys, zipfile
from pathlib import Path

HERE = Path(__file__).parent
NUMBERS = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32", 8: "float64", 12: "bool", 13: "bfloat16", 29: "float8_e4m3fn", 30: "float8_e5m2"}
# What a kernel for the CPU lacks, and what only data decide: no fault of the arguments' types.
NO_FAULT = re.compile(r"not implemented for|not support|unsupported|out of range in self|can't allocate|not enough memory|overflow|is too large|must be defined|INTERNAL ASSERT|ZeroDivision|memory descriptor|primitive descriptor", re.I)


def calls():
    """Every call of the archives whose arguments are all known."""
    seen = set()
    for path in sorted(glob.glob(str(HERE / "aten_*.pt2"))):
        z = zipfile.ZipFile(path)
        name = next(n for n in z.namelist() if n.endswith("models/model.json"))
        graph = json.loads(z.read(name))["graph_module"]["graph"]
        metas = graph["tensor_values"]
        for node in graph["nodes"]:
            target = node["target"].removeprefix("torch.ops.")
            if not target.startswith("aten.") or target == "aten._assert_async.msg":
                continue
            inputs = [{"name": i["name"], "arg": i["arg"]} for i in node["inputs"]]
            text = json.dumps(inputs)
            if "as_sym" in text or "expr" in text:
                continue
            tensors = {}
            for n in names([i["arg"] for i in inputs]):
                m = metas[n]
                tensors[n] = {"dtype": m["dtype"], "sizes": [s.get("as_int", 2) for s in m["sizes"]]}
            key = (target, text, json.dumps(tensors))
            if key not in seen:
                seen.add(key)
                yield {"target": target, "tensors": tensors, "inputs": inputs}


def names(j):
    """Tensors that arguments name."""
    if isinstance(j, list):
        return [n for x in j for n in names(x)]
    if not isinstance(j, dict):
        return []
    if list(j) == ["as_tensor"]:
        return [j["as_tensor"]["name"]]
    if list(j) == ["as_tensors"]:
        return [t["name"] for t in j["as_tensors"]]
    return [n for x in j.values() for n in names(x)]


def value(arg, tensors):
    import torch

    if arg is None:
        return None
    (kind, v), = arg.items()
    if kind == "as_none":
        return None
    if kind == "as_tensor":
        return tensors[v["name"]]
    if kind == "as_tensors":
        return [tensors[t["name"]] for t in v]
    if kind == "as_optional_tensor":
        return value(v, tensors)
    if kind == "as_optional_tensors":
        return [value(x, tensors) for x in v]
    if kind == "as_scalar_type":
        return getattr(torch, NUMBERS[v])
    if kind in ("as_float",):
        return float(v) if isinstance(v, str) else v
    if kind == "as_device":
        return torch.device("cpu")
    if kind in ("as_int", "as_ints", "as_float", "as_floats", "as_bool", "as_bools", "as_string"):
        return v
    raise KeyError(kind)


def eager(call):
    """What PyTorch says: "" if it takes the call, None if it cannot be asked."""
    import torch

    def make(m):
        dtype = getattr(torch, NUMBERS[m["dtype"]])
        return torch.zeros(m["sizes"], dtype=dtype)

    try:
        tensors = {n: make(m) for n, m in call["tensors"].items()}
        packet, overload = call["target"].removeprefix("aten.").rsplit(".", 1)
        op = getattr(getattr(torch.ops.aten, packet), overload)
        given = {i["name"]: i["arg"] for i in call["inputs"]}
        args, kwargs = [], {}
        for a in op._schema.arguments:
            if a.name not in given:
                continue
            if next(iter(given[a.name])) in ("as_memory_format", "as_layout"):
                continue
            kwargs[a.name] = value(given[a.name], tensors)
    except (KeyError, AttributeError, RuntimeError):
        return None
    try:
        op(*args, **kwargs)
        return ""
    except NotImplementedError:
        return None
    except (RuntimeError, IndexError, ValueError, TypeError) as e:
        text = str(e).split("\n")[0].strip()
        return None if NO_FAULT.search(text) else text or None


def changed(call, dice):
    call = copy.deepcopy(call)
    for _ in range(dice.choice([1, 1, 1, 2])):
        places = [("tensor", n) for n in call["tensors"]] * 2 + [("arg", i) for i in range(len(call["inputs"]))]
        kind, which = dice.choice(places)
        if kind == "tensor":
            m = call["tensors"][which]
            sizes = m["sizes"]
            what = dice.randrange(7)
            if what == 0 and sizes:
                sizes.pop(dice.randrange(len(sizes)))
            elif what == 1 and len(sizes) < 5:
                sizes.insert(dice.randrange(len(sizes) + 1), dice.choice([1, 2, 3]))
            elif what in (2, 3) and sizes:
                sizes[dice.randrange(len(sizes))] = dice.choice([1, 2, 3, 4, 5, 7])
            elif what == 4:
                m["sizes"] = dice.choice([[], [1], [3], [2, 3], [2, 3, 4], [2, 3, 4, 5]])
            elif what == 5:
                m["dtype"] = dice.choice([1, 4, 5, 7, 7, 8, 12])
            elif sizes:
                i = dice.randrange(len(sizes))
                sizes[i] = max(1, sizes[i] + dice.choice([-1, 1]))
        else:
            arg = call["inputs"][which]["arg"]
            (k, v), = arg.items()
            if k == "as_int":
                arg[k] = dice.choice([v + 1, v - 1, -v, 0, 1, 2, 3, 5, -1, -2, -7])
            elif k == "as_ints":
                what = dice.randrange(5)
                if what == 0 and v:
                    v.pop(dice.randrange(len(v)))
                elif what == 1 and len(v) < 6:
                    v.insert(dice.randrange(len(v) + 1), dice.choice([-1, 0, 1, 2, 3]))
                elif what == 2 and len(v) > 1:
                    v[0] = v[1]
                elif v:
                    v[dice.randrange(len(v))] = dice.choice([-3, -1, 0, 1, 2, 3, 4, 5, 9])
            elif k == "as_scalar_type":
                arg[k] = dice.choice([1, 4, 5, 7, 8, 12])
            elif k == "as_float":
                arg[k] = dice.choice([0.0, 1.5, -1.0, -0.5, 2.0])
            elif k == "as_tensors" and v:
                dice.choice([v.pop, lambda: v.append(v[0]), v.clear])()
            elif k == "as_string":
                arg[k] = dice.choice(["", "mean", "floor", v + "x", v[:-1], v.replace("b", "a"), v.upper()])
    return call


def main():
    if sys.argv[1] == "--keep":
        return keep(sys.argv[2:])
    count, seed = int(sys.argv[2]) if len(sys.argv) > 2 else 20000, int(sys.argv[3]) if len(sys.argv) > 3 else 1
    dice, base, out, seen = random.Random(seed), {}, [], set()
    for c in calls():
        base.setdefault(c["target"], []).append(c)
    while len(out) < count:
        call = changed(dice.choice(base[dice.choice(sorted(base))]), dice)
        text = json.dumps(call)
        said = None if text in seen else eager(call)
        seen.add(text)
        if said is not None:
            out.append(call | {"eager": said})
    Path(sys.argv[1]).write_text("[\n" + ",\n".join(map(json.dumps, out)) + "\n]\n")
    print(len(out), "calls,", sum(c["eager"] != "" for c in out), "refused by eager")


def keep(paths):
    """One call for each overload and reason, and one for each overload that eager takes."""
    kept = HERE / "refused.json"
    old = json.loads(kept.read_text()) if kept.exists() else []
    kinds = {}
    for c in old + [c for p in paths for c in json.loads(Path(p).read_text())]:
        kinds.setdefault((c["target"], re.sub(r"-?\d+|\[.*?\]|\(.*?\)|'\w*'", "#", c["eager"])[:40]), c)
    out = [kinds[k] for k in sorted(kinds)]
    kept.write_text("[\n" + ",\n".join(map(json.dumps, out)) + "\n]\n")
    print(len(out), "calls in refused.json")


main()
