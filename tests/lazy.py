"""Modules that only a few tests use and that take seconds to import: every worker imports every test module."""

import importlib.util
import sys
from types import ModuleType


def lazily(name: str) -> ModuleType:
    """The module, imported when something of it is first used."""
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.find_spec(name)
    assert spec is not None, f"{name} is not installed"
    assert spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
