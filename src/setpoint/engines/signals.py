"""Signals read from engines: one meaning each, whatever the engine calls it.

A signal is a value, ``unsupported``, ``disabled`` or ``scrape_failed``. A page that is not Prometheus text is a failed
scrape, however politely it answered.
"""

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from setpoint.client.client import Client, Response
from setpoint.engines.series import GPU, GPU_PREFIX, NEEDS_FLAG, PATHS, PREFIXES, SERIES, Over, Series
from setpoint.errors import TargetError
from setpoint.records.signal import SignalRow, SignalState
from setpoint.records.target import Target

SCRAPE_LIMIT_S = 2.0
Samples = dict[str, list[tuple[dict[str, str], float]]]


class NotMetrics(ValueError):  # noqa: N818 - a fact about a page
    """A page that is not Prometheus text."""


def parse_exposition(text: str) -> Samples:
    """Samples by name, ``*_created`` left out.

    Raises:
        NotMetrics: the text is something else (TensorRT-LLM's ``/metrics`` is JSON and may be ``[]``).
    """
    stripped = text.lstrip()
    if stripped[:1] in ("[", "{", "<"):
        raise NotMetrics("the page is JSON or HTML, not Prometheus text")
    out: Samples = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if not sample.name.endswith("_created"):
                    out.setdefault(sample.name, []).append((dict(sample.labels), float(sample.value)))
    except (ValueError, KeyError, IndexError) as error:
        raise NotMetrics(f"the page cannot be read as Prometheus text: {str(error)[:80]}") from None
    return out


def recognise(samples: Samples) -> str | None:
    """The engine whose names these are; None for none that is known."""
    for name in samples:
        for prefix, engine in PREFIXES.items():
            if name.startswith(prefix):
                return engine
    return None


def read_series(series: Series, samples: Samples, time_s: float) -> SignalRow:
    """One signal from a scrape: the newest name that is present."""
    for name in series.names:
        found = next((samples[spelling] for spelling in _spellings(name.text) if spelling in samples), None)
        values = [value for labels, value in found or () if _counts(series, labels)]
        if values:
            value = sum(values) if series.over is Over.SUM else max(values)
            if not math.isfinite(value):
                return _row(time_s, series.signal, None, SignalState.SCRAPE_FAILED, f"{name.text} is {value}")
            return _row(time_s, series.signal, value, SignalState.OK, name.text)
    return _row(time_s, series.signal, None, SignalState.UNSUPPORTED, series.names[0].text if series.names else "none")


def _spellings(name: str) -> tuple[str, ...]:
    """As exported; without the counter's suffix (SGLang's docs); through gateways that rewrite colons."""
    plain = name.removesuffix("_total")
    return (name, plain, name.replace(":", "_"), plain.replace(":", "_"))


def _counts(series: Series, labels: dict[str, str]) -> bool:
    return all(labels.get(key, wanted) == wanted for key, wanted in series.labels)


def _row(time_s: float, signal: str, value: float | None, state: SignalState, source: str) -> SignalRow:
    return SignalRow(time_s=time_s, signal=signal, value=value, state=state, source=source)


class SignalSampler:
    """Reads an engine's signals; a callable for the load generator.

    Args:
        target: With its metrics URL.
        engine: Name of the engine; recognised from its series when None.
        host: Reads signals of the host, beside the engine's.
        gpu: Reads signals of the GPUs here; what a DCGM exporter tells counts before it.
        gpu_url: Where a DCGM exporter is; its series are also found on the engine's own page.
        now: The monotonic clock.
    """

    def __init__(
        self,
        target: Target,
        engine: str | None = None,
        *,
        host: Callable[[float], list[SignalRow]] | None = None,
        gpu: Callable[[float], list[SignalRow]] | None = None,
        gpu_url: str | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.engine = engine if engine in SERIES else None
        self._target = target
        self._host = host
        self._gpu = gpu
        self._gpu_url = gpu_url
        self._now = now

    async def __call__(self, origin_s: float) -> list[SignalRow]:
        """All signals now, times since ``origin_s``."""
        rows = self._host(self._now() - origin_s) if self._host is not None else []
        scrapes = []
        if self._target.metrics_url is not None:
            scrapes.append(self._scrape(self._target.metrics_url, origin_s))
        if self._gpu_url is not None:
            scrapes.append(self._scrape_gpu(self._gpu_url, origin_s))
        for found in await asyncio.gather(*scrapes):  # together: one that hangs takes no time from the other
            rows += found
        if self._gpu is not None:
            told = {row.signal for row in rows if row.state is SignalState.OK}
            rows = [row for row in rows if row.state is SignalState.OK or not row.signal.startswith("gpu_")]
            rows += [row for row in self._gpu(self._now() - origin_s) if row.signal not in told]
        return rows

    async def _read(self, url: str) -> Samples:
        """The samples of one page.

        Raises:
            TargetError: it does not answer.
            NotMetrics: it is something else.
        """
        base, path = _split(url)
        key = self._target.api_key if base == _split(self._target.base_url)[0] else None  # for this server only
        client = Client(replace(self._target, base_url=base, api_key=key))
        try:
            return parse_exposition(_text(await client.fetch("GET", path, timeout_s=SCRAPE_LIMIT_S)))
        finally:
            await client.close()

    async def _scrape_gpu(self, url: str, origin_s: float) -> list[SignalRow]:
        try:
            samples = await self._read(url)
        except (TargetError, NotMetrics) as error:
            time_s, short = self._now() - origin_s, str(error)[-80:]
            return [_row(time_s, s.signal, None, SignalState.SCRAPE_FAILED, short) for s in GPU]
        time_s = self._now() - origin_s
        return [read_series(series, samples, time_s) for series in GPU]

    async def _scrape(self, url: str, origin_s: float) -> list[SignalRow]:
        own = PATHS.get(self.engine or "")
        try:
            samples = await self._read(url if own is None else f"{_split(url)[0]}{own}")
        except (TargetError, NotMetrics) as error:
            return self._failed(self._now() - origin_s, str(error))
        time_s = self._now() - origin_s
        self.engine = self.engine or recognise(samples)
        if self.engine is None:
            return [_row(time_s, "scrape", None, SignalState.UNSUPPORTED, "no series of a known engine")]
        rows = [read_series(series, samples, time_s) for series in SERIES[self.engine]]
        flag = NEEDS_FLAG.get(self.engine)
        if flag is not None and all(row.state is SignalState.UNSUPPORTED for row in rows):
            return [_row(time_s, r.signal, None, SignalState.DISABLED, f"needs {flag}") for r in rows]
        if self._gpu_url is None and any(name.startswith(GPU_PREFIX) for name in samples):
            rows += [read_series(series, samples, time_s) for series in GPU]
        return rows

    def _failed(self, time_s: float, reason: str) -> list[SignalRow]:
        short = reason[-80:]
        if self.engine is None:
            return [_row(time_s, "scrape", None, SignalState.SCRAPE_FAILED, short)]
        return [_row(time_s, s.signal, None, SignalState.SCRAPE_FAILED, short) for s in SERIES[self.engine]]


def _text(response: Response) -> str:
    if response.status != 200:
        raise NotMetrics(f"HTTP {response.status}")
    return response.body.decode("utf-8", "replace")


def _split(url: str) -> tuple[str, str]:
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}://{authority}", f"{slash}{path}" or "/metrics"
