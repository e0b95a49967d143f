"""Between us and an engine: ends the engine's whole process group when we are gone, however we went.

``python -m setpoint.engines.guard LOG -- COMMAND…`` starts the command in a session of its own, prints its process
id, and waits. When its standard input closes (its parent has ended, even by SIGKILL) or it gets SIGTERM, it asks the
group to end, waits, and kills what is left, also what has left the group. Its exit code is the engine's; a signal
becomes 128 + its number.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

GRACE_S = 8.0
REAP_S = 2.0
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value)


def _die_with_guard() -> None:
    """In the child: if the guard itself is killed, the kernel kills the engine's main process."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _tell_end(pid: int, fd: int) -> None:
    """Writes to ``fd`` when a child has ended, and leaves it unreaped: its id, and its group's, stay its own."""
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    os.write(fd, b"e")


def _end(child: "subprocess.Popen[bytes]", ended: threading.Thread) -> None:
    """TERM to the group, then KILL; the group outlives its leader where sub-processes hang on.

    The leader is reaped last: before that nobody else can have been given the id that is signalled.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)
    ended.join(GRACE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    _reap()


def _reap() -> None:
    """Kills and reaps the engine's sub-processes that outlived it: with their parents gone they are the guard's own.

    Where they went to process 1 instead, in a container that is often Setpoint, which would keep them as zombies.
    """
    until, listed = time.monotonic() + REAP_S, Path(f"/proc/self/task/{os.getpid()}/children")
    while time.monotonic() < until:
        for text in listed.read_text().split() if listed.exists() else ():
            os.kill(int(text), signal.SIGKILL)  # ours until it is reaped, below
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.01)


def main() -> int:
    """Entry point of the guard process."""
    log, separator, *command = sys.argv[1:]
    assert separator == "--"
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal; our parent decides
    stop_read, stop_write = os.pipe()
    signal.signal(signal.SIGTERM, lambda *_: os.write(stop_write, b"x"))
    with open(log, "ab", buffering=0) as out:  # noqa: PTH123 - a file descriptor for the child
        child = subprocess.Popen(  # noqa: S603 - the command of an engine adapter
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            preexec_fn=_die_with_guard,  # noqa: PLW1509
        )
    sys.stdout.write(f"{child.pid}\n")
    sys.stdout.flush()
    ended = threading.Thread(target=_tell_end, args=(child.pid, stop_write), daemon=True)
    ended.start()
    ready, _, _ = select.select([0, stop_read], [], [])
    while 0 in ready and stop_read not in ready and os.read(0, 4096):
        ready, _, _ = select.select([0, stop_read], [], [])
    _end(child, ended)
    code = child.returncode
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
