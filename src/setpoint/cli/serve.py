"""``setpoint serve``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from setpoint.cli.app import app
from setpoint.cli.output import Json, emit_json, print_rows, stderr, stdout

if TYPE_CHECKING:
    from setpoint.fleet.deployment import Deployment
    from setpoint.fleet.serve import Address


class _RunByDefault(TyperGroup):
    """``setpoint serve FILE`` is ``setpoint serve run FILE``."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - typer vendors the types
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


group = typer.Typer(cls=_RunByDefault, no_args_is_help=True, help="Engines of this machine behind one address.")
app.add_typer(group, name="serve")

File = Annotated[Path, typer.Argument(metavar="DEPLOYMENT", help="Deployment (YAML).")]


def _say(sentence: str) -> None:
    stderr().print(sentence, soft_wrap=True, markup=False)


@group.command("run")
def run(
    file: File,
    *,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port for clients, instead of the file's.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the engines' command lines; start nothing.")
    ] = False,
    json: Json = False,
) -> None:
    """Start every engine, wait until each has answered, and serve until Ctrl-C or SIGTERM."""
    from setpoint.fleet.reading import load_deployment
    from setpoint.fleet.serve import run_fleet
    from setpoint.units import format_duration

    def read() -> "Deployment":
        loaded = load_deployment(file)
        if port is None:
            return loaded
        return loaded.model_copy(update={"listen": loaded.listen.model_copy(update={"port": port})})

    deployment = read()
    if dry_run:
        _show_commands(deployment, json=json)
        return

    def serving(address: "Address") -> None:
        if json:
            emit_json({"address": address.url, "deployment": address.deployment, "replicas": address.replicas})
        else:
            stdout().print(f"serving on {address.url}", markup=False, soft_wrap=True)
            stdout().print(_key_hint(deployment, file), markup=False, soft_wrap=True)
            rows = (
                (r.model, r.replica, r.engine, r.state, "" if r.ready_s is None else format_duration(r.ready_s),
                 r.share, r.url.partition("://")[2])
                for r in address.replicas
            )  # fmt: skip
            columns = ("model", "replica", "engine", "state", "ready in", "uses", "address")
            print_rows(stdout(), columns, rows, naming=2)
        sys.stdout.flush()

    run_fleet(deployment, reread=read, say=_say, serving=serving)


@group.command("check")
def check(file: File, *, json: Json = False) -> None:
    """Explain every mistake in a deployment: file, line, field, what was found, what was expected."""
    from setpoint.errors import CardError
    from setpoint.fleet.reading import engine_missing, load_deployment

    try:
        loaded = load_deployment(file)
    except CardError as error:
        if json:
            emit_json({"ok": False, "mistakes": error.mistakes})
            raise typer.Exit(error.exit_code) from None
        raise
    missing = engine_missing(loaded)
    if json:
        emit_json({"ok": True, "digest": loaded.digest(), "models": list(loaded.models), "missing": missing})
        return
    replicas = sum(len(one.urls) if one.remote else one.replicas for one in loaded.models.values())
    sentence = f"{file}: a good deployment of {len(loaded.models)} models with {replicas} replicas."
    stdout().print(sentence, markup=False, soft_wrap=True)
    for one in missing:
        _say(one)


@group.command("from-plan")
def from_plan(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan as JSON.")],
    *,
    model: Annotated[str, typer.Option(help="Where the model is: path or hf://org/name.")],
    choice: Annotated[int, typer.Option(help="Which placement, from 1, the best.")] = 1,
) -> None:
    """Print the deployment of a planned placement."""
    from setpoint.fleet.from_plan import deployment_from_plan

    text, notes = deployment_from_plan(plan, model=model, choice=choice)
    for note in notes:
        _say(note)
    typer.echo(text, nl=False)


def _show_commands(deployment: "Deployment", *, json: bool) -> None:
    from setpoint.fleet.launches import launches_of

    launches = launches_of(deployment, fetch=False)
    if json:
        emit_json(
            [
                {"model": one.model, "replica": one.name, "engine": one.engine.name, "uses": one.share,
                 "config": one.digest, "command": one.command()}
                for one in launches
            ]
        )  # fmt: skip
        return
    for one in launches:
        stdout().print(f"# {one.model}/{one.name}  {one.share}".rstrip(), markup=False, soft_wrap=True)
        stdout().print(one.command(), markup=False, soft_wrap=True)
    for name, served in deployment.models.items():
        for url in served.urls:
            stdout().print(f"# {name}  remote, at {url}", markup=False, soft_wrap=True)


def _key_hint(deployment: "Deployment", file: Path) -> str:
    """Who may call, and how to get a key."""
    import time

    from setpoint.gateway.keys import KeyStore

    if deployment.auth.anonymous is not None:
        return f"no key is needed on this machine: callers without one are tenant {deployment.auth.anonymous}"
    now = time.time()
    valid = sum(key.valid(now) for key in KeyStore(Path(deployment.state)).list())
    if valid:
        return f"{valid} keys are valid; setpoint keys list -c {file} shows whose"
    if deployment.auth.jwt is not None:
        return f"callers need a token of {deployment.auth.jwt.issuer}, or a key"
    tenant = next(iter(deployment.tenants), "TENANT")
    return f"nobody can call yet: setpoint keys create {tenant} -c {file} makes a key"
