"""Terms solved from a start-up log; what ``calibrate`` returns and ``plan_memory`` takes."""

from dataclasses import dataclass, replace

from setpoint.sizing.engine import Engine
from setpoint.sizing.term import Term


@dataclass(frozen=True, slots=True)
class Calibration:
    """What one log says about a stack.

    Attributes:
        engine: Engine and version that wrote it.
        terms: ``weights``, ``activations``, ``non_torch``, ``graphs``, ``context``: those that the log states or that
            follow from it. ``non_torch`` is 0 where the log states only its sum with ``activations``.
        device_bytes: Memory of the device; None when the log does not state it.
        utilization: Share that the engine may use; None when not stated.
        kv_bytes: Memory of the cache on the rank that the log speaks of; None when not stated.
        printed_tokens: Size of the cache as printed; None when not stated.
        max_model_len: As stated with the concurrency; None when not stated.
        tp: Tensor-parallel ranks; None when not stated.
        notes: What could not be solved, and why.
    """

    engine: Engine
    terms: tuple[Term, ...]
    device_bytes: float | None
    utilization: float | None
    kv_bytes: float | None
    printed_tokens: int | None
    max_model_len: int | None
    tp: int | None
    notes: tuple[str, ...]

    def without(self, name: str) -> "Calibration":
        """The same but for one term."""
        return replace(self, terms=tuple(term for term in self.terms if term.name != name))
