"""PyTorch's inputs that operators refuse (OpInfo's error_inputs) through kiln, which has to refuse what exports.

    python errors.py --out FILE --kiln BIN [--ops REGEX] [--keep DIR]

Writes a JSON line for each error input: `refused by export` (PyTorch raises while it traces, as for most), `runs` (eager
takes it on this device), `refused` by kiln with a sentence, or a violation: `computed`, or `crashed`. A later run continues
the file. The table at the end counts outcomes and lists violations.
"""
import argparse
import collections
import json
import re
import subprocess
import tempfile
import warnings
from pathlib import Path

from opinfo import module_of, operators, stored

VIOLATIONS = ("computed", "crashed", "timeout")


def say(e):
    lines = str(e).splitlines()
    return f"{type(e).__name__}: {lines[0][:160] if lines else ''}"


def outcome(a, op, sample, path):
    """Outcome and detail of one error input."""
    import torch
    from safetensors.torch import save_file

    module, tensors = module_of(op, sample)
    copies = lambda: tuple(t.detach().clone() for t in tensors)
    with torch.no_grad():
        try:
            module(*copies())
            return "runs", ""
        except Exception as e:
            reason = say(e)
        try:
            program = torch.export.export(module, copies(), strict=False)
            torch.export.save(program, f"{path}.pt2")
        except Exception as e:
            return "refused by export", say(e)
    save_file({f"input_{k}": stored(t) for k, t in enumerate(tensors)}, f"{path}.safetensors")
    command = [a.kiln, "run", f"{path}.pt2", "--inputs", f"{path}.safetensors", "--no-cache", "--repeat", "1"]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=a.timeout, errors="replace")
    except subprocess.TimeoutExpired:
        return "timeout", f"{a.timeout} s"
    text = " ".join((ended.stderr or ended.stdout).split())[:240]
    if ended.returncode == 0:
        return "computed", f"eager: {reason}"
    if ended.returncode < 0 or ended.returncode > 5 or "panicked" in text:
        return "crashed", f"exit {ended.returncode}: {text}; eager: {reason}"
    return ("refused" if text else "crashed"), f"{text}; eager: {reason}"


def run(a):
    import torch

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    log = Path(a.out)
    done = {(r["op"], r["input"]) for r in map(json.loads, log.read_text().splitlines())} if log.exists() else set()
    with log.open("a") as lines, tempfile.TemporaryDirectory() as folder:
        for name, op in operators(a.ops):
            if op.error_inputs_func is None or torch.float32 not in op.supported_dtypes("cpu"):
                continue
            try:
                torch.manual_seed(0)
                inputs = list(op.error_inputs("cpu"))
            except Exception as e:  # such as a missing library
                print(f"{name}: {say(e)}")
                continue
            for k, error in enumerate(inputs):
                if (name, k) in done:
                    continue
                path = f"{a.keep or folder}/{name}.{k}"
                what, detail = outcome(a, op, error.sample_input, path)
                lines.write(json.dumps({"op": name, "input": k, "outcome": what, "detail": detail}) + "\n")
                lines.flush()
                if what not in VIOLATIONS:
                    Path(f"{path}.pt2").unlink(missing_ok=True)
                    Path(f"{path}.safetensors").unlink(missing_ok=True)


def report(a):
    lines = [r for r in map(json.loads, Path(a.out).read_text().splitlines()) if re.search(a.ops, r["op"])]
    count = collections.Counter(r["outcome"] for r in lines)
    print(f"{len(lines)} error inputs of {len({r['op'] for r in lines})} operators: " + ", ".join(f"{n} {what}" for what, n in count.most_common()))
    for r in lines:
        if r["outcome"] in VIOLATIONS:
            print(f"{r['op']} {r['input']}: {r['outcome']}: {r['detail'][:240]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--kiln", default="target/release/kiln")
    parser.add_argument("--ops", default="")
    parser.add_argument("--keep", help="keep the archives of violations in this folder")
    parser.add_argument("--timeout", type=int, default=60)
    a = parser.parse_args()
    warnings.filterwarnings("ignore")
    if a.keep:
        Path(a.keep).mkdir(parents=True, exist_ok=True)
    run(a)
    report(a)


if __name__ == "__main__":
    main()
