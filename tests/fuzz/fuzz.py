"""Random PyTorch functions through kiln, with eager as the oracle.

    python fuzz.py run    --out FILE --kiln BIN --seeds 0..1000 [--mode static,core,dynamic] [--keep DIR]
    python fuzz.py report --out FILE
    python fuzz.py show   --seeds 17 [--mode dynamic]
    python fuzz.py reduce --kiln BIN --seeds 17,29 [--mode dynamic]
    python fuzz.py bundle --out FILE --to FOLDER [--most 300]

A seed is always the same function of views, writes, reductions, products and so on of mixed dtypes (see rows.py). `run`
exports it as it is (`static`), after run_decompositions() (`core`), or with dynamic sizes (`dynamic`, run at other sizes,
preferably 1 and 0), and runs `kiln run`. Integers have to be equal; floating-point results agree within `src/tolerance.rs`
or ten times eager's own error against float64. It writes a JSON line a seed and mode, and skips those that are there.
`reduce` shrinks a function that does not agree and prints it. `bundle` joins functions that agree into a few archives,
which the test suite runs.
"""
import argparse
import collections
import json
import os
import shutil
import sys
import tempfile
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

SILENT = ("not exported", "not generated")


def seeds_of(text):
    for part in text.split(","):
        low, _, high = part.partition("..")
        yield from range(int(low), int(high)) if high else (int(low),)


def lines_of(path):
    return [json.loads(t) for t in Path(path).read_text().splitlines()] if Path(path).exists() else []


def one(a, seed, mode, folder):
    """The line of a seed in a mode."""
    from check import GOOD, check
    from generate import generate

    start = time.time()
    function = generate(seed, mode == "dynamic")
    what, detail, rows = "not generated", "", []
    if function:
        rows = [line.row for line in function.lines]
        what, detail = check(function, mode, a.kiln, f"{folder}/{seed}.{mode}", a.timeout)
        if a.keep and what not in (*GOOD, *SILENT):
            Path(a.keep).mkdir(parents=True, exist_ok=True)
            for file in Path(folder).iterdir():
                shutil.copy(file, a.keep)
            (Path(a.keep) / f"{seed}.{mode}.py").write_text(function.text())
    for file in Path(folder).iterdir():
        file.unlink()
    return {"seed": seed, "mode": mode, "outcome": what, "detail": detail, "rows": rows, "seconds": round(time.time() - start, 2)}


def block(a, todo):
    """Runs a block in a process of its own, whose memory ends with it. Returns how many lines it wrote."""
    process = os.fork()
    if process == 0:
        try:
            import torch

            torch.set_grad_enabled(False)
            # Export prints the graphs that it gives up on.
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1), os.dup2(silent, 2)
            with tempfile.TemporaryDirectory() as folder, open(a.out, "a") as log:
                for seed, mode in todo:
                    log.write(json.dumps(one(a, seed, mode, folder)) + "\n")
                    log.flush()
        finally:
            os._exit(0)
    return os.waitpid(process, 0)[1]


def run(a):
    import torch
    import check  # noqa: F401  (and all that blocks need, once)
    import generate  # noqa: F401

    # The first export takes seconds.
    torch.export.export(torch.nn.Identity(), (torch.ones(2),), strict=False)
    done = {(r["seed"], r["mode"]) for r in lines_of(a.out)}
    todo = [(s, m) for s in seeds_of(a.seeds) for m in a.mode.split(",") if (s, m) not in done]
    start, total = time.time(), len(todo)
    while todo and not (a.seconds and time.time() - start > a.seconds):
        part = todo[: a.block]
        before = len(lines_of(a.out))
        status = block(a, part)
        wrote = len(lines_of(a.out)) - before
        if wrote < len(part):
            seed, mode = part[wrote]
            with open(a.out, "a") as log:
                log.write(json.dumps({"seed": seed, "mode": mode, "outcome": "not exported", "detail": f"PyTorch's process ended: {status}", "rows": [], "seconds": 0}) + "\n")
            wrote += 1
        todo = todo[wrote:]
        count = collections.Counter(r["outcome"] for r in lines_of(a.out)[-len(part) :])
        print(f"{total - len(todo)}/{total} {time.time() - start:.0f} s {dict(count)}", flush=True)


def report(a):
    lines = lines_of(a.out)
    outcomes = ("agrees", "nearer", "undecided", "wrong", "crashed", "failed", "timeout", "refused", "unsupported", *SILENT)
    print("| mode | functions | " + " | ".join(outcomes) + " |\n" + "| --- " * (2 + len(outcomes)) + "|")
    for mode in sorted({r["mode"] for r in lines}):
        count = collections.Counter(r["outcome"] for r in lines if r["mode"] == mode)
        print(f"| {mode} | {sum(count.values())} | " + " | ".join(str(count[o]) for o in outcomes) + " |")
    for r in lines:
        if r["outcome"] in outcomes[3:9]:
            print(r["seed"], r["mode"], r["outcome"], r["detail"][:240])


def show(a):
    from generate import generate

    for seed in seeds_of(a.seeds):
        for mode in a.mode.split(","):
            function = generate(seed, mode == "dynamic")
            print(*(function.inputs if function else ()), function and function.text(), sep="\n")


def reduce(a):
    from reduce import report_reduced

    for seed in seeds_of(a.seeds):
        for mode in a.mode.split(","):
            report_reduced(seed, mode, a.kiln, a.timeout)


def bundle(a):
    from bundle import write_bundles

    write_bundles(lines_of(a.out), a.to, a.most)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["run", "report", "show", "reduce", "bundle"])
    parser.add_argument("--out", default="fuzz.jsonl", help="file of the lines")
    parser.add_argument("--seeds", default="0..1000")
    parser.add_argument("--mode", default="static,dynamic")
    parser.add_argument("--kiln", default="target/release/kiln")
    parser.add_argument("--keep", help="keep archives of what does not agree in this folder")
    parser.add_argument("--timeout", type=int, default=60, help="seconds of a run")
    parser.add_argument("--seconds", type=int, default=0, help="when to stop; 0: when all have run")
    parser.add_argument("--block", type=int, default=100, help="functions of a process")
    parser.add_argument("--to", default=".", help="folder of the bundles")
    parser.add_argument("--most", type=int, default=300, help="functions in the bundles")
    a = parser.parse_args()
    import torch

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    {"run": run, "report": report, "show": show, "reduce": reduce, "bundle": bundle}[a.step](a)


if __name__ == "__main__":
    main()
