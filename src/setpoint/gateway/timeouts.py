"""How long a silence survives between here and the gateway: each proxy on the way has limits that it does not tell."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from setpoint.client.address import parse_base_url
from setpoint.errors import TargetError
from setpoint.gateway.silence import LONGEST_S, SILENCE
from setpoint.gateway.wire_call import call, status_of

SAME_S = 1.0  # two cuts that are no further apart in time are one


@dataclass(frozen=True, slots=True)
class Silence:
    """What was found.

    Attributes:
        url: Address asked.
        asked_s: Silence asked for.
        survived: Whether the silent stream came to its end.
        lasted_s: Silence until the end, or until it was cut.
        end: How it ended.
        with_pings: Whether the stream with pings came to its end.
    """

    url: str
    asked_s: float
    survived: bool
    lasted_s: float
    end: str
    with_pings: bool

    @property
    def sentence(self) -> str:
        """For people."""
        if self.survived:
            return f"A silence of {self.asked_s:.0f} s survives from {self.url} to the gateway."
        rescue = "Pings keep it alive" if self.with_pings else "Pings do not help"
        return (
            f"The stream through {self.url} was cut after {self.lasted_s:.1f} s of silence ({self.end}) before the "
            f"gateway, which would have been silent for {self.asked_s:.0f} s. {rescue}."
        )


def cuts(hops: Sequence[Silence]) -> list[str]:
    """Where silences are cut.

    Args:
        hops: What was found through each address, from the clients' to the gateway's own. One whose silence ended
            sooner than through the next address was cut between the two.
    """
    found = []
    for here, further in pairwise(hops):
        if not here.survived and (further.survived or further.lasted_s - here.lasted_s > SAME_S):
            found.append(f"between {here.url} and {further.url}, after {here.lasted_s:.1f} s")
    if hops and not hops[-1].survived:
        found.append(f"between {hops[-1].url} and the gateway, after {hops[-1].lasted_s:.1f} s")
    return found


async def probe_hops(
    urls: Sequence[str], key: str | None, longest_s: float, *, ca_file: str | None = None
) -> list[Silence]:
    """``probe_silence`` through every address at once."""
    return list(await asyncio.gather(*(probe_silence(url, key, longest_s, ca_file=ca_file) for url in urls)))


async def probe_silence(url: str, key: str | None, longest_s: float, *, ca_file: str | None = None) -> Silence:
    """Holds two streams open, one silent and one with pings.

    Args:
        url: Address that clients use.
        key: A valid key.
        longest_s: Silence to ask for.
        ca_file: PEM file of an authority to trust.

    Raises:
        TargetError: the address is no Setpoint gateway, or refuses the key.
    """
    address = parse_base_url(url)
    seconds = min(max(1, round(longest_s)), LONGEST_S)
    bearer = f"authorization: Bearer {key}\r\n" if key else ""

    def request(manner: str) -> bytes:
        line = f"GET {address.prefix}{SILENCE}{seconds}{manner} HTTP/1.1"
        return f"{line}\r\nhost: {address.authority}\r\n{bearer}\r\n".encode("latin-1")

    def whole(said: bytes) -> bool:
        return b"[DONE]" in said or status_of(said) >= 400

    limit_s = seconds + 30.0
    silent, pinged = await asyncio.gather(
        *(call(address, request(manner), timeout_s=limit_s, until=whole, ca_file=ca_file) for manner in ("", "/pings"))
    )
    said, end, lasted_s = silent
    if b"silence_s" not in said:
        status = status_of(said)
        found = f"HTTP {status}" if status else end
        raise TargetError(
            f"{url} did not begin the silent stream ({found}).", fix="Is it a Setpoint gateway, and the key valid?"
        )
    survived = b"[DONE]" in said
    return Silence(url, seconds, survived, float(seconds) if survived else lasted_s, end, b"[DONE]" in pinged[0])
