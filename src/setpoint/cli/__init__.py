"""The command line: parse, call, print. No decisions are taken here."""


def main() -> None:
    """Entry point of ``setpoint``."""
    raise SystemExit(2)
