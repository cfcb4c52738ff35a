"""Two exports of a model with conditions on sizes: as assertions in the graph, and as guards. PyTorch 2.11."""
import pathlib
import torch

class Model(torch.nn.Module):
    def forward(self, x, y):
        torch._check(x.shape[0] < 40)
        torch._check(x.shape[0] % 2 == 0)
        torch._check(x.shape[0] != 6)
        torch._check(x.shape[0] * x.shape[1] <= 3 * y.shape[0] + 100)
        return x.sum(1) + y.shape[0]


dynamic = torch.export.Dim.DYNAMIC
for name, deferred in [("conditions", True), ("guards", False)]:
    program = torch.export.export(
        Model().eval(),
        (torch.ones(4, 8), torch.ones(16)),
        dynamic_shapes=({0: dynamic, 1: dynamic}, {0: dynamic}),
        prefer_deferred_runtime_asserts_over_guards=deferred,
    )
    torch.export.save(program, pathlib.Path(__file__).parent / f"{name}.pt2")
