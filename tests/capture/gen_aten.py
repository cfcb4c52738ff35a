"""Makes aten_<family>.pt2 and .safetensors in this folder: torch.export's archives of small cases that use every row of the ATen table,
with input_K and output_K as PyTorch gave them on the CPU. Needs torch, torchao and safetensors.

    python gen_aten.py [--each DIR]

With --each, every case is an archive of its own in DIR, to find the one that fails.
"""
import sys, torch
from pathlib import Path
from safetensors.torch import save_file
import aten_complex, aten_data_sizes, aten_elements, aten_found, aten_in_place, aten_matrix, aten_promotion, aten_quantized, aten_shapes, aten_special, aten_symbolic, aten_writes
from aten_support import HERE, Each, f, families, save, u, write


class Unsupported(torch.nn.Module):
    def forward(self, x):
        scale, zero = torch.tensor([0.1]), torch.tensor([0.0])
        quantised = lambda x: torch._fake_quantize_learnable_per_tensor_affine(x, scale, zero, 0, 255)
        return quantised(quantised(x).relu()) + torch._standard_gamma_grad(x, x)


class Factor(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.cholesky(x)


class State(torch.nn.Module):
    """Mutated buffers and inputs."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.tensor(3))
        self.register_buffer("mean", torch.arange(4.0))
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 4))

    def forward(self, x, y):
        self.count.add_(1)
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        y[0].copy_(x[1])
        return (x - self.mean) * self.weight + self.count, y.sum()


if __name__ == "__main__":
    elements, shapes = aten_elements, aten_shapes
    first = (elements.unary, elements.binary, elements.create, shapes.view, shapes.index, shapes.reduce, shapes.contract, shapes.norm, shapes.image)
    # In this order: all draw from one generator.
    rest = (aten_complex.numbers, aten_complex.fourier, aten_matrix.matrix, aten_data_sizes.data_sizes, aten_quantized.quantized,
            aten_special.special, aten_special.roundings, aten_symbolic.symbolic, aten_symbolic.split, aten_symbolic.einsum,
            aten_symbolic.autocast, aten_symbolic.mixture, aten_promotion.promotion, aten_promotion.copies, aten_writes.writes,
            aten_complex.fourier_symbolic, aten_data_sizes.selections, aten_matrix.general,
            aten_special.sampled, aten_found.found)
    for make in (*first, aten_in_place.in_place, elements.float8, shapes.empty, elements.narrow, *rest):
        make()
    each = Path(sys.argv[2]) if sys.argv[1:2] == ["--each"] else None
    if each:
        each.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    with torch.no_grad():
        for family, cases in families.items():
            groups = [(each / f"aten_{family}_{k:03}", [c]) for k, c in enumerate(cases)] if each else [(HERE / f"aten_{family}", cases)]
            for path, group in groups:
                args = [t for _, inputs, _ in group for t in inputs]
                dyn = {"args": tuple(d for _, _, ds in group for d in ds)}
                try:
                    write(path, Each(group), args, dyn)
                except Exception as e:
                    print(f"{path.name}: {type(e).__name__}: {str(e)[:600]}", flush=True)
        if not each:
            x, y = f(3, 4), f(2, 4)
            m, y2 = State(), y.clone()
            ep = torch.export.export(State(), (x, y.clone()))
            out = m(x, y2)
            final = list(out) + [m.count, m.mean, y2]
            t = {"input_0": x, "input_1": y} | {f"output_{k}": v.detach().clone() for k, v in enumerate(final)}
            save(torch.export.export(Unsupported(), (u(3, 3),)), HERE / "unsupported.pt2")
            definite, indefinite = torch.eye(3) + 1, torch.diag(torch.tensor([1.0, -1.0, 2.0]))
            write(HERE / "cholesky", Factor(), [definite], None, [Factor()(definite)])
            save_file({"input_0": indefinite}, str(HERE / "cholesky.other.safetensors"))
            save(ep.run_decompositions(), HERE / "state.core.pt2")
            save(ep, HERE / "state.pt2")
            save_file(t, str(HERE / "state.safetensors"))
