"""A model on the Hugging Face Hub as a repository of which only ranges are read: configurations, and tensors' headers.

Downloads whole models: ``engines.store``. Here a spec costs some hundred kilobytes, whatever the model's size.
"""

import json
import os
import re
import socket
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from urllib.parse import quote

from setpoint.engines.store import EMBEDDED, HUB, cached
from setpoint.errors import EngineError, UsageError
from setpoint.models.resolve import Model, model_from, model_of
from setpoint.models.safetensors_header import LARGEST_HEADER

ENDPOINT = "https://huggingface.co"
PATIENCE_S = 20.0
_AT_ONCE = 8
_LISTING_BYTES = 32 * 2**20
_SKIPPED_BYTES = 2**20  # of a server that ignores ranges: what is read and thrown away
_ADDRESS = re.compile(r"(hf://)?([\w.-]+/[\w.-]+)(?:/([\w./-]+\.gguf))?(?:@([\w./-]+))?")


class HubFolder:
    """A repository on the Hub at one commit.

    Args:
        name: ``org/name``.
        revision: Branch, tag or commit.
        endpoint: Of the Hub or a mirror; ``HF_ENDPOINT`` unless given.

    Raises:
        UsageError: there is no such repository, or it is not open.
        EngineError: the Hub cannot be reached, or answers nonsense.
    """

    def __init__(self, name: str, revision: str = "main", endpoint: str = "") -> None:
        self.name = name
        self._endpoint = (endpoint or os.environ.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")
        self._headers: dict[str, bytes] | None = None
        listing = self._listing(revision)
        self.commit = str(listing.get("sha") or revision)
        self._sizes = _sizes(listing, name)

    def names(self) -> Sequence[str]:
        """Files at the top level, sorted."""
        return sorted(name for name in self._sizes if "/" not in name)

    def size(self, name: str) -> int | None:
        """Bytes of a file, as the Hub lists them."""
        return self._sizes[name]

    def read(self, name: str, offset: int, length: int) -> bytes:
        """A range of a file. Headers of all shards are fetched together when the first one is asked for."""
        if name.endswith(".safetensors"):
            if self._headers is None:
                self._headers = self._all_headers()
            kept = self._headers.get(name, b"")
            if offset + length <= len(kept):
                return kept[offset : offset + length]
        size = self._sizes.get(name)
        if size is not None:
            length = min(length, size - offset)
        return self._range(name, offset, length) if length > 0 else b""

    def _all_headers(self) -> dict[str, bytes]:
        shards = [name for name in self.names() if name.endswith(".safetensors")]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return dict(zip(shards, pool.map(self._header, shards), strict=True))

    def _header(self, name: str) -> bytes:
        first = self._range(name, 0, 8)
        length = int.from_bytes(first, "little")
        size = self._sizes.get(name)
        if len(first) < 8 or length > LARGEST_HEADER or (size is not None and 8 + length > size):
            return first  # read_header says what is wrong with it
        return first + self._range(name, 8, length)

    def _listing(self, revision: str) -> Mapping[str, object]:
        path = f"/api/models/{self.name}/revision/{quote(revision, safe='')}?blobs=true"
        content = self._get(path, {}, _LISTING_BYTES + 1, 0)
        try:
            found = json.loads(content) if len(content) <= _LISTING_BYTES else None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise EngineError(f"{self._endpoint} answered with no list of the files of {self.name}.")
        return found

    def _range(self, name: str, offset: int, length: int) -> bytes:
        path = f"/{self.name}/resolve/{quote(self.commit, safe='')}/{quote(name)}"
        return self._get(path, {"Range": f"bytes={offset}-{offset + length - 1}"}, length, offset)

    def _get(self, path: str, headers: Mapping[str, str], length: int, offset: int) -> bytes:
        request = urllib.request.Request(self._endpoint + path, headers={"User-Agent": "setpoint", **headers})  # noqa: S310
        token = os.environ.get("HF_TOKEN")
        if token:
            # Not sent on when the Hub redirects to a host of its storage.
            request.add_unredirected_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:  # noqa: S310 - the scheme is the user's
                if offset and answer.status != 206:
                    if offset > _SKIPPED_BYTES:
                        raise EngineError(f"{self._endpoint} does not serve ranges of files.", fix="Fetch the files.")
                    answer.read(offset)
                found: bytes = answer.read(length)
                return found
        except urllib.error.HTTPError as error:
            error.close()
            raise self._refused(error.code) from None
        except (urllib.error.URLError, HTTPException, OSError, ValueError) as error:
            raise EngineError(
                f"{self._endpoint} cannot be reached: {_why(error)}.",
                fix="Give a local folder or config.json, or set HF_ENDPOINT to a mirror.",
            ) from None

    def _refused(self, code: int) -> UsageError | EngineError:
        if code == 404:
            return UsageError(f"The Hub has no model {self.name!r}, or not that revision or file.")
        if code in (401, 403):
            return UsageError(
                f"The Hub does not open {self.name!r}: it is private, gated, or does not exist.",
                fix="Check the name; accept its terms and set HF_TOKEN.",
            )
        return EngineError(f"{self._endpoint} answered {code} for {self.name}.", fix="Try again later.")


def _sizes(listing: Mapping[str, object], name: str) -> dict[str, int | None]:
    files = listing.get("siblings")
    if not isinstance(files, list):
        raise EngineError(f"The Hub's answer about {name} lists no files.")
    found: dict[str, int | None] = {}
    for entry in files:
        if isinstance(entry, dict) and isinstance(entry.get("rfilename"), str):
            size = entry.get("size")
            found[entry["rfilename"]] = size if isinstance(size, int) else None
    return found


def _why(error: Exception) -> str:
    reason = getattr(error, "reason", error)
    if isinstance(reason, socket.gaierror):
        return "name not resolved"
    if isinstance(reason, TimeoutError):
        return f"no answer within {PATIENCE_S:.0f} s"
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror.lower()
    return str(reason)[:120] or type(reason).__name__


def model_named(name: str) -> Model:
    """Everything that a model's files say: a local path, a model in the cache, or ``[hf://]org/name[/file][@revision]``.

    Raises:
        UsageError: there is no such model, or it is not understood.
        EngineError: the Hub cannot be reached.
    """
    if not name.startswith(HUB) and Path(name).exists():
        return model_from(name)
    if name in EMBEDDED:
        path = next((path for kept, path, _ in cached() if kept == name), None)
        if path is None:
            raise UsageError(f"{name} is not here yet.", fix=f"setpoint models pull {name}")
        return model_from(path)
    match = _ADDRESS.fullmatch(name)
    looks_local = name.startswith((".", "/", "~")) or name.endswith((".json", ".safetensors"))
    if match is None or (looks_local and not name.startswith(HUB)):
        raise UsageError(
            f"There is no model {name!r}.",
            fix="Give a folder, config.json, *.safetensors or *.gguf file, or org/name on the Hub.",
        )
    _, repository, file, revision = match.groups()
    return model_of(HubFolder(repository, revision or "main"), file or "")
