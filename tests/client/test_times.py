"""Times are taken where bytes arrive, in order, on the client's clock."""

import asyncio
import itertools

from tests.client.server import END, STREAM, Run, Wire, ask, chunk, client_of, planned, serving, until, whole

from setpoint.client.client import Client
from setpoint.protocol.conformance import DONE, STOP, chat, say, sse, usage
from setpoint.records.exchange import Exchange, Outcome
from setpoint.testing.null_server import token
from setpoint.testing.serve import running
from setpoint.testing.virtual_clock import VirtualClock


async def read(client: Client, chunks: int) -> None:
    """Waits until the client has read so many chunks of its one exchange."""
    (pending,) = client._active
    await until(lambda: len(pending.reader.seen.chunk_s) >= chunks)


def test_each_chunk_carries_the_time_of_its_own_arrival(run: Run) -> None:
    clock = VirtualClock(100.0)
    clients: list[Client] = []

    async def answer(wire: Wire) -> None:
        (client,) = clients
        clock.advance(1)
        await wire.send(STREAM)
        (pending,) = client._active
        await until(lambda: pending.headers_s is not None)
        clock.advance(1)
        await wire.send(chunk(sse(chat({"reasoning_content": "hm"}))))
        await read(client, 1)
        clock.advance(1)
        await wire.send(chunk(sse(say("a"))))
        await read(client, 2)
        clock.advance(1)
        await wire.send(chunk(sse(say("b"), say("c"))))
        await read(client, 4)
        clock.advance(1)
        await wire.send(chunk(sse(STOP, usage(9, 8), DONE)), END)

    async def work() -> None:
        async with serving(answer) as server, client_of(server.url, clock=clock, origin_s=90.0) as client:
            clients.append(client)
            row = await ask(client)
        assert (row.scheduled_s, row.started_s, row.connected_s, row.sent_s) == (10, 10, 10, 10)
        assert row.headers_s == 11
        assert row.chunk_s == [12, 13, 14, 14]
        assert row.chunk_kinds == "rccc"
        assert sum(row.chunk_tokens) == 8
        assert (row.first_token_s, row.first_visible_s, row.last_token_s, row.done_s) == (12, 13, 14, 15)
        assert row.tokens_source == "usage"

    run(work())


def in_order(row: Exchange) -> None:
    moments = (row.scheduled_s, row.started_s, row.connected_s, row.sent_s, row.headers_s, *row.chunk_s, row.done_s)
    known = [moment for moment in moments if moment is not None]
    assert len(known) == len(moments)
    assert known == sorted(known)
    assert row.first_token_s == row.chunk_s[0]
    assert row.last_token_s == row.chunk_s[-1]


def test_times_are_ordered_and_never_before_the_bytes_were_written(run: Run) -> None:
    async def work(url: str) -> None:
        async with client_of(url) as client:
            rows = await asyncio.gather(
                *(client.exchange(b"{}", planned(client, number), keep_text=True) for number in range(8))
            )
        for row, answer in rows:
            in_order(row)
            assert answer is not None
            written = [float(stamp) for stamp in answer.text.split()]  # the null server writes when it wrote
            assert len(written) == len(row.chunk_s) == 5
            assert all(arrived >= sent for arrived, sent in zip(row.chunk_s, written, strict=True))
            assert all(a < b for a, b in itertools.pairwise(row.chunk_s))

    with running("setpoint.testing.null_server", ("--tokens", "5", "--interval", "0.02")) as (url, _):
        run(work(url))


def test_a_paced_chunk_carries_its_time_of_writing() -> None:
    assert b'"content":" 12.5"' in token(b"12.5")
    assert b'"content":" word"' in token()


def test_an_early_answer_to_a_request_not_yet_taken_has_no_time_of_sending(run: Run) -> None:
    """The kernel has not taken the body when the refusal arrives; the connection cannot be used again."""

    async def work() -> None:
        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(whole(b"{}", 413))
            ended.append(writer)
            await writer.drain()

        ended: list[asyncio.StreamWriter] = []
        listener = await asyncio.start_server(refuse, "127.0.0.1", 0, limit=1024)
        port = listener.sockets[0].getsockname()[1]
        async with client_of(f"http://127.0.0.1:{port}") as client:
            for _ in range(2):
                row = await ask(client, body=b"x" * 64_000_000)
                assert row.outcome is Outcome.REFUSED
                assert row.sent_s is None
                assert not row.reused_connection
        listener.close()
        for writer in ended:
            writer.transport.abort()

    run(work())


def test_a_large_request_is_sent_when_its_last_byte_is(run: Run) -> None:
    clock = VirtualClock()

    async def work() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            clock.advance(5)  # the body fills the sockets' buffers until here
            await reader.readexactly(int(head.split(b"content-length: ")[1]))
            writer.write(whole(b"{}", 429))
            writers.append(writer)

        writers: list[asyncio.StreamWriter] = []
        listener = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1024)
        port = listener.sockets[0].getsockname()[1]
        async with client_of(f"http://127.0.0.1:{port}", clock=clock) as client:
            row = await ask(client, body=b"x" * 64_000_000)
            assert row.sent_s == 5
        listener.close()
        for writer in writers:
            writer.transport.abort()

    run(work())
