"""``setpoint gateway``, ``setpoint keys`` and ``setpoint usage``."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from setpoint.cli.app import app
from setpoint.cli.options import CaFile, seconds
from setpoint.cli.output import Json, emit_json, print_rows, stderr, stdout

if TYPE_CHECKING:
    from setpoint.fleet.deployment import Deployment
    from setpoint.gateway.config import Gateway, Limits
    from setpoint.gateway.keys import KeyStore


class _RunByDefault(TyperGroup):
    """``setpoint gateway CONFIG`` is ``setpoint gateway run CONFIG``."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - typer vendors the types
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            args = ["run", *args]
        return super().resolve_command(ctx, args)


group = typer.Typer(cls=_RunByDefault, no_args_is_help=True, help="One address in front of many engines.")
keys = typer.Typer(no_args_is_help=True, help="API keys of a gateway.")
app.add_typer(group, name="gateway")
app.add_typer(keys, name="keys")

Config = Annotated[Path, typer.Argument(metavar="CONFIG", help="Gateway configuration (YAML).")]
ConfigOption = Annotated[
    Path, typer.Option("--config", "-c", metavar="CONFIG", help="Gateway configuration or deployment.")
]
GATEWAY = Path("gateway.yaml")


def _say(sentence: str) -> None:
    stderr().print(sentence, soft_wrap=True, markup=False)


@group.command("run")
def run(config: Config) -> None:
    """Serve until Ctrl-C or SIGTERM; SIGHUP reads the configuration again."""
    from setpoint.gateway.supervisor import run_gateway

    run_gateway(config, _say)


@group.command("check")
def check(config: Config, *, json: Json = False) -> None:
    """Explain every mistake in a configuration: file, line, field, what was found, what was expected."""
    from setpoint.errors import CardError
    from setpoint.gateway.reading import load_config
    from setpoint.gateway.snapshot import digest_of

    try:
        loaded = load_config(config)
    except CardError as error:
        if json:
            emit_json({"ok": False, "mistakes": error.mistakes})
            raise typer.Exit(error.exit_code) from None
        raise
    if json:
        emit_json({"ok": True, "digest": digest_of(loaded), "models": list(loaded.models)})
        return
    replicas = sum(len(model.replicas) for model in loaded.models.values())
    models = len(loaded.models)
    counted = f"{models} model{'s' * (models != 1)} with {replicas} replica{'s' * (replicas != 1)}"
    sentence = f"{config}: a good configuration of {counted}."
    stdout().print(sentence, markup=False, soft_wrap=True)


@group.command("schema")
def schema() -> None:
    """Print the JSON Schema of a configuration, for editors."""
    from setpoint.gateway.reading import json_schema

    emit_json(json_schema())


@group.command("probe")
def probe(
    url: Annotated[str, typer.Argument(help="Address of a running gateway.")],
    *,
    model: Annotated[str, typer.Option(help="A model that it serves.")],
    key_env: Annotated[
        str | None, typer.Option("--api-key-env", metavar="VAR", help="Variable with a valid key.")
    ] = None,
    ca_file: CaFile = None,
    json: Json = False,
) -> None:
    """Try everything that must be refused, and print what was. Exit 1 when something got through."""
    import asyncio
    import os

    from setpoint.errors import UsageError
    from setpoint.gateway.probe import run_probe

    key = None if key_env is None else os.environ.get(key_env)
    if key_env is not None and not key:
        raise UsageError(f"The variable {key_env} is not set.")
    findings = asyncio.run(run_probe(url, model, key, ca_file=ca_file))
    if json:
        emit_json(findings)
    else:
        rows = (("pass" if f.passed else "FAIL", f.attempt, f.expected, f.found) for f in findings)
        print_rows(stdout(), ("", "attempt", "expected", "found"), rows, naming=2)
    through = sum(not f.passed for f in findings)
    said = "all as they should be" if not through else f"{through} not as they should be"
    stderr().print(f"{len(findings)} attempts, {said}.")
    if through:
        raise typer.Exit(1)


@group.command("timeouts")
def timeouts(
    urls: Annotated[
        list[str],
        typer.Argument(metavar="URL…", help="Address that clients use; then those of each hop to the gateway."),
    ],
    *,
    key_env: Annotated[str | None, typer.Option("--api-key-env", metavar="VAR", help="Variable with a key.")] = None,
    silence: Annotated[str, typer.Option(help="Longest silence to wait for.")] = "5m",
    ca_file: CaFile = None,
    json: Json = False,
) -> None:
    """Hold a stream open through each address and say how long a silence it survives, and where it is cut."""
    import asyncio
    import os

    from setpoint.gateway.timeouts import cuts, probe_hops

    limit_s = seconds("--silence", silence) or 0.0
    key = os.environ.get(key_env) if key_env else None
    found = asyncio.run(probe_hops(urls, key, limit_s, ca_file=ca_file))
    if json:
        emit_json({"hops": found, "cuts": cuts(found)})
    else:
        for hop in found:
            stdout().print(hop.sentence, markup=False, soft_wrap=True)
        for cut in cuts(found) if len(found) > 1 else ():
            stdout().print(f"Cut {cut}.", markup=False, soft_wrap=True)
    if not all(hop.survived for hop in found):
        raise typer.Exit(1)


@keys.command("create")
def create(
    tenant: Annotated[str | None, typer.Argument(help="Whose key.")] = None,
    *,
    config: ConfigOption = GATEWAY,
    note: Annotated[str, typer.Option(help="What it is for.")] = "",
    model: Annotated[list[str] | None, typer.Option(help="Model it may use; repeatable; all unless given.")] = None,
    scope: Annotated[list[str] | None, typer.Option(help="inference or admin; repeatable.")] = None,
    expires: Annotated[str | None, typer.Option(help='Its life, e.g. "90d".')] = None,
    limit: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Its own limit; repeatable.")] = None,
    replaces: Annotated[
        str | None, typer.Option(metavar="ID", help="Key that it takes over from, with all not given anew.")
    ] = None,
    overlap: Annotated[str, typer.Option(help="How long both are valid.")] = "24h",
    json: Json = False,
) -> None:
    """Make a key and show it, once."""
    from setpoint.errors import UsageError
    from setpoint.gateway.admin import shown

    loaded, store = _opened(config)
    if replaces is None and tenant is None:
        raise UsageError("Whose key? Name a tenant.")
    if tenant is not None and tenant not in loaded.tenants and not loaded.auth.undeclared_tenants:
        raise UsageError(f"The tenant {tenant!r} is not in {config}; it names {', '.join(loaded.tenants) or 'none'}.")
    unknown = [name for name in model or () if name not in loaded.models]
    if unknown:
        raise UsageError(f"The model {unknown[0]!r} is not in {config}; it names {', '.join(loaded.models)}.")
    if set(scope or ()) - {"inference", "admin"}:
        raise UsageError("--scope takes inference and admin.")
    key, text = store.create(
        tenant or "",
        note=note,
        models=tuple(model) if model else None,
        scopes=tuple(scope) if scope else None,
        limits=_limits(limit) if limit else None,
        expires_in_s=seconds("--expires", expires),
        replaces=replaces,
        overlap_s=seconds("--overlap", overlap) or 0.0,
    )
    if json:
        emit_json(shown(key) | {"key": text})
        return
    _say(f"Key {key.id} of {key.tenant}. It is shown this once:")
    typer.echo(text)


@keys.command("list")
def show(*, config: ConfigOption = GATEWAY, json: Json = False) -> None:
    """Show what is known of the keys; never the keys."""
    from setpoint.gateway.admin import shown

    _, store = _opened(config)
    found = [shown(key) for key in store.list()]
    if json:
        emit_json(found)
        return
    rows = (
        (
            k["id"], k["tenant"], "valid" if k["valid"] else "revoked" if k["revoked"] else "expired",
            " ".join(k["models"] or ("all",)), " ".join(k["scopes"]), _date(k["created"]), _date(k["expires"]),
            k["note"],
        )
        for k in found
    )  # fmt: skip
    print_rows(stdout(), ("id", "tenant", "state", "models", "scopes", "created", "expires", "note"), rows)


@keys.command("revoke")
def revoke(identifier: Annotated[str, typer.Argument(metavar="ID")], *, config: ConfigOption = GATEWAY) -> None:
    """End a key; running gateways know within a second."""
    _, store = _opened(config)
    store.revoke(identifier)
    _say(f"Key {identifier} is revoked.")


@app.command("usage")
def usage(
    *,
    config: ConfigOption = GATEWAY,
    by: Annotated[str, typer.Option(help="Columns: hour, tenant, key, model, outcome.")] = "tenant,model",
    since: Annotated[str | None, typer.Option(help='How far back, e.g. "24h"; all unless given.')] = None,
    json: Json = False,
) -> None:
    """Show what was used of a gateway."""
    from setpoint.errors import UsageError
    from setpoint.fleet.reading import load_front
    from setpoint.gateway.supervisor import open_ledger

    columns = tuple(by.split(","))
    if not set(columns) <= {"hour", "tenant", "key", "model", "outcome"}:
        raise UsageError(f"--by is {by!r}; expected names among hour, tenant, key, model and outcome.")
    back_s = seconds("--since", since)
    front = load_front(config).model_copy(update={"access_log": None})  # that is the running gateway's to write
    ledger = open_ledger(front)
    rows = ledger.usage(by=columns, since_s=0.0 if back_s is None else time.time() - back_s)
    ledger.close()
    if json:
        emit_json([{"group": dict(zip(columns, r.group, strict=True)), "requests": r.requests,
                    "prompt_tokens": r.prompt_tokens, "completion_tokens": r.completion_tokens,
                    "cached_tokens": r.cached_tokens, "estimated": r.estimated} for r in rows])  # fmt: skip
        return
    names = (*columns, "requests", "prompt tokens", "completion tokens", "cached tokens", "estimated requests")
    numbers = ((r.requests, r.prompt_tokens, r.completion_tokens, r.cached_tokens, r.estimated) for r in rows)
    lines = ((*r.group, *(f"{n:,}" for n in row)) for r, row in zip(rows, numbers, strict=True))
    print_rows(stdout(), names, lines, naming=len(columns))


def _opened(config: Path) -> "tuple[Gateway | Deployment, KeyStore]":
    from setpoint.fleet.reading import load_front
    from setpoint.gateway.keys import KeyStore

    loaded = load_front(config)
    return loaded, KeyStore(Path(loaded.state))


def _limits(pairs: list[str] | None) -> "Limits":
    from setpoint.errors import UsageError
    from setpoint.gateway.config import Limits

    out = {}
    for pair in pairs or ():
        name, sign, value = pair.partition("=")
        if not sign or name not in Limits.model_fields:
            raise UsageError(f"--limit is {pair!r}; expected NAME=VALUE with one of {', '.join(Limits.model_fields)}.")
        out[name] = value
    try:
        return Limits.model_validate({n: int(v) if v.isdigit() else v for n, v in out.items()})
    except ValueError:
        raise UsageError("--limit takes numbers above zero, such as tokens_per_minute=100k.") from None


def _date(moment: float | None) -> str:
    return "never" if moment is None else time.strftime("%Y-%m-%d %H:%M", time.gmtime(moment))
