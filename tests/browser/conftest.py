"""Debian's Chromium, driven by Playwright: `make browser-test` installs what is missing."""

import functools
import importlib.util
import shutil
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE = 120_000
"""Milliseconds until a test gives up waiting for the page: a busy machine is no failure."""


@pytest.fixture(scope="session")
def browser():
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no Chromium here: on Debian, apt-get install chromium; then make browser-test")
    if importlib.util.find_spec("playwright") is None:
        pytest.skip("Playwright is not installed: make browser-test installs it")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=found, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def builder():
    """examples/browser/build.py as a module."""
    path = ROOT / "examples" / "browser" / "build.py"
    spec = importlib.util.spec_from_file_location("browser_page", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def page_file(builder, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("page") / "index.html"
    path.write_text(builder.build(), encoding="utf-8")
    return path


@pytest.fixture
def open_page(browser, page_file):
    """Open the page from its file, without a network; a message in the console or a fetch is an error in the end."""
    contexts, wrong = [], []

    def opened(width: int = 1280, height: int = 900, **settings):
        settings = {"reduced_motion": "reduce", **settings}
        context = browser.new_context(viewport={"width": width, "height": height}, offline=True, **settings)
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: note(request.url))
        page.goto(page_file.as_uri())
        page.locator("#digit-status", has_text="Read as").or_(
            page.locator("#place", has_text="row")
        ).wait_for(state="attached")
        return page

    def note(address: str) -> None:
        if not address.startswith("data:") and address != page_file.as_uri():
            wrong.append(f"fetched {address}")

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.fixture
def served(tmp_path):
    """A folder and its address on this machine: a module that is imported needs a server."""
    handler = functools.partial(_Quiet, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield tmp_path, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    extensions_map = {**SimpleHTTPRequestHandler.extensions_map, ".mjs": "text/javascript"}  # noqa: RUF012

    def log_message(self, format: str, *args: object) -> None:
        pass
