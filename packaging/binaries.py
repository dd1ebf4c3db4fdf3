"""What a shared library exports and needs, read from its bytes: ELF (Linux), Mach-O (macOS) and PE (Windows)."""

import struct
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Library:
    """A shared library's interface. `system` is the oldest system it runs on: of glibc, or of macOS."""

    machine: str
    exports: set[str] = field(default_factory=set)
    needs: set[str] = field(default_factory=set)
    system: tuple[int, ...] = ()
    signed: bool = False


def read_library(path: Path) -> Library:
    """Read a library of any of the three formats.

    Raises:
        ValueError: the file is none of them.
    """
    data = path.read_bytes()
    if data[:4] == b"\x7fELF":
        return _elf(data)
    if data[:4] == b"\xcf\xfa\xed\xfe":
        return _mach_o(data)
    if data[:2] == b"MZ":
        return _pe(data)
    raise ValueError(f"{path}: expected an ELF, Mach-O or PE library, got {data[:4]!r}")


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode()


def _elf(data: bytes) -> Library:
    machine = struct.unpack_from("<H", data, 18)[0]
    library = Library({62: "x86_64", 183: "aarch64"}[machine])
    table, size, count = *struct.unpack_from("<Q", data, 40), *struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(count)]
    for _, kind, _, _, offset, length, link, _, _, entry in sections:
        names = sections[link][4]
        if kind == 11:  # symbols
            for place in range(offset, offset + length, entry):
                name, info, _, section = struct.unpack_from("<IBBH", data, place)
                if section and info >> 4 in (1, 2) and name:  # defined here, global or weak
                    library.exports.add(_text(data, names + name))
        elif kind == 6:  # the dynamic section
            for place in range(offset, offset + length, 16):
                tag, value = struct.unpack_from("<QQ", data, place)
                if tag == 1:
                    library.needs.add(_text(data, names + value))
        elif kind == 0x6FFFFFFE:  # versions needed of other libraries
            place = offset
            while True:
                _, versions, _, first, following = struct.unpack_from("<HHIII", data, place)
                inner = place + first
                for _ in range(versions):
                    _, _, _, name, after = struct.unpack_from("<IHHII", data, inner)
                    kind_of, _, number = _text(data, names + name).partition("_")
                    if kind_of == "GLIBC":
                        library.system = max(library.system, tuple(map(int, number.split("."))))
                    inner += after
                if not following:
                    break
                place += following
    return library


def _mach_o(data: bytes) -> Library:
    machine, _, _, count = struct.unpack_from("<IIII", data, 4)
    library = Library({0x01000007: "x86_64", 0x0100000C: "arm64"}[machine])
    place = 32
    for _ in range(count):
        command, size = struct.unpack_from("<II", data, place)
        if command == 0x0C:  # a library to load
            library.needs.add(_text(data, place + struct.unpack_from("<I", data, place + 8)[0]))
        elif command == 0x32:  # the version that it was built for
            version = struct.unpack_from("<I", data, place + 12)[0]
            library.system = (version >> 16, version >> 8 & 255)
        elif command == 0x1D:
            library.signed = True
        elif command == 0x02:  # symbols
            symbols, number, strings = struct.unpack_from("<III", data, place + 8)
            for entry in range(symbols, symbols + 16 * number, 16):
                name, kind = struct.unpack_from("<IB", data, entry)
                if not kind & 0xE0 and not kind & 0x10 and kind & 1 and kind & 0x0E:  # global, defined here
                    library.exports.add(_text(data, strings + name).removeprefix("_"))
        place += size
    return library


def _pe(data: bytes) -> Library:
    head = struct.unpack_from("<I", data, 0x3C)[0]
    machine, section_count, _, _, _, optional = struct.unpack_from("<HHIIIH", data, head + 4)
    library = Library({0x8664: "AMD64"}[machine])
    directories = head + 24 + 112
    table = head + 24 + optional
    sections = [struct.unpack_from("<IIII", data, table + 40 * i + 8) for i in range(section_count)]

    def at(address: int) -> int:
        for size, start, length, offset in sections:
            if start <= address < start + max(size, length):
                return offset + address - start
        raise ValueError(f"address {address:#x} is in no section")

    exports, _, imports = struct.unpack_from("<III", data, directories)
    if exports:
        names, table_of_names = struct.unpack_from("<I", data, at(exports) + 24)[0], at(exports) + 32
        first = at(struct.unpack_from("<I", data, table_of_names)[0])
        for i in range(names):
            library.exports.add(_text(data, at(struct.unpack_from("<I", data, first + 4 * i)[0])))
    if imports:
        place = at(imports)
        while name := struct.unpack_from("<I", data, place + 12)[0]:
            library.needs.add(_text(data, at(name)))
            place += 20
    return library
