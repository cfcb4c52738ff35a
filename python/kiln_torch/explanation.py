"""What a model's graphs become, as text and as a picture."""
from __future__ import annotations

import html
import re

import torch

TITLE = 26
MARGIN = 12
# About the mean width of a letter, in font sizes.
LETTER = 0.55


class Explanation(str):
    """The text of [`explain`], whose `svg()` draws the launches of each program and the data flow between them."""

    reports: list

    def svg(self) -> str:
        """One picture of all graphs, from top to bottom. Notebooks show it."""
        parts, top, width = [], MARGIN, 0.0
        for k, report in enumerate(self.reports):
            texts = [(f"graph {k} ({report.kind}): {report.nodes} ops", 15), *((f"eager: {op}: {why}", 12) for op, why in report.eager.items())]
            for text, size in texts:
                style = f'y="{top + 14:.0f}" font-family="sans-serif" font-size="{size}"'
                parts.append(f'<text x="{MARGIN}" {style}>{html.escape(text)}</text>')
                top, width = top + TITLE, max(width, LETTER * size * len(text) + 2 * MARGIN)
            for picture in report.pictures:
                wide, high = (float(re.search(rf'<svg[^>]*\b{side}="([\d.]+)', picture)[1]) for side in ("width", "height"))
                parts.append(picture.replace("<svg", f'<svg x="{MARGIN}" y="{top:.0f}"', 1))
                top, width = top + high + MARGIN, max(width, wide + 2 * MARGIN)
        head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{top + MARGIN:.0f}">'
        return head + "".join(parts) + "</svg>"

    _repr_svg_ = svg


def explain(model, *args, options: dict | None = None, **kwargs) -> Explanation:
    """Compiles a model for these arguments, calls it once, and says how many graphs, programs and kernels it is, what passes did or missed
    (such as casts), what runs on the host, and which ops stay eager and why."""
    from . import backend

    before = len(backend.reports)
    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(model, backend=backend.kiln, options=options)(*args, **kwargs)
    found, lines = backend.reports[before:], []
    for k, r in enumerate(found):
        lines.append(f"graph {k} ({r.kind}): {r.nodes} ops, {r.programs} programs, {r.kernels} kernels")
        lines += [f"  {name} ({strategy}): {', '.join(ops)}" for launches in r.launches() for name, strategy, ops in launches]
        lines += [f"  remark: {text}" for text in r.remarks()]
        lines += [f"  eager: {op}: {why}" for op, why in r.eager.items()]
    text = Explanation("\n".join(lines) or "no graph: nothing was compiled")
    text.reports = found
    return text
