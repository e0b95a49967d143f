"""The journal: what a run has finished so far, safe against the death of its writer.

One file per worker process, appended to by that process alone. Each entry is one ``write`` call to the kernel:
whatever was appended before a SIGKILL is in the file. An entry carries its length and CRC-32, so that a reader
knows a torn or overwritten entry from a whole one after the machine itself went down.

    header   "setpoint journal 1" and a line feed
    entry    length (u32, little-endian) | CRC-32 of the body (u32) | body (MessagePack of one struct)
"""

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from setpoint.errors import RecordError

MAGIC = b"setpoint journal 1\n"
_FRAME = struct.Struct("<II")
_LONGEST_ENTRY = 1 << 28  # a length above this is damage, not an entry

Row = TypeVar("Row", bound=msgspec.Struct)


def cannot_write(path: Path, error: OSError) -> RecordError:
    """What to tell the user when the file system refused a write: full, not permitted, gone."""
    reason = (error.strerror or str(error)).lower()
    return RecordError(
        f"cannot write {path}: {reason}. What was written before stays readable.",
        fix="Free some space, or choose another folder for the runs, and run again.",
    )


class Journal(Generic[Row]):
    """Appends rows to one file; not shared between processes or threads.

    Args:
        path: File to create or to continue; a torn entry at its end (left by a crash) is cut off first.

    Raises:
        RecordError: The file cannot be created, or is not a journal.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries = 0
        self._encoder = msgspec.msgpack.Encoder()
        self._buffer = bytearray()
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as e:
            raise cannot_write(path, e) from e
        try:
            self._end = self._resume()
        except OSError as e:
            os.close(self._fd)
            raise cannot_write(path, e) from e
        except RecordError:
            os.close(self._fd)
            raise

    def _resume(self) -> int:
        size = os.fstat(self._fd).st_size
        if size < len(MAGIC):
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, MAGIC, 0)
            end = len(MAGIC)
        else:
            tail = JournalReader(self.path)
            self.entries = sum(1 for _ in tail.bodies())
            end = tail.end
            os.ftruncate(self._fd, end)
        os.lseek(self._fd, end, os.SEEK_SET)
        return end

    def append(self, row: Row) -> None:
        """Add one row; when this returns, the row survives the death of the process.

        Raises:
            RecordError: The file system took no more (full disk, quota, size limit). The file then ends at the
                last whole entry, and a later append may succeed.
        """
        buffer = self._buffer
        self._encoder.encode_into(row, buffer, _FRAME.size)
        body = memoryview(buffer)[_FRAME.size :]
        _FRAME.pack_into(buffer, 0, len(body), zlib.crc32(body))
        body.release()
        try:
            written = os.write(self._fd, buffer)
            while written < len(buffer):
                written += os.write(self._fd, memoryview(buffer)[written:])
        except OSError as e:
            os.ftruncate(self._fd, self._end)
            os.lseek(self._fd, self._end, os.SEEK_SET)
            raise cannot_write(self.path, e) from e
        self._end += written
        self.entries += 1

    def close(self) -> None:
        """Push the file to the disk and close it; a second close does nothing."""
        if self._fd < 0:
            return
        fd, self._fd = self._fd, -1
        try:
            os.fsync(fd)
        except OSError as e:
            raise cannot_write(self.path, e) from e
        finally:
            os.close(fd)


class JournalReader:
    """Reads a journal from its start, up to the first damage.

    Attributes:
        end: Offset after the last whole entry, once the iteration is over.
        torn: 1 when something that is no whole entry stands behind it, else 0.
        lost_bytes: How many bytes that is.

    Raises:
        RecordError: The file cannot be opened, or does not begin as a journal does.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.end = 0
        self.torn = 0
        self.lost_bytes = 0

    def bodies(self) -> Iterator[bytes]:
        """The encoded rows in order of writing."""
        try:
            file = self.path.open("rb")
        except OSError as e:
            raise RecordError(f"cannot read {self.path}: {e.strerror}.") from e
        with file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(len(MAGIC))
            if head != MAGIC:
                if MAGIC.startswith(head):  # the writer died while it created the file
                    self.torn, self.lost_bytes = int(size > 0), size
                    return
                raise RecordError(
                    f"{self.path} is not a journal of this version (it begins with {head[:20]!r}).",
                    fix="Use the version of setpoint that wrote it.",
                )
            self.end = len(MAGIC)
            while frame := file.read(_FRAME.size):
                if len(frame) < _FRAME.size:
                    break
                length, crc = _FRAME.unpack(frame)
                body = file.read(length) if 0 < length <= _LONGEST_ENTRY else b""
                if len(body) != length or not body or zlib.crc32(body) != crc:
                    break
                self.end += _FRAME.size + length
                yield body
            self.lost_bytes = size - self.end
            self.torn = int(self.lost_bytes > 0)

    def rows(self, kind: type[Row]) -> Iterator[Row]:
        """The rows in order of writing.

        Raises:
            RecordError: An undamaged entry does not hold a ``kind``.
        """
        decoder = msgspec.msgpack.Decoder(kind)
        for body in self.bodies():
            try:
                yield decoder.decode(body)
            except (msgspec.DecodeError, msgspec.ValidationError) as e:
                raise RecordError(
                    f"{self.path}: an entry before byte {self.end} does not hold a {kind.__name__}: {e}.",
                    fix="Use the version of setpoint that wrote it.",
                ) from e
