#!/usr/bin/env python3
"""Small kernels of every GPU strategy at edge lengths, with the interpreter's results.

    cases.py KILN_OPT FOLDER      writes NAME.mlir and NAME.LENGTH.safetensors (inputs and expected outputs); check.sh runs them on a GPU

The cases are those of tests/gpu/cases.txt, where N is the length, M is N + 3, and 8N eight lengths. Each is made once with each length as a number and,
without such multiples, once with the length left open.
"""
import json, os, random, re, struct, subprocess, sys

LENGTHS = [1, 15, 16, 17, 1000]
# Edges of attention tiles, and scan blocks.
MORE = {"attention": [63, 64, 65, 127, 128, 129], "scan": [257, 5000]}
SIZES = {"f64": 8, "f32": 4, "bf16": 2, "f16": 2, "i64": 8, "i32": 4, "i8": 1, "i1": 1}
NAMES = {"f64": "F64", "f32": "F32", "bf16": "BF16", "f16": "F16", "i64": "I64", "i32": "I32", "i8": "I8", "i1": "BOOL"}

HERE = os.path.dirname(os.path.abspath(__file__))


def cases():
    """Names, with the text, and the arguments as (sizes, dtype)."""
    found = {}
    for text in open(os.path.join(HERE, "../../tests/gpu/cases.txt")).read().split("// -----"):
        name = re.search(r"// CASE: (\w+)", text).group(1)
        text = text[text.index("func.func"):].strip()
        head = text[:text.index("->")]
        found[name] = (text, [tensor(t) for t in re.findall(r"tensor<([^>]*)>", head)])
    return found


def tensor(text):
    """Sizes and dtype in tensor<...>."""
    *dims, dtype = text.split("x")
    return dims, dtype


def value(d, n):
    """A dimension's size for a length; 8N is eight lengths."""
    if d[-1] == "N" and d[:-1].isdigit():
        return int(d[:-1]) * n
    return {"N": n, "M": n + 3, "N+M": 2 * n + 3, "N+3": n + 3}.get(d) or int(d)


def lengths(name):
    """The lengths of a case."""
    return sorted(LENGTHS + MORE.get(name.split("_")[0], []))


def scaled(args):
    """Whether an argument size is a multiple of the length, which a dynamic length cannot state."""
    return any(d[0].isdigit() and d.endswith("N") for dims, _ in args for d in dims)


def module(text, args, n):
    """The module with a static length, or a dynamic one if n is None."""
    def size(d):
        return d if d.isdigit() else "?" if n is None else str(value(d, n))

    def sizes(m):
        dims, dtype = tensor(m.group(1))
        return "tensor<" + "".join(size(d) + "x" for d in dims) + dtype + ">"

    def symbol(m):
        return ("%n" if m.group(0) == "N" else "%m") if n is None else str(value(m.group(0), n))

    head, *body = text.splitlines()
    facts = []
    if n is None:
        used = {d for dims, _ in args for d in dims}
        facts += [f"  %{s.lower()} = kiln.sym @{s.lower()} {{min = 1 : i64}}" for s in "NM" if s in used]
        for name, (dims, dtype) in zip(re.findall(r"(%\w+): tensor", head), args):
            if used & set(dims) & {"N", "M"}:
                bound = ", ".join({"N": "%n", "M": "%m"}.get(d, d) for d in dims)
                facts.append(f"  kiln.bind_shape {name}, [{bound}] : tensor<{'x'.join([*dims, dtype])}>")
    body = [re.sub(r"(?<=[\[ ])[NM](?=[,\]])", symbol, line) if "sizes" in line or "kiln.iota" in line else line for line in body]
    return re.sub(r"tensor<([^>]*)>", sizes, "\n".join([head, *facts, *body]) + "\n")


def elements(dtype, count, rng):
    if dtype in ("f64", "f32"):
        return struct.pack(f"<{count}{'d' if dtype == 'f64' else 'f'}", *(rng.uniform(-2, 2) for _ in range(count)))
    if dtype == "f16":
        return struct.pack(f"<{count}e", *(rng.uniform(-2, 2) for _ in range(count)))
    if dtype == "bf16":
        return b"".join(struct.pack("<f", rng.uniform(-2, 2))[2:] for _ in range(count))
    low, high = (0, 1) if dtype == "i1" else (-9, 9)
    return struct.pack(f"<{count}{dict(i64='q', i32='i', i8='b', i1='B')[dtype]}", *(rng.randint(low, high) for _ in range(count)))


def write(path, tensors):
    header, data, at = {}, b"", 0
    for name, (dtype, shape, blob) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(blob)]}
        data, at = data + blob, at + len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def read(path):
    blob = open(path, "rb").read()
    n = struct.unpack("<Q", blob[:8])[0]
    header, base = json.loads(blob[8:8 + n]), 8 + n
    return {k: (v["dtype"], v["shape"], blob[base + v["data_offsets"][0]:base + v["data_offsets"][1]]) for k, v in header.items() if k != "__metadata__"}


def main():
    kiln_opt, folder = sys.argv[1:3]
    os.makedirs(folder, exist_ok=True)
    all_cases = cases()
    for name, (text, args) in all_cases.items():
        for n in lengths(name) if scaled(args) else [None] + lengths(name):
            label = f"{name}.{'open' if n is None else n}"
            open(os.path.join(folder, label + ".mlir"), "w").write(module(text, args, n))
        for n in lengths(name):
            rng = random.Random(f"{name} {n}")
            inputs = {}
            for i, (shape, dtype) in enumerate(args):
                shape = [value(d, n) for d in shape]
                count = 1
                for d in shape:
                    count *= d
                low = elements(dtype, count, rng)
                if name in ("gather", "scatter") and dtype == "i64":
                    low = struct.pack(f"<{count}q", *(rng.randint(0, 9 if name == "gather" else 3) for _ in range(count)))
                inputs[f"input_{i}"] = (NAMES[dtype], shape, low)
            data = os.path.join(folder, f"{name}.{n}.safetensors")
            write(data, inputs)
            source, made = os.path.join(folder, f"{name}.{n}.mlir"), data + ".out"
            ran = subprocess.run([kiln_opt, source, "--execute", "--inputs", data, "--outputs", made], capture_output=True, text=True)
            if ran.returncode:
                sys.exit(f"{source}: {ran.stderr}")
            write(data, inputs | read(made))
            os.remove(made)
    print(f"{len(all_cases)} cases of {len(LENGTHS)} lengths and more in {folder}")


if __name__ == "__main__":
    main()
