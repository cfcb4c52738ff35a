"""Bar charts of recorded ratios as SVG, readable in light and dark; standard library only.

  chart.py            draws docs/img/speed.svg of the figures that benches/readme.json names
  chart.py --check    fails if that file is stale

benches/report.py draws the charts of docs/measurements/ with `bars`.
"""
import decimal
import html
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benches" / "results"
SPEED = ROOT / "docs" / "img" / "speed.svg"

STYLE = """
  .page { fill: #ffffff; } text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; }
  .name, .value { fill: #1f2328; } .peer, .title { fill: #59636e; } .axis { stroke: #8c959f; }
  .one { stroke: #1f2328; stroke-dasharray: 3 3; } .range { stroke: #1f2328; stroke-width: 1.5; }
  .faster { fill: #2da44e; } .even { fill: #8c959f; } .slower { fill: #d4762c; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; } .name, .value { fill: #e6edf3; } .peer, .title { fill: #9198a1; }
    .axis { stroke: #656c76; } .one, .range { stroke: #e6edf3; }
    .faster { fill: #3fb950; } .even { fill: #656c76; } .slower { fill: #db8a45; }
  }"""


def read(path):
    """A JSON file with its numbers as they are written: 1.00 stays 1.00."""
    return json.loads(path.read_text(), parse_float=decimal.Decimal)


def kiln_over_peer(suite, entry):
    """A recorded ratio and its range as kiln time / peer time, or nothing."""
    if "ratio" not in entry:
        return None
    ratio = float(entry["ratio"])
    low, high = float(entry.get("low", ratio)), float(entry.get("high", ratio))
    return (1 / ratio, 1 / high, 1 / low) if suite["ratio"] == "peer / kiln" else (ratio, low, high)


def fastest(suite, row):
    """The peer that kiln does worst against, with its entry."""
    peers = {p: e for p, e in row.get("peers", {}).items() if "ratio" in e}
    return max(peers.items(), key=lambda p: kiln_over_peer(suite, p[1])[0], default=None)


def bars(title, rows):
    """Rows of (name, peer, ratio, low, high), ratios as kiln time / peer time."""
    left, right, step, top, end = 480, 60, 24, 44, 900
    most = max(1.25, min(2.0, max(r[2] for r in rows) * 1.08))
    x = lambda ratio: left + (end - left) * min(ratio, most) / most
    height = top + step * len(rows) + 34
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {end + right} {height}" '
        f'role="img" aria-label="{html.escape(title)}">',
        f"<style>{STYLE}\n</style>",
        f'<rect class="page" width="{end + right}" height="{height}" rx="8"/>',
        f'<text class="title" x="16" y="24">{html.escape(title)}</text>',
    ]
    for i, (name, peer, ratio, low, high) in enumerate(rows):
        y = top + i * step
        kind = "faster" if ratio < 0.975 else "even" if ratio <= 1.025 else "slower"
        out += [
            f'<text class="name" x="16" y="{y + 14}">{html.escape(name)}</text>',
            f'<text class="peer" x="{left - 10}" y="{y + 14}" text-anchor="end">'
            f"{html.escape(peer)}</text>",
            f'<rect class="{kind}" x="{left}" y="{y + 3}" width="{x(ratio) - left:.1f}" '
            'height="15" rx="2"/>',
        ]
        if low != high:
            out.append(
                f'<line class="range" x1="{x(low):.1f}" x2="{x(high):.1f}" y1="{y + 10.5}" '
                f'y2="{y + 10.5}"/>'
            )
        edge = x(max(ratio, high)) + 6
        out.append(f'<text class="value" x="{edge:.1f}" y="{y + 15}">{ratio:.2f}</text>')
    bottom = top + step * len(rows) + 4
    out.append(f'<line class="axis" x1="{left}" x2="{left}" y1="{top}" y2="{bottom}"/>')
    out.append(f'<line class="one" x1="{x(1):.1f}" x2="{x(1):.1f}" y1="{top}" y2="{bottom}"/>')
    cut = "; ranges are cut at the edge" if any(r[4] > most for r in rows) else ""
    out.append(
        f'<text class="peer" x="{x(1):.1f}" y="{bottom + 18}" text-anchor="middle">'
        f"1 = the peer's time{cut}</text>"
    )
    return "\n".join(out) + "\n</svg>\n"


def figures():
    """What benches/readme.json names: (figure, suite, row, peer's entry) of each.

    The peer has to be the fastest one of its row.
    """
    for figure in read(ROOT / "benches" / "readme.json"):
        suite = read(RESULTS / f"{figure['suite']}.json")
        rows = [
            r
            for r in suite["rows"]
            if r["name"] == figure["name"] and r["shape"] == figure["shape"]
        ]
        if len(rows) != 1 or figure["peer"] not in rows[0]["peers"]:
            sys.exit(f"benches/readme.json: {figure} names {len(rows)} rows, or no peer of it")
        if (peer := fastest(suite, rows[0])[0]) != figure["peer"]:
            sys.exit(f"benches/readme.json: {figure['label']}: the fastest peer is {peer}")
        yield figure, suite, rows[0], rows[0]["peers"][figure["peer"]]


def speed():
    """The chart of README.md."""
    rows = [
        (f["label"], f.get("peer_label", f["peer"]), *kiln_over_peer(s, e))
        for f, s, _, e in figures()
    ]
    return bars("kiln's time as a share of the named peer's; shorter is faster", rows)


def write(path, text, check):
    """Writes a file, or says whether it is stale."""
    if check:
        return path.exists() and path.read_text() == text
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return True


if __name__ == "__main__":
    if not write(SPEED, speed(), "--check" in sys.argv[1:]):
        sys.exit("docs/img/speed.svg is stale: run python3 benches/chart.py")
