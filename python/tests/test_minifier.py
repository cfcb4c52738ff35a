"""PyTorch's repro scripts and minifier with kiln, on a compiler that is made to fail."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import kiln_torch

# The package may be found by a path relative to this process's folder.
PACKAGE = str(Path(kiln_torch.__file__).resolve().parents[1])
FAULTY = """
import os, runpy, sys
import torch
from kiln_torch import _kiln, program

made, call, fault = program.Program.__init__, program.Program.__call__, os.environ["KILN_TEST_FAULT"]

def init(self, inputs, nodes, *rest):
    self.bad = any(n.target is torch.ops.aten.relu.default for n in nodes)
    if self.bad and fault == "compiler":
        raise _kiln.CompileError("relu is broken")
    made(self, inputs, nodes, *rest)

def run(self, values):
    out = call(self, values)
    return [o + 1 for o in out] if self.bad and fault == "result" else out

program.Program.__init__, program.Program.__call__ = init, run
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
USER = """
import torch
f = torch.compile(lambda x, y: (x.sin() * y).relu().cos() + (x @ y).tanh(), backend="kiln", options={"threads": 1})
print(f(torch.ones(5, 5), torch.ones(5, 5)).sum().isfinite())
"""


@pytest.fixture
def run(tmp_path, device):
    """Runs a script with the faulty compiler; gives its exit status and all that it printed."""
    if device != "cpu":
        pytest.skip("the scripts are the same for GPUs")
    (tmp_path / "faulty.py").write_text(FAULTY)
    (tmp_path / "user.py").write_text(USER)

    def run(fault, *command, **variables):
        path = os.pathsep.join(filter(None, [PACKAGE, os.environ.get("PYTHONPATH")]))
        env = {**os.environ, "PYTHONPATH": path, "TORCH_COMPILE_DEBUG_DIR": str(tmp_path), "KILN_TEST_FAULT": fault, **variables}
        done = subprocess.run([sys.executable, "faulty.py", *map(str, command)], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600)
        return done.returncode, done.stdout + done.stderr

    return run


def launcher(folder: Path) -> Path:
    (found,) = folder.glob("torch_compile_debug/*/minifier/minifier_launcher.py")
    return found


CASES = [("aot", 2, "compiler", "relu is broken"), ("aot", 4, "result", "Bad accuracy detected"), ("dynamo", 2, "compiler", "relu is broken")]


@pytest.mark.parametrize("after, level, fault, says", CASES)
def test_a_failure_is_minified(after, level, fault, says, run, tmp_path):
    # The launcher sets these variables too, but `faulty.py` has imported PyTorch by then.
    variables = dict(TORCHDYNAMO_REPRO_AFTER=after, TORCHDYNAMO_REPRO_LEVEL=str(level))
    status, text = run(fault, "user.py", **variables)
    assert status and says in text, text
    script = launcher(tmp_path)
    assert ("kiln_torch.repro" in script.read_text()) == (after == "aot")
    repro = tmp_path / "repro.py"
    repro.unlink(missing_ok=True)
    run(fault, script, "minify", *(["--no-isolate"] if after == "aot" else []), **variables)
    graph = repro.read_text().split("def forward")[1].split("def load_args")[0]
    assert "relu" in graph and not any(op in graph for op in ("sin", "mm", "tanh", "cos", "matmul")), graph
    status, text = run(fault, repro)
    assert status and says in text, text
    # With a compiler that works the script runs.
    if after == "aot":
        assert run("none", repro)[0] == 0
        assert '"threads": 1' in repro.read_text().replace("'", '"')


def test_a_script_of_the_graph_is_written_before_each_call(run, tmp_path):
    status, text = run("none", "user.py", TORCHDYNAMO_REPRO_AFTER="aot", TORCHDYNAMO_REPRO_LEVEL="3")
    assert status == 0 and "True" in text, text
    assert "aten.tanh" in launcher(tmp_path).read_text()
