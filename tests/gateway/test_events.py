"""Streams are cut between events, whatever ends their lines."""

from hypothesis import given
from hypothesis import strategies as st

from setpoint.gateway.events import before_terminal, split, without_usage

_USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":1}}'
_ENDS = (b"data: [DONE]", b"event: message_stop\ndata: {}", b'data: {"error":{"code":1}}')
_OTHERS = (b'data: {"choices":[{"delta":{"content":"a"}}]}', b": ping", b"event: x\ndata: 1", _USAGE)
_BREAKS = st.sampled_from((b"\n\n", b"\r\n\r\n"))


def streams(events: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[bytes]]:
    """Events, each with its blank line."""
    return _BREAKS.flatmap(lambda end: st.lists(events.map(lambda e: e.replace(b"\n", end[: len(end) // 2]) + end)))


@given(streams(st.sampled_from(_OTHERS + _ENDS)))
def test_events_are_split_at_their_blank_lines(events: list[bytes]) -> None:
    assert split(b"".join(events)) == events


@given(streams(st.sampled_from(_OTHERS)), st.sampled_from(_ENDS), streams(st.sampled_from(_OTHERS + _ENDS)))
def test_a_stream_is_parted_before_the_event_that_ends_it(before: list[bytes], end: bytes, after: list[bytes]) -> None:
    rest = b"".join([end, b"\n\n", *after])
    assert before_terminal(b"".join(before) + rest) == (b"".join(before), rest)


@given(streams(st.sampled_from(_OTHERS)))
def test_what_does_not_show_its_end_is_kept_back_whole(events: list[bytes]) -> None:
    assert before_terminal(b"".join(events)) == (b"", b"".join(events))


@given(streams(st.sampled_from(_OTHERS)))
def test_the_usage_that_nobody_asked_for_is_taken_out_and_nothing_else(events: list[bytes]) -> None:
    kept = [event for event in events if not event.startswith(_USAGE)]
    assert without_usage(b"".join(events)) == b"".join(kept)
