"""The process that runs an answer's code: ``python -I -S cell.py``, a job as JSON on standard input.

Limits of the kernel (processor time, address space, no written files, no child processes, few open files), its own user
and network namespace where the kernel allows that, an empty environment, an empty folder, and an audit hook that
refuses sockets, processes, foreign code and files. It stops mistakes and mischief of a model; it is no prison for a
determined attacker: grade models that you do not trust inside a container.
"""

import builtins
import contextlib
import ctypes
import json
import os
import resource
import sys
from typing import Any

_DENIED = (
    "socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "os.kill",
    "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.listdir", "os.scandir", "os.chmod", "os.chown", "os.link",
    "os.symlink", "os.truncate", "os.putenv", "shutil.", "ctypes.", "mmap.", "pty.", "signal.", "sys._getframe",
    "sys._current_frames", "gc.", "code.__new__", "sys.settrace", "sys.setprofile",
)  # fmt: skip
_NAMESPACES = 0x10000000 | 0x40000000  # CLONE_NEWUSER | CLONE_NEWNET


class Denied(BaseException):
    """Not an Exception, so that an answer's broad ``except`` does not swallow it."""


def confine(time_s: int, memory_bytes: int) -> None:
    """Sets every limit; exits with 97 when the kernel refuses one."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).unshare(_NAMESPACES)
    try:
        for what, limit in (
            (resource.RLIMIT_CPU, time_s),
            (resource.RLIMIT_AS, memory_bytes),
            (resource.RLIMIT_FSIZE, 0),
            (resource.RLIMIT_NOFILE, 16),
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_NPROC, 0),
        ):
            resource.setrlimit(what, (limit, limit))
    except (ValueError, OSError):
        os._exit(97)


def guard() -> None:
    """From here on nothing leaves the cell. Modules of Python's own library can still be read for import."""
    library = tuple(os.path.realpath(path) for path in sys.path if path)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode = arguments[0], arguments[1]
            real = os.path.realpath(path) if isinstance(path, str) else ""
            if mode in (None, "r", "rb") and real.startswith(library):
                return
            raise Denied(event)
        if event.startswith(_DENIED):
            raise Denied(event)

    sys.addaudithook(hook)


def run(source: str, tests: str) -> str:
    """``passed``, ``syntax``, ``denied`` or ``failed``."""
    try:
        program = compile(source, "answer", "exec")
        proof = compile(tests, "tests", "exec")
    except (SyntaxError, ValueError):
        return "syntax"
    guard()
    scope: dict[str, Any] = {"__name__": "answer", "__builtins__": builtins}
    try:
        exec(program, scope)  # noqa: S102 - what this process is for
        exec(proof, scope)  # noqa: S102
    except Denied:
        return "denied"
    except BaseException:  # noqa: BLE001 - SystemExit of an answer proves nothing either
        return "failed"
    return "passed"


def main() -> None:
    """Reads the job, runs it, prints the word when it passed."""
    job = json.loads(sys.stdin.buffer.read())
    said = os.dup(1)
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    confine(job["time_s"], job["memory_bytes"])
    word = job.pop("word").encode()
    verdict = run(job["source"], job["tests"])
    os.write(said, word if verdict == "passed" else verdict.encode())
    os._exit(0)


if __name__ == "__main__":
    main()
