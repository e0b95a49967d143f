"""The playbook and its ranking for a diagnosis."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from setpoint.diagnosis.diagnosis import BrokenPromise, Diagnosis
from setpoint.diagnosis.hypotheses import HYPOTHESES
from setpoint.diagnosis.hypothesis import Conclusion, Finding
from setpoint.diagnosis.interval import Interval
from setpoint.diagnosis.service_model import ServiceModel
from setpoint.engines.registry import ENGINES
from setpoint.errors import UsageError
from setpoint.experiments.plan import change_for, rank, slots_relief
from setpoint.experiments.playbook import FILE, UNDECIDED, Knob, playbook, read_playbook

MODEL = ServiceModel(None, None, None, None, Interval(0.002, 0.001, 0.003, 9), None, None, None, None, ("r",))
PINS = {"engine": "llamacpp", "engine_flags": {"n_parallel": "4", "n_threads": "1"}}


def finding(name: str, conclusion: Conclusion, share: float | None = 0.6, seconds: float | None = 0.5) -> Finding:
    interval = None if share is None else Interval(share, share - 0.1, share + 0.1, 50)
    hypothesis = HYPOTHESES[name]
    return Finding(
        name, hypothesis.title, hypothesis.statement, hypothesis.refutation, conclusion, "why", interval, seconds,
        "p95 TTFT ≤ 1 s", (), (),
    )  # fmt: skip


def diagnosis(*findings: Finding, broken: bool = True) -> Diagnosis:
    promises = (BrokenPromise("p95 TTFT ≤ 1 s", certain=True, reason="missed"),) if broken else ()
    return Diagnosis("run", ("run",), "headline", promises, findings, (), None, MODEL)


def test_every_bottleneck_has_a_row_and_every_row_is_whole() -> None:
    covered = {name for row in playbook() for name in row.relief}
    assert covered == {*HYPOTHESES, UNDECIDED}
    for row in playbook():
        assert all((row.title, row.effect, row.source, row.trade_off, row.quality_check, row.refuted_by))


def test_the_techniques_that_the_field_knows_are_there() -> None:
    names = {row.name for row in playbook()}
    assert names >= {
        "more_slots", "admission_limit", "smaller_prefill_chunks", "prefix_caching", "shared_content_first",
        "kv_quantization", "weight_quantization", "weight_quantization_partial", "speculation_ngram",
        "speculation_draft", "speculation_mtp", "more_tensor_parallel", "disaggregation", "kv_offload", "kv_transfer",
        "cuda_graphs", "less_conservative_scheduler", "fewer_threads", "cpu_binding", "second_replica",
        "load_aware_routing",
    }  # fmt: skip


def test_what_may_change_answers_demands_a_quality_check() -> None:
    risky = [row for row in playbook() if "quantization" in row.name or row.name.startswith("shorter")]
    assert len(risky) >= 4
    assert all(row.quality_check != "none" for row in risky)


def test_the_largest_expected_gain_of_a_supported_bottleneck_comes_first() -> None:
    found = diagnosis(finding("queueing", Conclusion.SUPPORTED), finding("batch", Conclusion.UNDECIDED, share=0.9))
    rows = rank(found, PINS)
    assert rows[0].name == "more_slots"
    assert rows[0].change == "engine.n_parallel=8"
    assert rows[0].gain_share == pytest.approx(0.5 * 0.6)
    assert rows[0].gain_s == pytest.approx(0.25)
    supported = [r.conclusion == "supported" for r in rows]
    assert supported == sorted(supported, reverse=True)
    gains = [r.gain_share for r in rows if r.conclusion == "supported"]
    assert gains == sorted(gains, reverse=True)


def test_each_row_says_what_would_refute_it_and_its_price_by_the_service_model() -> None:
    row = rank(diagnosis(finding("queueing", Conclusion.SUPPORTED)), PINS)[0]
    assert "TTFT stays" in row.refuted_by
    assert HYPOTHESES["queueing"].refutation in row.refuted_by
    assert "8.00 ms more a token" in row.price


def test_a_refuted_bottleneck_proposes_nothing() -> None:
    rows = rank(diagnosis(finding("queueing", Conclusion.SUPPORTED), finding("host", Conclusion.REFUTED)), PINS)
    assert all(r.bottleneck == "queueing" for r in rows)


def test_without_a_supported_bottleneck_deciding_comes_first() -> None:
    rows = rank(diagnosis(finding("queueing", Conclusion.UNDECIDED, share=None, seconds=None)), PINS)
    assert rows[0].name == "probe_first"
    assert any(r.name == "more_slots" for r in rows)
    calm = rank(diagnosis(broken=False), PINS)
    assert {r.bottleneck for r in calm} == {UNDECIDED}


def test_slots_follow_their_formula() -> None:
    assert slots_relief("queueing", 2, 8, 0.5) == pytest.approx(0.75)
    assert slots_relief("batch", 9, 5, 0.5) == pytest.approx(0.5)
    assert slots_relief("kv_pressure", 9, 5, 0.7) == 0.7


def test_a_change_needs_a_pinned_value_to_double() -> None:
    assert str(change_for(Knob("n_parallel", "double"), PINS)) == "engine.n_parallel=8"
    assert (
        str(change_for(Knob("max-num-seqs", "halve"), {"engine_flags": {"max_num_seqs": "9"}}))
        == "engine.max-num-seqs=4"
    )
    assert change_for(Knob("n_parallel", "double"), {"engine_flags": {}}) is None
    assert change_for(Knob("n_threads", "1"), PINS) is None
    assert change_for(Knob("n_threads", "halve"), PINS) is None


def test_shared_content_is_moved_to_the_front_where_it_stands_behind() -> None:
    found = diagnosis(finding("prefix_cache", Conclusion.SUPPORTED))

    def proposed(pins: Mapping[str, object]) -> str | None:
        return next(r.change for r in rank(found, pins) if r.name == "shared_content_first")

    assert proposed({**PINS, "prompt_layout": "shared part behind"}) == "card.traffic.prefix.position=front"
    assert proposed({**PINS, "prompt_layout": "shared part front"}) is None
    assert proposed(PINS) is None


def test_knobs_of_engines_that_we_start_are_named_as_these_are() -> None:
    named = {engine for row in playbook() for engine in row.knobs}
    assert set(ENGINES) <= named


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (("relief: {queueing: 0.5, scheduler: 0.3}", "relief: {queues: 0.5}"), "queues"),
        (("relief: {queueing: 0.5, scheduler: 0.3}", "relief: {queueing: 1.5}"), "shares from 0 to 1"),
        (("formula: slots", "formula: magic"), "magic"),
        (("quality_check: none", "quality: none"), "quality"),
        (("name: fewer_slots", "name: more_slots"), "twice"),
        (("- name: more_slots", "- name: [more_slots]"), "name"),
    ],
)
def test_a_malformed_row_is_an_error_that_names_the_field(tmp_path: Path, change: tuple[str, str], field: str) -> None:
    text = FILE.read_text(encoding="utf-8")
    assert change[0] in text
    broken = tmp_path / "playbook.yaml"
    broken.write_text(text.replace(*change, 1), encoding="utf-8")
    with pytest.raises(UsageError, match=field):
        read_playbook(broken)
