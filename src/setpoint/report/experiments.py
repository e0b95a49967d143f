"""What to try next for each suspicion: a table, a row an experiment, in order of expected gain."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Proposal:
    """One experiment.

    Attributes:
        change: The one variable to change.
        effect: What should get better.
        price: What may get worse.
    """

    change: str
    effect: str
    price: str


PROPOSALS: dict[str, tuple[Proposal, ...]] = {
    "queueing": (
        Proposal(
            "more slots (n_parallel, max_num_seqs)", "TTFT: fewer requests wait", "TPOT rises with the batch; KV memory"
        ),
        Proposal("a second replica", "both latencies, in proportion", "cost doubles"),
        Proposal("shorter answers (max_tokens)", "slots are free sooner", "answers are cut"),
        Proposal("prefix caching, shared content first", "less prefill a request", "memory for the cache"),
    ),
    "decode-contention": (
        Proposal("fewer slots", "TPOT of those that run", "TTFT: more requests wait"),
        Proposal("weight quantization", "fewer bytes a step", "quality: measure it"),
        Proposal("speculative decoding", "TPOT at low load", "backfires at high load or low acceptance"),
    ),
    "prefill": (
        Proposal("prefix caching, shared content first", "prefill of shared tokens disappears", "memory for the cache"),
        Proposal("larger prefill budget (n_batch, max_num_batched_tokens)", "TTFT", "stalls in running streams"),
        Proposal("shorter prompts", "TTFT in proportion", "quality: measure it"),
    ),
    "errors": (
        Proposal("half the load", "shows whether load is the cause", "none"),
        Proposal("admission limits before the engine", "clear refusals instead of failures", "fewer accepted requests"),
    ),
    "client": (Proposal("more --workers, or another machine for the client", "a verdict at all", "none"),),
    "undecided": (
        Proposal("a longer run (--budget)", "narrower intervals", "time"),
        Proposal("--concurrency 1, 2, 4, 8", "tells waiting from working", "time"),
    ),
}
