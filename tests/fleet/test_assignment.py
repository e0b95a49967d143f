"""Cores and GPUs are shared out, none of them twice. GPUs are numbers here: this has not been run on one."""

import pytest

from setpoint.engines.fake import FAKE
from setpoint.engines.llamacpp import LLAMACPP
from setpoint.engines.vllm import VLLM
from setpoint.fleet.assignment import share_out, visible_gpus


def test_cores_are_divided_among_the_replicas_that_compute() -> None:
    shares = share_out([(LLAMACPP, {}), (FAKE, {}), (LLAMACPP, {})], list(range(9)), [], on_gpu=False)
    assert [share.flags for share in shares] == [{"n_threads": "4"}, {}, {"n_threads": "4"}]
    assert shares[0].words == "4 of 9 cores"


def test_more_replicas_than_cores_get_a_thread_each() -> None:
    assert [s.flags["n_threads"] for s in share_out([(LLAMACPP, {})] * 4, [0, 1], [], on_gpu=False)] == ["1"] * 4


def test_threads_that_the_user_named_stay() -> None:
    (share,) = share_out([(LLAMACPP, {"n_threads": "7"})], list(range(4)), [], on_gpu=False)
    assert "n_threads" not in share.flags
    assert share.words == "7 of 4 cores"


def test_each_replica_has_gpus_of_its_own() -> None:
    wanted = [(VLLM, {"tensor-parallel-size": "2"}), (VLLM, {}), (VLLM, {"tensor-parallel-size": "2"})]
    shares = share_out(wanted, [0, 1], ["0", "1", "2", "3", "4"], on_gpu=True)
    assert [share.env["CUDA_VISIBLE_DEVICES"] for share in shares] == ["0,1", "2", "3,4"]


def test_gpus_leave_the_cores_to_others() -> None:
    shares = share_out([(VLLM, {}), (LLAMACPP, {})], list(range(5)), ["0"], on_gpu=True)
    assert shares[1].flags == {"n_threads": "4"}


def test_replicas_on_a_cpu_are_bound_to_cores_of_their_own() -> None:
    shares = share_out([(VLLM, {}), (VLLM, {})], [0, 1, 2, 3, 4], [], on_gpu=False)
    assert [share.env["VLLM_CPU_OMP_THREADS_BIND"] for share in shares] == ["0,1", "2,3"]


def test_gpus_that_are_hidden_are_not_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, 5")
    assert visible_gpus() == ["2", "5"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert visible_gpus() == []
