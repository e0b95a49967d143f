"""The command line: parse, call, print. No decisions are taken here.

The answer goes to stdout (``--json`` for a machine), progress and commentary to stderr. Exit codes: 0 every promise
met, 1 one missed, 2 wrong usage, 3 undecided, 4 the environment failed; 130 after Ctrl-C.
"""

import os
import sys
import traceback

from setpoint.errors import SetpointError

INTERRUPTED = 130


def main(argv: list[str] | None = None) -> None:
    """Entry point of ``setpoint``: runs one verb and leaves with its exit code."""
    sys.exit(run(sys.argv[1:] if argv is None else argv))


def run(argv: list[str]) -> int:
    """Runs one verb and returns its exit code; no exception passes."""
    from setpoint.cli.app import app, invoke

    try:
        code = invoke(app, argv)
        sys.stdout.flush()
    except SetpointError as error:
        print(f"setpoint: {error}", file=sys.stderr)  # noqa: T201 - this is the boundary to the user
        return error.exit_code
    except KeyboardInterrupt:
        print("setpoint: interrupted", file=sys.stderr)  # noqa: T201 - this is the boundary to the user
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone (``| head``): not a fault. Keep the interpreter from flushing into it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception:  # noqa: BLE001 - the supervision boundary: exit 1 would read as "missed"
        traceback.print_exc()
        print("setpoint: this is a fault in Setpoint, please report it with the lines above", file=sys.stderr)  # noqa: T201
        return SetpointError.exit_code
    return code
