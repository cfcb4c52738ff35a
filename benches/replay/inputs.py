"""What is compiled: archives, and the cases of tests/passes."""

import dataclasses
import hashlib
import os
import re
import subprocess
import sys


def fail(text):
    """What cannot be compared is no difference: exit code 2."""
    print(f"./x replay: {text}", file=sys.stderr)
    raise SystemExit(2)


@dataclasses.dataclass
class Input:
    """A file of each side; both are the same file unless a case was edited."""

    name: str
    paths: tuple
    functions: tuple = ("main", "main")
    is_case: bool = False


def archives(root, only, quick):
    """The archives of tests/models and, unless `quick`, of ../shared/models; those of
    KILN_REPLAY_MODELS; each content once."""
    folders = [os.path.join(root, "tests", "models")]
    if not quick:
        folders.append(os.path.join(root, "..", "shared", "models"))
    added = [f for f in os.environ.get("KILN_REPLAY_MODELS", "").split(os.pathsep) if f]
    for folder in added:
        if not os.path.isdir(folder):
            fail(f"KILN_REPLAY_MODELS names {folder}, which is no folder")
    found, seen, names = [], set(), set()
    for folder in folders + added:
        if not os.path.isdir(folder):
            continue
        for file in sorted(os.listdir(folder)):
            if not file.endswith(".pt2"):
                continue
            path = os.path.join(os.path.abspath(folder), file)
            with open(path, "rb") as f:
                content = hashlib.sha256(f.read()).digest()
            if content in seen:
                continue
            seen.add(content)
            name = file
            while name in names:
                name += "'"
            names.add(name)
            if only in name:
                found.append(Input(name, (path, path)))
    return found


def split(text):
    """The parts of a test file, by name: that of the comment CASE, or the number."""
    parts = {}
    for i, part in enumerate(re.split(r"^// -----.*$", text, flags=re.M)):
        case = re.search(r"^// CASE: *(\S+)", part, flags=re.M)
        name = case.group(1) if case else str(i)
        parts[name if name not in parts else f"{name}.{i}"] = part
    return parts


KERNEL_MODULE = re.compile(r"^\s*module\b.*\bkiln\.kernel\b.*\{\s*$")


def function(text):
    """The function that a case is compiled from: the first outside of kernels' modules; None for
    kernels without a program."""
    depth = 0
    for line in text.splitlines():
        line = re.sub(r'"(?:[^"\\]|\\.)*"', "", line.split("//", 1)[0])
        if depth or KERNEL_MODULE.match(line):
            depth += line.count("{") - line.count("}")
            continue
        found = re.match(r"\s*func\.func (?:public )?@([\w$.-]+)", line)
        if found:
            return found.group(1)
    return None


def pair(base, work):
    """Pairs cases ((file, name) to text) of two revisions: by file and name, by text, and by a
    name that only one has. Returns (base key, work key) pairs."""
    pairs = [(key, key) for key in work if key in base]
    left = ([k for k in base if k not in work], [k for k in work if k not in base])
    for value in (lambda cases, key: cases[key], lambda cases, key: key[1]):
        for w in list(left[1]):
            same = [b for b in left[0] if value(base, b) == value(work, w)]
            also = [o for o in left[1] if value(work, o) == value(work, w)]
            if len(same) == 1 and len(also) == 1:
                pairs.append((same[0], w))
                left[0].remove(same[0])
                left[1].remove(w)
    return pairs, left


def case_texts(root, revision):
    """The cases of a revision, or of the working tree where it is None."""
    cases, folder = {}, "tests/passes"
    if revision is None:
        listed = [f"{folder}/{f}" for f in os.listdir(os.path.join(root, folder))]
    else:
        listed = git(root, "ls-tree", "--name-only", revision, folder + "/").splitlines()
    for path in sorted(p for p in listed if p.endswith(".mlir")):
        if revision is None:
            with open(os.path.join(root, path), encoding="utf8") as f:
                text = f.read()
        else:
            text = git(root, "show", f"{revision}:{path}")
        for name, part in split(text).items():
            cases[os.path.basename(path), name] = part
    return cases


def cases(root, revision, folder, only):
    """The cases of both sides, written to files under `folder`; and how many have no partner."""
    base, work = case_texts(root, revision), case_texts(root, None)
    pairs, left = pair(base, work)
    found = []
    for b, w in sorted(pairs, key=lambda p: p[1]):
        name = f"{w[0]}:{w[1]}"
        if only not in name:
            continue
        paths = []
        for side, (texts, key) in enumerate(((base, b), (work, w))):
            # Both sides see the same file name, which locations contain.
            path = os.path.join(folder, str(side), f"{w[0][:-5]}.{w[1]}.mlir")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf8") as f:
                f.write(texts[key])
            paths.append(path)
        found.append(Input(name, tuple(paths), (function(base[b]), function(work[w])), True))
    return found, (len(left[0]), len(left[1]))


def git(root, *arguments):
    done = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True)
    if done.returncode:
        fail(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout
