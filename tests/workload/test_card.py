"""What a card may say, and what is said about one that may not."""

import json
from pathlib import Path

import jsonschema
import pytest
from tests.workload.cards import FILE, card, mistake, mistakes, text

from setpoint.workload.card import Closed, Constant, Gamma, Poisson, Ramp, Replay, Workload, json_schema
from setpoint.workload.distribution import Times
from setpoint.workload.promise import Boundary, Metric, Promise
from setpoint.workload.reading import parse_card

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("{process: constant, rate: 2/s}", Constant(process="constant", rate=2)),
        ("{process: poisson, rate: 90/min}", Poisson(process="poisson", rate=1.5)),
        ("{process: poisson, rate: 7200/h}", Poisson(process="poisson", rate=2)),
        ("{process: poisson, rate: 86400/day}", Poisson(process="poisson", rate=1)),
        ("{process: gamma, rate: 0.5, burstiness: 3}", Gamma(process="gamma", rate=0.5, burstiness=3)),
        ("{process: gamma, rate: 2 rps, burstiness: 1e1}", Gamma(process="gamma", rate=2, burstiness=10)),
        ("{process: ramp, start: 1/s, end: 10/s}", Ramp(process="ramp", start=1, end=10)),
        ("{process: closed, users: 8}", Closed(process="closed", users=8)),
        (
            "{process: closed, users: 8, think_time: 800 ms}",
            Closed(process="closed", users=8, think_time=Times.of(0.8)),
        ),
        ("{process: replay, trace: a.csv}", Replay(process="replay", trace="a.csv")),
        ("{process: replay, trace: a.csv, speed: 2}", Replay(process="replay", trace="a.csv", speed=2)),
    ],
)
def test_every_arrival_process_is_read(written: str, read: object) -> None:
    assert card(arrivals=written).traffic.arrivals == read


@pytest.mark.parametrize(
    ("written", "tokens"),
    [
        ("512", 512),
        ("1.5k", 1500),
        ("16k", 16_000),
        ("16Ki", 16_384),
        ("1.001k", 1001),
        ("1.1M", 1_100_000),
        ('"1,200"', 1200),
        ("1_200", 1200),
        ("128 tokens", 128),
        ("0512", 512),
        ("+7", 7),
        ("1e3", 1000),
        ("1", 1),
        ("10000000", 10_000_000),
    ],
)
def test_lengths_in_human_units(written: str, tokens: int) -> None:
    assert card(prompt=written).traffic.prompt_tokens.top == tokens


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("90", 90),
        ("0.8s", 0.8),
        ("800 ms", 0.8),
        ("9 ms", 0.009),
        ("5m", 300),
        ("1m30s", 90),
        ("2 h", 7200),
        ("7d", 604800),
    ],
)
def test_durations_in_human_units_are_exact(written: str, seconds: float) -> None:
    assert card(traffic=f"duration: {written}").traffic.duration == seconds


def test_equal_quantities_give_equal_cards_and_digests() -> None:
    for milliseconds in range(1, 500):
        a = Promise.model_validate(f"p95 ttft <= {milliseconds} ms")
        b = Promise.model_validate({"metric": "ttft", "quantile": 0.95, "limit": milliseconds / 1000})
        assert a == b
    assert card(prompt="1.5k").digest() == card(prompt="1500").digest()
    assert card(arrivals="{process: poisson, rate: 120/min}").digest() == card().digest()


def test_the_digest_leaves_out_the_description_and_nothing_else() -> None:
    plain = card()
    assert plain.digest() == card(rest="description: for people").digest()
    for other in (card(prompt="101"), card(rest="promises: [p95 e2e <= 1s]"), card(traffic="warmup_requests: 5")):
        assert other.digest() != plain.digest()


@pytest.mark.parametrize(
    ("line", "label"),
    [
        ("p95 ttft <= 800 ms", "p95 TTFT ≤ 800 ms"),
        ("p99.9 ITL ≤ 0.2s", "p99.9 ITL ≤ 200 ms"),
        ("p50 tpot < 50ms", "p50 TPOT ≤ 50.0 ms"),
        ("p90 e2e <= 2m", "p90 E2E ≤ 2m00s"),
        ("p95 ttft <= 1 s from sent", "p95 TTFT from sent ≤ 1.00 s"),
        ("p95 ttft <= 1 s from any token", "p95 TTFT to any token ≤ 1.00 s"),
        ("p95 ttft <= 1 s from scheduled", "p95 TTFT ≤ 1.00 s"),
        ("answered >= 99.5%", "answered ≥ 99.5%"),
        ("answered ≥ 0.995", "answered ≥ 99.5%"),
        ("availability > 99.95%", "availability ≥ 100.0%"),
        ("quality(gsm8k) >= 80%", "quality (gsm8k) ≥ 80.0%"),
        ("{metric: ttft, quantile: p95, limit: 800 ms}", "p95 TTFT ≤ 800 ms"),
        ("{metric: ttft, quantile: 95%, limit: 0.8, boundary: sent}", "p95 TTFT from sent ≤ 800 ms"),
        ("{metric: answered, at_least: 99%}", "answered ≥ 99.0%"),
        ("{metric: quality, at_least: 0.8, suite: gsm8k}", "quality (gsm8k) ≥ 80.0%"),
    ],
)
def test_every_form_of_promise_is_read(line: str, label: str) -> None:
    written = line if line.startswith("{") else f'"{line}"'
    promise = card(traffic="class: batch", rest=f"promises: [{written}]").promises[0]
    if promise.metric is not Metric.AVAILABILITY:  # its label is rounded; the value is not
        assert promise.label == label
    else:
        assert promise.at_least == 0.9995


def test_the_tightest_promise_of_a_metric() -> None:
    read = card(rest="promises: [p50 ttft <= 1s, p95 ttft <= 3s, p95 ttft <= 2s from sent]")
    assert read.tightest(Metric.TTFT) == read.promises[0]
    assert read.tightest(Metric.ITL) is None
    assert read.promises[2].boundary is Boundary.SENT


REJECTED = [
    # (parts, field, line, found, expected)
    ({"head": "apiVersion: setpoint/v9\nkind: Workload\nname: a"}, "apiVersion", 1, "'setpoint/v9'", "setpoint/v1"),
    ({"head": "apiVersion: setpoint/v1\nkind: Workloads\nname: a"}, "kind", 2, "'Workloads'", "Workload"),
    ({"head": "apiVersion: setpoint/v1\nkind: Workload\nname: A b"}, "name", 3, "'A b'", "lower-case letters"),
    ({"head": "apiVersion: setpoint/v1\nkind: Workload"}, "name", 1, "nothing", "this field"),
    ({"rest": "description: 5"}, "description", 8, "5", "text"),
    ({"rest": "traffik: {}"}, "traffik", 8, "an unknown field", "traffic (did you mean it?)"),
    ({"rest": "zzz: 1"}, "zzz", 8, "an unknown field", "one of apiVersion, kind, name"),
    # arrivals
    ({"arrivals": "{process: poison, rate: 1}"}, "traffic.arrivals.process", 5, "'poison'", "did you mean poisson?"),
    ({"arrivals": "{rate: 1}"}, "traffic.arrivals.process", 5, "nothing", "one of constant, poisson"),
    ({"arrivals": "poisson"}, "traffic.arrivals", 5, "'poisson'", "a mapping of fields"),
    ({"arrivals": ""}, "traffic.arrivals", 5, "nothing", "a mapping of fields"),
    ({"arrivals": "[]"}, "traffic.arrivals", 5, "a list", "a mapping of fields"),
    ({"arrivals": "{process: poisson}"}, "traffic.arrivals.rate", 5, "nothing", "this field"),
    ({"arrivals": "{process: poisson, rate: 0/s}"}, "traffic.arrivals.rate", 5, "'0/s'", 'a rate such as "2/s"'),
    ({"arrivals": "{process: poisson, rate: -1}"}, "traffic.arrivals.rate", 5, "-1", 'a rate such as "2/s"'),
    ({"arrivals": "{process: poisson, rate: .nan}"}, "traffic.arrivals.rate", 5, "nan", "a rate"),
    ({"arrivals": "{process: poisson, rate: .inf}"}, "traffic.arrivals.rate", 5, "inf", "a rate"),
    ({"arrivals": "{process: poisson, rate: true}"}, "traffic.arrivals.rate", 5, "true", "a rate"),
    ({"arrivals": "{process: poisson, rate: 1:30}"}, "traffic.arrivals.rate", 5, "'1:30'", "a rate"),
    ({"arrivals": "{process: poisson, rate: [2]}"}, "traffic.arrivals.rate", 5, "a list", "a rate"),
    ({"arrivals": "{process: poisson, rate: 1e999}"}, "traffic.arrivals.rate", 5, "inf", "a rate"),
    ({"arrivals": "{process: gamma, rate: 1, burstiness: 0}"}, "traffic.arrivals.burstiness", 5, "0", "more than 0"),
    ({"arrivals": "{process: gamma, rate: 1, burstiness: .nan}"}, "traffic.arrivals.burstiness", 5, "nan", "finite"),
    ({"arrivals": "{process: gamma, rate: 1, burstiness: true}"}, "traffic.arrivals.burstiness", 5, "true", "a number"),
    ({"arrivals": "{process: gamma, rate: 1, burstiness: 1001}"}, "traffic.arrivals.burstiness", 5, "1001", "at most"),
    ({"arrivals": "{process: closed, users: true}"}, "traffic.arrivals.users", 5, "true", "a number"),
    ({"arrivals": "{process: closed, users: 0}"}, "traffic.arrivals.users", 5, "0", "at least 1"),
    ({"arrivals": "{process: closed, users: 1.5}"}, "traffic.arrivals.users", 5, "1.5", "a whole number"),
    ({"arrivals": "{process: closed, users: 1e9}"}, "traffic.arrivals.users", 5, "1000000000.0", "at most 100000"),
    ({"arrivals": "{process: closed, users: many}"}, "traffic.arrivals.users", 5, "'many'", "a whole number"),
    ({"arrivals": "{process: replay, trace: a, speed: .inf}"}, "traffic.arrivals.speed", 5, "inf", "a finite number"),
    ({"arrivals": "{process: replay, trace: ''}"}, "traffic.arrivals.trace", 5, "''", "at least 1 characters"),
    ({"arrivals": "{process: ramp, start: 1, end: up}"}, "traffic.arrivals.end", 5, "'up'", "a rate"),
    # lengths
    ({"prompt": "0"}, "traffic.prompt_tokens", 6, "0", "from 1 to 10,000,000"),
    ({"prompt": "-5"}, "traffic.prompt_tokens", 6, "-5", "a number of tokens"),
    ({"prompt": "1.5"}, "traffic.prompt_tokens", 6, "1.5", "a number of tokens"),
    ({"prompt": ".nan"}, "traffic.prompt_tokens", 6, "nan", "a number of tokens"),
    ({"prompt": "1e300"}, "traffic.prompt_tokens", 6, "1e+300", "a number of tokens"),
    ({"prompt": "10000001"}, "traffic.prompt_tokens", 6, "10000001", "from 1 to 10,000,000"),
    ({"prompt": "9" * 5000}, "traffic.prompt_tokens", 6, "'99999", "a plain value"),
    ({"prompt": "true"}, "traffic.prompt_tokens", 6, "true", "a number of tokens, quantiles such as"),
    ({"prompt": ""}, "traffic.prompt_tokens", 6, "nothing", "a number of tokens, quantiles such as"),
    ({"prompt": "[1, 2]"}, "traffic.prompt_tokens", 6, "a list", "{values: [..]}"),
    ({"prompt": "{}"}, "traffic.prompt_tokens", 6, "a mapping", "at least one quantile"),
    ({"prompt": "{p50: lots}"}, "traffic.prompt_tokens.p50", 6, "'lots'", "a number of tokens"),
    ({"prompt": "{p50: true}"}, "traffic.prompt_tokens.p50", 6, "true", "a number of tokens"),
    ({"prompt": "{p50: 0}"}, "traffic.prompt_tokens.p50", 6, "0", "from 1 to"),
    ({"prompt": "{p101: 5}"}, "traffic.prompt_tokens.p101", 6, "an unknown quantile", "min, max, or a quantile"),
    ({"prompt": "{median: 5}"}, "traffic.prompt_tokens.median", 6, "an unknown quantile", "min, max, or a quantile"),
    ({"prompt": "{points: [[0.5, -3]]}"}, "traffic.prompt_tokens.points", 6, "an unknown quantile", "min, max"),
    ({"prompt": "{p50: 9, p90: 5}"}, "traffic.prompt_tokens.p90", 6, "5", "no less than p50"),
    ({"prompt": "{p50: 9, 50%: 9}"}, "traffic.prompt_tokens.50%", 6, "the quantile twice (p50 and 50%)", "it once"),
    ({"prompt": "{values: []}"}, "traffic.prompt_tokens.values", 6, "a list", "at least one value"),
    ({"prompt": "{values: 5}"}, "traffic.prompt_tokens.values", 6, "5", "a list of at least one value"),
    ({"prompt": "{values: [5, x]}"}, "traffic.prompt_tokens.values[1]", 6, "'x'", "a number of tokens"),
    ({"traffic": "conversation: {turns: 0}"}, "traffic.conversation.turns", 8, "0", "a count from 1 to 100,000"),
    ({"traffic": "conversation: {turns: 1.5}"}, "traffic.conversation.turns", 8, "1.5", "a count such as 8"),
    (
        {"traffic": "conversation: {turns: 2, think_time: 1e9}"},
        "traffic.conversation.think_time",
        8,
        "1000000000.0",
        "a",
    ),
    ({"traffic": "prefix: {tokens: 0}"}, "traffic.prefix.tokens", 8, "0", "more than 0"),
    ({"traffic": "prefix: {tokens: 10, share: 101%}"}, "traffic.prefix.share", 8, "'101%'", "a share such as"),
    ({"traffic": "prefix: {tokens: 10, groups: 1.5}"}, "traffic.prefix.groups", 8, "1.5", "a whole number"),
    ({"traffic": "duration: 0"}, "traffic.duration", 8, "0", "more than 0"),
    ({"traffic": "duration: 8d"}, "traffic.duration", 8, "'8d'", "at most 604800"),
    ({"traffic": "class: intractive"}, "traffic.class", 8, "'intractive'", "did you mean interactive?"),
    # contract and constraints
    ({"rest": "contract: {api: chatt}"}, "contract.api", 8, "'chatt'", "did you mean chat?"),
    ({"rest": "contract: {tols: 3}"}, "contract.tols", 8, "an unknown field", "tools (did you mean it?)"),
    ({"rest": "contract: {tools: true}"}, "contract.tools", 8, "true", "a number"),
    ({"rest": "contract: {streaming: 1}"}, "contract.streaming", 8, "1", "true or false"),
    ({"rest": "contract: {streaming: maybe}"}, "contract.streaming", 8, "'maybe'", "true or false"),
    ({"rest": "contract: 5"}, "contract", 8, "5", "a mapping of fields"),
    ({"rest": "constraints: {regions: eu}"}, "constraints.regions", 8, "'eu'", "a list"),
    ({"rest": "constraints: {regions: [1]}"}, "constraints.regions[0]", 8, "1", "text"),
    ({"rest": "constraints: {budget: {per_hour: .inf}}"}, "constraints.budget.per_hour", 8, "inf", "a finite number"),
    ({"rest": "constraints: {budget: {currency: usd}}"}, "constraints.budget.currency", 8, "'usd'", "three-letter"),
    # promises
    ({"rest": "promises: p95 ttft <= 1s"}, "promises", 8, "'p95 ttft <= 1s'", "a list"),
    ({"rest": "promises: [p95 ttfb <= 1s]"}, "promises[0]", 8, "'p95 ttfb <= 1s'", "did you mean ttft?"),
    ({"rest": "promises: [p95 ttft <= 0s]"}, "promises[0]", 8, "'p95 ttft <= 0s'", "a limit above zero"),
    ({"rest": "promises: [p100 ttft <= 1s]"}, "promises[0]", 8, "'p100 ttft <= 1s'", "a quantile such as"),
    ({"rest": "promises: [p95 ttft <= soon]"}, "promises[0]", 8, "'p95 ttft <= soon'", "a duration such as"),
    ({"rest": "promises: [p95 ttft >= 1s]"}, "promises[0]", 8, "'p95 ttft >= 1s'", "a promise such as"),
    ({"rest": "promises: [answered <= 1%]"}, "promises[0]", 8, "'answered <= 1%'", "a promise such as"),
    ({"rest": "promises: [answered >= 2]"}, "promises[0]", 8, "'answered >= 2'", "a share such as"),
    ({"rest": "promises: [ttft >= 99%]"}, "promises[0]", 8, "'ttft >= 99%'", "quantile and limit for ttft"),
    ({"rest": "promises: [p95 e2e <= 1s from sent]"}, "promises[0]", 8, "'p95 e2e", "a boundary with ttft only"),
    ({"rest": "promises: [answered(x) >= 9%]"}, "promises[0]", 8, "'answered(x)", "a suite with quality only"),
    ({"rest": "promises: [{metric: ttfb}]"}, "promises[0].metric", 8, "'ttfb'", "did you mean ttft?"),
    ({"rest": "promises: [{metric: ttft, quantil: 1}]"}, "promises[0].quantil", 8, "an unknown field", "quantile"),
    ({"rest": "promises: [{metric: ttft, quantile: p95}]"}, "promises[0]", 8, "a mapping", "quantile and limit"),
    ({"rest": "promises: [5]"}, "promises[0]", 8, "5", "a mapping of fields"),
]


@pytest.mark.parametrize(("parts", "field", "line", "found", "expected"), REJECTED, ids=[str(r[0]) for r in REJECTED])
def test_a_rejected_card_says_where_what_and_what_else(
    parts: dict[str, str], field: str, line: int, found: str, expected: str
) -> None:
    told = mistake(**parts)
    assert (told.file, told.field, told.line) == (FILE, field, line)
    assert told.found.startswith(found)
    assert expected in told.expected
    assert "input" not in str(told).lower(), "the library's wording, not ours"
    assert str(told) == f"{FILE}:{line}: {field}: found {told.found}, expected {told.expected}"


CONTRADICTIONS = [
    ({"rest": "contract: {api: embeddings}"}, "contract.modality", "embedding with api embeddings"),
    ({"rest": "contract: {modality: embedding}"}, "contract.modality", "embedding with api embeddings"),
    ({"rest": "contract: {response: vector}"}, "contract.response", "vector with api embeddings only"),
    (
        {"rest": "contract: {api: embeddings, modality: embedding, response: json}"},
        "contract.response",
        "vector: embeddings have no other answer",
    ),
    ({"rest": "contract: {response: tool_call}"}, "contract.response", "only where contract.tools is above 0"),
    ({"rest": "contract: {api: completions, tools: 2}"}, "contract.tools", "completions has no tools"),
    (
        {"traffic": "conversation: {turns: 2}", "rest": "contract: {api: completions}"},
        "traffic.conversation",
        "completions has no turns",
    ),
    (
        {"traffic": "agent: {tool_turns: 2, result_tokens: 9}", "rest": "contract: {api: completions}"},
        "traffic.agent",
        "completions has no turns",
    ),
    (
        {"traffic": "agent: {tool_turns: 2, result_tokens: 9}\n  conversation: {turns: 2}"},
        "traffic.agent",
        "either conversation or agent",
    ),
    ({"traffic": "prefix: {tokens: 100}"}, "traffic.prefix.tokens", "fewer than the longest prompt"),
    (
        {"rest": "contract: {streaming: false}\npromises: [p95 itl <= 1s]"},
        "promises[0]",
        "no itl promise: the answer does not stream",
    ),
    (
        {"rest": "contract: {streaming: false}\npromises: [p95 e2e <= 1s, p95 ttft <= 1s]"},
        "promises[1]",
        "no ttft promise: the answer does not stream",
    ),
    ({"rest": "promises: [p95 ttft <= 1s, p95 ttft <= 2s]"}, "promises[1]", "one limit for p95 TTFT"),
    ({"rest": "promises: [p95 ttft <= 1s, p95 ttft <= 2s from scheduled]"}, "promises[1]", "one limit for p95 TTFT"),
    ({"rest": "promises: [answered >= 9%]"}, "promises", "a latency promise for interactive traffic"),
]


@pytest.mark.parametrize(("parts", "field", "expected"), CONTRADICTIONS)
def test_fields_that_contradict_each_other_are_named(parts: dict[str, str], field: str, expected: str) -> None:
    told = mistake(**parts)
    assert told.field == field
    assert expected in told.expected
    assert told.line is not None
    assert told.line >= 4


def test_promises_of_one_metric_may_differ_in_quantile_boundary_and_suite() -> None:
    lines = "p95 ttft <= 1s, p99 ttft <= 2s, p95 ttft <= 1s from sent, quality(a) >= 1%, quality(b) >= 2%"
    assert len(card(rest=f"promises: [{lines}]").promises) == 5


def test_every_mistake_is_told_at_once_in_order_of_lines() -> None:
    found = mistakes(
        text(arrivals="{process: poisson, rate: x}", prompt="{p50: y, p9z: 4}", rest="promises: [z]\nq: 1")
    )
    assert [(m.line, m.field) for m in found] == [
        (5, "traffic.arrivals.rate"),
        (6, "traffic.prompt_tokens.p50"),
        (6, "traffic.prompt_tokens.p9z"),
        (8, "promises[0]"),
        (9, "q"),
    ]


def test_words_that_other_yaml_readers_take_for_values_stay_words() -> None:
    read = card(
        head="apiVersion: setpoint/v1\nkind: Workload\nname: 2024-01-01", rest="constraints: {regions: [no, on, 1:30]}"
    )
    assert read.name == "2024-01-01"
    assert read.constraints.regions == ("no", "on", "1:30")


def test_yes_and_no_are_truth_values_where_one_is_expected() -> None:
    assert card(rest="contract: {streaming: no}").contract.streaming is False


def test_a_card_written_out_reads_back_equal() -> None:
    for one in (
        card(),
        card(prompt="{values: [1, 5, 9k]}", arrivals="{process: poisson, rate: 0.00001}"),
        card(traffic="agent: {tool_turns: {min: 0, p99.9: 60}, tool_time: {p50: 4 s}, result_tokens: 9}"),
        card(rest="promises: [p95 ttft <= 9 ms from sent, answered >= 99.9%, quality(a) >= 80%]"),
        card(rest="description: 'on: [é]'\nconstraints: {budget: {per_hour: 8}, licences: [MIT], commercial: false}"),
    ):
        assert parse_card(one.to_yaml().encode(), "again") == one
        assert Workload.model_validate(json.loads(json.dumps(one.to_dict()))) == one
        jsonschema.validate(one.to_dict(), json_schema())


@pytest.mark.parametrize(
    "parts",
    [
        {"prompt": "[1]"},
        {"prompt": "{p50x: 1}"},
        {"prompt": "{points: [[0.5, 1]]}"},
        {"prompt": "{values: []}"},
        {"arrivals": "{process: poison, rate: 1}"},
        {"arrivals": "{process: closed, users: 0}"},
        {"rest": "promises: [5]"},
        {"rest": "promises: [{metric: ttfb}]"},
        {"rest": "traffik: {}"},
        {"rest": "contract: {streaming: 1}"},
    ],
)
def test_the_published_schema_refuses_what_an_editor_can_know(parts: dict[str, str]) -> None:
    import yaml  # noqa: PLC0415 - the plain reader, as an editor has it

    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(text(**parts)), json_schema())
    assert mistakes(text(**parts))


def test_the_published_schema_is_valid_and_kept_in_the_docs() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    kept = json.loads((DOCS / "card.schema.json").read_text(encoding="utf-8"))
    assert kept == json_schema(), "run: setpoint card schema > docs/card.schema.json"
