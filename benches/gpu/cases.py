#!/usr/bin/env python3
"""Small kernels of every strategy of the GPU, each at lengths where an edge may be wrong, with the interpreter's results.

    cases.py KILN_OPT FOLDER      writes NAME.mlir and NAME.LENGTH.safetensors (inputs and expected outputs); check.sh runs them on a GPU

In a template, N is the length, M is N + 3, 8N eight lengths, and T<…> a tensor; a case is made once with each length as a number and, without such
multiples, once with the length left open.
"""
import json, os, random, re, struct, subprocess, sys

LENGTHS = [1, 15, 16, 17, 1000]
# Edges of tiles of attention.
MORE = {"attention": [63, 64, 65, 127, 128, 129]}
SIZES = {"f64": 8, "f32": 4, "bf16": 2, "f16": 2, "i64": 8, "i32": 4, "i8": 1, "i1": 1}
NAMES = {"f64": "F64", "f32": "F32", "bf16": "BF16", "f16": "F16", "i64": "I64", "i32": "I32", "i8": "I8", "i1": "BOOL"}

# name: arguments, results, body
CASES = {
    "pointwise": (["x: N f32", "y: N f32"], ["N f32"], """
      %0 = kiln.mul %x, %y : T<N f32>
      %1 = kiln.tanh %0 : T<N f32>
      %r0 = kiln.add %1, %x : T<N f32>"""),
    "math": (["x: N f32"], ["N f32", "N f32", "N f32", "N f32"], """
      %r0 = kiln.exp %x : T<N f32>
      %a = kiln.abs %x : T<N f32>
      %r1 = kiln.log1p %a : T<N f32>
      %r2 = kiln.erf %x : T<N f32>
      %s = kiln.sin %x : T<N f32>
      %c = kiln.cos %x : T<N f32>
      %p = kiln.pow %a, %c : T<N f32>
      %r3 = kiln.add %s, %p : T<N f32>"""),
    "broadcast_bf16": (["x: 7,N bf16", "y: N bf16", "z: 7 f32"], ["7,N bf16"], """
      %0 = kiln.broadcast_in_dim %y dims = [1] sizes = [7, N] : T<N bf16>
      %1 = kiln.add %x, %0 : T<7,N bf16>
      %2 = kiln.convert %1 : T<7,N bf16> to f32
      %3 = kiln.broadcast_in_dim %z dims = [0] sizes = [7, N] : T<7 f32>
      %4 = kiln.mul %2, %3 : T<7,N f32>
      %r0 = kiln.convert %4 : T<7,N f32> to bf16"""),
    "chain_bf16": (["x: N bf16", "a: N bf16", "c: N bf16"], ["N bf16", "N bf16"], """
      %0 = kiln.mul %x, %a : T<N bf16>
      %1 = kiln.gelu %0 : T<N bf16>
      %2 = kiln.sigmoid %c : T<N bf16>
      %3 = kiln.mul %1, %2 : T<N bf16>
      %4 = kiln.tanh %c : T<N bf16>
      %r0 = kiln.add %3, %4 : T<N bf16>
      %5 = kiln.abs %a : T<N bf16>
      %6 = kiln.exp %5 : T<N bf16>
      %r1 = kiln.div %x, %6 : T<N bf16>"""),
    "f16": (["x: 4,N f16"], ["4,N f16"], """
      %0 = kiln.sigmoid %x : T<4,N f16>
      %r0 = kiln.mul %x, %0 : T<4,N f16>"""),
    "transpose": (["x: N,33 f32", "y: 33,N f32"], ["33,N f32"], """
      %0 = kiln.transpose %x permutation = [1, 0] : T<N,33 f32>
      %r0 = kiln.add %0, %y : T<33,N f32>"""),
    "concat": (["x: 3,N f32", "y: 3,M f32"], ["3,N+M f32"], """
      %0 = kiln.neg %x : T<3,N f32>
      %r0 = kiln.concat %0, %y axis = 1 : T<3,N f32>, T<3,M f32>"""),
    "pad": (["x: 3,N f32", "v:  f32"], ["3,N+3 f32"], """
      %r0 = kiln.pad %x, %v low = [0, 1] high = [0, 2] : T<3,N f32>, T< f32>"""),
    "integers": (["x: N i64", "y: N i32", "z: N i8"], ["N i64", "N i32", "N i1"], """
      %0 = kiln.convert %y : T<N i32> to i64
      %1 = kiln.mul %x, %0 : T<N i64>
      %r0 = kiln.abs %1 : T<N i64>
      %2 = kiln.convert %z : T<N i8> to i32
      %r1 = kiln.max %2, %y : T<N i32>
      %r2 = kiln.compare lt %2, %y : T<N i32>"""),
    "gather": (["t: 10,N f32", "i: 6 i64"], ["6,N f32"], """
      %r0 = kiln.gather %t[%i] dims = [0] : T<10,N f32>[T<6 i64>]"""),
    "softmax": (["x: 5,N f32"], ["5,N f32"], """
      %r0 = kiln.softmax %x axis = 1 : T<5,N f32>"""),
    "softmax_bf16": (["x: 5,N bf16"], ["5,N bf16"], """
      %r0 = kiln.softmax %x axis = 1 : T<5,N bf16>"""),
    "softmax_long": (["x: 3,8N bf16", "y: 2,40N f32"], ["3,8N bf16", "2,40N f32"], """
      %r0 = kiln.softmax %x axis = 1 : T<3,8N bf16>
      %r1 = kiln.log_softmax %y axis = 1 : T<2,40N f32>"""),
    "softmax_rows": (["x: N,64 f32"], ["N,64 f32"], """
      %r0 = kiln.softmax %x axis = 1 : T<N,64 f32>"""),
    "softmax_columns": (["x: N,6 f32"], ["N,6 f32"], """
      %r0 = kiln.softmax %x axis = 0 : T<N,6 f32>"""),
    "layer_norm": (["x: 9,N f32", "w: N f32", "b: N f32"], ["9,N f32"], """
      %r0 = kiln.layer_norm %x weight %w : T<N f32> bias %b : T<N f32> {rank = 1 : i64, epsilon = 1.0e-05 : f64} : T<9,N f32>"""),
    "layer_norm_bf16": (["x: 9,N bf16", "w: N bf16", "b: N f32"], ["9,N bf16"], """
      %0 = kiln.convert %x : T<9,N bf16> to f32
      %1 = kiln.convert %w : T<N bf16> to f32
      %2 = kiln.layer_norm %0 weight %1 : T<N f32> bias %b : T<N f32> {rank = 1 : i64, epsilon = 1.0e-05 : f64} : T<9,N f32>
      %r0 = kiln.convert %2 : T<9,N f32> to bf16"""),
    "add_rms_norm": (["x: 130,N bf16", "y: 130,N bf16", "w: N bf16"], ["130,N bf16", "130,N bf16"], """
      %r0 = kiln.add %x, %y : T<130,N bf16>
      %r1 = kiln.rms_norm %r0 weight %w : T<N bf16> {rank = 1 : i64, epsilon = 1.0e-06 : f64} : T<130,N bf16>"""),
    "variance": (["x: 5,N f32"], ["5 f32", "5 f32"], """
      %r0 = kiln.mean %x dims = [1] : T<5,N f32>
      %r1 = kiln.var %x dims = [1] {correction = 0.0 : f64} : T<5,N f32>"""),
    "whole": (["x: N,7 f32"], ["N,7 f32"], """
      %0 = kiln.reduce sum %x dims = [0, 1] : T<N,7 f32>
      %1 = kiln.broadcast_in_dim %0 dims = [] sizes = [N, 7] : T< f32>
      %r0 = kiln.sub %x, %1 : T<N,7 f32>"""),
    "sum_rows": (["x: 6,N f32"], ["6 f32"], """
      %r0 = kiln.reduce sum %x dims = [1] : T<6,N f32>"""),
    "sum_columns": (["x: N,6 f32"], ["6 f32"], """
      %r0 = kiln.reduce sum %x dims = [0] : T<N,6 f32>"""),
    "sum_columns_wide": (["x: 70,N bf16", "y: N,136 f32", "z: N,64 i64"], ["N f32", "136 f32", "64 i64"], """
      %0 = kiln.convert %x : T<70,N bf16> to f32
      %1 = kiln.mul %0, %0 : T<70,N f32>
      %r0 = kiln.reduce sum %1 dims = [0] : T<70,N f32>
      %r1 = kiln.reduce max %y dims = [0] : T<N,136 f32>
      %r2 = kiln.reduce sum %z dims = [0] : T<N,64 i64>"""),
    "sum_much": (["x: N,264 f32", "y: 263,N bf16"], [" f32", "264 f32", " bf16"], """
      %0 = kiln.mul %x, %x : T<N,264 f32>
      %r0 = kiln.reduce sum %0 dims = [0, 1] : T<N,264 f32>
      %r1 = kiln.reduce max %x dims = [0] : T<N,264 f32>
      %r2 = kiln.reduce sum %y dims = [0, 1] : T<263,N bf16>"""),
    "sum_middle": (["x: 3,N,5 bf16"], ["3,5 bf16"], """
      %r0 = kiln.reduce sum %x dims = [1] : T<3,N,5 bf16>"""),
    "sum_all": (["x: N,7 f32"], [" f32"], """
      %r0 = kiln.reduce sum %x dims = [0, 1] : T<N,7 f32>"""),
    "max_i64": (["x: 3,N i64"], ["3 i64"], """
      %r0 = kiln.reduce max %x dims = [1] : T<3,N i64>"""),
    "sum_f64": (["x: 3,N f64"], ["3 f64"], """
      %0 = kiln.mul %x, %x : T<3,N f64>
      %r0 = kiln.reduce sum %0 dims = [1] : T<3,N f64>"""),
    "any": (["x: 3,N i1"], ["3 i1"], """
      %r0 = kiln.reduce any %x dims = [1] : T<3,N i1>"""),
    "cumulative": (["x: 3,N f32", "y: N,4 i64"], ["3,N f32", "N,4 i64"], """
      %r0 = kiln.cumulative sum %x axis = 1 : T<3,N f32>
      %r1 = kiln.cumulative max %y axis = 0 : T<N,4 i64>"""),
    "remainder": (["x: N f32", "y: N f32", "z: N f64", "w: N f64"], ["N f32", "N f64"], """
      %0 = kiln.abs %y : T<N f32>
      %1 = kiln.exp %0 : T<N f32>
      %r0 = kiln.rem %x, %1 : T<N f32>
      %r1 = kiln.rem %z, %w : T<N f64>"""),
    "arg_max": (["x: 5,N f32"], ["5 i64"], """
      %r0 = kiln.arg_max %x axis = 1 : T<5,N f32>"""),
    "matmul": (["x: N,17 f32", "y: 17,70 f32"], ["N,70 f32"], """
      %r0 = kiln.dot_general %x, %y batch = [] x [] contract = [1] x [0] : T<N,17 f32>, T<17,70 f32>"""),
    "matmul_wide": (["x: 9,17 f32", "y: 17,N f32"], ["9,N f32"], """
      %r0 = kiln.dot_general %x, %y batch = [] x [] contract = [1] x [0] : T<9,17 f32>, T<17,N f32>"""),
    "matmul_deep": (["x: 20,N f32", "y: N,24 f32"], ["20,24 f32"], """
      %r0 = kiln.dot_general %x, %y batch = [] x [] contract = [1] x [0] : T<20,N f32>, T<N,24 f32>"""),
    "matmul_f64": (["x: N,17 f64", "y: 12,17 f64"], ["N,12 f64"], """
      %r0 = kiln.dot_general %x, %y batch = [] x [] contract = [1] x [1] : T<N,17 f64>, T<12,17 f64>"""),
    "batched_bf16": (["x: 3,N,16 bf16", "y: 3,16,40 bf16"], ["3,N,40 bf16"], """
      %r0 = kiln.dot_general %x, %y batch = [0] x [0] contract = [2] x [1] : T<3,N,16 bf16>, T<3,16,40 bf16>"""),
    "linear_gelu": (["x: N,32 f32", "w: 48,32 f32", "b: 48 f32"], ["N,48 f32"], """
      %0 = kiln.linear %x, %w bias %b : T<48 f32> : T<N,32 f32>, T<48,32 f32>
      %r0 = kiln.gelu %0 : T<N,48 f32>"""),
    "vector_matrix": (["x: 1,N f32", "w: 33,N f32"], ["1,33 f32"], """
      %r0 = kiln.linear %x, %w : T<1,N f32>, T<33,N f32>"""),
    "convolution": (["x: 2,3,9,N f32", "w: 8,3,3,1 f32"], ["2,8,9,N f32"], """
      %r0 = kiln.convolution %x, %w strides = [1, 1] pad = [1, 0] x [1, 0] dilation = [1, 1] : T<2,3,9,N f32>, T<8,3,3,1 f32>"""),
    "depthwise": (["x: 2,4,9,N f32", "w: 4,1,3,1 f32"], ["2,4,7,N f32"], """
      %r0 = kiln.convolution %x, %w strides = [1, 1] pad = [0, 0] x [0, 0] dilation = [1, 1] {groups = 4 : i64} : T<2,4,9,N f32>, T<4,1,3,1 f32>"""),
    "attention_64": (["q: 1,2,N,64 bf16", "k: 1,2,M,64 bf16", "v: 1,2,M,64 bf16"], ["1,2,N,64 bf16"], """
      %r0 = kiln.attention %q, %k, %v : T<1,2,N,64 bf16>, T<1,2,M,64 bf16>, T<1,2,M,64 bf16>"""),
    "attention_128": (["q: 1,1,N,128 f16", "k: 1,1,M,128 f16", "v: 1,1,M,128 f16"], ["1,1,N,128 f16"], """
      %r0 = kiln.attention %q, %k, %v : T<1,1,N,128 f16>, T<1,1,M,128 f16>, T<1,1,M,128 f16>"""),
    "attention_causal_64": (["q: 1,2,N,64 f16", "k: 1,1,N,64 f16", "v: 1,1,N,64 f16"], ["1,2,N,64 f16"], """
      %r0 = kiln.attention %q, %k, %v causal : T<1,2,N,64 f16>, T<1,1,N,64 f16>, T<1,1,N,64 f16>"""),
    "attention_causal_128": (["q: 1,1,N,128 bf16", "k: 1,1,N,128 bf16", "v: 1,1,N,128 bf16"], ["1,1,N,128 bf16"], """
      %r0 = kiln.attention %q, %k, %v causal : T<1,1,N,128 bf16>, T<1,1,N,128 bf16>, T<1,1,N,128 bf16>"""),
    "attention_biased": (["q: 1,2,N,64 bf16", "k: 1,2,M,64 bf16", "v: 1,2,M,64 bf16", "b: 2,N,M bf16"], ["1,2,N,64 bf16"], """
      %r0 = kiln.attention %q, %k, %v bias %b : T<2,N,M bf16> : T<1,2,N,64 bf16>, T<1,2,M,64 bf16>, T<1,2,M,64 bf16>"""),
    "attention_masked": (["q: 1,2,N,64 bf16", "k: 1,2,N,64 bf16", "v: 1,2,N,64 bf16", "m: 1,1,N,N i1"], ["1,2,N,64 bf16"], """
      %z = kiln.splat [], 0.0 : bf16
      %l = kiln.splat [], 0xFF80 : bf16
      %0 = kiln.broadcast_in_dim %z dims = [] sizes = [1, 1, N, N] : T< bf16>
      %1 = kiln.broadcast_in_dim %l dims = [] sizes = [1, 1, N, N] : T< bf16>
      %2 = kiln.select %m, %0, %1 : T<1,1,N,N i1>, T<1,1,N,N bf16>
      %r0 = kiln.attention %q, %k, %v bias %2 : T<1,1,N,N bf16> : T<1,2,N,64 bf16>, T<1,2,N,64 bf16>, T<1,2,N,64 bf16>"""),
    "pool": (["x: 2,3,8,N f32"], ["2,3,4,N f32"], """
      %r0 = kiln.max_pool %x window = [2, 1] strides = [2, 1] padding = [0, 0] dilation = [1, 1] : T<2,3,8,N f32>"""),
}


def dims(text):
    return [d for d in text.split(",") if d]


def value(d, n):
    """A dimension's size for a length; 8N is eight lengths."""
    if d[-1] == "N" and d[:-1].isdigit():
        return int(d[:-1]) * n
    return {"N": n, "M": n + 3, "N+M": 2 * n + 3, "N+3": n + 3}.get(d) or int(d)


def lengths(name):
    """The lengths of a case."""
    return sorted(LENGTHS + MORE.get(name.split("_")[0], []))


def module(args, results, body, n):
    """The text, with the length as a number, or open if n is None."""
    def size(d):
        return d if d.isdigit() else "?" if n is None else str(value(d, n))

    def tensor(m):
        shape, dtype = m.group(1).rsplit(" ", 1)
        return "tensor<" + "".join(size(d) + "x" for d in dims(shape.strip())) + dtype + ">"

    def symbol(m):
        return ("%n" if m.group(0) == "N" else "%m") if n is None else str(value(m.group(0), n))

    names = [a.split(":") for a in args]
    head = ", ".join(f"%{name}: T<{rest[1:]}>" for name, rest in names)
    lines = []
    if n is None:
        used = {d for _, rest in names for d in dims(rest[1:].rsplit(" ", 1)[0].strip())}
        if "N" in used:
            lines.append("%n = kiln.sym @n {min = 1 : i64}")
        if "M" in used:
            lines.append("%m = kiln.sym @m {min = 1 : i64}")
        for name, rest in names:
            shape = dims(rest[1:].rsplit(" ", 1)[0].strip())
            if not all(d.isdigit() for d in shape) and all(d.isdigit() or d in "NM" for d in shape):
                lines.append(f"kiln.bind_shape %{name}, [{', '.join(d if d.isdigit() else {'N': '%n', 'M': '%m'}[d] for d in shape)}] : T<{rest[1:]}>")
    lines += [line.strip() for line in body.strip().splitlines()]
    lines = [re.sub(r"(?<=[\[ ])[NM](?=[,\]])", symbol, line) if "sizes" in line else line for line in lines]
    values = ", ".join(f"%r{i}" for i in range(len(results)))
    types = ", ".join(f"T<{r}>" for r in results)
    text = f"func.func @main({head}) -> ({types}) {{\n  " + "\n  ".join(lines) + f"\n  return {values} : {types}\n}}\n"
    return re.sub(r"T<([^>]*)>", tensor, text)


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
    for name, (args, results, body) in CASES.items():
        # Several lengths of an open one are no size that an input states.
        scaled = any(d[0].isdigit() and d.endswith("N") for a in args for d in dims(a.split(":")[1][1:].rsplit(" ", 1)[0].strip()))
        for n in lengths(name) if scaled else [None] + lengths(name):
            label = f"{name}.{'open' if n is None else n}"
            open(os.path.join(folder, label + ".mlir"), "w").write(module(args, results, body, n))
        for n in lengths(name):
            rng = random.Random(f"{name} {n}")
            inputs = {}
            for i, a in enumerate(args):
                shape, dtype = a.split(":")[1][1:].rsplit(" ", 1)
                shape = [value(d, n) for d in dims(shape)]
                count = 1
                for d in shape:
                    count *= d
                low = elements(dtype, count, rng)
                if name == "gather" and dtype == "i64":
                    low = struct.pack(f"<{count}q", *(rng.randint(0, 9) for _ in range(count)))
                inputs[f"input_{i}"] = (NAMES[dtype], shape, low)
            data = os.path.join(folder, f"{name}.{n}.safetensors")
            write(data, inputs)
            source, made = os.path.join(folder, f"{name}.{n}.mlir"), data + ".out"
            ran = subprocess.run([kiln_opt, source, "--execute", "--inputs", data, "--outputs", made], capture_output=True, text=True)
            if ran.returncode:
                sys.exit(f"{source}: {ran.stderr}")
            write(data, inputs | read(made))
            os.remove(made)
    print(f"{len(CASES)} cases of {len(LENGTHS)} lengths and more in {folder}")


if __name__ == "__main__":
    main()
