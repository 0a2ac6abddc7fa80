"""Read the number of rows from a Parquet file's footer; a file without a complete footer is incomplete.

The footer is a Thrift structure in the compact protocol, parsed only as far as the number of rows requires.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path

_MAGIC = b"PAR1"
_END = 8
"""Bytes behind the footer: its length, and the magic."""
_LEAST = 12
_NUMBER_OF_ROWS = 3
"""The field's number in ``FileMetaData``."""
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
_NUMBERS = {4, 5, 6}


@dataclass(frozen=True)
class Footer:
    """A Parquet file's footer.

    :ivar rows: number of rows in the file
    :ivar checksum: CRC-32 of the footer and everything after it, eight hexadecimal digits; the footer has the places of
        all pages, which have their own checksums
    """

    rows: int
    checksum: str


def bytes_of_footer(end: bytes) -> int | None:
    """Return the size of a Parquet file's footer; ``None`` if *end* is not the end of one."""
    if len(end) < _END or not end.endswith(_MAGIC):
        return None
    return int.from_bytes(end[-_END:-4], "little") + _END


def read_footer(end: bytes) -> Footer | None:
    """Return the footer at the end of *end*; ``None`` if there is no complete one."""
    length = bytes_of_footer(end)
    if length is None or length > len(end):
        return None
    try:
        rows = _Structure(end[-length:-_END]).number(_NUMBER_OF_ROWS)
    except (IndexError, ValueError):
        return None
    return None if rows is None else Footer(rows, f"{zlib.crc32(end[-length:]):08x}")


def footer_of(path: Path) -> Footer | None:
    """Return a file's Parquet footer; ``None`` if it is not a complete Parquet file."""
    with path.open("rb") as file:
        size = path.stat().st_size
        if size < _LEAST or file.read(4) != _MAGIC:
            return None
        file.seek(-_END, 2)
        length = bytes_of_footer(file.read())
        if length is None or length > size - 4:
            return None
        file.seek(-length, 2)
        return read_footer(file.read())


class _Structure:
    """A reader of a Thrift structure, at its first field."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, wanted: int) -> int | None:
        """Return the integer field with the number *wanted*; ``None`` if there is none."""
        field = 0
        while kind := self._byte():
            field = field + (kind >> 4) if kind >> 4 else self._signed()
            if field == wanted and kind & 15 in _NUMBERS:
                return self._signed()
            self._skip(kind & 15)
        return None

    def _skip(self, kind: int) -> None:
        if kind in _NUMBERS:
            self._unsigned()
        elif kind in (_BYTE, _DOUBLE):
            self._at += 1 if kind == _BYTE else 8
        elif kind == _BINARY:
            length = self._unsigned()
            self._at += length
        elif kind in (_LIST, _SET):
            header = self._byte()
            for _ in range(header >> 4 if header >> 4 < 15 else self._unsigned()):
                self._skip_element(header & 15)
        elif kind == _MAP:
            count = self._unsigned()
            kinds = self._byte() if count else 0
            for _ in range(count):
                self._skip_element(kinds >> 4)
                self._skip_element(kinds & 15)
        elif kind == _STRUCT:
            while inner := self._byte():
                if not inner >> 4:
                    self._unsigned()
                self._skip(inner & 15)
        elif kind not in (_TRUE, _FALSE):
            raise ValueError(kind)

    def _skip_element(self, kind: int) -> None:
        self._skip(_BYTE if kind in (_TRUE, _FALSE) else kind)

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _unsigned(self) -> int:
        result = shift = 0
        while (byte := self._byte()) & 128:
            result |= (byte & 127) << shift
            shift += 7
        return result | byte << shift

    def _signed(self) -> int:
        number = self._unsigned()
        return number >> 1 ^ -(number & 1)
