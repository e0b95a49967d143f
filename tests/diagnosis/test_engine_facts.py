"""What engines say of themselves: a full cache, a clock of their own, a fresh start."""

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from tests.diagnosis.evidence import Costs, card, exchange, ladder, observe

from setpoint.diagnosis.diagnosis import Diagnosis, diagnose
from setpoint.diagnosis.evidence import Evidence
from setpoint.diagnosis.hypothesis import Conclusion, Finding
from setpoint.diagnosis.observation import Observation
from setpoint.diagnosis.service_model import fit_service_model
from setpoint.experiments.playbook import playbook
from setpoint.protocol.judgement import Judgement, Observed, judge_length
from setpoint.protocol.wire import CONTEXT_FULL, error_kind
from setpoint.records.exchange import Outcome

ANSWERED = card("answered >= 95%", **{"class": "batch"})
TTFT = card("p90 ttft <= 150 ms")


def finding(diagnosis: Diagnosis, name: str) -> Finding:
    return next(f for f in diagnosis.findings if f.name == name)


def failing(full: int, other: int) -> Observation:
    """Twenty answers, and failures of two kinds."""
    rows = [exchange(i, i * 2.0, Costs()) for i in range(20)]
    rows += [exchange(20 + i, 40.0 + i, Costs(), outcome=Outcome.ERROR) for i in range(full + other)]
    errors = [""] * 20 + [f"in-band server_error 500 {CONTEXT_FULL}"] * full + ["in-band server_error 500"] * other
    return replace(observe(rows, ANSWERED, engine="llamacpp"), errors=tuple(errors))


def test_requests_that_a_full_cache_ends_are_kv_pressure_and_the_others_are_failures() -> None:
    assert [f.name for f in diagnose(Evidence(failing(12, 0))).supported] == ["kv_pressure"]
    assert [f.name for f in diagnose(Evidence(failing(0, 12))).supported] == ["failures"]
    assert {f.name for f in diagnose(Evidence(failing(20, 20))).supported} == {"kv_pressure", "failures"}


def cut_at(tokens: int, pins: Mapping[str, object]) -> Finding:
    """Answers that end with ``length`` at so many tokens of prompt and answer, short of what was asked for."""
    rows = [exchange(i, i * 2.0, Costs()) for i in range(20)]
    for i in range(20, 32):
        row = exchange(i, i * 2.0, Costs(), output=tokens - 100)
        rows.append(msgspec.structs.replace(row, outcome=Outcome.TRUNCATED, finish_reason="length"))
    judged = judge_length(Judgement(Outcome.LENGTH, None, Observed(completion_tokens=tokens - 100)), 400)
    errors = [""] * 20 + [str(judged.error)] * 12
    observed = replace(observe(rows, ANSWERED, engine="llamacpp"), errors=tuple(errors))
    found = diagnose(Evidence(replace(observed, pins={"engine": "llamacpp", **pins})))
    assert [f.name for f in found.supported] == ["failures"]
    return finding(found, "failures")


def test_answers_that_the_end_of_a_slot_cuts_name_the_setting_and_what_changes_it() -> None:
    flags = {"engine_flags": {"n_ctx": "1024", "n_parallel": "4"}}
    said = " ".join(cut_at(255, flags).evidence)
    assert "12 answers end with `length` at 255 tokens" in said
    assert "256 tokens (n_ctx=1024 divided among n_parallel=4 slots)" in said
    named = {"more_cache_memory", "fewer_slots"}
    assert all(name in said for name in named)
    assert named <= {row.name for row in playbook() if "llamacpp" in row.knobs}
    assert "n_ctx=256 a slot" in " ".join(cut_at(255, {"reported": {"n_ctx": "256"}}).evidence)


def test_an_answer_that_is_cut_far_below_its_context_is_not_blamed_on_it() -> None:
    shared = {"engine_flags": {"n_ctx": "1024", "n_parallel": "4", "kv_unified": "true"}}
    assert "the server caps answers itself" in " ".join(cut_at(255, shared).evidence)
    assert any(line.startswith("not observed: the context") for line in cut_at(255, {}).evidence)


def test_a_full_cache_is_told_by_a_name_of_ours_and_never_by_the_words_of_the_server() -> None:
    said = {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}
    assert error_kind(said) == f"server_error 500 {CONTEXT_FULL}"
    assert error_kind(said | {"message": "secret"}) == "server_error 500"


def test_an_engine_that_never_preempts_is_not_suspected_of_it() -> None:
    rows = [exchange(i, i * 2.0, Costs(queue_s=1.0)) for i in range(30)]
    slow = observe(rows, TTFT, gauges={"requests_waiting": 4.0}, engine="llamacpp")
    result = finding(diagnose(Evidence(slow, (ladder(TTFT, Costs()),))), "kv_pressure")
    assert result.conclusion is Conclusion.REFUTED
    assert "never preempts" in result.reason


@pytest.mark.parametrize(("computed", "conclusion"), [(0.9, Conclusion.REFUTED), (0.2, Conclusion.UNDECIDED)])
def test_the_clock_of_a_server_clears_its_host_side_and_never_accuses_it(
    computed: float, conclusion: Conclusion
) -> None:
    slow = Costs(prefill_s=0.004)
    rows = [exchange(i, i * 2.0, slow) for i in range(30)]
    probe = ladder(TTFT, slow, engine="llamacpp")
    clocked = replace(probe, server_prefill_s=computed * probe.wait_s)
    found = diagnose(Evidence(observe(rows, TTFT, engine="llamacpp", gauges={"requests_waiting": 0.0}), (clocked,)))
    assert finding(found, "host").conclusion is conclusion


def cold(first_s: float, *, cached: int) -> Observation:
    """The probe after a restart: the first request waits so much longer, later ones find the prompt in the cache."""
    rows = [exchange(0, 0.0, Costs(queue_s=first_s), output=2)]
    rows += [exchange(i, i * 2.0, Costs(), output=2, cached=cached) for i in range(1, 8)]
    return observe(rows, TTFT, probe="repeat")


def early(probe: Observation) -> Finding:
    """Cold start, where late requests lie at the beginning."""
    rows = [exchange(i, i * 2.0, Costs(queue_s=1.0 if i < 6 else 0.0)) for i in range(30)]
    calm = observe(rows, TTFT, gauges={"requests_waiting": 0.0})
    return finding(diagnose(Evidence(calm, (ladder(TTFT, Costs()), probe))), "cold_start")


def test_a_first_request_as_quick_as_a_warm_one_refutes_a_cold_start_whatever_the_prefix_cache_spares() -> None:
    assert early(cold(1.0, cached=0)).conclusion is Conclusion.SUPPORTED
    refuted = early(cold(0.0, cached=99))
    assert refuted.conclusion is Conclusion.REFUTED
    assert "after a restart" in refuted.reason


def test_a_cold_engine_does_not_enter_the_service_model() -> None:
    warm = ladder(TTFT, Costs())
    model = fit_service_model([warm, cold(9.0, cached=0)])
    alone = fit_service_model([warm])
    assert model.wait_s(np.array([100.0])) == alone.wait_s(np.array([100.0]))
