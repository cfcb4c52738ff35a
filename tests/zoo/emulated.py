"""Programs for GPUs in a process without one: tensors stay on the host, graphs are cut and laid out as on a GPU, and the emulator runs the kernels.

    ./x emulate python tests/zoo/compiled.py --out FILE --emulate …
"""
import types


def permuted(t, order):
    """The tensor in the memory that a program takes, which need not be row-major."""
    dense = t.permute(order).contiguous()
    return dense.permute([order.index(d) for d in range(t.dim())])


def emulate():
    """From now on programs are compiled for GPU 0, which is the emulator's, and called on tensors of the host."""
    from kiln_torch import _kiln, channels_last, convolutions, partition, program

    for part in (channels_last, convolutions, partition):
        part.DEVICES = {"cpu"}
    on_gpu = lambda options: [(name, "cuda:0" if name == "device" else value) for name, value in options]
    compiled = types.SimpleNamespace(
        compile=lambda graph, options, *rest: _kiln.Program.compile(graph, on_gpu(options), *rest),
        compile_part=lambda part, options, *rest: _kiln.Program.compile_part(part, on_gpu(options), *rest),
    )
    program._kiln = types.SimpleNamespace(Part=_kiln.Part, Program=compiled)
    host = program.Program.host

    def on_host(self, inputs):
        return host(self, [permuted(t, list(self.orders.get(k, range(t.dim())))) for k, t in enumerate(inputs)])

    program.Program.host = on_host
