"""Public models on the host, each measured in a process of its own: what public.py and joint.py share.

The models are those of benches/gpu/public.py, in f32, with small batches, and random weights and inputs. A file holds a JSON line for each, and a run
continues it.
"""
import argparse, json, math, re, statistics, subprocess, sys, time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "gpu"), str(HERE.parents[1] / "tests" / "zoo")]

from forked import lines_of

# images of a batch, sequences of a batch, tokens
SIZES = (4, 2, 128)


def made(name):
    """The model and its inputs."""
    import public
    import torch

    images, sequences, tokens = SIZES
    for table in (public.IMAGES, public.VISION):
        table.update(dict.fromkeys(table, images))
    for key, (config, batch, length, changes) in public.TEXT.items():
        public.TEXT[key] = (config, sequences, min(length, tokens), changes)
    for key, shape in public.SHAPES.items():
        public.SHAPES[key] = (sequences, *shape[1:])
    torch.manual_seed(0)
    make, given = public.MAKERS[name]
    model, inputs = make(given)
    return model.eval(), inputs


def first(result):
    import torch

    while not isinstance(result, torch.Tensor):
        result = next(iter(result.values())) if isinstance(result, dict) else result[0]
    return result


def take_turns(steps, sides, rounds, seconds):
    """Appends to each side's `ms`, for each round, the median of the calls of its step of so many seconds, after one that is not counted."""
    for _ in range(rounds):
        for side, step in steps.items():
            times, end = [], time.perf_counter() + seconds
            step()
            while time.perf_counter() < end or len(times) < 3:
                start = time.perf_counter()
                step()
                times.append(time.perf_counter() - start)
            sides[side]["ms"].append(statistics.median(times) * 1e3)


def milliseconds(row, side):
    return round(statistics.median(row["sides"][side]["ms"]), 1)


def ratios(row, own, peer):
    """Of the rounds, from the least to the greatest."""
    return sorted(x / y for x, y in zip(row["sides"][own]["ms"], row["sides"][peer]["ms"]))


def mean(rows, own, peer):
    """The geometric mean of the models' median ratios."""
    return math.exp(statistics.fmean(math.log(statistics.median(ratios(r, own, peer))) for r in rows))


def as_peer(row, own, peer):
    """A peer's entry in a file of benches/results."""
    found = ratios(row, own, peer)
    return {"time": milliseconds(row, peer), "ratio": round(statistics.median(found), 2), "low": round(found[0], 2), "high": round(found[-1], 2)}


def replace_rows(path, rows):
    """Writes the rows of a file of benches/results."""
    suite = json.loads(Path(path).read_text())
    Path(path).write_text(json.dumps({**suite, "rows": rows}, indent=1) + "\n")


def parser(description, seconds):
    """The options of both scripts."""
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", required=True)
    p.add_argument("--only", default="")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=seconds)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--report", action="store_true")
    p.add_argument("--results", help="a file of benches/results whose rows are replaced")
    p.add_argument("--model", help=argparse.SUPPRESS)
    return p


def run(a, models, measure, report, **key):
    """Measures each model that has no line with this `key`, in a process of its own, and reports all lines."""
    if a.model:
        print(json.dumps(measure(a, a.model)))
        return
    mine = lambda line: all(line.get(k) == v for k, v in key.items())
    done = {line["model"] for line in lines_of(a.out) if mine(line)}
    for name in models:
        if a.report or name in done or not re.search(a.only, name):
            continue
        child = subprocess.run([sys.executable, *sys.argv, "--model", name], capture_output=True, text=True)
        line = {"model": name, **key, "failed": child.stderr.strip()[-400:]} if child.returncode else json.loads(child.stdout.splitlines()[-1])
        with open(a.out, "a") as file:
            file.write(json.dumps(line) + "\n")
        print(name, line.get("failed", "done"), flush=True)
    report(a, [line for line in lines_of(a.out) if line.get("sides") and mine(line)])
