"""Links between the pages lead to files and headings that exist, and docs/index.md names every page."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def text(page: Path) -> str:
    """A page without its code, whose brackets are no links."""
    return re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to the headings of a page."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", text(page)):
        if link.startswith(("http:", "https:", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link}: no such file"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{link}: no such heading"


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert pages == set(re.findall(r"\]\(([\w-]+\.md)\)", index))
