"""The sources of the documentation site: what it documents, what it gathers, what its cards say."""

import ast
import importlib
import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SITE = ROOT / "docs" / "site"
DOCUMENTED = ["kru", "kru.baselines", "kru.compression", "kru.estimators", "kru.export", "kru.reservoir"]


@pytest.fixture
def site(monkeypatch):
    """The modules of docs/site."""
    monkeypatch.syspath_prepend(str(SITE))
    yield lambda name: importlib.import_module(name)
    for name in ("cards", "stage", "docstrings"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("package", DOCUMENTED)
def test_every_public_name_has_its_place_in_the_reference(package):
    text = "".join(page.read_text() for page in (SITE / "api").glob("*.md"))
    documented = {name.rsplit(".", 1)[1] for name in re.findall(r"auto\w+:: (\S+)", text)}
    public = set(importlib.import_module(package).__all__) - {"baselines", "reservoir"}
    assert public <= documented


def test_links_of_guides_are_rewritten_for_the_site(site, tmp_path):
    site("stage").stage(tmp_path)
    guides = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert guides <= {page.name for page in tmp_path.glob("*.md")}
    start = (tmp_path / "start.md").read_text()
    assert "](layers.md)" in start
    assert "](contributing.md)" in start
    assert (tmp_path / "files/results/figures/copy.png").is_file()
    for page in tmp_path.glob("*.md"):
        text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
        for link in re.findall(r"\]\(([^)\s#]+)[^)]*\)", text):
            elsewhere = link.startswith(("http", "gallery/"))
            assert elsewhere or (tmp_path / link).exists(), f"{page.name}: {link}"


def test_cards_say_what_the_records_say(site, tmp_path):
    site("cards").write_cards(ROOT / "results", tmp_path)
    record = json.loads((ROOT / "results/music/jsb-kru-seed1.json").read_text())
    text = (tmp_path / "music.md").read_text()
    assert f"{record['parameters']['total']:,}" in text
    assert f"`{record['commit']}`" in text
    assert "without a stated licence" in text
    weights = {path.stem for path in (ROOT / "results").glob("*/*.safetensors")}
    cards = "".join(page.read_text() for page in tmp_path.glob("*.md"))
    assert {name for name in weights if f"`{name}`" not in cards} == set()
    [code] = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    names: dict[str, object] = {}
    exec(code.replace('Path("results', f'Path("{ROOT}/results'), names)
    assert sum(p.numel() for p in names["model"].parameters()) == record["parameters"]["total"]


def test_weights_without_a_description_are_noticed(site, tmp_path):
    (tmp_path / "results" / "weather").mkdir(parents=True)
    (tmp_path / "results" / "weather" / "a-seed1.safetensors").touch()
    with pytest.raises(ValueError, match="without a title for their card: weather"):
        site("cards").write_cards(tmp_path / "results", tmp_path / "cards")


@pytest.mark.parametrize(
    ("plain", "page"),
    [
        ("h_t = sigma(W h_{t-1})", r"h\ :sub:`t`\  = σ(W h\ :sub:`t-1`\ )"),
        ("N^2 parameters", r"N\ :sup:`2`\  parameters"),
        ("max(|z| + b, 0)", r"max(\|z\| + b, 0)"),
        ("`factor_f` of `matrix()`", "`factor_f` of `matrix()`"),
        ("sum_f n_f^2", r"Σ\ :sub:`f`\  n\ :sub:`f`\ \ :sup:`2`\ "),
    ],
)
def test_formulas_of_docstrings_are_set(site, plain, page):
    lines = [plain]
    site("docstrings").prepare(None, "class", "", None, None, lines)
    assert lines == [page]


@pytest.mark.parametrize(
    "example", sorted((ROOT / "examples/gallery").glob("*.py")), ids=lambda path: path.stem
)
def test_examples_of_the_gallery_have_a_title_and_a_picture(example):
    source = example.read_text()
    title, line, *rest = (ast.get_docstring(ast.parse(source)) or "").splitlines()
    assert line == "=" * len(title)
    assert any(rest)
    assert "pyplot" in source
