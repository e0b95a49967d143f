"""Options that several verbs share."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from setpoint.errors import UsageError
from setpoint.units import parse_duration, parse_rate

if TYPE_CHECKING:
    from setpoint.assess.target import TargetOptions

Card = Annotated[Path, typer.Argument(metavar="CARD", help="Workload card (YAML).")]
Url = Annotated[str | None, typer.Option(help="Base URL of the server, with or without /v1.")]
Model = Annotated[str | None, typer.Option(help="Model name, path, or hf://org/name.")]
Api = Annotated[str | None, typer.Option(help="API instead of the card's: chat, completions, messages, embeddings.")]
KeyEnv = Annotated[str | None, typer.Option("--api-key-env", metavar="VAR", help="Variable that holds the API key.")]
MetricsUrl = Annotated[str | None, typer.Option(help="Where the engine's Prometheus text is.")]
GpuMetricsUrl = Annotated[str | None, typer.Option(help="Where a DCGM exporter is.")]
Insecure = Annotated[bool, typer.Option("--insecure", help="Accept any TLS certificate.")]
CaFile = Annotated[str | None, typer.Option(help="PEM file of an authority to trust.")]
EngineName = Annotated[str, typer.Option("--engine", help="Engine to start: llamacpp, vllm, fake.")]
FlagList = Annotated[list[str] | None, typer.Option("--flag", metavar="NAME=VALUE", help="Engine flag; repeatable.")]
Port = Annotated[int | None, typer.Option(help="Port of the engine on 127.0.0.1; a free one unless given.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the schedule.")]
Workers = Annotated[int | None, typer.Option(min=1, max=256, help="Client processes; decided by load unless given.")]
Budget = Annotated[str | None, typer.Option(help='Bound on all measurement, e.g. "3m".')]
Runs = Annotated[Path, typer.Option("--runs", help="Folder of run records.")]

RUNS = Path(".setpoint/runs")
APIS = ("chat", "completions", "messages", "embeddings")


def parse(option: str, text: str | None, reader: Callable[[Any], float]) -> float | None:
    """An option's quantity.

    Raises:
        UsageError: it cannot be read; names the option.
    """
    if text is None:
        return None
    try:
        return reader(text)
    except ValueError as error:
        raise UsageError(f"{option} is {text!r}; {error}.") from None


def seconds(option: str, text: str | None) -> float | None:
    """An option that is a duration above zero.

    Raises:
        UsageError: it is none.
    """
    value = parse(option, text, parse_duration)
    if value is not None and value <= 0:
        raise UsageError(f"{option} is {text!r}; expected a duration above zero.")
    return value


def numbers(option: str, text: str | None, reader: Callable[[Any], float] = parse_rate) -> list[float]:
    """An option that is one quantity or several, separated by commas.

    Raises:
        UsageError: one of them cannot be read.
    """
    out = []
    for part in (text or "").split(","):
        value = parse(option, part.strip() or None, reader)
        if value is not None:
            out.append(value)
    return out


def whole_users(text: Any) -> float:  # noqa: ANN401 - a reader for ``numbers``
    """A number of users.

    Raises:
        ValueError: it is no whole number above zero.
    """
    if not str(text).isdigit() or int(text) < 1:
        raise ValueError("expected a whole number of users such as 4")
    return float(int(text))


def flags(pairs: list[str] | None, option: str = "--flag") -> dict[str, str]:
    """``NAME=VALUE`` pairs.

    Raises:
        UsageError: one is not such a pair.
    """
    out = {}
    for pair in pairs or ():
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise UsageError(f"{option} is {pair!r}; expected NAME=VALUE, for example n_parallel=8.")
        out[name.lstrip("-")] = value
    return out


class TargetArguments(dict[str, Any]):
    """What the options of a target were given as, until ``target_options`` reads them."""


def takes_target(*left_out: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a verb the options by which a target is reached or made, in place of its ``target`` parameter.

    Args:
        left_out: Names of options that the verb does not have.
    """
    offered = [p for p in inspect.signature(_target).parameters.values() if p.name not in left_out]

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(verb)

        @functools.wraps(verb)
        def call(**values: Any) -> None:  # noqa: ANN401 - as typer parsed them
            given = TargetArguments({p.name: values.pop(p.name) for p in offered})
            verb(**values, target=given)

        parameters = []
        for parameter in own.parameters.values():
            parameters += offered if parameter.name == "target" else [parameter]
        keyword = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
        call.__dict__["__signature__"] = own.replace(parameters=keyword)
        call.__annotations__ = {p.name: p.annotation for p in keyword}
        return call

    return decorate


def _target(
    *,
    url: Url = None,
    model: Model = None,
    api: Api = None,
    api_key_env: KeyEnv = None,
    metrics_url: MetricsUrl = None,
    gpu_metrics_url: GpuMetricsUrl = None,
    insecure: Insecure = False,
    ca_file: CaFile = None,
    engine: EngineName = "llamacpp",
    flag: FlagList = None,
    port: Port = None,
) -> "TargetOptions":
    """The target that the options describe."""
    from setpoint.assess.target import TargetOptions

    if api is not None and api not in APIS:
        raise UsageError(f"--api is {api!r}; expected one of {', '.join(APIS)}.")
    if url is not None and (flag or port is not None):
        raise UsageError("--flag and --port are for an engine that is started here; with --url there is none.")
    if ca_file is not None and not Path(ca_file).is_file():
        raise UsageError(f"--ca-file is {ca_file!r}; there is no such file.")
    return TargetOptions(
        url=url,
        model=model,
        api=api,
        api_key_env=api_key_env,
        metrics_url=metrics_url,
        gpu_metrics_url=gpu_metrics_url,
        verify_tls=not insecure,
        ca_file=ca_file,
        engine=engine,
        flags=flags(flag),
        port=port,
    )


def target_options(given: TargetArguments, **settled: Any) -> "TargetOptions":  # noqa: ANN401 - options by name
    """The target that the options describe.

    Args:
        given: As a verb got them.
        settled: Options that the verb decides itself, e.g. ``url``.

    Raises:
        UsageError: they contradict each other.
    """
    return _target(**(given | settled))
