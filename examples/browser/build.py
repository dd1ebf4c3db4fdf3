"""`make page`: one HTML file that holds the two networks, exported to JavaScript, and everything around them.

python examples/browser/build.py [--out build/page]
"""

import argparse
import re
import tempfile
from pathlib import Path

import kru
from kru.export import javascript
from kru.lab.result import read_weights

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "results"
DIGITS, MUSIC = "mnist/mnist-kru-seed1", "music/jsb-kru-seed1"
LIMIT = 200_000
"""Bytes that the page may have."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE.parents[1] / "build" / "page", help="folder")
    folder: Path = parser.parse_args().out
    page = build()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "index.html").write_text(page, encoding="utf-8")
    print(f"{folder / 'index.html'}: {len(page.encode()):,} bytes; open it in a browser")


def build() -> str:
    """The page.

    Raises:
        ValueError: it is larger than `LIMIT`.
    """
    # Eight bits for music, whose figure they do not change (docs/browser.md); the digits agree with PyTorch to 1e-5.
    digits, digit_parameters = exported(DIGITS, int8=False)
    music, music_parameters = exported(MUSIC, int8=True)
    parts = {
        "style.css": (HERE / "style.css").read_text(),
        "digits.mjs": digits,
        "music.mjs": music,
        "page.js": bundle(HERE / "page.js"),
        "digit parameters": f"{digit_parameters:,}",
        "music parameters": f"{music_parameters:,}",
    }
    page = (HERE / "index.html").read_text(encoding="utf-8")
    for name, text in parts.items():
        for place in (f"/*{{{name}}}*/", f"{{{name}}}"):
            page = page.replace(place, text)
    if len(page.encode()) > LIMIT:
        raise ValueError(f"page: expected {LIMIT:,} bytes at most, got {len(page.encode()):,}")
    return page


def exported(name: str, *, int8: bool) -> tuple[str, int]:
    """The ES module of shipped weights, and how many parameters they have."""
    recipe, model = read_weights(RESULTS / f"{name}.safetensors")
    with tempfile.TemporaryDirectory() as folder:
        [file] = javascript(
            model, Path(folder) / "js", int8=int8, origin=f"{recipe.name} seed {recipe.seed}"
        ).files
        return file.read_text(), kru.parameter_count(model).total


def bundle(entry: Path) -> str:
    """A module and those it imports from its folder, in one text: each after what it imports.

    The modules share one scope, so that their names must differ; a name that is declared twice is an error of the
    browser's, which the tests would see.
    """
    seen: list[Path] = []
    texts: list[str] = []

    def add(path: Path) -> None:
        if path in seen:
            return
        seen.append(path)
        text = path.read_text()
        for name in re.findall(r'^import .* from "\./(.*)";$', text, re.MULTILINE):
            add(path.parent / name)
        text = re.sub(r'^import .* from "\./.*";\n', "", text, flags=re.MULTILINE)
        texts.append(re.sub(r"^export ", "", text, flags=re.MULTILINE).strip())

    add(entry)
    return "\n\n".join(texts)


if __name__ == "__main__":
    main()
