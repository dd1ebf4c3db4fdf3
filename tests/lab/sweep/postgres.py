"""A PostgreSQL server of its own in a temporary folder."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def postgres_programs() -> Path | None:
    """The folder of initdb and postgres: on the PATH, or where Debian puts them."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    found = shutil.which("initdb")
    folders += [Path(found).parent] if found else []
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


@contextmanager
def postgres_server(programs: Path) -> Iterator[str]:
    """The URL of a running server, without a database; as a user without rights, since root may not run one."""
    user = {}
    folder = Path(tempfile.mkdtemp(prefix="kru-postgres-"))
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    data = folder / "data"
    try:
        subprocess.run(
            [programs / "initdb", "-D", data, "-U", "kru", "-A", "trust", "--no-sync"],
            check=True,
            capture_output=True,
            cwd=folder,
            **user,
        )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = subprocess.Popen(
            [programs / "postgres", "-D", data, "-k", folder, "-h", "127.0.0.1", "-p", str(port), "-F"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            **user,
        )
        try:
            wait = [programs / "pg_isready", "-h", "127.0.0.1", "-p", str(port), "-t", "30"]
            while subprocess.run(wait, check=False, capture_output=True).returncode:
                assert server.poll() is None, "the PostgreSQL server did not start"
            yield f"postgresql+psycopg://kru@127.0.0.1:{port}"
        finally:
            server.send_signal(signal.SIGQUIT)  # at once, whoever is connected
            server.wait()
    finally:
        shutil.rmtree(folder)
