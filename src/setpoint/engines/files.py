"""Files of models: hashes and the cache folder."""

import hashlib
import os
from functools import lru_cache
from pathlib import Path


def home() -> Path:
    """Where models and engine environments are kept: ``$SETPOINT_HOME``, else the user's cache folder."""
    own = os.environ.get("SETPOINT_HOME")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "setpoint"


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    stat = path.stat()
    return _hash(str(path), stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=64)
def _hash(path: str, _size: int, _changed: int) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
