"""Connections after their pool has ended, and names whose addresses change."""

import asyncio
import socket
from typing import Any

import pytest

from setpoint.client.address import parse_base_url
from setpoint.client.limits import PoolLimits
from setpoint.client.pool import Pool
from setpoint.clock import MonotonicClock


def pool_of(port: int) -> Pool:
    return Pool(parse_base_url(f"http://engine.test:{port}"), None, PoolLimits(), MonotonicClock())


async def nobody(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


def test_a_connection_that_comes_back_after_the_end_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_to(monkeypatch, ["127.0.0.1"])

    async def go() -> None:
        server = await asyncio.start_server(nobody, "127.0.0.1", 0)
        pool = pool_of(server.sockets[0].getsockname()[1])
        used, unused = await pool.connect(), await pool.connect()
        pool.give_back(unused)
        pool.end()
        assert (used.usable, unused.usable) == (True, False)
        pool.give_back(used)
        assert [used.usable, pool.take()] == [False, None]
        await pool.close()
        server.close()

    asyncio.run(go())


def test_a_name_is_resolved_anew_once_its_addresses_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = resolve_to(monkeypatch, ["127.0.0.2", "127.0.0.1"])

    async def go() -> None:
        server = await asyncio.start_server(nobody, "127.0.0.1", 0)
        pool = pool_of(server.sockets[0].getsockname()[1])
        with pytest.raises(ConnectionRefusedError):
            await pool.connect()
        for _ in range(2):
            (await pool.connect()).abort()
        await pool.close()
        server.close()

    asyncio.run(go())
    assert asked == ["engine.test"] * 2


def resolve_to(monkeypatch: pytest.MonkeyPatch, addresses: list[str]) -> list[str]:
    """Answers of the resolver, one after the other and the last for ever; gives the names it was asked for."""
    asked: list[str] = []

    async def getaddrinfo(loop: asyncio.BaseEventLoop, host: str, port: int, **options: object) -> list[Any]:
        asked.append(host)
        address = addresses.pop(0) if len(addresses) > 1 else addresses[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)
    return asked
