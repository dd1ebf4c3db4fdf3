import json
import os
import re
import signal
import threading
import time
from contextlib import closing
from pathlib import Path

import optuna
import pytest
from sqlalchemy import create_engine, text

from kru.lab.cli import main
from kru.lab.commands.sweep import _without_storage
from kru.lab.run import RunError
from kru.lab.sweep.crew import run_crew
from kru.lab.sweep.locks import LockLostError
from kru.lab.sweep.storage import Store, remove_cut_line


@pytest.mark.parametrize(
    "where",
    ["study.txt", "sqlite:///study.db", "mysql://kru@localhost/kru", "postgresql+nothing://localhost"],
)
def test_other_storages_are_refused(where):
    with pytest.raises(ValueError, match=r"^storage: "):
        Store(where)


def test_a_password_is_never_shown():
    store = Store("postgresql+psycopg://kru:geheim@127.0.0.1:1/kru")
    assert "geheim" not in str(store)
    with pytest.raises(
        RunError, match=r"^storage postgresql.*127.0.0.1.*run the same command to resume"
    ) as caught:
        store.locks()
    assert "geheim" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "contents", "message"),
    [
        ("x.journal", b'{"a": 1}\n', "expected the journal of a sweep, got another file"),
        ("x.journal", b"[]\n", "expected the journal of a sweep, got another file"),
        ("x.db", bytes(range(128, 256)), "file is not a database; name another --storage"),
    ],
)
def test_a_storage_that_is_another_file_is_refused_and_left_alone(name, contents, message, tmp_path):
    path = tmp_path / name
    path.write_bytes(contents)
    store = Store(str(path))
    with pytest.raises(ValueError, match=f"{name}: {message}"), store.errors(), store.open():
        pass
    assert path.read_bytes() == contents


def test_a_line_that_was_cut_off_does_not_spoil_a_journal(tmp_path):
    path = tmp_path / "study.journal"
    with Store(str(path)).open() as storage:
        study = optuna.create_study(storage=storage, study_name="cut")
        study.tell(study.ask(), 1.0)
    whole = path.read_bytes()
    path.write_bytes(whole + whole.splitlines()[-1][:-5])
    with Store(str(path)).open() as storage:
        study = optuna.load_study(storage=storage, study_name="cut")
        study.tell(study.ask(), 2.0)
        assert [trial.value for trial in study.trials] == [1.0, 2.0]
    assert path.read_bytes().startswith(whole)
    assert all(json.loads(line) for line in path.read_text().splitlines())


@pytest.mark.parametrize(
    ("before", "after"), [(b"", b""), (b"a", b""), (b"a\n", b"a\n"), (b"a\nbc", b"a\n"), (b"\n", b"\n")]
)
def test_only_whole_lines_are_kept(before, after, tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(before)
    remove_cut_line(path)
    assert path.read_bytes() == after


@pytest.mark.parametrize("kind", ["file", "server"])
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_the_lock_of_a_killed_process_is_free(kind, tmp_path, request):
    where = str(tmp_path / "study.journal") if kind == "file" else request.getfixturevalue("postgres")
    locks = Store(where).locks()
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        theirs = Store(where).locks()
        os.write(told, b"1" if theirs.take("trial-0") else b"0")
        signal.pause()
    assert os.read(ready, 1) == b"1"
    assert not locks.take("trial-0")
    assert locks.take("trial-1")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    # A server hears of the end of a connection a moment later.
    assert any(locks.take("trial-0") or time.sleep(0.02) for _ in range(500))
    locks.check()
    locks.close()


def end_sessions(url, *, but=()):
    """Close the connections of everybody to a database, as a restart of the server does."""
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(
            text(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid() AND pid <> ALL(:but)"
            ),
            {"but": list(but)},
        )
    engine.dispose()


def test_locks_are_taken_again_after_a_restart_of_the_server(postgres):
    ours, theirs = (Store(postgres).locks() for _ in range(2))
    with closing(ours), closing(theirs):
        assert ours.take("trial-0")
        end_sessions(postgres)
        ours.check()
        assert not theirs.take("trial-0")
        assert theirs.take("trial-1")


def test_a_lock_that_another_worker_took_is_lost(postgres):
    ours, theirs = (Store(postgres).locks() for _ in range(2))
    with closing(ours), closing(theirs):
        assert ours.take("trial-0")
        end_sessions(postgres, but=[theirs._call("pg_backend_pid")])
        assert theirs.take("trial-0")
        with pytest.raises(LockLostError):
            ours.check()
        ours.check()
        with ours.alone():
            end_sessions(postgres, but=[theirs._call("pg_backend_pid")])
            with pytest.raises(LockLostError):
                ours.check()
        with theirs.alone():
            pass


def test_a_sweep_goes_on_after_a_restart_of_the_server(small, postgres, capsys):
    first = Path("out/trial-0000/checkpoint.safetensors")

    def restart():
        while not first.exists():
            time.sleep(0.02)
        end_sessions(postgres)

    arguments = ["--trials", "2", "--steps", "60", "--checkpoint-seconds", "0", "--out", "out"]
    thread = threading.Thread(target=restart)
    thread.start()
    code = main([*small, *arguments, "--storage", postgres])
    thread.join()
    assert code == 0
    assert "2 trials (2 complete)" in capsys.readouterr().out


@pytest.mark.parametrize(
    "where",
    [
        "postgresql+psycopg://me:s3cret@w0rd@host/db",
        "postgresql+psycopg://me:s3cret/w0rd@x@host/db",
        "postgresql+psycopg://me/s3cret:w0rd@host/db",
        "postgresql+psycopg://me:s3cret:w0rd/db",
        "postgresql:/me:s3cret-w0rd@host/db",
        "postgresql:me-s3cret-w0rd",
        "me:s3cret-w0rd@host/db",
        "mysql://me:s3cret-w0rd@host/db",
        "sqlite://me:s3cret-w0rd@host/db?password=s3cret",
    ],
)
def test_a_storage_that_cannot_be_read_keeps_its_password(where):
    with pytest.raises(ValueError, match=r"^storage: ") as caught:
        Store(where)
    assert not re.search("s3cret|w0rd", str(caught.value))


def test_messages_have_no_password_from_the_parameters():
    store = Store("postgresql+psycopg://me:s3cret@host/db?password=w0rd")
    assert str(store) == "postgresql+psycopg://me:***@host/db"


def test_workers_have_the_storage_in_their_environment(tmp_path, monkeypatch):
    started = []

    class Ended:
        returncode, pid = 0, 1

        def __init__(self, command, env, **options):
            started.append((command, env))

        def poll(self):
            return 0

        wait = poll

    monkeypatch.setattr("kru.lab.sweep.crew.subprocess.Popen", Ended)
    url = "postgresql+psycopg://me:s3cret@host/db"
    arguments = ["copy-1000-kru", "--storage", url, f"--storage={url}", "--trials", "3"]
    assert run_crew(["sweep", *_without_storage(arguments)], 2, url) == 0
    for command, environment in started:
        assert "s3cret" not in " ".join(command)
        assert environment["KRU_STORAGE"] == url


def test_a_damaged_journal_is_one_line(tmp_path, capsys):
    path = tmp_path / "x.journal"
    with Store(str(path)).open() as storage:
        study = optuna.create_study(storage=storage, study_name="copy-1000-kru")
        study.set_user_attr("settings", {"space": {}})
        study.add_trial(optuna.trial.create_trial(value=1.0))
    whole = path.read_text().splitlines(keepends=True)
    for line in range(len(whole)):
        entry = json.loads(whole[line])
        for key in [key for key in entry if key != "worker_id"]:
            for other in (None, [], 99, {}):
                changed = json.dumps({**entry, key: other}) + "\n"
                path.write_text("".join([*whole[:line], changed, *whole[line + 1 :]]))
                code = main(["sweep", "copy-1000-kru", "--show", "--storage", str(path)])
                assert code in (0, 1, 2)
                assert capsys.readouterr().err.count("\n") == (code > 0)


def test_a_damaged_database_is_one_line(small, capsys):
    """Nothing says that it is safe and that the command should be run again."""
    assert main([*small, "--trials", "2", "--steps", "4", "--storage", "s.db", "--out", "out"]) == 0
    content = bytearray(Path("s.db").read_bytes())
    content[200:4096] = b"\xff" * 3896
    Path("s.db").write_bytes(content)
    capsys.readouterr()
    assert main([*small[:2], "--storage", "s.db", "--show"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "storage s.db: " in said
    assert "name another --storage" in said
