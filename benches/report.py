"""Writes the measured pages from benches/results/*.json; standard library only.

  report.py            writes docs/measurements/{host,gpu,front}.md, their charts in docs/img/,
                       the table of README.md and docs/img/speed.svg
  report.py --check    fails and names the stale files instead

A suite is one JSON file:

  page, order, title   where it stands: host, gpu or front
  date, machine, commit, command
                       what was measured, when, and on what; commit is null where it was not noted
  unit                 of `kiln` and of a peer's `time`
  ratio                "kiln / peer", "peer / kiln" or another quotient; null if there is none
  columns              [key, heading] of each column; `peers.NAME` and `values.NAME` look inside
  chart                a peer, or "fastest": a chart of the ratios; left out, no chart
  notes                sentences below the table: how it was measured, what is known of misses
  rows                 name, shape, dtype, kiln, spread [low, high], rate, error, goal, met, note,
                       peers {NAME: {time, ratio, low, high}}, values {NAME: text}

To record a run: add or replace a file, run this script, and move what it replaces to
docs/measurements/log.md.
"""
import decimal
import re
import sys
import textwrap

sys.dont_write_bytecode = True
import chart

ROOT = chart.ROOT
PAGES = {
    "host": "x86-64 processors",
    "gpu": "NVIDIA GPUs",
    "front": "Calls, compile time and start-up",
}
NOTE = "<!-- Generated from benches/results/ by benches/report.py. -->"
REQUIRED = ("page", "order", "title", "date", "machine", "commit", "command", "unit", "ratio")


def load():
    """All suites in the order of their pages."""
    suites = []
    for path in sorted(chart.RESULTS.glob("*.json")):
        suite = chart.read(path)
        missing = [k for k in REQUIRED + ("columns", "notes", "rows") if k not in suite]
        if missing or suite["page"] not in PAGES:
            sys.exit(f"{path}: lacks {missing}, or page is none of {', '.join(PAGES)}")
        for row in suite["rows"]:
            for peer, e in row.get("peers", {}).items():
                if "ratio" in e and not e.get("low", 0) <= e["ratio"] <= e.get("high", 1e9):
                    sys.exit(f"{path}: {row['name']}, {peer}: the ratio is outside of its range")
        suites.append({**suite, "key": path.stem})
    return sorted(suites, key=lambda s: s["order"])


def ratio(entry):
    """0.95 [0.91, 1.00], or as much of it as is recorded."""
    text = str(entry.get("ratio", ""))
    if "low" in entry and "ratio" in entry:
        text += f" [{entry['low']}, {entry['high']}]"
    elif "low" in entry and "time" not in entry:
        text += f"{entry['low']} to {entry['high']}"
    return text


def number(value):
    return f"{value:,}" if isinstance(value, int) and value >= 10000 else str(value)


def peer_cell(entry):
    parts = []
    if "time" in entry:
        spread = "" if "ratio" in entry or "low" not in entry else (
            f" [{number(entry['low'])}, {number(entry['high'])}]"
        )
        parts.append(number(entry["time"]) + spread)
    if "rate" in entry:
        parts.append(number(entry["rate"]))
    if ratio(entry):
        parts.append(ratio(entry))
    return ": ".join(parts)


def cell(suite, row, key):
    if key == "fastest":
        peer, entry = chart.fastest(suite, row)
        return f"{peer} {ratio(entry)}"
    if key == "goal" and "goal" in row:
        return f"{row['goal']} {'met' if row['met'] else 'missed'}"
    if key.startswith("peers."):
        return peer_cell(row.get("peers", {}).get(key[6:], {}))
    if key.startswith("values."):
        return row.get("values", {}).get(key[7:], "")
    value = row.get(key, "")
    text = number(value) if isinstance(value, (int, decimal.Decimal)) else value or ""
    if key == "kiln" and "spread" in row:
        text += f" [{row['spread'][0]}, {row['spread'][1]}]"
    if key == "name" and "run" in row:
        text += f" ({row['run']})"
    return text


def markdown(heads, rows):
    keep = [i for i, _ in enumerate(heads) if any(r[i] for r in rows)]
    lines = [[heads[i] for i in keep], ["---"] * len(keep)]
    lines += [[r[i].replace("|", "\\|") for i in keep] for r in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def fill(text):
    lines = textwrap.wrap(
        text, 98, initial_indent="- ", subsequent_indent="  ",
        break_long_words=False, break_on_hyphens=False,
    )
    return "\n".join(lines) + "\n"


def section(suite):
    about = [suite["date"], suite["machine"], f"`{suite['command']}`"]
    if suite["commit"]:
        about.append(f"commit {suite['commit']}")
    text = f"\n## {suite['title']}\n\n" + "\n".join(f"- {a}" for a in about) + "\n"
    if suite["ratio"]:
        small = "kiln" if suite["ratio"].startswith("kiln") else "peer"
        ratios = f"- Ratios are {suite['ratio']}, as median [least, most]"
        names = suite["ratio"] in ("kiln / peer", "peer / kiln")
        text += f"{ratios}; below 1 {small} is faster.\n" if names else f"{ratios}.\n"
    rows = suite["rows"]
    if suite.get("chart"):
        text += f"\n![{suite['title']}: kiln's time as a share of the peer's]"
        text += f"(../img/{suite['key']}.svg)\n"
    heads = [c[1] for c in suite["columns"]]
    keys = [c[0] for c in suite["columns"]]
    text += "\n" + markdown(heads, [[cell(suite, r, k) for k in keys] for r in rows])
    if "fastest" in keys:
        peers = list(dict.fromkeys(p for r in rows for p in r["peers"]))
        cells = [
            [cell(suite, r, "name"), cell(suite, r, "shape"), r.get("error", "")]
            + [peer_cell(r["peers"].get(p, {})) for p in peers]
            + [f"{r['cold']} / {r['warm']}" if "cold" in r else ""]
            for r in rows
        ]
        heads = ["item", "shape", "error", *peers, "first result, cold / warm, s"]
        text += f"\n{suite['ratio']} for each peer:\n\n" + markdown(heads, cells)
    return text + ("\n" + "".join(fill(n) for n in suite["notes"]) if suite["notes"] else "")


def suite_chart(suite):
    rows = []
    for row in suite["rows"]:
        if suite["chart"] == "fastest":
            peer, entry = chart.fastest(suite, row)
        else:
            peer, entry = suite["chart"], row["peers"].get(suite["chart"], {})
        values = chart.kiln_over_peer(suite, entry)
        name = " ".join(str(row[k]) for k in ("name", "shape") if row.get(k))
        if "bf16" == row.get("dtype") and any(r.get("dtype") == "f32" for r in suite["rows"]):
            name += " bf16"
        rows.append((name, peer, *values))
    return chart.bars(f"{suite['title']}: kiln's time as a share of the peer's", rows)


def readme():
    """README.md with the table of its figures."""
    rows = []
    for figure, suite, row, entry in chart.figures():
        peer = figure.get("peer_label", figure["peer"])
        kiln = f"{number(row['kiln'])} {suite['unit']}"
        share = chart.kiln_over_peer(suite, entry)[0]
        rows.append([figure["label"], figure["on"], kiln, peer, f"{share:.2f}"])
    heads = ["what", "on", "kiln", "peer", "kiln's time / peer's"]
    text = (ROOT / "README.md").read_text()
    begin, end = "<!-- figures: benches/report.py -->\n", "<!-- end of figures -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.S)
    if not pattern.search(text):
        sys.exit(f"README.md: lacks {begin.strip()} … {end}")
    return pattern.sub(lambda _: begin + markdown(heads, rows) + end, text)


def files():
    suites = load()
    for page, title in PAGES.items():
        text = f"# {title}\n\n{NOTE}\n\nHow it was measured: [method](method.md). "
        text += "Earlier states: [log](log.md).\n"
        text += "".join(section(s) for s in suites if s["page"] == page)
        yield ROOT / "docs" / "measurements" / f"{page}.md", text
    for suite in suites:
        if suite.get("chart"):
            yield ROOT / "docs" / "img" / f"{suite['key']}.svg", suite_chart(suite)
    yield chart.SPEED, chart.speed()
    yield ROOT / "README.md", readme()


if __name__ == "__main__":
    check = "--check" in sys.argv[1:]
    stale = [path for path, text in files() if not chart.write(path, text, check)]
    if stale:
        names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
        sys.exit(f"stale, run python3 benches/report.py: {names}")
