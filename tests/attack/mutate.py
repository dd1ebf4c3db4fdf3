"""Mutations of files: of bytes, of text, of JSON, and of tensor files whose checksum is made right again."""

import gzip
import io
import json
import zipfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save as numpy_bytes
from safetensors.torch import load as load_tensors
from safetensors.torch import save as torch_bytes

from kru.estimators.saving import KEY
from kru.estimators.saving import checksum as estimator_checksum
from kru.training.checksum import checksum

WORDS = (b"0", b"-1", b"1e308", b"1e400", b"nan", b"inf", b"2147483648", b"9" * 30, b"9" * 5000, b"",
         b"\xff\xfe", b"\x00", b"'", b'"', b"[", b"{", b"true", b"null", b"../../x", b"os:system", b"\xc3\x28", b"?",
         b"1_0")  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 2**31, 2**53 + 1, 2**64, 10**300, -0.0, 1e308, 1e-320, "", "x", "os:system",
    "\x00", "a" * 10_000, [], {}, [[]], [1, "a", None], {"a": {}}, 0.5, 3,
)  # fmt: skip


def mutate_bytes(rng: Random, data: bytes, others: list[bytes]) -> bytes:
    """A few small changes of the bytes."""
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        size = len(out)
        at = rng.randrange(size + 1)
        way = rng.randrange(10)
        if way == 0 and size:
            out[at % size] ^= 1 << rng.randrange(8)
        elif way == 1 and size:
            out[at % size] = rng.randrange(256)
        elif way == 2:
            out[at:at] = rng.randbytes(rng.choice([1, 2, 4, 100]))
        elif way == 3:
            del out[at : at + rng.choice([1, 2, 4, 16, 1000])]
        elif way == 4:
            del out[at:]
        elif way == 5:
            width, order = rng.choice([1, 2, 4, 8]), rng.choice(["little", "big"])
            number = rng.choice(
                [0, 1, 0x7F, 2 ** (8 * width - 1) - 1, 2 ** (8 * width) - 1, 2 ** (8 * width - 1)]
            )
            out[at : at + width] = (number % 2 ** (8 * width)).to_bytes(width, order)
        elif way == 6:
            length = rng.choice([1, 8, 64, 512])
            out[at:at] = out[at : at + length]
        elif way == 7:
            other = rng.choice(others)
            start = rng.randrange(len(other) + 1)
            out[at : at + rng.choice([1, 16, 256])] = other[start : start + rng.choice([1, 16, 256])]
        elif way == 8:
            out[at:at] = rng.choice(WORDS)
        else:
            header = rng.randrange(min(size, 64) + 1)  # where formats say what follows
            out[header : header + 1] = rng.randbytes(1)
    return bytes(out)


def mutate_text(rng: Random, data: bytes, others: list[bytes]) -> bytes:
    """Words, numbers and lines that are exchanged, repeated, left out or replaced."""
    if rng.random() < 0.3:
        return mutate_bytes(rng, data, others)
    lines = data.split(b"\n")
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = rng.randrange(len(lines))
        way = rng.randrange(6)
        if way == 0:
            lines.insert(at, lines[rng.randrange(len(lines))])
        elif way == 1 and len(lines) > 1:
            del lines[at]
        elif way == 2:
            other = rng.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        elif way == 3:
            lines[at:at] = lines[at : at + 1] * rng.choice([2, 50])
        else:
            parts = _parts(lines[at])
            place = rng.randrange(len(parts))
            parts[place] = rng.choice([*WORDS, *parts])
            lines[at] = b"".join(parts)
    return b"\n".join(lines)


def _parts(line: bytes) -> list[bytes]:
    """Runs of letters and digits, and what is between them."""
    parts: list[bytes] = []
    word = False
    for k in range(len(line)):
        letter = line[k : k + 1]
        same = letter.isalnum() or letter in b"._-"
        if parts and same == word:
            parts[-1] += letter
        else:
            parts.append(letter)
        word = same
    return parts or [b""]


def mutate_value(rng: Random, value: Any) -> Any:
    """One entry of nested lists and tables changed, left out, renamed or repeated."""
    if isinstance(value, dict) and value and rng.random() < 0.92:
        changed = dict(value)
        key = rng.choice(list(changed))
        way = rng.random()
        if way < 0.08:
            del changed[key]
        elif way < 0.12:
            changed[rng.choice(["x", "kind", "name", "", key + " "])] = changed.pop(key)
        elif way < 0.16:
            changed[rng.choice(["x", "class", "metadata"])] = rng.choice(VALUES)
        else:
            changed[key] = mutate_value(rng, changed[key])
        return changed
    if isinstance(value, list) and value and rng.random() < 0.8:
        altered = list(value)
        place = rng.randrange(len(altered))
        way = rng.random()
        if way < 0.1:
            del altered[place]
        elif way < 0.2:
            altered[place:place] = [altered[place]] * rng.choice([1, 100])
        else:
            altered[place] = mutate_value(rng, altered[place])
        return altered
    if isinstance(value, str) and value and rng.random() < 0.5:
        return rng.choice([value[:-1], value + "x", value * 1000, value.upper(), "\u202e" + value])
    if isinstance(value, int | float) and not isinstance(value, bool) and rng.random() < 0.6:
        return rng.choice([value + 1, value - 1, -value, value * 10**3, value * 10**9, value / 3, str(value)])
    if rng.random() < 0.05:
        deep: Any = 1
        for _ in range(rng.choice([50, 5000])):
            deep = [deep]
        return deep
    return rng.choice(VALUES)


def as_json(rng: Random, value: Any) -> str:
    """A text of JSON; now and then with what Python writes and JSON does not have."""
    try:
        text = json.dumps(value)
    except RecursionError:
        text = "[" * 6000 + "]" * 6000
    if rng.random() < 0.03:
        text = text.replace("0.", rng.choice(["NaN", "-Infinity", "1e999"]), 1)
    return text


def mutate_json(rng: Random, data: bytes, others: list[bytes]) -> bytes:
    """A file that is one JSON text, or one in each line."""
    if rng.random() < 0.3:
        return mutate_text(rng, data, others)
    try:
        return as_json(rng, mutate_value(rng, json.loads(data))).encode()
    except ValueError:
        lines = data.splitlines()
        at = rng.randrange(len(lines))
        lines[at] = as_json(rng, mutate_value(rng, json.loads(lines[at]))).encode()
        return b"\n".join(lines) + b"\n"


def _mutate_torch(rng: Random, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    changed = dict(tensors)
    for _ in range(rng.choice([1, 1, 2])):
        name = rng.choice(list(changed))
        t = changed[name]
        way = rng.randrange(9)
        if way == 0 and len(changed) > 1:
            del changed[name]
        elif way == 1:
            changed[rng.choice(["x", name + "x", "weights/x", "optimizer/999999999/exp_avg"])] = changed.pop(
                name
            )
        elif way == 2:
            changed[name] = t.to(rng.choice([torch.int8, torch.bool, torch.float64, torch.half, torch.int64,
                                             torch.float8_e4m3fn, torch.bfloat16, torch.float32]))  # fmt: skip
        elif way == 3 and t.dim():
            changed[name] = torch.cat([t, t], rng.randrange(t.dim())).contiguous()
        elif way == 4 and t.dim():
            changed[name] = t.narrow(rng.randrange(t.dim()), 0, 0).contiguous()
        elif way == 5:
            changed[name] = t.reshape(-1) if t.dim() != 1 else t.reshape(1, -1)
        elif way == 6:
            changed[name] = t.unsqueeze(0).contiguous()
        elif t.numel():
            t = t.clone()
            if t.is_floating_point():
                bad = [float("nan"), float("inf"), -1.0, 0.0, 1e30]
                t.view(-1)[rng.randrange(t.numel())] = rng.choice(bad)
            else:
                t.view(-1)[rng.randrange(t.numel())] = rng.choice([0, 1, 100, 127])
            changed[name] = t
    return changed


def mutate_torch_file(rng: Random, data: bytes, others: list[bytes]) -> bytes:
    """Weights, checkpoints and echo state models, half of the time with a right checksum."""
    if rng.random() < 0.5:
        return mutate_bytes(rng, data, others)
    length = int.from_bytes(data[:8], "little")
    metadata = dict(json.loads(data[8 : 8 + length])["__metadata__"])
    tensors = load_tensors(data)
    key = "kru" if "kru" in metadata else "settings"
    text = metadata[key]
    if rng.random() < 0.7:
        text = as_json(rng, mutate_value(rng, json.loads(text)))
    else:
        tensors = _mutate_torch(rng, tensors)
    if rng.random() < 0.03:
        metadata["format"] = rng.choice(["kru 1", "x", ""])
    metadata |= {key: text, "sha256": checksum(tensors, text)}
    return torch_bytes({name: t.contiguous().clone() for name, t in tensors.items()}, metadata)


def mutate_estimator(rng: Random, data: bytes, others: list[bytes]) -> bytes:
    """Saved estimators, half of the time with a right checksum."""
    if rng.random() < 0.5:
        return mutate_bytes(rng, data, others)
    length = int.from_bytes(data[:8], "little")
    metadata = dict(json.loads(data[8 : 8 + length])["__metadata__"])
    tensors = load_tensors(data)
    text = metadata[KEY]
    if rng.random() < 0.75:
        text = as_json(rng, mutate_value(rng, json.loads(text)))
    else:
        tensors = _mutate_torch(rng, tensors)
    try:
        arrays = {name: np.ascontiguousarray(t.numpy()) for name, t in tensors.items()}
        return numpy_bytes(
            arrays, metadata={**metadata, KEY: text, "sha256": estimator_checksum(text, arrays)}
        )
    except TypeError:  # a type that numpy does not have
        return torch_bytes(tensors, {**metadata, KEY: text})


def mutate_packed(rng: Random, data: bytes, others: list[bytes]) -> bytes:
    """A gzip file, or what is in it."""
    if rng.random() < 0.4:
        return mutate_bytes(rng, data, others)
    inner = gzip.decompress(data)
    if rng.random() < 0.05:
        return gzip.compress(inner[:8] + b"\xff" * 8 + bytes(rng.choice([10**3, 5 * 10**7])), mtime=0)
    return gzip.compress(mutate_bytes(rng, inner, [gzip.decompress(o) for o in others]), mtime=0)


def mutate_zip(rng: Random, data: bytes, others: list[bytes]) -> bytes:
    """An archive (zip, npz), or one of its members."""
    if rng.random() < 0.4:
        return mutate_bytes(rng, data, others)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for _ in range(rng.choice([1, 1, 2])):
        name = rng.choice(list(members))
        way = rng.randrange(8)
        if way == 0 and len(members) > 1:
            del members[name]
        elif way == 1:
            members[rng.choice(["x", "../x", name.upper(), "y.npy", "X.npy", "/abs.wav", "a/b.phn"])] = (
                members[name]
            )
        elif way == 2 and rng.random() < 0.3:
            members[name] += bytes(rng.choice([10**5, 3 * 10**7]))
        elif way == 3 and name.endswith(".npy"):
            members[name] = _array(rng)
        else:
            members[name] = mutate_bytes(rng, members[name], list(members.values()))
    packed = io.BytesIO()
    method = rng.choice([zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED, zipfile.ZIP_LZMA,
                         zipfile.ZIP_BZIP2])  # fmt: skip
    with zipfile.ZipFile(packed, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return packed.getvalue()


class Evil:
    """Unpickled, it would write a file."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("executed"),)


def _array(rng: Random) -> bytes:
    """The bytes of some .npy file, pickled objects and lies about the shape included."""
    stream = io.BytesIO()
    kind = rng.randrange(6)
    if kind == 0:
        np.save(stream, np.array([Evil()], dtype=object), allow_pickle=True)
    elif kind == 1:
        dtype = rng.choice(["<f2", ">f8", "<i1", "<u8", "<c16", "<U5", "S3", "?", "M8[D]", "<f8,<i4"])
        np.save(stream, np.zeros(rng.choice([(3, 2, 5), (12, 1, 6), (0, 1, 6), (12,), ()]), dtype))
    elif kind == 2:
        np.save(stream, np.full((12, 2, 6), rng.choice([np.nan, np.inf, 1e308])))
    else:
        shape = rng.choice([(10**9, 1, 1), (2**62, 2, 2), (-1, 2, 2), (10**5, 10**5, 0), (12, 2, 10**8)])
        text = (
            f"{{'descr': '<f8', 'fortran_order': {rng.random() < 0.5}, 'shape': {shape}, }}".ljust(117) + "\n"
        )
        return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + bytes(1000)
    return stream.getvalue()


def mutate_parquet(rng: Random, data: bytes, others: list[bytes]) -> bytes:
    """A Parquet file, or one of a table with columns of odd types and sizes."""
    if rng.random() < 0.5:
        return mutate_bytes(rng, data, others)
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = rng.choice([0, 1, 12, 12, 12])
    odd: list[Any] = [[1, 2], None, "x", 1.5, True, b"\xff", {"a": 1}, 10**30, -1, float("nan"), float("inf")]
    columns: dict[str, Any] = {}
    for name in ("case", "time", "x", "z", "label"):
        if rng.random() < 0.8:
            value = rng.choice(odd)
            columns[name] = [value if rng.random() < 0.9 else None for _ in range(rows)]
        else:
            columns[name] = [f"c{k % 3}" for k in range(rows)]
    if rng.random() < 0.02:
        many = 2 * 10**7
        return _written(pq, pa.table({"x": pa.array(np.zeros(many)), "label": pa.array(np.zeros(many))}))
    try:
        table = pa.table(columns)
    except (pa.ArrowException, OverflowError):
        return data
    if rng.random() < 0.2:
        table = table.rename_columns([rng.choice(["x", "case", ""]) for _ in columns])
    try:
        return _written(pq, table)
    except pa.ArrowException:
        return data


def _written(pq: Any, table: Any) -> bytes:
    stream = io.BytesIO()
    pq.write_table(table, stream)
    return stream.getvalue()
