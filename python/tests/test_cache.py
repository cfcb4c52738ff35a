"""AOTAutograd's cache: a second process finds its graphs there, and computes the same."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kiln_torch import cache

pytestmark = pytest.mark.skipif(not cache.is_possible(), reason="this PyTorch keeps Inductor's graphs alone")

PROLOGUE = """
import json, sys, torch
from torch import nn
from torch._dynamo.utils import counters
import kiln_torch
torch.manual_seed(0)
seen = {}
def told(*values):
    seen["values"] = [v.detach().double().flatten().tolist() if isinstance(v, torch.Tensor) else v for v in values]
"""
EPILOGUE = """
aot = counters["aot_autograd"]
seen |= {name: aot[f"autograd_cache_{name}"] for name in ("hit", "miss", "saved", "bypass")}
seen["reports"] = [(r.kind, r.programs, r.kernels, len(r.launches()), len(r.eager), r.gradients) for r in kiln_torch.reports]
print(json.dumps(seen))
"""
MODEL = "model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5)); x = torch.randn(2, 3, 8, 8)\n"
SCRIPTS = {
    "inference": MODEL
    + """
with torch.no_grad():
    told(torch.compile(model.eval(), backend="kiln")(x))
""",
    "training": MODEL
    + """
compiled = torch.compile(model, backend="kiln", options=OPTIONS)
for _ in range(2):
    out = compiled(x)
    out.square().sum().backward(retain_graph=True)
    out.sum().backward()
told(out, *(p.grad for p in model.parameters()), *model.buffers())
""",
    "kiln's gradients": MODEL
    + """
compiled = torch.compile(model, backend="kiln", options={"joint_graph": True})
out = compiled(x)
out.square().sum().backward()
told(out, *(p.grad for p in model.parameters()), *model.buffers())
""",
    "eager ops and views": """
@torch.compile(backend="kiln")
def f(x, y):
    x.add_(1)
    n = torch.bincount(y)
    return x.t(), (x @ x.t()).view(-1)[: n.numel()] * n, x[1:], y
told(*f(torch.randn(4, 4), torch.tensor([1, 0, 3])))
""",
    "a constant": """
@torch.compile(backend="kiln")
def f(x):
    return torch.where(x > 0, x, torch.tensor([0.5, 1.5]))
told(f(torch.randn(3, 2)))
""",
    "dynamic sizes": """
@torch.compile(backend="kiln", dynamic=True)
def f(x, n):
    return x.reshape(n, -1).softmax(-1) * x.shape[0]
told(*(f(torch.randn(size), 2) for size in (8, 12, 30)))
""",
    "attention and dropout": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)
    def forward(self, x):
        q, k, v = self.qkv(x).view(2, 6, 3, 2, 8).permute(2, 0, 3, 1, 4)
        return nn.functional.dropout(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True), 0.5, self.training)
net = Net()
torch.manual_seed(3)
out = torch.compile(net, backend="kiln")(torch.randn(2, 6, 16))
out.square().sum().backward()
told(out, *(p.grad for p in net.parameters()))
""",
    "autocast": MODEL
    + """
with torch.autocast("cpu", DTYPE):
    out = torch.compile(model, backend="kiln")(x)
out.float().square().sum().backward()
told(out, *(p.grad for p in model.parameters()))
""",
}


def run(folder: Path, script: str, **changes: str) -> dict:
    """What a process of its own computes, and how AOTAutograd's cache served it."""
    text = PROLOGUE + script.replace("OPTIONS", changes.pop("options", "None")).replace("DTYPE", changes.pop("dtype", "torch.bfloat16")) + EPILOGUE
    env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / "torch"), "KILN_CACHE_DIR": str(folder / "kiln"), **changes}
    done = subprocess.run([sys.executable, "-c", text], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "unable to serialize" not in done.stderr, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(autouse=True)
def once(device):
    if device != "cpu":
        pytest.skip("its processes choose their devices")


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_second_process_compiles_nothing_and_computes_the_same(tmp_path, script):
    first, second = run(tmp_path, SCRIPTS[script]), run(tmp_path, SCRIPTS[script])
    assert (first["hit"], second["miss"], first["bypass"], second["bypass"]) == (0, 0, 0, 0)
    assert first["saved"] == second["hit"] > 0
    assert second["values"] == first["values"]
    assert second["reports"] == first["reports"]


def test_an_entry_depends_on_what_its_graphs_depend_on(tmp_path):
    assert run(tmp_path, SCRIPTS["training"])["saved"] == 1
    assert run(tmp_path, SCRIPTS["training"], options="{'joint_graph': True}")["hit"] == 0
    assert run(tmp_path, SCRIPTS["training"], options="{'threads': 1}")["hit"] == 0
    assert run(tmp_path, SCRIPTS["training"])["hit"] == 1
    assert run(tmp_path, SCRIPTS["autocast"])["saved"] == 1
    assert run(tmp_path, SCRIPTS["autocast"], dtype="torch.float16")["hit"] == 0


def test_without_the_cache_of_kiln_an_entry_is_compiled_again(tmp_path):
    first = run(tmp_path, SCRIPTS["training"])
    second = run(tmp_path, SCRIPTS["training"], KILN_CACHE_DIR=str(tmp_path / "other"))
    assert second["hit"] == 1 and second["values"] == first["values"]


def test_a_damaged_entry_is_compiled_again(tmp_path):
    first = run(tmp_path, SCRIPTS["inference"])
    (entry,) = [p for p in (tmp_path / "torch" / "aotautograd").rglob("*") if p.is_file()]
    entry.write_bytes(entry.read_bytes()[:200])
    second = run(tmp_path, SCRIPTS["inference"])
    assert second["hit"] == 0 and second["values"] == first["values"]


def test_frozen_parameters_are_not_kept(tmp_path):
    script = SCRIPTS["inference"].replace('backend="kiln"', 'backend="kiln", options={"freezing": True}')
    assert run(tmp_path, script)["saved"] == 0


def test_graphs_of_inductor_are_kept_as_before(tmp_path):
    """kiln changes how its own entries are made."""
    script = 'torch.compile(lambda x: x + 1, backend="kiln")(torch.ones(3)); told(torch.compile(lambda x: x * 2 + 1)(torch.ones(3)))'
    first, second = run(tmp_path, script), run(tmp_path, script)
    assert first["saved"] == second["hit"] == 2
    assert second["values"] == first["values"] and len(first["reports"]) == 1
