"""Compiles models and test cases with two builds of kiln, and says which kernels changed."""

import argparse
import concurrent.futures
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import traceback
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import build
import inputs
import job as jobs

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TARGETS = ["x86_64:znver4", "x86_64:haswell", "x86_64:sapphirerapids", "cuda:sm_80", "cuda:sm_90a"]
QUICK = ["x86_64:znver4", "cuda:sm_90a"]
HELP = """
Compiles every archive of tests/models and ../shared/models, and the cases of tests/passes, with two
builds: BASE and the working tree. Kernels are compared by their PTX or disassembly, without names,
labels and debug info. A case is compiled as each revision has it, and counts if BASE compiles it;
cases of kernels without a program go to level llvm by kiln-opt, the host's for this machine.
Diffs and kernels.txt, a line for each kernel, are written to target/replay/report.

exit code: 0 all is the same; 1 a kernel or a program changed, came, went, or no longer compiles;
2 usage, or a build that cannot be made. KILN_REPLAY_MODELS names more folders of archives, with ':'
between; other variables KILN_… are not passed on.
"""
HEADS, HEAD_LINES = 6, 16


def arguments():
    parser = argparse.ArgumentParser(
        prog="./x replay",
        description=__doc__,
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "base",
        nargs="?",
        metavar="BASE",
        help="a revision [default: the merge base of HEAD and HEAD~]",
    )
    add("--rounds", type=int, default=3, help="how often each archive is compiled [default: 3]")
    add("--only", default="", metavar="TEXT", help="inputs whose names contain this")
    add("--targets", metavar="A,B", help=f"[default: {','.join(TARGETS)}]")
    add("--quick", action="store_true", help="tests/models alone, for " + " and ".join(QUICK))
    add("--release", action="store_true", help="release builds")
    add(
        "--base-bin",
        metavar="DIR",
        help="a folder with kiln and kiln-opt, instead of building BASE",
    )
    add("--work-bin", metavar="DIR", help="the same for the working tree")
    for side, what in (("base", "BASE"), ("work", "the working tree")):
        text = f"an option of `kiln options` for {what} alone; as often as wanted"
        add(f"--{side}-option", action="append", default=[], metavar="NAME=VALUE", help=text)
    add("--out", metavar="DIR", help="where diffs go [default: target/replay/report]")
    add("--self-test", action="store_true", help="tests this script, without compiling")
    given = parser.parse_args()
    if given.rounds < 1:
        parser.error("--rounds: at least 1")
    given.targets = given.targets.split(",") if given.targets else QUICK if given.quick else TARGETS
    for target in given.targets:
        if not target.startswith(("x86_64:", "cuda:")):
            parser.error(f"--targets: '{target}' is neither x86_64:PROCESSOR nor cuda:sm_NN")
    for option in given.base_option + given.work_option:
        if "=" not in option:
            parser.error(f"'{option}' is not NAME=VALUE")
    return given


def self_test():
    suite = unittest.defaultTestLoader.discover(os.path.dirname(os.path.abspath(__file__)))
    raise SystemExit(not unittest.TextTestRunner().run(suite).wasSuccessful())


def main():
    given = arguments()
    if given.self_test:
        self_test()
    llvm = build.llvm_bin(ROOT)
    if given.base_bin and given.base is None:
        commit, label = None, given.base_bin
    else:
        commit = build.resolve(ROOT, given.base)
        label = commit[:12]
    bases = build.checked(given.base_bin or build.base(ROOT, commit, given.release))
    works = build.checked(given.work_bin or build.work(ROOT, given.release))
    out = given.out or os.path.join(ROOT, "target", "replay", "report")
    if given.out is None:
        shutil.rmtree(out, ignore_errors=True)
    elif os.path.isdir(out) and os.listdir(out):
        inputs.fail(f"--out: {out} is not empty")
    os.makedirs(out, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kiln-replay-") as scratch:
        found, unpaired = inputs.archives(ROOT, given.only, given.quick), (0, 0)
        if not given.quick:
            cases, unpaired = inputs.cases(ROOT, commit, os.path.join(scratch, "cases"), given.only)
            found += cases
        if not found:
            inputs.fail("no input" + (f" whose name contains '{given.only}'" if given.only else ""))
        hosts = [t for t in given.targets if not t.startswith("cuda")]
        settings = jobs.Settings(
            (bases, works),
            (given.base_option, given.work_option),
            llvm,
            scratch,
            os.path.abspath(out),
            given.rounds,
            (hosts or [None])[0],
        )
        for side in settings.binaries:
            # Into the page cache, which the first compilation would pay for.
            subprocess.run([os.path.join(side, "kiln"), "--version"], capture_output=True)
        print(
            f"replay: {label} against {given.work_bin or 'the working tree'}: "
            f"archives: {sum(not i.is_case for i in found)}, "
            f"cases: {sum(i.is_case for i in found)}, targets: {len(given.targets)}",
            flush=True,
        )
        results = run_all(settings, [(i, t) for i in found for t in given.targets])
    raise SystemExit(report(results, given.targets, settings.out, unpaired))


def run_all(settings, work):
    """Two at once: what is compared takes turns in one of them."""
    results = []
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(jobs.replay, settings, *w) for w in work]
        for i, one in enumerate(waiting):
            results.append(one.result())
            if sys.stderr.isatty():
                print(f"\r{i + 1}/{len(work)} ", end="", file=sys.stderr, flush=True)
    return results


def ratio(result):
    """Compile time of the work over BASE's: the median of the rounds' ratios."""
    pairs = [w / b for b, w in zip(*result.seconds) if b > 0]
    return statistics.median(pairs) if pairs else None


def spread(values):
    return (
        f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"
        if values
        else "-"
    )


def report(results, targets, out, unpaired):
    """Prints the result and writes kernels.txt; returns the exit code."""
    with open(os.path.join(out, "kernels.txt"), "w", encoding="utf8") as f:
        for r in results:
            time = f", compile time x {ratio(r):.3f}" if not r.is_case and ratio(r) else ""
            f.write(f"{r.name} {r.target}: {r.state} {r.message}program {r.program}{time}\n")
            f.writelines(f"  {how}: {kernel}\n" for kernel, how in r.kernels)
    different = [r for r in results if not r.is_same and r.state != "failed in both"]
    heads = 0
    for r in different:
        print(f"\n{r.name} for {r.target}")
        if r.message:
            print(f"  {r.message}")
        for what, names in (("changed", r.changed), ("removed", r.removed), ("added", r.added)):
            for name in names:
                print(f"  {what}: {name}")
        if r.program != "same":
            alone = "" if r.changed or r.added or r.removed else ", and nothing else"
            print(f"  program changed: {r.program}{alone}")
        for path in r.diffs:
            print(f"  {os.path.relpath(path)}")
        if r.diffs and heads < HEADS:
            heads += 1
            with open(r.diffs[0], encoding="utf8") as f:
                lines = f.read().splitlines()
            print("\n".join("    " + line for line in lines[:HEAD_LINES]))
            if len(lines) > HEAD_LINES:
                print(f"    … {len(lines) - HEAD_LINES} lines more")
    print(
        f"\n{'target':24}{'inputs':>7}{'kernels':>9}{'same':>7}{'changed':>9}{'added':>7}"
        f"{'removed':>9}"
        f"{'programs':>10}  compile time"
    )
    for target in [t for t in targets + ["host"] if any(r.target == t for r in results)]:
        line(target, [r for r in results if r.target == target])
    line("all", results)
    footer(results, unpaired)
    kernels = sum(len(r.changed) + len(r.added) + len(r.removed) for r in different)
    programs = sum(r.program != "same" for r in different)
    failed = sum(r.state == "failed" for r in results)
    print(
        f"\nkernels changed: {kernels}, programs changed: {programs}, "
        f"inputs that one build alone compiles: {failed}; "
        f"{os.path.relpath(out)}"
    )
    if not any(r.state in ("compared", "failed") for r in results):
        inputs.fail("nothing was compared")
    return 1 if different else 0


def line(target, results):
    done = [r for r in results if r.state == "compared"]
    counts = [sum(len(getattr(r, k)) for r in done) for k in ("changed", "added", "removed")]
    same = sum(r.same for r in done)
    programs = sum(r.program != "same" for r in done)
    ratios = [ratio(r) for r in done if not r.is_case and ratio(r)]
    print(
        f"{target:24}{len(done):>7}{same + counts[0] + counts[1] + counts[2]:>9}{same:>7}"
        f"{counts[0]:>9}{counts[1]:>7}{counts[2]:>9}{programs:>10}  {spread(ratios)}"
    )


def footer(results, unpaired):
    print(
        "\nprograms: those whose launches, memory plan or host code changed\n"
        "compile time: processor time of the work over BASE's, the median of the archives' medians "
        "of paired\nrounds (least to most)"
    )
    times = [
        [sum(r.seconds[side]) for r in results if r.is_case and r.state == "compared"]
        for side in (0, 1)
    ]
    if sum(times[0]):
        print(f"cases: {sum(times[0]):.1f} s with BASE, {sum(times[1]):.1f} s with the work")
    counted = {r.name for r in results if r.state != "passed over"}
    passed_over = {r.name for r in results} - counted
    notes = [
        (sum(r.renamed for r in results), "kernels are the same but for their names"),
        (sum(r.described for r in results), "packages describe kernels otherwise (kinds, reasons)"),
        (len(passed_over), "cases were passed over, since BASE compiles them for no target"),
        (unpaired[0], "cases are in BASE alone"),
        (unpaired[1], "cases are in the working tree alone"),
    ]
    for count, text in notes:
        if count:
            print(f"{count} {text}")
    for r in results:
        if r.unsteady:
            print(f"{r.name} for {r.target}: packages of {' and '.join(r.unsteady)} vary")
        if r.state == "failed in both":
            print(f"{r.name} for {r.target}: neither build compiles it: {r.message}")


if __name__ == "__main__":
    try:
        main()
    except Exception:
        traceback.print_exc()
        # Not 1, which says that kernels changed.
        sys.exit(2)
