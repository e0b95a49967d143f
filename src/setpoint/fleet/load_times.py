"""How long engines took from launch to first token, by their configuration: what the next load is expected to take."""

from pathlib import Path

import msgspec

FILE = "load-times.json"


class LoadTimes:
    """Kept in the state folder. A file that cannot be read or written costs an estimate and nothing else.

    Args:
        state: The folder.
    """

    def __init__(self, state: Path) -> None:
        self._path = state / FILE
        try:
            self._known = msgspec.json.decode(self._path.read_bytes(), type=dict[str, float])
        except (OSError, msgspec.DecodeError):
            self._known = {}

    def expected_s(self, digest: str, declared_s: float) -> float:
        """Seconds of the last load of a configuration, else as declared; 0 when nobody knows."""
        return self._known.get(digest, declared_s)

    def observe(self, digest: str, seconds: float) -> None:
        """A load ended."""
        self._known[digest] = round(seconds, 3)
        part = self._path.with_suffix(".part")
        try:
            part.write_bytes(msgspec.json.encode(self._known))
            part.replace(self._path)
        except OSError:
            return
