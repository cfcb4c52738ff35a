"""The two builds: BASE in a git worktree of its own, and the working tree."""

import os
import shutil
import subprocess

from inputs import fail, git

BINARIES = ("kiln", "kiln-opt")


def resolve(root, revision):
    """The commit of a revision; of None, the merge base of HEAD and its parent."""
    if revision is None:
        command = ["merge-base", "HEAD", "HEAD~"]
    else:
        command = ["rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"]
    done = subprocess.run(["git", "-C", root, *command], capture_output=True, text=True)
    if done.returncode:
        fail(f"'{revision or 'HEAD~'}' is no revision")
    return done.stdout.strip()


def resolves(folder):
    """Whether git still knows a worktree."""
    command = ["git", "-C", folder, "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True).returncode == 0


def cargo(folder, target, release):
    """Builds the two binaries; returns the folder that they are in."""
    command = ["cargo", "build", "--bin", "kiln", "--bin", "kiln-opt"] + ["--release"] * release
    environment = dict(os.environ, CARGO_TARGET_DIR=target)
    if subprocess.run(command, cwd=folder, env=environment).returncode:
        fail(f"the build of {folder} fails")
    return os.path.join(target, "release" if release else "debug")


def base(root, commit, release):
    """The binaries of a commit, built if they are not there. All commits share a worktree and a
    target folder, so that dependencies are built once; binaries are kept for each."""
    home = os.path.join(root, "target", "replay")
    kept = os.path.join(home, commit[:12] + ("-release" if release else ""))
    if all(os.path.exists(os.path.join(kept, b)) for b in BINARIES):
        return kept
    source = os.path.join(home, "source")
    print(f"building {commit[:12]}", flush=True)
    os.makedirs(home, exist_ok=True)
    if os.path.exists(os.path.join(source, ".git")) and resolves(source):
        git(source, "checkout", "--quiet", "--force", "--detach", commit)
    else:
        shutil.rmtree(source, ignore_errors=True)
        git(root, "worktree", "prune")
        git(root, "worktree", "add", "--quiet", "--detach", source, commit)
    built = cargo(source, os.path.join(home, "target"), release)
    os.makedirs(kept, exist_ok=True)
    for binary in BINARIES:
        # Renamed when complete, so that a copy that was interrupted is not taken.
        shutil.copy2(os.path.join(built, binary), os.path.join(kept, binary + ".part"))
        os.replace(os.path.join(kept, binary + ".part"), os.path.join(kept, binary))
    return kept


def work(root, release):
    """The binaries of the working tree."""
    print("building the working tree", flush=True)
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(root, "target"))
    return cargo(root, os.path.join(root, target), release)


def checked(folder):
    """A folder that holds the binaries."""
    for binary in BINARIES:
        if not os.access(os.path.join(folder, binary), os.X_OK):
            fail(f"there is no {binary} in {folder}")
    return os.path.abspath(folder)


def llvm_bin(root):
    """The folder of llvm-objdump: of MLIR_SYS_220_PREFIX, or else as .cargo/config.toml says."""
    prefix = os.environ.get("MLIR_SYS_220_PREFIX")
    if not prefix:
        with open(os.path.join(root, ".cargo", "config.toml"), encoding="utf8") as f:
            lines = [line.split('"')[1] for line in f if line.startswith("MLIR_SYS_220_PREFIX")]
        prefix = lines[0]
    folder = os.path.join(prefix, "bin")
    if not os.access(os.path.join(folder, "llvm-objdump"), os.X_OK):
        fail(f"there is no llvm-objdump in {folder}; Debian's package llvm-22 has it")
    return folder
