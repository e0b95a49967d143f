"""What to try next for each bottleneck: a table, a row an experiment, in order of expected gain."""

from dataclasses import dataclass

from setpoint.diagnosis.diagnosis import Diagnosis


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


_MORE_SLOTS = Proposal(
    "more slots (n_parallel, max_num_seqs)", "TTFT: fewer wait", "TPOT rises with the batch; KV memory"
)
_REPLICA = Proposal("a second replica", "both latencies, in proportion", "cost doubles")
_SHARED_FIRST = Proposal(
    "prefix caching, shared content first", "prefill of shared tokens disappears", "memory for the cache"
)
_QUANTIZE = Proposal("weight quantization", "fewer bytes a step", "quality: measure it")
_SPECULATE = Proposal("speculative decoding", "TPOT at low load", "backfires at high load or low acceptance")
_FEWER = Proposal("fewer slots", "TPOT of those that run", "TTFT: more requests wait")
_SMALLER_CHUNKS = Proposal("smaller prefill chunks (max_num_batched_tokens)", "shorter stalls", "TTFT of long prompts")

PROPOSALS: dict[str, tuple[Proposal, ...]] = {
    "queueing": (
        _MORE_SLOTS,
        _REPLICA,
        Proposal("shorter answers (max_tokens)", "slots are free sooner", "answers are cut"),
        _SHARED_FIRST,
    ),
    "scheduler": (Proposal("a less conservative admission (--schedule-conservativeness 0.3)", "TTFT", "more preemptions"),),
    "kv_pressure": (
        _FEWER,
        Proposal("KV cache quantization", "room for more tokens", "quality: measure it, long answers most"),
        Proposal("more memory for the cache (gpu_memory_utilization)", "fewer preemptions", "margin before out of memory"),
        _REPLICA,
    ),
    "prefill": (
        _SHARED_FIRST,
        Proposal("larger prefill budget (n_batch, max_num_batched_tokens)", "TTFT", "stalls in running streams"),
        Proposal("shorter prompts", "TTFT in proportion", "quality: measure it"),
    ),
    "prefix_cache": (
        Proposal("prefix caching on (enable_prefix_caching)", "prefill of shared tokens disappears", "memory for the cache"),
        Proposal("shared content first in the prompt", "the cache can hit", "prompts must be rewritten"),
        Proposal("routing by prefix", "hits on every replica", "uneven load"),
    ),
    "interference": (
        _SMALLER_CHUNKS,
        Proposal("prefill and decode on separate engines", "no stalls", "transfer of the cache; another engine"),
    ),
    "batch": (_FEWER, _QUANTIZE, _SPECULATE),
    "decode_bandwidth": (_QUANTIZE, _SPECULATE, Proposal("more tensor parallelism", "fewer bytes a device", "synchronization")),
    "speculation": (
        Proposal("speculation off", "no drafting in vain", "none where acceptance is low"),
        Proposal("fewer drafted tokens", "less thrown away", "less gain where drafts are right"),
    ),
    "launch_bound": (Proposal("CUDA graphs (enforce_eager off)", "launches are replayed", "memory and start time"),),
    "interconnect": (Proposal("less tensor parallelism, more replicas", "no exchange within a step", "memory a device"),),
    "host": (
        Proposal("more front-end processes (--api-server-count)", "TTFT", "CPU"),
        Proposal("a faster tokenizer", "TTFT", "none"),
    ),
    "neighbour": (Proposal("a machine, or cores, of its own (CPU binding)", "everything", "cost"),),
    "gateway": (Proposal("the client straight to the engine", "shows what the gateway costs", "no admission, no keys"),),
    "reasoning": (
        Proposal("lower reasoning effort, or none", "TTFT of visible text", "quality: measure it"),
        Proposal("show the reasoning", "something to read at once", "it may not be meant for users"),
    ),
    "cold_start": (Proposal("warm-up before the target is called ready", "the first users", "start takes longer"),),
    "wedged": (Proposal("restart on a canary's deadline, after keeping stacks and logs", "recovery", "open requests are lost"),),
    "failures": (
        Proposal("half the load", "shows whether load is the cause", "none"),
        Proposal("admission limits before the engine", "clear refusals instead of failures", "fewer accepted requests"),
    ),
    "client": (Proposal("more --workers, or another machine for the client", "a verdict at all", "none"),),
}  # fmt: skip
UNDECIDED = (
    Proposal("`setpoint diagnose`: the probes that would decide", "a cause instead of a guess", "minutes"),
    Proposal("a longer run (--budget)", "narrower intervals", "time"),
    Proposal("a higher load", "shows what gives way first", "time"),
)


def proposals(found: Diagnosis) -> tuple[Proposal, ...]:
    """For what is supported, the largest share first; what decides more where nothing is."""
    rows = [p for f in found.supported for p in PROPOSALS[f.name]]
    return tuple(dict.fromkeys(rows)) or UNDECIDED
