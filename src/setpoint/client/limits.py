"""The client's limits, each a phase of its own."""

import resource
from dataclasses import dataclass

from setpoint.errors import SetpointError


@dataclass(frozen=True, slots=True)
class PhaseTimeouts:
    """When to give up, by phase.

    A single total timeout either cuts long answers or waits hours for a dead server. The defaults survive minutes of
    hidden reasoning and of queueing: what a card promises is judged afterwards, from the measured time.

    Attributes:
        connect_s: TCP and TLS handshakes.
        first_token_s: From the send to the first delta of any kind.
        gap_s: Silence between two pieces of an answer.
        total_s: The whole exchange.
    """

    connect_s: float = 10.0
    first_token_s: float = 600.0
    gap_s: float = 300.0
    total_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Connections of one client.

    Attributes:
        max_connections: Open at once; None is no limit, which open loop needs: a hidden limit turns the client into
            the queue that it measures.
        max_idle: Kept alive while unused.
        idle_s: An idle connection older than this is not used again (servers close them without a word).
    """

    max_connections: int | None = None
    max_idle: int = 1024
    idle_s: float = 4.0


def raise_open_files(needed: int) -> None:
    """Raises this process's soft limit on open files to what a run needs.

    Raises:
        SetpointError: the hard limit is below it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = needed + 128
    if soft >= wanted or soft == resource.RLIM_INFINITY:
        return
    if hard not in (resource.RLIM_INFINITY, -1) and hard < wanted:
        raise SetpointError(
            f"This run may need {wanted} open sockets and the limit is {hard}.",
            fix="Raise it with `ulimit -n` or lower the concurrency.",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
