"""Keep-alive, retries, limits of the pool, cancellation, many at once."""

import asyncio

import pytest
from tests.client.server import (
    BODY,
    END,
    STREAM,
    Run,
    Wire,
    ask,
    chunk,
    client_of,
    planned,
    saying,
    serving,
    until,
    whole,
)

from setpoint.client import pending as pending_module
from setpoint.client.limits import PhaseTimeouts, PoolLimits, raise_open_files
from setpoint.errors import SetpointError
from setpoint.protocol.conformance import DONE, STOP, say, sse
from setpoint.records.exchange import Outcome
from setpoint.testing.virtual_clock import VirtualClock

HI = chunk(sse(say("Hi"), STOP, DONE))
hello = saying(STREAM, HI, END)


def test_a_kept_alive_connection_is_used_again(run: Run) -> None:
    async def work() -> None:
        async with serving(hello) as server, client_of(server.url) as client:
            rows = [await ask(client, number) for number in range(3)]
            assert [r.reused_connection for r in rows] == [False, True, True]
            assert server.connections == 1

    run(work())


@pytest.mark.parametrize(
    "response",
    [
        whole(b"{}", 429, extra="connection: close\r\n"),
        b"HTTP/1.0 429 x\r\ncontent-length: 2\r\n\r\n{}",
    ],
)
def test_a_connection_that_the_server_will_close_is_not_used_again(run: Run, response: bytes) -> None:
    async def work() -> None:
        async with serving(saying(response)) as server, client_of(server.url) as client:
            rows = [await ask(client, number) for number in range(2)]
            assert [r.reused_connection for r in rows] == [False, False]
            assert [r.outcome for r in rows] == [Outcome.REJECTED] * 2

    run(work())


def test_a_connection_closed_while_idle_is_replaced_and_its_request_sent_again(run: Run) -> None:
    async def answer(wire: Wire) -> None:
        if wire.connection == 0 and wire.number == 1:
            wire.reset()  # as if it had been closed while the request was on its way
        else:
            await wire.send(STREAM, HI, END)

    async def work() -> None:
        async with serving(answer) as server, client_of(server.url) as client:
            rows = [await ask(client, number) for number in range(2)]
            assert [r.outcome for r in rows] == [Outcome.COMPLETE] * 2
            assert [r.reused_connection for r in rows] == [False, False]
            assert server.connections == 2
            assert len(server.requests) == 3

    run(work())


def test_a_request_is_sent_again_at_most_once(run: Run) -> None:
    async def answer(wire: Wire) -> None:
        if wire.connection == 0 and wire.number == 0:
            await wire.send(STREAM, HI, END)
        else:
            wire.reset()

    async def work() -> None:
        async with serving(answer) as server, client_of(server.url) as client:
            await ask(client)
            row = await ask(client, 1)
            assert row.outcome is Outcome.ERROR
            assert len(server.requests) == 3

    run(work())


@pytest.mark.parametrize("first", [b"H", b"HTTP/1.1 200 OK\r\n", STREAM + chunk(sse(say("Hi")))])
def test_nothing_is_sent_again_once_a_byte_of_an_answer_has_arrived(run: Run, first: bytes) -> None:
    async def answer(wire: Wire) -> None:
        if wire.number == 0:
            await wire.send(STREAM, HI, END)
        else:
            await wire.send(first)
            wire.writer.close()

    async def work() -> None:
        async with serving(answer) as server, client_of(server.url) as client:
            await ask(client)
            row = await ask(client, 1)
            assert row.outcome in (Outcome.ERROR, Outcome.TRUNCATED)
            assert row.reused_connection
            assert len(server.requests) == 2

    run(work())


def test_a_server_that_held_the_request_and_then_closed_has_failed_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = VirtualClock()

    async def answer(wire: Wire) -> None:
        if wire.number == 0:
            await wire.send(STREAM, HI, END)
        else:
            clock.advance(pending_module.STALE_S + 1)
            wire.reset()

    async def work() -> None:
        async with serving(answer) as server, client_of(server.url, clock=clock) as client:
            await ask(client)
            row = await ask(client, 1)
            assert row.outcome is Outcome.ERROR
            assert len(server.requests) == 2

    run(work())


@pytest.mark.parametrize("surplus", [whole(b"{}"), b"HTTP/1.1 200 OK\r\ncontent-le", b"more", b"\r\n\r\n<html>"])
def test_bytes_beyond_the_answer_end_the_connection_and_not_the_next_answer(run: Run, surplus: bytes) -> None:
    async def work() -> None:
        async with serving(saying(STREAM, HI, END, surplus)) as server, client_of(server.url) as client:
            rows = [await ask(client, number) for number in range(3)]
            assert [r.outcome for r in rows] == [Outcome.COMPLETE] * 3
            assert server.connections == 3

    run(work())


def test_idle_connections_are_bounded_and_grow_old(run: Run) -> None:
    clock = VirtualClock()
    limits = PoolLimits(max_idle=3, idle_s=4.0)

    async def work() -> None:
        together = asyncio.Barrier(6)

        async def answer(wire: Wire) -> None:
            if wire.number == 0:
                await together.wait()
            await wire.send(STREAM, HI, END)

        async with serving(answer) as server, client_of(server.url, limits=limits, clock=clock) as client:
            await asyncio.gather(*(ask(client, number) for number in range(6)))
            await server.until_closed(3)
            assert len(client._pool.idle) == 3
            clock.advance(3)
            assert (await ask(client)).reused_connection
            clock.advance(3)  # the other two are now six seconds old, and nobody needs them
            assert (await ask(client)).reused_connection
            await server.until_closed(5)
            clock.advance(5)
            together = asyncio.Barrier(1)
            assert not (await ask(client)).reused_connection

    run(work())


def test_never_more_connections_than_the_limit(run: Run) -> None:
    open_now, most = 0, 0

    async def answer(wire: Wire) -> None:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        await asyncio.sleep(0.002)
        open_now -= 1
        await wire.send(STREAM, HI, END)

    async def work() -> None:
        limits = PoolLimits(max_connections=3)
        async with serving(answer) as server, client_of(server.url, limits=limits) as client:
            rows = await asyncio.gather(*(ask(client, number) for number in range(20)))
            assert {r.outcome for r in rows} == {Outcome.COMPLETE}
            assert server.connections == 3
            assert most == 3
            assert client.in_flight == 0

    run(work())


def test_waiting_for_a_connection_ends_with_the_exchange(run: Run) -> None:
    """A timeout, and a cancellation, of one that waits in the client's own queue; the slot is not lost."""

    async def work() -> None:
        release = asyncio.Event()

        async def answer(wire: Wire) -> None:
            await release.wait()
            await wire.send(STREAM, HI, END)

        limits = PoolLimits(max_connections=1)
        async with serving(answer) as server, client_of(server.url, limits=limits) as client:
            first = asyncio.create_task(ask(client))
            await until(lambda: len(server.requests) == 1)
            client.timeouts = PhaseTimeouts(first_token_s=0.05)
            row = await ask(client, 1)
            assert (row.outcome, row.within, row.connected_s) == (Outcome.TIMEOUT, "first_token", None)
            client.timeouts = PhaseTimeouts()
            waiting = asyncio.create_task(ask(client, 2))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            release.set()
            assert (await first).outcome is Outcome.COMPLETE
            assert (await ask(client, 3)).outcome is Outcome.COMPLETE

    run(work())


def test_without_a_limit_a_hundred_and_fifty_streams_run_at_once(run: Run) -> None:
    streams = 150

    async def work() -> None:
        everybody = asyncio.Barrier(streams)

        async def answer(wire: Wire) -> None:
            await everybody.wait()  # nobody is answered before all have asked
            await wire.send(STREAM, chunk(sse(say(f"{wire.connection} "))))
            await everybody.wait()
            await wire.send(HI, END)

        async with serving(answer) as server, client_of(server.url) as client:
            both = await asyncio.gather(
                *(client.exchange(BODY, planned(client, number), keep_text=True) for number in range(streams))
            )
            assert {row.outcome for row, _ in both} == {Outcome.COMPLETE}
            assert [row.index for row, _ in both] == list(range(streams))
            assert len({answer.text for _, answer in both if answer is not None}) == streams
            assert server.connections == streams

    run(work())


@pytest.mark.parametrize("moment", ["connecting", "before", "during"])
@pytest.mark.parametrize("how", ["task", "all", "close"])
def test_cancellation_closes_the_socket(run: Run, moment: str, how: str) -> None:
    async def work() -> None:
        under_way = asyncio.Event()

        async def answer(wire: Wire) -> None:
            if moment == "during":
                await wire.send(STREAM, chunk(sse(say("Hi"))))
            under_way.set()
            await wire.gone()

        async with serving(answer) as server:
            url = server.url.replace("http:", "https:") if moment == "connecting" else server.url
            async with client_of(url) as client:
                asking = asyncio.create_task(ask(client))
                if moment == "connecting":  # the handshake is never answered
                    await until(lambda: server.connections == 1)
                else:
                    await under_way.wait()
                if moment == "during":
                    (pending,) = client._active
                    await until(lambda: len(pending.reader.seen.chunk_s) == 1)
                if how == "task":
                    asking.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await asking
                else:
                    if how == "all":
                        client.cancel_all()
                    else:
                        await client.close()
                    row = await asking
                    assert row.outcome is Outcome.CANCELLED
                    assert row.error == "cancelled by the client"
                    assert len(row.chunk_s) == (moment == "during")
                assert client.in_flight == 0
                await server.until_closed(1)

    run(work())


def test_a_finished_exchange_stays_finished_when_all_are_cancelled(run: Run) -> None:
    async def work() -> None:
        async with serving(hello) as server, client_of(server.url) as client:
            row = await ask(client)
            client.cancel_all()
            assert row.outcome is Outcome.COMPLETE
            assert (await ask(client, 1)).outcome is Outcome.COMPLETE

    run(work())


def test_more_open_files_than_the_machine_allows_are_refused() -> None:
    raise_open_files(1)
    with pytest.raises(SetpointError, match=r"open sockets and the limit is .* Raise it with"):
        raise_open_files(2**40)
