"""Files that are no card, by accident or on purpose, end in one message and little memory."""

import tracemalloc
from pathlib import Path

import pytest
from tests.workload.cards import mistakes, text

from setpoint.errors import CardError, UsageError
from setpoint.workload.reading import MAX_BYTES, load_card, parse_card

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "\n".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)

HOSTILE = [
    (b"", 1, "an empty file", "a mapping with apiVersion"),
    (b"# nothing\n", 1, "an empty file", "a mapping with apiVersion"),
    (b"just words", 1, "no mapping", "a mapping with apiVersion"),
    (b"- a\n- b\n", 1, "no mapping", "a mapping with apiVersion"),
    (text() + b"\n---\n" + text(), 8, "a fault in its YAML (another document)", "one valid YAML document"),
    (b"a: [1, 2\nb: 3", 2, "a fault in its YAML", "one valid YAML document"),
    (b"a: 1\n\tb: 2", 2, "a fault in its YAML", "one valid YAML document"),
    (b"a: *missing", 1, "a fault in its YAML (found undefined alias", "one valid YAML document"),
    (text().decode().encode("utf-16"), None, "bytes that are not text", "YAML in UTF-8"),
    (b"name: \xff\xfe", None, "bytes that are not text", "YAML in UTF-8"),
    (b"name: a\x00b", None, "bytes that are not text", "YAML in UTF-8"),
    (b"name: \x07", None, "bytes that are not text", "YAML in UTF-8"),
    (BOMB.encode(), None, "too many or too deep values", "a workload card"),
    (b"a: &x [*x]", 1, "too many or too deep values", "a workload card"),
    (b"a: &x {b: *x}", 1, "too many or too deep values", "a workload card"),
    (b"a: " + b"[" * 5000, 1, "too many or too deep values", "a workload card"),
    (b"a: " + b"{b: " * 5000, 1, "too many or too deep values", "a workload card"),
    (b"a: [" + b"1," * 300_000 + b"]", 1, "too many or too deep values", "a workload card"),
    (b"a: 1\n" * 100_000, None, "too many or too deep values", "a workload card"),
    (b"#" * (MAX_BYTES + 1), None, "more than 1 MiB", "a workload card"),
]


@pytest.mark.parametrize(
    ("content", "line", "found", "expected"), HOSTILE, ids=[h[2][:20] + str(i) for i, h in enumerate(HOSTILE)]
)
def test_a_file_that_is_no_card(content: bytes, line: int | None, found: str, expected: str) -> None:
    told = mistakes(content)
    assert len(told) == 1
    assert told[0].field == "the file"
    assert told[0].found.startswith(found)
    assert told[0].expected.startswith(expected)
    if line is not None:
        assert told[0].line == line


def test_a_bomb_takes_little_memory() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CardError):
            parse_card(BOMB.encode(), "bomb")
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("rest", "field", "found"),
    [
        ("name: again", "name", "the key twice"),
        ("contract: {tools: 1, tools: 2}", "contract.tools", "the key twice"),
        ("? [a]\n: 1", "the file", "a key that is not a word"),
        ("contract: {? {a: b} : 1}", "contract", "a key that is not a word"),
        ("'': 1", "the file", "a key that is not a word"),
        ("a: !!python/object/apply:os.system [exit]", "a", "the tag python/object/apply:os.system"),
        ("a: !mine {b: 1}", "a", "the tag !mine"),
        ("a: !!binary aGk=", "a", "the tag binary"),
        ("a: !!timestamp x", "a", "the tag timestamp"),
        ("a: !!int x", "a", "'x'"),
        ("a: !!int ''", "a", "''"),
        ("a: !!bool x", "a", "'x'"),
        ("a: !!float ''", "a", "''"),
    ],
)
def test_yaml_that_means_more_than_it_says_is_refused(rest: str, field: str, found: str) -> None:
    told = mistakes(text(rest=rest))
    assert [(m.field, m.found, m.line) for m in told] == [(field, found, 8)]


def test_merge_keys_are_no_field() -> None:
    told = mistakes(text(rest="contract: {<<: {api: chat}}"))
    assert (told[0].field, told[0].found) == ("contract.<<", "an unknown field")


def test_an_alias_is_as_good_as_its_value() -> None:
    read = parse_card(text(prompt="&lengths {p50: 5}", output="*lengths"), "card.yaml")
    assert read.traffic.prompt_tokens == read.traffic.output_tokens


def test_a_byte_order_mark_and_windows_lines_are_read() -> None:
    plain = parse_card(text(), "a")
    assert parse_card(b"\xef\xbb\xbf" + text().replace(b"\n", b"\r\n"), "a") == plain


@pytest.mark.parametrize(
    ("name", "reason"),
    [("missing.yaml", "no such file or directory"), ("", "is a directory"), ("x.yaml/y", "not a directory")],
)
def test_a_path_that_cannot_be_read(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "x.yaml").write_bytes(text())
    with pytest.raises(UsageError) as caught:
        load_card(tmp_path / name)
    assert reason in caught.value.message
    assert str(tmp_path / name) in caught.value.message
    assert "setpoint init" in caught.value.fix


def test_a_file_is_named_as_the_user_named_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.yaml").write_bytes(text(prompt="x"))
    with pytest.raises(CardError) as caught:
        load_card("c.yaml")
    assert str(caught.value).startswith("c.yaml:6: traffic.prompt_tokens: found 'x', expected ")


def test_a_long_value_is_shortened() -> None:
    told = mistakes(text(prompt="x" * 5000))
    assert len(told[0].found) <= 60
