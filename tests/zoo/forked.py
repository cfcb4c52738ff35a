"""Runs models in processes of their own, forked after the imports, and keeps a JSON line of each in a file.

Models come in a random order that is the same every time, so that a run that --seconds ends is a sample of all. A later
run continues the file.
"""
import json
import os
import re
import signal
import tempfile
import time
import warnings
from pathlib import Path


def running(parser):
    """The options of every script that runs models so."""
    parser.add_argument("--out", required=True, help="file of the lines")
    parser.add_argument("--only", default="", help="regular expression on names such as timm.resnet.resnet18")
    parser.add_argument("--shard", default="0/1", help="K/N: every Nth model from the Kth on, for one process a GPU")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=int, default=120, help="seconds of a model")
    parser.add_argument("--seconds", type=int, default=0, help="when to stop; 0: when all have run")
    parser.add_argument("--report", action="store_true", help="run nothing; write the table of the file")


def arguments(parser):
    """The options that every script of the zoo takes."""
    running(parser)
    parser.add_argument("--families", default="torchvision,timm,transformers,torchaudio,diffusers")
    parser.add_argument("--most", type=int, default=60_000_000, help="parameters of the largest model")
    parser.add_argument("--page", help="write the table to this file")


class LeftOut(Exception):
    """A model that cannot run here, with the reason."""


def lines_of(path):
    return [json.loads(t) for t in Path(path).read_text().splitlines()] if Path(path).exists() else []


def say(e):
    """The first lines of an error."""
    text = [t.strip() for t in str(e).splitlines() if t.strip()]
    return f"{type(e).__name__}: {' | '.join(text[:3])[:400]}"


def run(a, one, choose=None):
    """Calls `one(a, name, make, inputs)`, which returns the model's line, for all models that `choose(done)` returns, by default those of the
    zoo's families that have no line yet."""
    if a.report:
        return
    warnings.filterwarnings("ignore")
    if choose is None:
        from families import selected

        choose = lambda done: selected(a.families, a.only, done)
    shard, shards = map(int, a.shard.split("/"))
    models = choose({line["model"] for line in lines_of(a.out)})[shard::shards]
    print(f"{len(models)} models", flush=True)
    with Path(a.out).open("a") as lines, tempfile.TemporaryDirectory() as parts:
        collect(a, one, models, lines, Path(parts))


def line_of(one, *args):
    """The model's line, also where the script itself fails."""
    try:
        return one(*args)
    except Exception as e:
        return {"outcome": "crashed", "detail": say(e)}


def child(a, one, model, parts):
    """Forks a process that writes the model's line to a file: process and file."""
    name, make, inputs = model
    path = parts / f"{name}.json"
    process = os.fork()
    if process == 0:
        # Children of the model's process end with it.
        os.setpgid(0, 0)
        log = os.open(os.devnull, os.O_WRONLY)
        os.dup2(log, 1)
        os.dup2(log, 2)
        try:
            path.write_text(json.dumps({"model": name, **line_of(one, a, name, make, inputs)}))
        finally:
            os._exit(0)
    return process, path


def collect(a, one, models, lines, parts):
    """Runs the models, a.jobs at once, until all ran or the time is up."""
    running, start, todo, count = {}, time.time(), list(reversed(models)), 0

    def write(line, began):
        nonlocal count
        count += 1
        line["seconds"] = round(time.time() - began, 1)
        lines.write(json.dumps(line) + "\n")
        lines.flush()
        print(f"{count}/{len(models)} {line['model']}: {line['outcome']} {line['detail'][:100]} {line['seconds']} s", flush=True)

    while running or todo:
        late = a.seconds and time.time() - start > a.seconds
        while todo and len(running) < a.jobs and not late:
            process, path = child(a, one, todo[-1], parts)
            running[process] = (todo.pop()[0], path, time.time())
        process, status = os.waitpid(-1, os.WNOHANG) if running else (0, 0)
        if process in running:
            name, path, began = running.pop(process)
            line = {"model": name, "outcome": "crashed", "detail": f"status {status}"}
            if path.exists():
                line = json.loads(path.read_text())
                path.unlink()
            write(line, began)
            continue
        for process, (name, path, began) in list(running.items()):
            if late or time.time() - began > a.timeout:
                os.killpg(process, signal.SIGKILL)
                os.waitpid(process, 0)
                path.unlink(missing_ok=True)
                del running[process]
                if not late:
                    write({"model": name, "outcome": "timeout", "detail": f"{a.timeout} s"}, began)
        if late and not running:
            print(f"time is up: {len(todo)} models did not start")
            return
        time.sleep(0.05)


def outcomes(count, columns):
    """The lines of a table of how many models of each family had each outcome."""
    text = ["| family | " + " | ".join(columns) + " |", "| --- " * (1 + len(columns)) + "|"]
    return text + [f"| {f} | " + " | ".join(str(count[f, c]) for c in columns) + " |" for f in sorted({f for f, _ in count})]


def cell(text, most=160):
    """Text of one line for a cell of a table, with files named without their folders."""
    text = re.sub(r"(?<![\w.])/[\w./-]*/", "", text.replace("|", "/"))
    return re.sub(r"\s+", " ", text)[:most]
