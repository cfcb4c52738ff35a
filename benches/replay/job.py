"""One input for one target: both builds compile it in turns, and the results are compared."""

import collections
import dataclasses
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import zipfile

import compare
import normal

# A compilation that takes longer hangs.
LIMIT_S = 900


@dataclasses.dataclass
class Settings:
    """What all jobs share: per side (BASE, work) the binaries' folder and the options."""

    binaries: tuple
    options: tuple
    llvm: str
    scratch: str
    out: str
    rounds: int
    first_host: str


@dataclasses.dataclass
class Output:
    """What one build made: kernels by symbol (name, bytes), the host's objects, the manifest."""

    kernels: dict
    hosts: dict
    manifest: dict
    kind: str


@dataclasses.dataclass
class Result:
    """What became of a job. `state` is compared, passed over, failed, or failed in both."""

    name: str
    target: str
    is_case: bool
    state: str = "compared"
    message: str = ""
    same: int = 0
    renamed: int = 0
    changed: list = dataclasses.field(default_factory=list)
    added: list = dataclasses.field(default_factory=list)
    removed: list = dataclasses.field(default_factory=list)
    program: str = "same"
    diffs: list = dataclasses.field(default_factory=list)
    kernels: list = dataclasses.field(default_factory=list)
    seconds: tuple = ((), ())
    unsteady: list = dataclasses.field(default_factory=list)
    described: bool = False

    @property
    def is_same(self):
        kernels = self.changed or self.added or self.removed
        return self.state in ("compared", "passed over") and not kernels and self.program == "same"


def run(command, log):
    """Runs a command; returns its exit code and the seconds of processor time that it and its
    children took."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("KILN_")}
    environment["KILN_REPRODUCER"] = "off"
    with open(log, "wb") as f:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=f, stderr=f, env=environment
        )
    # wait4 tells what this child alone has used, and has no limit of its own.
    limit = threading.Timer(LIMIT_S, os.kill, (child.pid, signal.SIGKILL))
    limit.start()
    _, status, usage = os.wait4(child.pid, 0)
    limit.cancel()
    child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, usage.ru_utime + usage.ru_stime


def compile_package(settings, side, job, target, path):
    """`kiln compile`; returns an error or None, and seconds."""
    command = [os.path.join(settings.binaries[side], "kiln"), "compile", job.paths[side]]
    command += ["-o", path, "--target", target, "--function", job.functions[side]]
    command += ["--no-cache", "--workers", "1"]
    for option in settings.options[side]:
        command += ["--option", option]
    code, seconds = run(command, path + ".log")
    return (None if code == 0 else first_error(path + ".log", code)), seconds


def first_error(log, code):
    with open(log, errors="replace") as f:
        lines = [line.strip() for line in f if line.strip()]
    return next(
        (line for line in lines if "error" in line), lines[0] if lines else f"exit code {code}"
    )


def lower_kernels(settings, side, job, target, path):
    """`kiln-opt --to llvm`, for cases that are kernels without a program."""
    command = [os.path.join(settings.binaries[side], "kiln-opt"), job.paths[side]]
    command += ["--to", "llvm", "--target", target, "-o", path]
    code, seconds = run(command, path + ".log")
    return (None if code == 0 else first_error(path + ".log", code)), seconds


def read_package(path):
    """Reads a package."""
    with zipfile.ZipFile(path) as archive:
        files = {n: archive.read(n) for n in archive.namelist()}
    manifest = json.loads(files.pop("manifest.json"))
    names = kernel_names(manifest)
    objects = {os.path.basename(n): data for n, data in files.items() if n.startswith("objects/")}
    kind = "ptx" if any(n.endswith(".ptx") for n in objects) else "object"
    objects = {os.path.splitext(n)[0]: data for n, data in objects.items()}
    kernels = {s: (names[s], data) for s, data in objects.items() if s in names}
    hosts = {s: data for s, data in objects.items() if s not in names}
    return Output(kernels, hosts, manifest, kind)


def kernel_names(value):
    """The names of the kernels of a manifest, by symbol."""
    if isinstance(value, list):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        return {}
    own = {value["symbol"]: value["name"]} if "ops" in value and "symbol" in value else {}
    for part in value.values():
        own = kernel_names(part) | own
    return own


MODULE = re.compile(r"^  module @([\w$.]+).*?\{\n(.*?)^  \}\n", re.M | re.S)


def read_llvm_level(path):
    """Reads what kiln-opt prints at level llvm: a module for each kernel, a GPU's as PTX."""
    with open(path, encoding="utf8", errors="replace") as f:
        text = f.read()
    kernels, kind = {}, "llvm"
    for found in MODULE.finditer(text):
        name, body = found.groups()
        ptx = re.search(r'assembly = "((?:[^"\\]|\\.)*)"', body)
        if ptx:
            kind = "ptx"
            body = re.sub(r"\\([0-9A-F]{2}|.)", unescape, ptx.group(1))
        kernels[name] = (name, body.encode())
    return Output(kernels, {"host": MODULE.sub("", text).encode()}, {}, kind)


def unescape(match):
    code = match.group(1)
    return chr(int(code, 16)) if len(code) == 2 else code


class Texts:
    """Normal forms of a job's objects."""

    def __init__(self, settings, outputs, folder):
        self.settings, self.outputs, self.folder = settings, outputs, folder

    def kernels(self, side, symbols):
        output = self.outputs[side]
        data = {s: output.kernels[s][1] for s in symbols}
        if output.kind == "ptx":
            return {s: normal.ptx(d.decode("utf8", "replace")) for s, d in data.items()}
        if output.kind == "llvm":
            return {s: normal.llvm_dialect(d.decode()) for s, d in data.items()}
        return self.objects(data, {})

    def objects(self, data, names):
        """The normal forms of ELF objects, by name."""
        paths = {}
        for i, (name, content) in enumerate(data.items()):
            paths[name] = os.path.join(self.folder, f"{i}.o")
            with open(paths[name], "wb") as f:
                f.write(content)
        if not paths:
            return {}
        command = [os.path.join(self.settings.llvm, "llvm-objdump"), *normal.OBJDUMP_FLAGS]
        done = subprocess.run([*command, *paths.values()], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"llvm-objdump: {done.stderr.strip()}")
        # A heading with the path stands before each object.
        parts = re.split(r"^(\S+\.o):\s+file format \S+$", done.stdout, flags=re.M)
        printed = dict(zip(parts[1::2], parts[2::2]))
        return {
            name: normal.disassembly(printed[path], names) + normal.data_sections(data[name])
            for name, path in paths.items()
        }

    def codes(self, pairs):
        """The machine code of kernels in the llvm dialect, or None where a tool refuses one."""
        found = ({}, {})
        for pair in pairs:
            for side, symbol in enumerate(pair):
                found[side][symbol] = self.code(self.outputs[side].kernels[symbol][1].decode())
        texts = []
        for objects in found:
            if any(code is None for code in objects.values()):
                return None
            texts.append(self.objects(objects, {}))
        return texts

    def code(self, body):
        module = os.path.join(self.folder, "kernel")
        with open(module + ".mlir", "w", encoding="utf8") as f:
            f.write("\n".join(normal.without_attributes(line) for line in body.splitlines()))
        tool = lambda name: os.path.join(self.settings.llvm, name)
        steps = [
            [tool("mlir-translate"), "--mlir-to-llvmir", module + ".mlir", "-o", module + ".ll"],
            [tool("opt"), "-O3", "-mcpu=native", module + ".ll", "-o", module + ".bc"],
            [
                tool("llc"),
                "-O3",
                "-mcpu=native",
                "-filetype=obj",
                module + ".bc",
                "-o",
                module + ".o",
            ],
        ]
        for step in steps:
            if (
                not os.access(step[0], os.X_OK)
                or subprocess.run(step, capture_output=True).returncode
            ):
                return None
        with open(module + ".o", "rb") as f:
            return f.read()


def way(settings, job, target, whole=True):
    """How an input is compiled and read, and for which target. Kernels without a program go down
    by kiln-opt, which knows one processor: the first target of the host stands for all, and None
    is given for the others."""
    if whole and None not in job.functions:
        return compile_package, read_package, target
    if target.startswith("cuda"):
        return lower_kernels, read_llvm_level, target
    return (lower_kernels if target == settings.first_host else None), read_llvm_level, "host"


def replay(settings, job, target):
    """Compiles with both builds and compares."""
    result = Result(job.name, target, job.is_case)
    folder = tempfile.mkdtemp(dir=settings.scratch)
    make, read, result.target = way(settings, job, target)
    paths = [os.path.join(folder, f"{side}.kpkg") for side in (0, 1)]
    rounds = 1 if job.is_case else settings.rounds
    seconds, errors = ([], []), [None, None]
    digests = collections.Counter(), collections.Counter()
    for k in range(rounds):
        for side in (0, 1) if k % 2 == 0 else (1, 0):
            if make is None:
                errors[side] = f"covered by {settings.first_host}"
            else:
                errors[side], spent = make(settings, side, job, result.target, paths[side])
            if side == 0 and errors[0] and make is compile_package and job.is_case:
                # No whole program: as kernels, then.
                make, read, result.target = way(settings, job, target, whole=False)
                if make:
                    errors[side], spent = make(settings, side, job, result.target, paths[side])
            if errors[side] is None:
                seconds[side].append(spent)
                with open(paths[side], "rb") as f:
                    digests[side][compare.digest(f.read())] += 1
            elif side == 0 and job.is_case:
                result.state, result.message = "passed over", errors[0]
                return result
        if any(errors):
            break
    result.seconds = seconds
    sides = ("BASE", "the working tree")
    result.unsteady = [sides[i] for i in (0, 1) if len(digests[i]) > 1]
    if all(errors):
        result.state, result.message = "failed in both", errors[0]
    elif any(errors):
        failing = 0 if errors[0] else 1
        result.state = "failed"
        result.message = f"{sides[1 - failing]} alone compiles it: {errors[failing]}"
    else:
        outputs = [read(path) for path in paths]
        compare_outputs(settings, result, outputs, Texts(settings, outputs, folder))
    for file in os.listdir(folder):
        os.remove(os.path.join(folder, file))
    os.rmdir(folder)
    return result


def compare_outputs(settings, result, outputs, texts):
    base, work = outputs
    found, known = compare.match(base.kernels, work.kernels, texts.kernels)
    if base.kind == work.kind == "llvm" and found.changed:
        codes = texts.codes(found.changed)
        if codes:
            equal = [(b, w) for b, w in found.changed if codes[0][b] == codes[1][w]]
            found.same += equal
            found.changed = [pair for pair in found.changed if pair not in equal]
            known = codes
    result.same = len(found.same)
    name = lambda side, symbol: outputs[side].kernels[symbol][0]
    for b, w in found.same:
        names = name(0, b), name(1, w)
        result.renamed += names[0] != names[1]
        result.kernels.append(
            (names[1], "same" if names[0] == names[1] else f"same, was {names[0]}")
        )
    for b, w in found.changed:
        result.changed.append(name(1, w))
        result.kernels.append((name(1, w), "changed"))
        write_diff(settings, result, name(1, w), known[0][b], known[1][w])
    for symbols, names, side in (
        (found.removed, result.removed, 0),
        (found.added, result.added, 1),
    ):
        how = ("removed", "added")[side]
        for symbol, text in texts.kernels(side, symbols).items():
            names.append(name(side, symbol))
            result.kernels.append((name(side, symbol), how))
            write_diff(
                settings,
                result,
                f"{name(side, symbol)}.{how}",
                *(("", text), (text, ""))[side == 0],
            )
    compare_programs(settings, result, outputs, texts, found.names())


def compare_programs(settings, result, outputs, texts, names):
    """Compares launches, memory plan and the host's code, with kernels by what they were matched
    to."""
    sides = [outputs[side].manifest for side in (0, 1)]
    result.described = compare.descriptions(sides[0]) != compare.descriptions(sides[1])
    programs = [compare.program_text(sides[side], names[side]) for side in (0, 1)]
    what = []
    if programs[0] != programs[1]:
        what.append("launches or memory plan")
        write_diff(settings, result, "program", *programs)
    hosts = [outputs[side].hosts for side in (0, 1)]
    same_names = all(b == w for b, w in zip(*names)) and names[0] == names[1]
    if not (same_names and hosts[0] == hosts[1]):
        if outputs[0].kind == "object":
            codes = [texts.objects(hosts[side], names[side]) for side in (0, 1)]
        else:
            codes = [
                {n: normal.llvm_dialect(d.decode()) for n, d in hosts[side].items()}
                for side in (0, 1)
            ]
        for n in sorted(set(codes[0]) | set(codes[1])):
            code = [codes[side].get(n, "") for side in (0, 1)]
            if code[0] != code[1]:
                what.append("host code")
                write_diff(settings, result, f"host.{n}", *code)
    if what:
        result.program = " and ".join(dict.fromkeys(what))


def write_diff(settings, result, kernel, base, work):
    folder = os.path.join(settings.out, re.sub(r"[^\w.-]+", "_", f"{result.name}.{result.target}"))
    os.makedirs(folder, exist_ok=True)
    stem = path = os.path.join(folder, re.sub(r"[^\w.-]+", "_", kernel))
    number = 1
    while os.path.exists(path + ".diff"):
        path, number = f"{stem}.{number}", number + 1
    label = f"{result.name} {result.target} {kernel}"
    with open(path + ".diff", "w", encoding="utf8") as f:
        f.write(compare.diff(base, work, f"BASE {label}", f"work {label}"))
    result.diffs.append(path + ".diff")
