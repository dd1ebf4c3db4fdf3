"""Sphinx extension: docstrings of plain text as pages.

Docstrings are written to be read by `help()`: single backticks around code, formulas in plain characters. Here
subscripts and exponents of formulas are set as such, with no script or font to fetch, and characters that mean
something to reStructuredText are protected.
"""

import re
from typing import Any

CODE = re.compile(r"(``.+?``|(?<!`)`[^`]+`(?!`)|:\w+:`[^`]+`)")
SUB = re.compile(r"(?<![\w\\])(sum|prod|[A-Za-zα-ωΑ-Ω]{1,2}|[⊗Σ∏])_(\{[^{}]+\}|[A-Za-z0-9](?![\w.(]))")
SUP = re.compile(r"(?<=[\w)\] ])\^(\{[^{}]+\}|-?\w+|\([^()]+\))")
GREEK = {"sigma": "σ", "theta": "θ", "lambda": "λ", "sum": "Σ", "phi": "φ"}


def prepare(_app: Any, _what: str, _name: str, _obj: Any, _options: Any, lines: list[str]) -> None:
    """Rewrite a docstring in place, except for its examples and its literal blocks."""
    example = literal = False
    for number, line in enumerate(lines):
        stripped = line.strip()
        if stripped.startswith((">>>", "...")) and (example or stripped.startswith(">>>")):
            example = True
        elif not stripped:
            example = False
        if literal and stripped and not line.startswith(" "):
            literal = False
        if not example and not literal:
            lines[number] = _prose(line)
        if stripped.endswith("::"):
            literal = True


def _prose(line: str) -> str:
    parts = CODE.split(line)
    return "".join(part if index % 2 else _formulas(part) for index, part in enumerate(parts))


def _formulas(text: str) -> str:
    text = re.sub(r"\bsigma\(", "σ(", text.replace("|", "\\|"))
    text = re.sub(r"\*(?!\*)(?<!\*\*)", r"\\*", text) if not text.lstrip().startswith(("* ", ":")) else text
    text = SUB.sub(lambda m: f"{GREEK.get(m[1], m[1])}\\ :sub:`{m[2].strip('{}')}`\\ ", text)
    return SUP.sub(lambda m: f"\\ :sup:`{m[1].strip('{}()')}`\\ ", text)


def dashes(_app: Any, _what: str, _name: str, _obj: Any, _options: Any, lines: list[str]) -> None:
    """A dash between an argument and what it is, where Napoleon has written two hyphens."""
    lines[:] = [line.replace("** -- ", "** – ").replace(")* -- ", ")* – ") for line in lines]


def setup(app: Any) -> dict[str, Any]:
    app.connect("autodoc-process-docstring", prepare, priority=400)
    app.connect("autodoc-process-docstring", dashes, priority=600)
    return {"parallel_read_safe": True}
