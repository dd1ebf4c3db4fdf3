"""Look at the site in Chromium, as on a large screen and on a phone: python docs/site/check.py SITE [--shots FOLDER]

Every page is opened. An error is: a message of the browser's console, a request to anything but the site itself, a link
or an anchor that leads nowhere, a picture that does not load, a page wider than the phone, a search without the
expected results. The screenshots of the first pages are for people to look at.
"""

import argparse
import shutil
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

from playwright.sync_api import Browser, Page, sync_playwright
from serve import server

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
QUIET += ["--disable-background-networking", "--disable-component-update"]
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
SHOWN = [
    "index",
    "start",
    "layers",
    "own-data",
    "gallery/index",
    "gallery/plot_digit",
    "gallery/plot_chorale",
]
SHOWN += ["api/layers", "api/estimators", "cards/index", "results"]
SEARCHES = {"unitary_penalty": "api/training", "reservoir": "reservoirs", "modReLU": "layers"}
"""What is looked for, and a page that has to be among the results."""


class Links(HTMLParser):
    """The addresses that a page leads to, what it loads, and the names of its places."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: set[str] = set()
        self.loaded: set[str] = set()
        self.names: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for key, value in attrs:
            if value is None:
                continue
            if key == "id" or (tag == "a" and key == "name"):
                self.names.add(value)
            elif key == "href" and tag == "a":
                self.addresses.add(value)
            elif key in ("src", "href") and tag in ("img", "script", "link", "audio", "source", "iframe"):
                self.loaded.add(value)


def check_links(site: Path) -> list[str]:
    """Links and anchors within the site, and whatever would be loaded from elsewhere."""
    pages = {path: Links(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    wrong = []
    for path, links in pages.items():
        here = path.relative_to(site).as_posix()
        for address in sorted(links.loaded):
            if address.startswith(("http:", "https:", "//")):
                wrong.append(f"{here}: loads {address}")
        for address in sorted(links.addresses | links.loaded):
            parts = urlsplit(address)
            if parts.scheme or parts.netloc or (address.startswith("#") and len(address) == 1):
                continue
            target = (site / unquote(urlsplit(urljoin(f"/{here}", address)).path.lstrip("/"))).resolve()
            target = target / "index.html" if target.is_dir() else target
            if parts.path.startswith("/browser/") or "browser/index.html" in parts.path:
                continue  # served beside the site
            if not target.exists():
                wrong.append(f"{here}: {address} leads nowhere")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].names:
                wrong.append(f"{here}: {address}: no such place on that page")
    return wrong


def watched(browser: Browser, size: tuple[int, int], address: str, wrong: list[str]) -> Page:
    """A new window whose errors and foreign requests are written down."""
    width, height = size
    context = browser.new_context(viewport={"width": width, "height": height}, reduced_motion="reduce")
    page = context.new_page()

    def request(asked: str) -> None:
        if not asked.startswith((address, "data:", "blob:")):
            wrong.append(f"{page.url}: asks for {asked}")

    page.on("request", lambda r: request(r.url))
    page.on(
        "console", lambda m: wrong.append(f"{page.url}: {m.text}") if m.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: wrong.append(f"{page.url}: {error}"))
    page.on(
        "response", lambda r: wrong.append(f"{page.url}: {r.status} {r.url}") if r.status >= 400 else None
    )
    return page


def check_pages(site: Path, browser: Browser, address: str, shots: Path) -> list[str]:
    """Every page at every size."""
    wrong: list[str] = []
    names = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    names = [name for name in names if not name.startswith(("_static/", "_downloads/", "files/"))]
    for size, (width, height) in SIZES.items():
        page = watched(browser, (width, height), address, wrong)
        for name in names:
            page.goto(address + name, wait_until="load")
            broken = page.eval_on_selector_all(
                "img",
                "all => all.filter(i => i.loading != 'lazy' && !(i.complete && i.naturalWidth)).map(i => i.src)",
            )
            wrong += [f"{name}: {picture} does not load" for picture in broken]
            wide = page.evaluate("document.documentElement.scrollWidth")
            if wide > width + 1:
                wrong.append(f"{name}: {wide} pixels wide on a {size} of {width}")
            if name.removesuffix(".html") in SHOWN:
                page.screenshot(path=shots / f"{name.removesuffix('.html').replace('/', '-')}-{size}.png")
    print(f"{len(names)} pages looked at in {len(SIZES)} sizes")
    return wrong


def check_search(browser: Browser, address: str) -> list[str]:
    """The search box of the first page leads to the pages that it should."""
    wrong: list[str] = []
    page = watched(browser, SIZES["desktop"], address, wrong)
    for words, expected in SEARCHES.items():
        page.goto(address + "index.html")
        box = page.locator("input[name=q]").first
        box.fill(words)
        box.press("Enter")
        page.wait_for_selector("#search-results li a", timeout=20_000)
        page.wait_for_timeout(500)
        found = page.eval_on_selector_all("#search-results li a", "all => all.map(a => a.href)")
        if not any(urlsplit(link).path == f"/{expected}.html" for link in found):
            wrong.append(f"search: {words}: expected {expected} among {len(found)} results")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path)
    parser.add_argument(
        "--shots", type=Path, help="folder of the screenshots; SITE/../screenshots by default"
    )
    arguments = parser.parse_args()
    shots = arguments.shots or arguments.site.parent / "screenshots"
    shots.mkdir(parents=True, exist_ok=True)
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        print("docs-check: no Chromium here; on Debian: apt-get install chromium", file=sys.stderr)
        return 1
    wrong = check_links(arguments.site)
    with server(arguments.site, 0) as running, sync_playwright() as playwright:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{running.server_port}/"
        browser = playwright.chromium.launch(executable_path=found, args=QUIET)
        wrong += check_pages(arguments.site.resolve(), browser, address, shots)
        wrong += check_search(browser, address)
        browser.close()
        running.shutdown()
    for line in dict.fromkeys(wrong):
        print(line, file=sys.stderr)
    print(f"screenshots: {shots}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
