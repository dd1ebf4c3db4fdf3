"""Estimators in folders and on a hub: a small server on this machine that answers as the hub does."""

import base64
import hashlib
import json
import os
import pickle
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from kru.estimators import KRUClassifier, KRULanguageModel, KRURegressor

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """What an upload and a download ask of the hub; files are kept in memory."""

    files: dict[str, bytes]

    def _answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _json(self, content):
        self._answer(200, json.dumps(content).encode(), Content_Type="application/json")

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/api/repos/create":
            name = json.loads(body)["name"]
            self._json({"url": f"http://{self.headers['Host']}/someone/{name}", "name": f"someone/{name}"})
        elif "/preupload/" in self.path:
            wanted = json.loads(body)["files"]
            self._json(
                {
                    "files": [
                        {"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in wanted
                    ]
                }
            )
        elif "/commit/" in self.path:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            url = f"http://{self.headers['Host']}/someone/motions"
            self._json({"commitUrl": f"{url}/commit/{COMMIT}", "commitOid": COMMIT})
        else:
            self._json({})

    def do_GET(self):
        if "/resolve/" not in self.path:
            self._json(
                {"id": "someone/motions", "sha": COMMIT, "siblings": [{"rfilename": f} for f in self.files]}
            )
            return
        content = self.files.get(self.path.rsplit("/", 1)[1])
        if content is None:
            self._answer(404, X_Error_Code="EntryNotFound", X_Repo_Commit=COMMIT)
        else:
            self._answer(200, content, ETag=f'"{hashlib.sha1(content).hexdigest()}"', X_Repo_Commit=COMMIT)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *arguments):
        pass


@pytest.fixture
def hub():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    Hub.files = {}
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def model():
    X = np.stack([np.sin(np.arange(20) * speed) for speed in np.linspace(0.2, 0.8, 8)])
    return KRUClassifier(units=8, steps=2, random_state=0).fit(X, ["slow"] * 4 + ["fast"] * 4), X


def on_the_hub(program, address, folder):
    """Run a program of a user whose hub is at an address; the address is read when huggingface_hub is imported."""
    environment = {
        **os.environ,
        "HF_ENDPOINT": address,
        "HF_HOME": str(folder / "cache"),
        "HF_TOKEN": "hf_none",
    }
    environment |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "no_proxy": "127.0.0.1"}
    command = [sys.executable, "-c", program]
    return subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )


def test_what_was_pushed_comes_back(hub, model, tmp_path):
    fitted, X = model
    fitted.save(tmp_path / "fitted.safetensors")
    np.save(tmp_path / "X.npy", X)
    program = """
import numpy as np
from kru.estimators import KRUClassifier, load

fitted, X = load("fitted.safetensors"), np.load("X.npy")
fitted.push_to_hub("motions")
same = KRUClassifier.from_pretrained("someone/motions")
assert (same.predict_proba(X) == fitted.predict_proba(X)).all()
"""
    done = on_the_hub(program, hub, tmp_path)
    assert done.returncode == 0, done.stderr
    assert set(Hub.files) - {".gitattributes"} == {"model.safetensors", "README.md"}
    text = Hub.files["README.md"].decode()
    assert "KRUClassifier.from_pretrained" in text
    assert f"{fitted.n_parameters_:,} parameters" in text
    assert "`fast`, `slow`" in text


def test_a_repository_cannot_make_the_reader_run_code(hub, tmp_path):
    class Trap:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "sprung"),))

    trap = pickle.dumps(Trap())
    code = f"import os; os.mkdir({str(tmp_path / 'sprung')!r})".encode()
    config = b'{"auto_map": {"AutoModel": "modeling.Model"}, "class": "os.system"}'
    Hub.files = {
        "model.safetensors": trap,
        "pytorch_model.bin": trap,
        "modeling.py": code,
        "config.json": config,
    }
    program = "from kru.estimators import KRUClassifier\nKRUClassifier.from_pretrained('someone/motions')"
    done = on_the_hub(program, hub, tmp_path)
    assert "expected an estimator saved by this package" in done.stderr
    assert not (tmp_path / "sprung").exists()


def test_folders(model, tmp_path):
    fitted, X = model
    fitted.save_pretrained(tmp_path / "motions")
    assert {path.name for path in (tmp_path / "motions").iterdir()} == {"model.safetensors", "README.md"}
    same = KRUClassifier.from_pretrained(tmp_path / "motions")
    assert (same.predict_proba(X) == fitted.predict_proba(X)).all()
    with pytest.raises(ValueError, match="expected a KRURegressor, got a KRUClassifier"):
        KRURegressor.from_pretrained(tmp_path / "motions")


def test_models_of_text(tmp_path):
    fitted = KRULanguageModel(units=8, steps=2, random_state=0).fit("to be or not to be " * 30)
    fitted.save_pretrained(tmp_path / "text")
    same = KRULanguageModel.from_pretrained(tmp_path / "text")
    assert same.bits_per_character("to be") == fitted.bits_per_character("to be")


def test_without_the_extra(monkeypatch, model, tmp_path):
    from kru.estimators import hub as module

    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    module._shared.cache_clear()
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'kru\[hub\]'"):
        model[0].save_pretrained(tmp_path)
    module._shared.cache_clear()
