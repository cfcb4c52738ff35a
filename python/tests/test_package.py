"""Packages: exported with PyTorch, called with NumPy alone; and what `explain` shows."""
import subprocess
import sys
import xml.dom.minidom

import kiln_torch
import numpy as np
import pytest
import torch

pytestmark = pytest.mark.skipif(tuple(map(int, torch.__version__.split(".")[:2])) < (2, 8), reason="older PyTorch saves archives of another form")


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 4)
        self.register_buffer("scale", torch.tensor(3.0))

    def forward(self, x, k):
        return torch.relu(self.layer(x)) * self.scale, x.argmax(-1) + k


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A package of a dynamic batch, inputs, and eager's results."""
    torch.manual_seed(0)
    path, model = tmp_path_factory.mktemp("package") / "model.kpkg", Model().eval()
    batch = torch.export.Dim("n", min=2, max=64)
    kernels = kiln_torch.export(model, (torch.randn(3, 8), torch.tensor(5)), path, dynamic_shapes=({0: batch}, None))
    assert kernels >= 1
    inputs = torch.randn(7, 8), torch.tensor(2)
    with torch.no_grad():
        return path, [t.numpy() for t in inputs], [t.numpy() for t in model(*inputs)]


def test_a_package_gives_eagers_results(written):
    path, inputs, want = written
    package = kiln_torch.load(path, {"threads": 2})
    assert [(dtype, sizes) for _, dtype, sizes in package.inputs] == [("f32", [None, 8]), ("i64", [])]
    for given in (inputs, [np.asfortranarray(inputs[0]), 2 * np.ones((), np.int64)]):
        have = package(*given)
        assert [a.dtype for a in have] == [a.dtype for a in want]
        np.testing.assert_allclose(have[0], want[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(have[1], want[1])


def test_a_package_runs_without_pytorch(written, tmp_path):
    path, inputs, want = written
    np.savez(tmp_path / "data.npz", *inputs, want=want[0])
    script = f"""if True:
        import sys
        sys.modules["torch"] = None
        import kiln_torch, numpy as np
        data = np.load({str(tmp_path / "data.npz")!r})
        have = kiln_torch.load({str(path)!r})(data["arr_0"], data["arr_1"])
        np.testing.assert_allclose(have[0], data["want"], rtol=1e-5, atol=1e-6)
        print("agrees")"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "agrees\n", done.stderr


def test_wrong_arrays_are_errors(written):
    path, (x, k), _ = written
    package = kiln_torch.load(path)
    with pytest.raises(TypeError, match="takes 2 inputs, given 1"):
        package(x)
    with pytest.raises(TypeError, match="is of f32, given an array of float64"):
        package(x.astype(np.float64), k)
    with pytest.raises(RuntimeError, match="2 to 64|size"):
        package(x[:1], k)
    with pytest.raises(RuntimeError):
        package(x[:, :5], k)
    with pytest.raises(kiln_torch._kiln.CompileError):
        kiln_torch.load(path.parent / "missing.kpkg")


def test_ops_without_a_row_are_listed(tmp_path):
    class Decomposition(torch.nn.Module):
        def forward(self, x):
            return torch._standard_gamma_grad(x.exp(), x)

    with pytest.raises(kiln_torch._kiln.UnsupportedError, match="_standard_gamma_grad"):
        kiln_torch.export(Decomposition(), (torch.eye(3),), tmp_path / "model.kpkg")
    assert not list(tmp_path.iterdir())


def test_explain_draws_programs():
    shown = kiln_torch.explain(lambda x: torch._fake_quantize_learnable_per_tensor_affine(x.sin() @ x, torch.ones(1), torch.zeros(1), 0, 9) + 1, torch.randn(4, 4))
    assert "(contract)" in shown and "fake_quantize" in shown
    root = xml.dom.minidom.parseString(shown.svg()).documentElement
    pictures = [e for e in root.childNodes if e.nodeName == "svg"]
    assert len(pictures) == 2 and float(root.getAttribute("height")) > sum(float(p.getAttribute("height")) for p in pictures)
