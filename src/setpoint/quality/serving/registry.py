"""Every serving check, in order of running. A new one is a file and a line here."""

from collections.abc import Callable

from setpoint.client.client import Client
from setpoint.errors import UsageError
from setpoint.quality.serving.cache_salt import cache_salt
from setpoint.quality.serving.check import Check, Finding, Server
from setpoint.quality.serving.json_contract import json_contract
from setpoint.quality.serving.long_prompt import long_prompt
from setpoint.quality.serving.nonce_leak import nonce_leak
from setpoint.quality.serving.rendered_prompt import rendered_prompt
from setpoint.quality.serving.streaming import streaming
from setpoint.quality.serving.token_accounting import token_accounting
from setpoint.quality.serving.tool_contract import tool_contract
from setpoint.quality.serving.truncation import truncation
from setpoint.records.target import Dialect

CHECKS: dict[str, Check] = {
    "rendered_prompt": rendered_prompt,
    "streaming": streaming,
    "truncation": truncation,
    "json_contract": json_contract,
    "tool_contract": tool_contract,
    "long_prompt": long_prompt,
    "token_accounting": token_accounting,
    "nonce_leak": nonce_leak,
    "cache_salt": cache_salt,
}


async def run_checks(client: Client, heard: Callable[[Finding], None] = lambda _: None) -> list[Finding]:
    """Runs them all on an idle target.

    Raises:
        UsageError: the dialect is not OpenAI chat.
    """
    if client.target.dialect is not Dialect.CHAT:
        raise UsageError("The serving checks speak OpenAI chat.", fix="Give --api chat.")
    server, out = Server(client), []
    for check in CHECKS.values():
        finding = await check(server)
        out.append(finding)
        heard(finding)
    return out
