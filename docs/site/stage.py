"""Gather the sources of the documentation site: the guides, the pages at the root of the repository, what they show.

The guides link to each other, to results and to examples as they do on a code host, by paths relative to the file. The
site has all pages in one folder, so each link is written anew. Everything goes to a folder that can be deleted.
"""

import re
import shutil
from pathlib import Path

from cards import write_cards

SITE = Path(__file__).parent
ROOT = SITE.parents[1]
GUIDES = ROOT / "docs"
NAMES = {"README.md": "start.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
NAMES |= {"RESULTS.md": "results.md", "SECURITY.md": "security.md", "docs/index.md": "guides.md"}
"""Pages that have another name on the site; docs/x.md is x.md there."""

ONLY_HERE = {
    0: ["Gallery <gallery/index>"],
    2: ["Model cards <cards/index>"],
    -1: ["API reference <api/index>", "All guides <guides>", "Security <security>", "Changelog <changelog>"],
}
"""What the contents have besides the guides, by section of docs/index.md."""

LINK = re.compile(r"(?P<code>```.*?```|`[^`\n]*`)|\]\((?P<target>[^)\s]+)\)", re.DOTALL)


def page_name(path: Path) -> str | None:
    """The name on the site of a page of the repository; None for another file."""
    name = path.relative_to(ROOT).as_posix()
    if name in NAMES:
        return NAMES[name]
    return path.name if path.suffix == ".md" and path.parent == GUIDES else None


def stage(target: Path) -> None:
    """Write the sources of the site into `target`. What sphinx-gallery made there stays and is not made again."""
    for pattern in ("*.md", "api/*.md", "cards/*.md", "files"):
        for path in target.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    target.mkdir(parents=True, exist_ok=True)
    for path in [*(ROOT / name for name in NAMES if "/" not in name), *sorted(GUIDES.glob("*.md"))]:
        name = page_name(path)
        assert name
        (target / name).write_text(rewritten(path, target), encoding="utf-8")
    for path in SITE.rglob("*.md"):
        copy = target / path.relative_to(SITE)
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(rewritten(path, target, place=copy.relative_to(target)), encoding="utf-8")
    with (target / "index.md").open("a", encoding="utf-8") as page:
        page.write("\n" + contents((GUIDES / "index.md").read_text(encoding="utf-8")))
    write_cards(ROOT / "results", target / "cards")


def contents(index: str) -> str:
    """The contents of the site, from the sections and links of docs/index.md, with what only the site has."""
    listed: list[str] = []
    parts: list[str] = []
    sections = re.split(r"^## ", index, flags=re.MULTILINE)[1:]
    for number, section in enumerate(sections):
        caption, _, text = section.partition("\n")
        entries = []
        for title, link in re.findall(r"\[([^\]]+)\]\(([^)#\s]+\.md)\)", text):
            page = (page_name((GUIDES / link).resolve()) or "").removesuffix(".md")
            if page and page not in listed:
                title = "Start" if page == "start" else title[0].upper() + title[1:]
                entries.append(f"{title} <{page}>")
                listed.append(page)
        entries += ONLY_HERE.get(number - len(sections), ONLY_HERE.get(number, []))
        entries = sorted(entries, key=lambda entry: not entry.startswith(("Start ", "API reference ")))
        parts += ["```{toctree}", ":hidden:", f":caption: {caption.strip()}", "", *entries, "```", ""]
    return "\n".join(parts)


def rewritten(page: Path, target: Path, place: Path = Path("page.md")) -> str:
    """The text of a page whose links lead to pages of the site, or to copies of the files of the repository."""

    def link(match: re.Match[str]) -> str:
        address = match["target"]
        if match["code"] or address.startswith(("http:", "https:", "mailto:", "#")):
            return match[0]
        name, _, anchor = address.partition("#")
        file = (page.parent / name).resolve()
        if file.is_relative_to(SITE):
            return match[0]  # keeps its place
        known = page_name(file)
        if known is None:
            known = f"files/{file.relative_to(ROOT).as_posix()}"
            copy = target / known
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
        up = "../" * (len(place.parts) - 1)
        return f"]({up}{known}{'#' + anchor if anchor else ''})"

    return LINK.sub(link, page.read_text(encoding="utf-8"))
