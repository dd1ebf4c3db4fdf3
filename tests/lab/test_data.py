"""Finding, checking and fetching data files, against a server on this machine."""

import hashlib
import os
import threading
import tracemalloc
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kru.lab import data
from kru.lab.data import DATASETS, DataError, DataFile, Dataset, archive, download

CONTENT = bytes(range(256)) * 2000


class Server(ThreadingHTTPServer):
    """Serves `content`; `cuts` are numbers of bytes after which it drops the connection, one per request."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = CONTENT
        self.cuts: list[int] = []
        self.ranges = True
        self.status = 200
        self.requested: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/file"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.requested.append(wanted)
        if self.server.status != 200:
            self.send_error(self.server.status)
            return
        begin = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and self.server.ranges else 0
        if begin >= len(self.server.content):
            self.send_error(416)
            return
        body = self.server.content[begin:]
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        cut = self.server.cuts.pop(0) if self.server.cuts else len(body)
        self.wfile.write(body[:cut])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server of the one file of the data set "toy", which is the only one."""
    monkeypatch.setattr(download.time, "sleep", lambda seconds: None)
    with Server() as running:
        file = DataFile("toy/file.bin", running.url, len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
        registered = dict(DATASETS)
        DATASETS.clear()
        DATASETS["toy"] = Dataset("numbers", "none", (file,))
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()
        DATASETS.clear()
        DATASETS.update(registered)


def test_registry() -> None:
    paths = [file.path for dataset in DATASETS.values() for file in dataset.files]
    assert len(set(paths)) == len(paths) == 12
    for dataset in DATASETS.values():
        assert dataset.terms
        for file in dataset.files:
            assert file.url.startswith("https://")
            assert len(file.sha256) == 64
            assert file.size > 0
            assert file.path.split("/")[0] in ("mnist", "music", "ptb", "timit", "fsdd")
            assert ".." not in file.path


def test_where_data_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KRU_DATA", str(tmp_path / "named"))
    assert data.data_directory(tmp_path / "given") == tmp_path / "given"
    assert data.data_directory() == tmp_path / "named"
    monkeypatch.delenv("KRU_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("sys.platform", "linux")
    assert data.data_directory() == tmp_path / "cache/kru/data"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data.data_directory() == tmp_path / ".cache/kru/data"
    monkeypatch.setattr("sys.platform", "darwin")
    assert data.data_directory() == tmp_path / "Library/Caches/kru/data"


def test_fetch_find_and_check(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="missing; run `kru data fetch toy`, or name a directory"):
        data.find("toy/file.bin", tmp_path)
    assert [status.state for status in data.list_files(tmp_path)] == ["missing"]
    statuses = data.fetch(["toy"], tmp_path, progress=False)
    assert [status.state for status in statuses] == ["ok"]
    assert data.find("toy/file.bin", tmp_path).read_bytes() == CONTENT
    assert os.listdir(tmp_path / "toy") == ["file.bin"]
    data.fetch(data_dir=tmp_path, progress=False)
    assert server.requested == [None]

    (tmp_path / "toy/file.bin").write_bytes(CONTENT[:-1])
    assert [status.state for status in data.list_files(tmp_path)] == ["truncated"]
    with pytest.raises(
        DataError, match=r"not the file of toy, or truncated .*`kru data fetch toy` gets that file"
    ):
        data.find("toy/file.bin", tmp_path)
    (tmp_path / "toy/file.bin").write_bytes(CONTENT[:-1] + b"x")
    assert [status.state for status in data.list_files(tmp_path)] == ["ok"]
    assert [status.state for status in data.check(["toy"], tmp_path)] == ["altered"]
    with pytest.raises(DataError, match="altered"):
        data.find("toy/file.bin", tmp_path)
    data.fetch(["toy"], tmp_path, progress=False)
    assert [status.state for status in data.check(data_dir=tmp_path)] == ["ok"]


def test_progress_is_shown(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data.fetch(["toy"], tmp_path)
    assert "file.bin: 100%" in capsys.readouterr().err


def test_a_broken_connection_is_continued(server: Server, tmp_path: Path) -> None:
    server.cuts = [100_000, 50_000]
    data.fetch(["toy"], tmp_path, progress=False)
    assert data.find("toy/file.bin", tmp_path).read_bytes() == CONTENT
    assert server.requested == [None, "bytes=100000-", "bytes=150000-"]


def test_a_download_follows_no_link(server: Server, tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"")
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy/file.bin.part").symlink_to(tmp_path / "victim")
    with pytest.raises(DataError, match="cannot write"):
        data.fetch(["toy"], tmp_path, progress=False)
    assert (tmp_path / "victim").read_bytes() == b""


def test_a_download_has_a_limit_of_time(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "TOTAL_SECONDS", 0.0)
    with pytest.raises(DataError, match="not done after 0 s"):
        data.fetch(["toy"], tmp_path, progress=False)
    assert len(server.requested) == 1


def test_a_later_call_continues(server: Server, tmp_path: Path) -> None:
    server.cuts = [1000] * download.ATTEMPTS
    with pytest.raises(DataError, match=r"cannot download .*try again"):
        data.fetch(["toy"], tmp_path, progress=False)
    assert os.listdir(tmp_path / "toy") == ["file.bin.part"]
    data.fetch(["toy"], tmp_path, progress=False)
    assert server.requested[-1] == f"bytes={1000 * download.ATTEMPTS}-"
    assert data.find("toy/file.bin", tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("left", [b"", CONTENT[:500], CONTENT, CONTENT[:-1] + b"x", CONTENT + b"more"])
@pytest.mark.parametrize("ranges", [True, False])
def test_whatever_was_left_over(server: Server, tmp_path: Path, left: bytes, ranges: bool) -> None:
    server.ranges = ranges
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy/file.bin.part").write_bytes(left)
    data.fetch(["toy"], tmp_path, progress=False)
    assert data.find("toy/file.bin", tmp_path).read_bytes() == CONTENT
    assert os.listdir(tmp_path / "toy") == ["file.bin"]


@pytest.mark.parametrize("content", [CONTENT[:-1] + b"x", CONTENT + b"more", CONTENT[:-1]])
def test_wrong_bytes_never_get_the_name(server: Server, tmp_path: Path, content: bytes) -> None:
    server.content = content
    with pytest.raises(DataError, match="are not the file expected"):
        data.fetch(["toy"], tmp_path, progress=False)
    assert os.listdir(tmp_path / "toy") == []


def test_a_wrong_beginning_is_dropped(server: Server, tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy/file.bin.part").write_bytes(b"something else")
    with pytest.raises(DataError, match="are not the file expected"):
        data.fetch(["toy"], tmp_path, progress=False)
    data.fetch(["toy"], tmp_path, progress=False)
    assert data.find("toy/file.bin", tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("status", [404, 503])
def test_a_server_that_refuses(server: Server, tmp_path: Path, status: int) -> None:
    server.status = status
    with pytest.raises(DataError, match=rf"cannot download .*{status}"):
        data.fetch(["toy"], tmp_path, progress=False)
    assert len(server.requested) == (1 if status == 404 else download.ATTEMPTS)


def test_a_place_that_cannot_be_written(server: Server, tmp_path: Path) -> None:
    (tmp_path / "toy").write_text("a file where the folder should be")
    with pytest.raises(DataError, match=r"cannot write .*choose a writable directory"):
        data.fetch(["toy"], tmp_path, progress=False)


def test_unknown_data_set(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data set: expected one of mnist, .*, got 'cifar'"):
        data.fetch(["cifar"], tmp_path)


def test_an_archive_may_be_packed_otherwise(server: Server, tmp_path: Path) -> None:
    for name, method in (("stored.zip", zipfile.ZIP_STORED), ("packed.zip", zipfile.ZIP_DEFLATED)):
        with zipfile.ZipFile(tmp_path / name, "w", method) as packed:
            for member in (
                ("c/a/SX1.WAV", "c/a/sx1.phn") if name == "stored.zip" else ("c/a/sx1.phn", "c/a/sx1.wav")
            ):
                packed.writestr(member, member.lower() * 100)
    digest = archive.contents_sha256(tmp_path / "stored.zip", 10_000)
    assert digest == archive.contents_sha256(tmp_path / "packed.zip", 10_000)
    (original,) = DATASETS["toy"].files
    DATASETS["toy"] = replace(DATASETS["toy"], files=(replace(original, contents_sha256=digest),))
    server.content = (tmp_path / "packed.zip").read_bytes()
    data.fetch(["toy"], tmp_path, progress=False)
    assert [status.state for status in data.check(data_dir=tmp_path)] == ["ok"]
    (tmp_path / "toy/file.bin").write_bytes(server.content[:-5])
    assert [status.state for status in data.check(data_dir=tmp_path)] == ["truncated"]


def test_an_absurd_member_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("a.wav", bytes(10_000))
    with (
        zipfile.ZipFile(tmp_path / "bomb.zip") as packed,
        pytest.raises(DataError, match=r"'a.wav' unpacks to 10,000 bytes, expected at most 1,000"),
    ):
        archive.read_member(packed, "a.wav", 1000)


def test_an_absurd_archive_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for n in range(20):
            packed.writestr(f"{n}.wav", bytes(10**6))
    with pytest.raises(DataError, match="bytes unpack to 20,000,000, expected at most 100 times as many"):
        archive.open_archive(path)
    monkeypatch.setattr(archive, "RATIO_LIMIT", 10**6)
    assert archive.contents_sha256(path, 20 * 10**6) is not None

    def unpack(*arguments: object) -> bytes:
        raise AssertionError("unpacked")

    monkeypatch.setattr(archive, "read_member", unpack)
    assert archive.contents_sha256(path, 20 * 10**6 - 1) is None


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_methods_without_a_limit_are_refused(tmp_path: Path, method: int) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", method) as packed:
        packed.writestr("a.wav", bytes(range(256)))
    with (
        archive.open_archive(tmp_path / "a.zip") as opened,
        pytest.raises(DataError, match=f"is packed by method {method}, expected stored or deflated"),
    ):
        archive.read_member(opened, "a.wav")


def test_a_member_that_unpacks_to_more_than_it_claims_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "lie.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("a.wav", bytes(10**8))
    # The size in the directory at the end, where it is 100 million.
    content = path.read_bytes()
    assert content.count((10**8).to_bytes(4, "little")) == 2
    path.write_bytes(content.replace((10**8).to_bytes(4, "little"), (1000).to_bytes(4, "little")))
    tracemalloc.start()
    try:
        with (
            archive.open_archive(path) as opened,
            pytest.raises(DataError, match=r"cannot read member 'a\.wav'"),
        ):
            archive.read_member(opened, "a.wav")
        assert tracemalloc.get_traced_memory()[1] < 10**7
    finally:
        tracemalloc.stop()


def test_an_archive_of_a_repository_has_a_folder_before_it(tmp_path: Path) -> None:
    for name, before, more in (
        ("ours.zip", "", "README.md"),
        ("theirs.zip", "digits-26eb9aaf/", "other/a.wav"),
    ):
        with zipfile.ZipFile(tmp_path / name, "w") as packed:
            packed.writestr(before + "recordings/0_a_0.wav", b"sound")
            packed.writestr(before + more, name)
    ours, theirs = (
        archive.contents_sha256(tmp_path / name, 1000, folder="recordings")
        for name in ("ours.zip", "theirs.zip")
    )
    assert ours is not None
    assert ours == theirs
    assert ours != archive.contents_sha256(tmp_path / "theirs.zip", 1000)


def test_real_files_are_whole(real_data: Path) -> None:
    statuses = data.check(data_dir=real_data)
    assert {status.state for status in statuses} == {"ok"}
    timit = next(status for status in statuses if status.dataset == "timit")
    assert archive.contents_sha256(timit.path, 8 * timit.file.size) == timit.file.contents_sha256
    [digits] = [status for status in statuses if status.dataset == "fsdd"]
    found = archive.contents_sha256(digits.path, 8 * digits.file.size, folder=digits.file.contents_folder)
    assert found == digits.file.contents_sha256
