"""Compiles a model of one f32 input and one f32 result with libkiln.so, and calls it on ones.

    cargo build --release -p kiln-capi-full
    python3 examples/python/call.py target/release/libkiln.so model.pt2 8 64
"""
import ctypes as c
import math
import sys


class DLTensor(c.Structure):  # DLPack's, as include/kiln.h has it
    _fields_ = [("data", c.c_void_p), ("device_type", c.c_int32), ("device_id", c.c_int32),
                ("ndim", c.c_int32), ("code", c.c_uint8), ("bits", c.c_uint8),
                ("lanes", c.c_uint16), ("shape", c.POINTER(c.c_int64)),
                ("strides", c.POINTER(c.c_int64)), ("byte_offset", c.c_uint64)]


def tensor(data, shape):
    """A row-major tensor of f32 (DLPack: code 2, 32 bits) in the host's memory (device 1)."""
    sizes = (c.c_int64 * len(shape))(*shape)
    return DLTensor(c.addressof(data), 1, 0, len(shape), 2, 32, 1, sizes, None, 0)


def main(library, model, *shape):
    kiln = c.CDLL(library)
    kiln.kiln_last_error.restype = c.c_char_p

    def check(status):
        if status != 0:
            raise RuntimeError(kiln.kiln_last_error().decode())

    program = c.c_void_p()
    check(kiln.kiln_program_compile(model.encode(), None, None, c.byref(program)))
    shape = [int(n) for n in shape]
    x = (c.c_float * math.prod(shape))(*[1.0] * math.prod(shape))
    inputs = (c.POINTER(DLTensor) * 1)(c.pointer(tensor(x, shape)))
    sizes, rank = (c.c_int64 * 8)(), c.c_size_t()
    check(kiln.kiln_program_output_shape(program, inputs, c.c_size_t(1), c.c_size_t(0), sizes,
                                         c.c_size_t(8), c.byref(rank)))
    result = list(sizes[:rank.value])
    y = (c.c_float * math.prod(result))()
    outputs = (c.POINTER(DLTensor) * 1)(c.pointer(tensor(y, result)))
    check(kiln.kiln_program_call(program, inputs, c.c_size_t(1), outputs, c.c_size_t(1), None))
    print(result, *[f"{v:.6f}" for v in y[:4]])
    kiln.kiln_program_free(program)


if __name__ == "__main__":
    main(*sys.argv[1:])
