"""One HTTP exchange as plain bytes: for probes, which send what no client library would."""

import asyncio
import contextlib
import time
from collections.abc import Callable

from setpoint.client.address import Address, describe_failure, tls_context
from setpoint.records.target import Dialect, Target

CHUNK = 65536


async def call(
    address: Address,
    request: bytes,
    *,
    timeout_s: float,
    until: Callable[[bytes], bool] = lambda _: False,
    ca_file: str | None = None,
) -> tuple[bytes, str, float]:
    """Sends bytes and reads until the other side ends.

    Args:
        address: Where to.
        request: What is sent.
        timeout_s: Bound on each silence.
        until: Whether enough was read.
        ca_file: PEM file of an authority to trust. A server without a certificate of a trusted one is told nothing.

    Returns:
        What came, how it ended (``closed``, ``enough``, ``timeout`` or a reason), seconds from last byte to end.
    """
    target = Target(f"{'https' if address.tls else 'http'}://{address.authority}", Dialect.CHAT, "", ca_file=ca_file)
    context = tls_context(target) if address.tls else None
    said, last = b"", time.monotonic()
    try:
        reader, writer = await asyncio.wait_for(asyncio.open_connection(address.host, address.port, ssl=context), 10)
    except (OSError, TimeoutError) as error:
        return b"", describe_failure(error), 0.0
    try:
        writer.write(request)
        while not until(said):
            piece = await asyncio.wait_for(reader.read(CHUNK), timeout_s)
            if not piece:
                return said, "closed", time.monotonic() - last
            said, last = said + piece, time.monotonic()
    except TimeoutError:
        return said, "timeout", time.monotonic() - last
    except OSError as error:
        return said, describe_failure(error), time.monotonic() - last
    finally:
        writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            await asyncio.wait_for(writer.wait_closed(), 2)
    return said, "enough", 0.0


def status_of(said: bytes) -> int:
    """The status of the first response; 0 for none."""
    head = said[:12]
    return int(head[9:12]) if head.startswith(b"HTTP/1.") and head[9:12].isdigit() else 0
