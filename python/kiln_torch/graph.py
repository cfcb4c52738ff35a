"""FX graphs as the JSON that kiln's capture reads: torch.export's schema, without weights."""
from __future__ import annotations

import json
import math

import sympy
import torch

from .sizes import carried, expression, floats, is_float

# The schema's numbers of element types.
DTYPES = {
    torch.uint8: 1, torch.int8: 2, torch.int16: 3, torch.int32: 4, torch.int64: 5, torch.float16: 6, torch.float32: 7,
    torch.float64: 8, torch.complex64: 10, torch.complex128: 11, torch.bool: 12, torch.bfloat16: 13, torch.float8_e4m3fn: 29, torch.float8_e5m2: 30,
}
SYMBOLIC = (torch.SymInt, torch.SymBool, torch.SymFloat)


class Unserialisable(Exception):
    """A value that the schema has no form for, and the name of the node that has it."""

    def __init__(self, what: str, node: str = ""):
        super().__init__(what)
        self.node = node


def is_hopper(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) == (9, 0)


def size(value) -> dict:
    """A size: a number, or an expression of symbols."""
    # A symbol that PyTorch has specialised since is a number too.
    expr = value if isinstance(value, int) else expression(value)
    if isinstance(expr, (int, sympy.Integer)):
        return {"as_int": int(expr)}
    return {"as_expr": {"expr_str": sympy.srepr(expr)}}


def tensor_meta(t: torch.Tensor) -> dict:
    if t.dtype not in DTYPES:
        raise Unserialisable(f"tensors of {t.dtype}")
    return {
        "dtype": DTYPES[t.dtype],
        "sizes": [size(n) for n in t.shape],
        "strides": [size(n) for n in t.stride()],
        "storage_offset": {"as_int": 0},
    }


def overload_name(target) -> str:
    """The name of an overload or function, as the ATen table has it: `aten.add.Tensor`, `_operator.mul`."""
    if isinstance(target, torch._ops.OpOverload):
        namespace, name = target._schema.name.split("::")
        # This op of kiln's is PyTorch's, kept whole.
        namespace = "aten" if (namespace, name) == ("kiln", "scaled_dot_product_attention") else namespace
        return f"{namespace}.{name}.{target._overloadname}"
    return f"{getattr(target, '__module__', '')}.{getattr(target, '__name__', target)}"


def overload(node: torch.fx.Node) -> str:
    return overload_name(node.target)


def bytes_of(node: torch.fx.Node) -> int:
    """The bytes of a tensor, with the sizes of the example that symbols stand for."""
    val = node.meta.get("val")
    if not isinstance(val, torch.Tensor):
        return 0
    sizes = [n if isinstance(n, int) else n.node.hint or 0 for n in val.shape]
    return math.prod(sizes) * val.element_size()


def is_item(node: torch.fx.Node) -> bool:
    """Whether a node takes one of several results of another."""
    import operator

    source = node.args[0] if node.args else None
    return node.target is operator.getitem and isinstance(source, torch.fx.Node) and isinstance(source.meta.get("val"), (tuple, list))


# Ops whose results are values of their own; of others kiln's fusion reads the first result only.
SEPARATE = (torch.ops.aten.max_pool2d_with_indices.default,)


def is_fusible(node: torch.fx.Node) -> bool:
    """Whether what follows the op of a value can join its kernel."""
    return not is_item(node) or node.args[1] == 0 or node.args[0].target in SEPARATE


def floating(x: float) -> float | str:
    """A float as JSON has it."""
    return {float("inf"): "Infinity", float("-inf"): "-Infinity"}.get(x, "NaN" if x != x else x)


class Writer:
    """Writes the nodes of one graph."""

    def __init__(self):
        self.names: dict[torch.fx.Node, str] = {}
        self.tensors: dict[str, dict] = {}
        self.nodes: list[dict] = []

    def argument(self, value) -> dict:
        if isinstance(value, torch.fx.Node):
            kind = "as_sym_int" if isinstance(value.meta.get("val"), (int, *SYMBOLIC)) else "as_tensor"
            return {"as_sym_int": {"as_name": self.names[value]}} if kind == "as_sym_int" else {"as_tensor": {"name": self.names[value]}}
        match value:
            case None | torch.device() | torch.layout() | torch.memory_format() | torch.Generator():
                return {"as_none": True}
            case bool():
                return {"as_bool": value}
            case int():
                return {"as_int": value}
            case float():
                return {"as_float": floating(value)}
            case complex():
                return {"as_complex": {"real": floating(value.real), "imag": floating(value.imag)}}
            case str():
                return {"as_string": value}
            case torch.dtype():
                if value not in DTYPES:
                    raise Unserialisable(f"the dtype {value}")
                return {"as_scalar_type": DTYPES[value]}
            case torch.SymInt() if isinstance(value.node.expr, (int, sympy.Integer)):
                return {"as_int": int(value.node.expr)}
            case list() | tuple():
                return self.sequence(list(value))
        raise Unserialisable(f"the argument {value!r}")

    def sequence(self, values: list) -> dict:
        nodes = [v for v in values if isinstance(v, torch.fx.Node)]
        if any(isinstance(v.meta.get("val"), torch.Tensor) for v in nodes):
            if None not in values:
                return {"as_tensors": [{"name": self.names[v]} for v in values]}
            one = lambda v: {"as_none": True} if v is None else {"as_tensor": {"name": self.names[v]}}
            return {"as_optional_tensors": [one(v) for v in values]}
        if nodes:
            return {"as_sym_ints": [{"as_name": self.names[v]} if isinstance(v, torch.fx.Node) else {"as_int": int(v)} for v in values]}
        kinds = {type(v) for v in values}
        if kinds <= {bool} and values:
            return {"as_bools": values}
        if kinds <= {int}:
            return {"as_ints": values}
        if kinds <= {int, float}:
            return {"as_floats": [float(v) for v in values]}
        raise Unserialisable(f"the argument {values!r}")

    def results(self, node: torch.fx.Node) -> list[dict]:
        val = node.meta.get("val")
        if isinstance(val, torch.Tensor):
            return [self.tensor(node, node.name, val)]
        if isinstance(val, (int, *SYMBOLIC)):
            self.names[node] = node.name
            return [{"as_sym_int": {"as_name": node.name}}]
        if isinstance(val, (tuple, list)):
            out = []
            for k, one in enumerate(val):
                name = f"{node.name}#{k}"
                if isinstance(one, torch.Tensor) and one.dtype in DTYPES:
                    self.tensors[name] = tensor_meta(one)
                out.append({"as_tensor": {"name": name}})
            return out
        raise Unserialisable(f"results of {node.target}")

    def tensor(self, node: torch.fx.Node, name: str, val: torch.Tensor) -> dict:
        self.names[node] = name
        self.tensors[name] = tensor_meta(val)
        return {"as_tensor": {"name": name}}

    def carrier(self, node: torch.fx.Node) -> str:
        """An argument int8[size, 0] by which a size comes in."""
        name, one = f"{node.name}_carrier", {"as_int": 1}
        sizes = [size(node.meta["val"]), {"as_int": 0}]
        self.tensors[name] = {"dtype": DTYPES[torch.int8], "sizes": sizes, "strides": [one, one], "storage_offset": {"as_int": 0}}
        return name

    def scalar(self, node: torch.fx.Node) -> str:
        """An argument float64[] by which a float comes in, and the op that reads it."""
        name = f"{node.name}_scalar"
        self.tensors[name] = {"dtype": DTYPES[torch.float64], "sizes": [], "strides": [], "storage_offset": {"as_int": 0}}
        self.names[node] = node.name
        self.emit("aten._local_scalar_dense.default", {"self": {"as_tensor": {"name": name}}}, [{"as_sym_float": {"as_name": node.name}}])
        return name

    def emit(self, target: str, arguments: dict[str, dict], outputs: list[dict], trace: str | None = None):
        inputs = [{"name": name, "arg": arg} for name, arg in arguments.items()]
        self.nodes.append({"target": target, "inputs": inputs, "outputs": outputs, "metadata": {"stack_trace": trace} if trace else {}})

    def permuted(self, node: torch.fx.Node, order: list[int]) -> str:
        """The name of a node's value with its dimensions in this order."""
        name = f"{node.name}#permuted"
        self.tensors[name] = tensor_meta(node.meta["val"].permute(order))
        self.emit("aten.permute.default", {"self": self.argument(node), "dims": {"as_ints": order}}, [{"as_tensor": {"name": name}}])
        return name

    def node(self, node: torch.fx.Node):
        if is_item(node):
            self.names[node] = f"{node.args[0].name}#{node.args[1]}"
            return
        if isinstance(node.target, torch._ops.OpOverload):
            schema = node.target._schema.arguments
            named = list(zip((a.name for a in schema), node.args)) + list(node.kwargs.items())
        else:
            named = [(f"a{k}" if len(node.args) != 2 else "ab"[k], v) for k, v in enumerate(node.args)]
        self.emit(overload(node), {name: self.argument(value) for name, value in named}, self.results(node), node.meta.get("stack_trace"))


def serialise(inputs: list[torch.fx.Node], nodes: list[torch.fx.Node], outputs: list[torch.fx.Node], orders: list[list[int] | None], frozen) -> bytes:
    """A piece of a graph as JSON: `inputs` are tensors and sizes, of which those in `frozen` are parameters; `outputs` are tensors, each permuted to
    its order. After the tensors come the arguments that carry sizes, then those that carry floats."""
    writer = Writer()
    specs, sizes, env = [], {}, None
    for node in inputs:
        val = node.meta["val"]
        if isinstance(val, torch.Tensor):
            writer.tensor(node, node.name, val)
            if node in frozen:
                specs.append({"parameter": {"arg": {"name": node.name}, "parameter_name": node.name}})
            else:
                specs.append({"user_input": {"arg": {"as_tensor": {"name": node.name}}}})
            env = env or getattr(val, "fake_mode", None) and val.fake_mode.shape_env
        elif not is_float(val):
            writer.names[node] = node.name
            sizes[node.name] = sympy.srepr(expression(val)) if isinstance(val, torch.SymInt) else f"Integer({int(val)})"
            env = env or isinstance(val, torch.SymInt) and val.node.shape_env
    for k in carried(inputs):
        specs.append({"user_input": {"arg": {"as_tensor": {"name": writer.carrier(inputs[k])}}}})
    for k in floats(inputs):
        specs.append({"user_input": {"arg": {"as_tensor": {"name": writer.scalar(inputs[k])}}}})
    for node in nodes:
        try:
            writer.node(node)
        except Unserialisable as error:
            raise Unserialisable(str(error), node.name) from error
    results = [writer.names[o] if order is None else writer.permuted(o, order) for o, order in zip(outputs, orders)]
    ranges = {}
    for symbol, r in (env.var_to_range if env else {}).items():
        bound = lambda x: int(x) if isinstance(x, (int, sympy.Integer)) else None
        ranges[str(symbol)] = {"min_val": bound(r.lower), "max_val": bound(r.upper)}
    return json.dumps(
        {
            "schema_version": {"major": 8, "minor": 0},
            "range_constraints": ranges,
            "sym_inputs": sizes,
            "guards_code": [],
            "graph_module": {
                "graph": {"inputs": [], "outputs": [], "nodes": writer.nodes, "tensor_values": writer.tensors},
                "signature": {
                    "input_specs": specs,
                    "output_specs": [{"user_output": {"arg": {"as_tensor": {"name": name}}}} for name in results],
                },
            },
        }
    ).encode()
