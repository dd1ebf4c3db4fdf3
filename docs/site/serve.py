"""Serve the documentation and the page of `make page` on localhost: python docs/site/serve.py SITE --port 8000."""

import argparse
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PAGE = Path(__file__).parents[2] / "build" / "page"


class Handler(SimpleHTTPRequestHandler):
    """The site at /, the page at /browser/."""

    def translate_path(self, path: str) -> str:
        if path.startswith("/browser/") and PAGE.is_dir():
            inside = super().translate_path(path.removeprefix("/browser"))
            return str(PAGE / Path(inside).relative_to(self.directory))
        return super().translate_path(path)

    def log_message(self, format: str, *arguments: object) -> None:
        """Requests are not reported."""


def server(site: Path, port: int) -> ThreadingHTTPServer:
    """A server of `site` on localhost; port 0 takes a free one."""
    return ThreadingHTTPServer(("127.0.0.1", port), partial(Handler, directory=str(site.resolve())))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path)
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    with server(arguments.site, arguments.port) as running:
        address = f"http://localhost:{running.server_port}/"
        print(
            f"documentation: {address}" + (f"\npage: {address}browser/" if PAGE.is_dir() else ""), flush=True
        )
        try:
            running.serve_forever()
        except KeyboardInterrupt:
            print()


if __name__ == "__main__":
    main()
