"""Programs for GPUs in a process without one: tensors stay on the host, graphs are cut and laid out as on a GPU, and the emulator runs the kernels.

    ./x emulate python tests/zoo/compiled.py --out FILE --emulate …
"""
import types


def emulate():
    """From now on programs are compiled for GPU 0, which is the emulator's, and called on tensors of the host."""
    from torch._functorch import config
    from kiln_torch import _kiln, channels_last, convolutions, partition, program

    # Its keys know nothing of this.
    config.enable_autograd_cache = False
    for part in (channels_last, convolutions, partition):
        part.DEVICES = {"cpu"}
    on_gpu = lambda options: [(name, "cuda:0" if name == "device" else value) for name, value in options]
    compiled = types.SimpleNamespace(
        compile=lambda graph, options, *rest: _kiln.Program.compile(graph, on_gpu(options), *rest),
        compile_part=lambda part, options, *rest: _kiln.Program.compile_part(part, on_gpu(options), *rest),
    )
    program._kiln = types.SimpleNamespace(Part=_kiln.Part, Program=compiled)
    host = program.Program.host

    # A GPU's kernels take one order of dimensions, a processor's any strides.
    program.Program.host = lambda self, inputs: host(self, [self.placed(k, t) for k, t in enumerate(inputs)])
    program.Program.quick = lambda self, *placed: self.general
