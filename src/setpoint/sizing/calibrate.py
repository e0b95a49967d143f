"""From the text of a vLLM or SGLang start-up log to the memory terms of that stack."""

import re

from setpoint.errors import UsageError
from setpoint.sizing.calibration import Calibration
from setpoint.sizing.engine import Engine, engine_of
from setpoint.sizing.overheads import GIB
from setpoint.sizing.term import Term, exactly

LONGEST_LOG = 64 * 2**20
"""Characters of a log that are read."""

_NUMBER = r"(-?\d+(?:\.\d+)?)"
_VLLM_VERSION = re.compile(
    r"vLLM API server version v?(\S+)|LLM engine \(v([^)\s]+)\)|\bvLLM (?:version )?v?(\d+\.\d+\S*)"
)
_SGLANG_VERSION = re.compile(r"(?i)sglang(?:==| version:? | v)(\d+\.\d+[^\s,)]*)")
_VLLM = {
    "weights": re.compile(
        rf"Model loading took {_NUMBER} ?GiB|[Mm]odel weights take {_NUMBER} ?GiB|model weights took {_NUMBER} GB"
        rf"|Actual usage is {_NUMBER} GiB for weight"
    ),
    "kv": re.compile(
        rf"Available KV cache memory: {_NUMBER} ?GiB|reserved for KV Cache is {_NUMBER} ?GiB|kv_cache_size={_NUMBER}GiB"
    ),
    "total": re.compile(
        rf"total_gpu_memory \({_NUMBER} ?GiB\)|total_gpu_memory={_NUMBER}GiB"
        rf"|Free memory on device \([\d.]+/{_NUMBER} GiB\)"
    ),
    "utilization": re.compile(
        rf"gpu_memory_utilization \({_NUMBER}\)|gpu_memory_utilization['\"]?[=:] ?{_NUMBER}"
        rf"|gpu-memory-utilization[= ]{_NUMBER}|Desired GPU memory utilization is \({_NUMBER}, "
    ),
    "requested": re.compile(rf"Requested memory: {_NUMBER} \(util\), "),
    "budget": re.compile(rf"Requested memory: [\d.]+ \(util\), {_NUMBER} ?GiB"),
    "non_torch": re.compile(
        rf"non_torch_memory takes {_NUMBER} ?GiB|non-torch forward increase memory: {_NUMBER} ?GiB"
        rf"|non_torch_memory={_NUMBER}GiB|{_NUMBER} GiB for non-torch memory"
    ),
    "activations": re.compile(
        rf"PyTorch activation peak memory takes {_NUMBER} ?GiB|torch peak memory increase: {_NUMBER} ?GiB"
        rf"|{_NUMBER} GiB for peak activation"
    ),
    "peak": re.compile(rf"peak_torch_memory={_NUMBER}GiB"),
    "graphs": re.compile(rf"Graph capturing finished in {_NUMBER} secs, took {_NUMBER} ?GiB"),
    "estimate": re.compile(rf"(?i)estimated cuda ?graph memory:? {_NUMBER} ?GiB"),
    "tokens": re.compile(r"GPU KV cache size: ([\d,]+) tokens"),
    "blocks": re.compile(r"# (?:GPU|cuda) blocks: (\d+)"),
    "longest": re.compile(r"Maximum concurrency for ([\d,]+) tokens per request"),
    "tp": re.compile(r"tensor_parallel_size['\"]?[=:] ?(\d+)"),
}
_SGLANG = {
    "before": re.compile(rf"Load weight begin\. avail mem={_NUMBER} GB"),
    "after": re.compile(rf"Load weight end\..*?avail mem={_NUMBER} GB"),
    "used": re.compile(rf"Load weight end\..*?mem usage={_NUMBER} GB"),
    "tokens": re.compile(r"KV Cache is allocated\..*?#tokens: (\d+)"),
    "keys": re.compile(rf"KV Cache is allocated\..*?K size: {_NUMBER} GB, V size: {_NUMBER} GB"),
    "kv": re.compile(rf"KV Cache is allocated\..*?KV size: {_NUMBER} GB"),
    "pool": re.compile(rf"Memory pool end\. avail mem={_NUMBER} GB"),
    "graphs": re.compile(rf"Capture (?:cuda|npu) graph end\..*?mem usage={_NUMBER} GB"),
    "fraction": re.compile(rf"mem_fraction_static={_NUMBER}"),
    "tp": re.compile(r"\btp_size=(\d+)"),
    "longest": re.compile(r"context_len=(\d+)"),
}


def calibrate(log: str, *, version: str | None = None) -> Calibration:
    """The terms that a start-up log states, or that follow from it.

    Args:
        log: The text; of several ranks the first is read.
        version: Engine version, when the log does not state it.

    Raises:
        UsageError: the text is no such log, its engine version is not stated or not known, or it states too little.
    """
    if len(log) > LONGEST_LOG:
        raise UsageError(f"The log has {len(log)} characters, more than {LONGEST_LOG}.", fix="Cut it to the start-up.")
    if "KV Cache is allocated" in log or "mem_fraction_static" in log:
        return _sglang(log, version)
    if any(word in log for word in ("KV cache", "vLLM", "reserved for KV Cache", "# GPU blocks")):
        return _vllm(log, version)
    raise UsageError(
        "This is no start-up log of vLLM or SGLang: none of their lines about the KV cache was found.",
        fix="Paste the output from the start of the server until it is ready.",
    )


def _found(patterns: dict[str, re.Pattern[str]], log: str, name: str) -> float | None:
    match = patterns[name].search(log)
    if match is None:
        return None
    text = next(reversed([group for group in match.groups() if group is not None]))
    return float(text.replace(",", ""))


def _engine(name: str, pattern: re.Pattern[str], log: str, version: str | None) -> Engine | None:
    match = pattern.search(log)
    text = version or (next(group for group in match.groups() if group) if match else None)
    return engine_of(name, text.rstrip(".,);")) if text else None


def _vllm(log: str, version: str | None) -> Calibration:
    engine = _engine("vllm", _VLLM_VERSION, log, version)
    if engine is None:
        raise UsageError(
            "The log does not state which version of vLLM wrote it.",
            fix="Include its first lines, or give the version with --version.",
        )

    def get(name: str) -> float | None:
        return _found(_VLLM, log, name)

    weights, kv, total, graphs = get("weights"), get("kv"), get("total"), get("graphs")
    share = get("utilization") or get("requested")
    budget = get("budget") or (total * share if total is not None and share is not None else None)
    if total is None and budget is not None and share:
        total = budget / share
    if weights is None or kv is None:
        raise UsageError(
            "The log states no weights or no memory of the KV cache.",
            fix="Include the lines 'Model loading took' and 'Available KV cache memory'.",
        )
    terms, notes = [_logged("weights", weights, "Model loading took")], list[str]()
    charged = get("estimate") if engine.charges_graphs else None
    activations, other, peak = get("activations"), get("non_torch"), get("peak")
    if activations is None and peak is not None:
        activations = peak - weights
    if activations is not None and other is not None and budget is not None:
        # What the two lines leave unexplained is context and NCCL; together they must close the budget.
        other = budget - weights - activations - kv - (charged or 0.0)
    elif budget is not None:
        activations, other = budget - weights - kv - (charged or 0.0), 0.0
        notes.append("The log does not tell activations and other memory apart; their sum is used.")
    else:
        notes.append("The log does not state the device's memory or its share; activations cannot be solved.")
    if activations is not None and other is not None:
        terms.append(_logged("activations", max(activations, 0.0), "budget - weights - cache"))
        terms.append(_logged("non_torch", max(other, 0.0), "what the other lines leave"))
    if charged is not None:
        terms.append(_logged("graphs", charged, "estimated CUDA graph memory"))
    elif engine.charges_graphs and activations is not None:
        # They were taken from the budget before the pool, so what the other lines leave has them already.
        terms.append(_logged("graphs", 0.0, "within what the other lines leave"))
    elif graphs is not None:
        terms.append(_logged("graphs", max(graphs, 0.0), "Graph capturing finished"))
    tokens, blocks, longest, tp = get("tokens"), get("blocks"), get("longest"), get("tp")
    if tokens is None and blocks is not None:
        tokens = blocks * 16
    return Calibration(
        engine,
        tuple(terms),
        None if total is None else total * GIB,
        share,
        kv * GIB,
        None if tokens is None else int(tokens),
        None if longest is None else int(longest),
        None if tp is None else int(tp),
        tuple(notes),
    )


def _sglang(log: str, version: str | None) -> Calibration:
    engine = _engine("sglang", _SGLANG_VERSION, log, version)
    notes = []
    if engine is None:
        engine = engine_of("sglang", "0.5.0")
        notes.append("SGLang does not print its version; the rules of 0.5 are used.")

    def get(name: str) -> float | None:
        return _found(_SGLANG, log, name)

    before, after, fraction = get("before"), get("after"), get("fraction")
    used = get("used") or (before - after if before is not None and after is not None else None)
    if used is None:
        raise UsageError("The log states no 'Load weight end' line.", fix="Paste the whole start-up.")
    terms = [_logged("weights", used, "Load weight end (GB are GiB)")]
    match = _SGLANG["keys"].search(log)
    kv = float(match.group(1)) + float(match.group(2)) if match else get("kv")
    if kv is None and before is not None and after is not None and fraction is not None:
        kv = after - before * (1 - fraction)
    graphs = get("graphs")
    if graphs is not None:
        terms.append(_logged("graphs", graphs, "Capture cuda graph end"))
    pool = get("pool")
    if pool is not None and after is not None and kv is not None:
        terms.append(_logged("non_torch", max(after - kv - pool, 0.0), "what the pool took beyond keys and values"))
    notes.append("SGLang does not print activations; they are taken from what the pool leaves.")
    tokens, longest, tp = get("tokens"), get("longest"), get("tp")
    return Calibration(
        engine,
        tuple(terms),
        None,
        fraction,
        None if kv is None else kv * GIB,
        None if tokens is None else int(tokens),
        None if longest is None else int(longest),
        None if tp is None else int(tp),
        tuple(notes),
    )


def _logged(name: str, gib: float, basis: str) -> Term:
    return Term(name, exactly(gib * GIB), "logged", basis)
