"""``setpoint plan``: does it fit, where, for how many, how fast, at what cost."""

import difflib
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from setpoint.cli import options as opt
from setpoint.cli.app import app
from setpoint.cli.output import Json, emit_json, stderr, stdout

EXIT = {"met": 0, "missed": 1, "undecided": 3}
LATEST = {"vllm": "0.27.0", "sglang": "0.5.13"}
"""Newest versions whose memory rules were read."""
KEPT_REJECTIONS = 100
"""Of a plan that is kept; the answer has all."""


class _CardFirst(TyperGroup):
    """``plan CARD ...`` and ``plan --model ...`` are short for ``plan place ...``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer's own click
        if args and args[0] not in ("-h", "--help", *self.commands):
            args = ["place", *args]
        return super().parse_args(ctx, args)


group = typer.Typer(
    cls=_CardFirst, no_args_is_help=True, help="Does it fit, where, how many sessions, at what cost; ranked."
)
app.add_typer(group, name="plan")

ModelName = Annotated[str, typer.Option("--model", help="Folder, config.json, *.safetensors, *.gguf, or org/name.")]
EngineOption = Annotated[str, typer.Option("--engine", help="vllm or sglang.")]
EngineVersion = Annotated[str | None, typer.Option(help="Its version; the newest known unless given.")]
MaxModelLen = Annotated[str | None, typer.Option(help='Longest request, e.g. "32k".')]
Hardware = Annotated[str, typer.Option(help="E.g. H100-SXM:4, several with commas, or any.")]
HardwareFile = Annotated[Path | None, typer.Option(help="Your own accelerators and prices (YAML or CSV).")]


@group.command("place")
def place(
    card: Annotated[Path | None, typer.Argument(metavar="[CARD]", help="Workload card; memory alone without.")] = None,
    *,
    model: ModelName,
    hardware: Hardware = "any",
    engine: EngineOption = "vllm",
    engine_version: EngineVersion = None,
    max_model_len: MaxModelLen = None,
    top: Annotated[int, typer.Option(min=1, max=10_000, help="Placements to show.")] = 5,
    hardware_file: HardwareFile = None,
    log: Annotated[
        Path | None, typer.Option(help="Start-up log of the same stack; its terms replace assumed ones.")
    ] = None,
    spare: Annotated[int, typer.Option(min=0, max=1000, help="Replicas for failover.")] = 0,
    peak_to_mean: Annotated[float | None, typer.Option(min=1, max=1000, help="Busiest hour over the mean.")] = None,
    hosted: Annotated[
        str | None, typer.Option(metavar="IN,OUT", help="Hosted price to compare with, USD per million tokens.")
    ] = None,
    runs: opt.Runs = opt.RUNS,
    json: Json = False,
) -> None:
    """Rank placements of a model; `setpoint plan CARD` is short for it.

    Exit code: 0 one keeps the card, 1 none does, 3 the ranges leave it open.
    """
    from setpoint.clock import utc_now
    from setpoint.engines.hub import model_named
    from setpoint.errors import RecordError
    from setpoint.hardware import catalogue
    from setpoint.records.plans import plan_path, save_plan
    from setpoint.report.plan_document import plan_document
    from setpoint.report.plan_text import render_contexts, render_plan
    from setpoint.sizing.need import need_of
    from setpoint.sizing.placement import Question
    from setpoint.sizing.planner import plan_placements
    from setpoint.workload.card import Constraints
    from setpoint.workload.reading import load_card

    own = None if hardware_file is None else str(hardware_file)
    question: dict[str, Any] = {
        "engine": _engine(engine, engine_version),
        "hardware": _fleets(hardware, catalogue(own)),
        "max_model_len": _tokens(max_model_len),
        "calibration": None if log is None else _calibration(log, engine_version),
        "spare": spare,
        "peak_to_mean": peak_to_mean,
        "hosted": _hosted(hosted),
        "own_hardware": own,
    }
    loaded = None
    if card is not None:
        _check_command(card)
        loaded = load_card(card)
        _check_answers(loaded)
        question |= {"need": need_of(loaded, str(card.parent)), "constraints": loaded.constraints}
    plan = plan_placements(Question(model=model_named(model), **({"constraints": Constraints()} | question)))
    document = plan_document(plan, loaded, utc_now().isoformat(timespec="seconds"), top=top)
    if loaded is not None:
        path = plan_path(runs, loaded.name, plan.question.model.spec.name)
        try:
            save_plan(path, document | {"rejected": document["rejected"][:KEPT_REJECTIONS]})
            stderr().print(f"plan: {path}", soft_wrap=True, markup=False)
        except RecordError as error:
            stderr().print(f"The plan is not kept for reports: {error}", soft_wrap=True, markup=False)
    if json:
        emit_json(document)
    else:
        console = stdout()
        render = render_plan if loaded is not None else render_contexts
        console.print(render(plan, width=console.width, top=top))
    raise typer.Exit(EXIT[plan.state])


@group.command("calibrate")
def calibrate(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="Output of vLLM or SGLang from its start until ready.")],
    *,
    model: Annotated[str | None, typer.Option("--model", help="Replan this model on the stack of the log.")] = None,
    engine_version: EngineVersion = None,
    max_model_len: MaxModelLen = None,
    device_memory: Annotated[
        str | None, typer.Option(help='Of one device, e.g. "79.2 GiB"; the log says unless given.')
    ] = None,
    json: Json = False,
) -> None:
    """Solve a start-up log for activation, non-torch and graph memory, and replan from it."""
    from rich.console import Group

    from setpoint.engines.hub import model_named
    from setpoint.report.plan_document import calibration_document, memory_document
    from setpoint.report.plan_text import memory_table, render_calibration, sessions_table
    from setpoint.sizing.replan import replan

    found = _calibration(log, engine_version)
    memory = None
    if model is not None:
        memory = replan(model_named(model).spec, found, _tokens(max_model_len), _bytes(device_memory))
    if json:
        emit_json(calibration_document(found) | {"memory": None if memory is None else memory_document(memory)})
    else:
        parts: list[Any] = [render_calibration(found)]
        if memory is not None:
            parts += ["", memory_table(memory), "", sessions_table(memory), *memory.reasons]
        stdout().print(Group(*parts))
    if memory is not None:
        raise typer.Exit({"yes": 0, "no": 1, "uncertain": 3}[memory.fit])


def _engine(name: str, version: str | None) -> Any:  # noqa: ANN401 - the verb imports when it runs
    from setpoint.errors import UsageError
    from setpoint.sizing.engine import engine_of

    if name.lower() not in LATEST:
        raise UsageError(f"--engine is {name!r}; expected vllm or sglang.")
    return engine_of(name, version or LATEST[name.lower()])


def _fleets(text: str, known: Any) -> Any:  # noqa: ANN401
    from setpoint.errors import UsageError
    from setpoint.hardware import parse_fleet

    if text.strip().lower() == "any":
        return None
    fleets = tuple(parse_fleet(part, known) for part in text.split(","))
    names = [fleet.accelerator.name for fleet in fleets]
    if len(set(names)) < len(names):
        raise UsageError(f"--hardware is {text!r}: it names an accelerator twice.", fix="Add the numbers up.")
    return fleets


def _tokens(text: str | None) -> int | None:
    from setpoint.errors import UsageError
    from setpoint.units import parse_tokens

    found = opt.parse("--max-model-len", text, parse_tokens)
    if found is not None and not 1 <= found <= 100_000_000:
        raise UsageError(f"--max-model-len is {text!r}; expected 1 to 100,000,000 tokens.")
    return None if found is None else int(found)


def _bytes(text: str | None) -> int | None:
    from setpoint.units import parse_bytes

    found = opt.parse("--device-memory", text, parse_bytes)
    return None if found is None else int(found)


def _calibration(path: Path, version: str | None) -> Any:  # noqa: ANN401
    from setpoint.errors import UsageError
    from setpoint.sizing.calibrate import LONGEST_LOG, calibrate

    try:
        with path.open("rb") as file:
            content = file.read(LONGEST_LOG + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {(error.strerror or 'unreadable').lower()}.") from None
    return calibrate(content.decode("utf-8", "replace"), version=version)


def _hosted(text: str | None) -> Any:  # noqa: ANN401
    from setpoint.errors import UsageError
    from setpoint.sizing.cost import Hosted

    if text is None:
        return None
    parts = text.split(",")
    try:
        first, second = (float(part) for part in parts)
    except ValueError:
        raise UsageError(f"--hosted is {text!r}; expected two prices such as 0.60,2.40.") from None
    return Hosted(first, second)


def _check_answers(card: Any) -> None:  # noqa: ANN401
    from setpoint.errors import UsageError

    if card.contract.api == "embeddings":
        raise UsageError(
            f"The card {card.name!r} is about embeddings; a plan's latency model is of generated tokens.",
            fix="Plan its memory without the card: setpoint plan --model MODEL.",
        )


def _check_command(card: Path) -> None:
    """A mistyped subcommand reads as a card that does not exist."""
    from setpoint.errors import UsageError

    if not card.suffix and not card.exists():
        near = difflib.get_close_matches(str(card), ("calibrate", "place"), 1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise UsageError(f"There is no card {str(card)!r}.{hint}", fix="`setpoint init chat > card.yaml` makes one.")
