"""Files that are either the old one or the new one, never half of each."""

import os
from collections.abc import Callable
from pathlib import Path

from setpoint.errors import RecordError
from setpoint.records.journal import cannot_write


def replace_file(path: Path, fill: Callable[[Path], None]) -> None:
    """Let ``fill`` write a temporary file beside ``path``, push it to the disk, and put it in place.

    Raises:
        RecordError: The file system refused; ``path`` is as before and the temporary file is gone.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        fill(temporary)
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)
    except OSError as e:
        raise cannot_write(path, e) from e
    finally:
        temporary.unlink(missing_ok=True)


def replace_bytes(path: Path, content: bytes) -> None:
    """Put ``content`` in place of ``path`` in one step.

    Raises:
        RecordError: The file system refused; ``path`` is as before.
    """
    replace_file(path, lambda temporary: _write(temporary, content))


def read_bytes(path: Path) -> bytes:
    """The content of a file.

    Raises:
        RecordError: It cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as e:
        raise RecordError(f"cannot read {path}: {(e.strerror or str(e)).lower()}.") from e


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
