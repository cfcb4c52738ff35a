"""Makes <scheme>_<model>.pt2 and .safetensors in this folder: small models quantised by torchao and by PT2E, exported as users do,
with input_0 and output_0 as eager PyTorch gave them on the CPU. Needs torch, torchao and safetensors.

    python gen_quantized.py
"""
import sys, torch
from pathlib import Path
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F
from torchao import quantization as Q
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.testing.pt2e._xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
from torchao.utils import unwrap_tensor_subclass

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "capture"))
from aten_support import save

HERE = Path(__file__).resolve().parent


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x):
        return self.b(F.relu(self.a(x)))


class Block(nn.Module):
    """A transformer block: norms, causal attention of two heads, a gated MLP."""

    def __init__(self, d=32):
        super().__init__()
        self.n1, self.n2 = nn.RMSNorm(d), nn.RMSNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.gate, self.up, self.down = nn.Linear(d, 2 * d, bias=False), nn.Linear(d, 2 * d, bias=False), nn.Linear(2 * d, d, bias=False)

    def forward(self, x):
        q, k, v = self.qkv(self.n1(x)).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2))
        y = self.n2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Gated(nn.Module):
    """Two products that GPUs compute with the 8-bit weights as they are; smaller weights are frozen in 16 bits."""

    def __init__(self):
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(256, 80, bias=False), nn.Linear(256, 80), nn.Linear(80, 16)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.c, self.l = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8 * 16, 10)

    def forward(self, x):
        return self.l(F.max_pool2d(F.relu(self.c(x)), 2).flatten(1))


class Float8Rows(nn.Module):
    """As torchao's Float8DynamicActivationFloat8WeightConfig with a scale a row, which needs a GPU to be made."""

    def __init__(self):
        super().__init__()
        self.register_buffer("w", torch.randn(48, 32).to(torch.float8_e4m3fn))
        self.register_buffer("scale", torch.rand(48, 1) + 0.5)

    def activations(self, x):
        scale = torch.ops.torchao.choose_scale_float8(x, (1, x.shape[-1]), torch.float8_e4m3fn)
        return torch.ops.torchao.quantize_affine_float8_non_decomposed(x, scale, torch.float8_e4m3fn), scale

    def forward(self, x):
        q, scale = self.activations(x)
        return torch.ops.aten._scaled_mm.default(q, self.w.t(), scale, self.scale.t(), out_dtype=torch.float32, use_fast_accum=True)

    def formula(self, x):
        q, scale = self.activations(x)
        return (q.double() @ self.w.double().t() * scale * self.scale.t()).float()


SCHEMES = {
    "int8_weights": lambda: Q.Int8WeightOnlyConfig(),
    "int8_dynamic": lambda: Q.Int8DynamicActivationInt8WeightConfig(),
    "int4_weights": lambda: Q.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=Q.PerGroup(32)),
    "int4_dynamic": lambda: Q.Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=Q.PerGroup(32)),
    "float8_weights": lambda: Q.Float8WeightOnlyConfig(),
}


def int8_rows(mapping):
    return Q.IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=Q.PerAxis(0), mapping_type=mapping)


SCALES_IN_FRONT = {
    "float8_weights": SCHEMES["float8_weights"],
    "int8_rows": lambda: int8_rows(Q.MappingType.SYMMETRIC),
    "int8_rows_with_zero_points": lambda: int8_rows(Q.MappingType.ASYMMETRIC),
}


def write(name, program, module, x):
    save(program, HERE / f"{name}.pt2")
    save_file({"input_0": x.contiguous(), "output_0": module(x).contiguous()}, str(HERE / f"{name}.safetensors"))


def main():
    for scheme, config in SCHEMES.items():
        for kind, make, shape, dtype in (("mlp", Mlp, (4, 32), torch.float32), ("block", Block, (2, 8, 32), torch.float32), ("block_bf16", Block, (2, 8, 32), torch.bfloat16)):
            if (scheme, kind) == ("int8_dynamic", "block"):
                # The greatest magnitude of a token is 127.5 steps: the last bit of the sums before decides between two integers.
                continue
            # With seed 0 an activation of int4_dynamic lies as close to a tie: noise of one ulp changes PyTorch's result by 1.5e-4.
            torch.manual_seed(1)
            module, x = make().eval().to(dtype), torch.randn(shape).to(dtype)
            Q.quantize_(module, config())
            # Tensor subclasses become the tensors that they hold: by decompositions, or before the export.
            if kind == "mlp":
                write(f"{scheme}_{kind}.core", torch.export.export(module, (x,)).run_decompositions(), module, x)
                if scheme == "int8_weights":
                    save(torch.export.export(module, (x,)), HERE / "subclass.pt2")
            unwrap_tensor_subclass(module)
            write(f"{scheme}_{kind}", torch.export.export(module, (x,)), module, x)
    for scheme, config in SCALES_IN_FRONT.items():
        torch.manual_seed(0)
        module, x = Gated().eval().to(torch.bfloat16), torch.randn(1, 3, 256).to(torch.bfloat16)
        Q.quantize_(module, config())
        if scheme == "int8_rows":
            write(f"{scheme}_gated_bf16.core", torch.export.export(module, (x,)).run_decompositions(), module, x)
            continue
        unwrap_tensor_subclass(module)
        write(f"{scheme}_gated_bf16", torch.export.export(module, (x,)), module, x)
    for name, dynamic in (("pt2e_static", False), ("pt2e_dynamic", True)):
        torch.manual_seed(0)
        x = torch.randn(2, 3, 8, 8)
        quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True, is_dynamic=dynamic))
        prepared = prepare_pt2e(torch.export.export(Convolutions().eval(), (x,)).module(), quantizer)
        prepared(x), prepared(x * 0.7)
        converted = convert_pt2e(prepared)
        write(name, torch.export.export(converted, (x,)), converted, x)
    torch.manual_seed(0)
    module, x = Float8Rows(), torch.randn(16, 32)
    # PyTorch has scales of rows on GPUs only.
    write("float8_rows", torch.export.export(module, (x,)), module.formula, x)


if __name__ == "__main__":
    with torch.no_grad():
        main()
