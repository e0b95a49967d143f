"""Every serving check, in order of running. A new one is a file and a line here."""

import asyncio
import time
from collections.abc import Callable

from setpoint.client.client import Client
from setpoint.errors import UsageError
from setpoint.metrics.verdict import State
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
    "token_accounting": token_accounting,
    "nonce_leak": nonce_leak,
    "cache_salt": cache_salt,
    "long_prompt": long_prompt,  # by far the longest
}


async def run_checks(
    client: Client, heard: Callable[[Finding], None] = lambda _: None, budget_s: float | None = None
) -> list[Finding]:
    """Runs them all on an idle target, in their order; a check that the budget does not last for is undecided.

    Raises:
        UsageError: the dialect is not OpenAI chat.
    """
    if client.target.dialect is not Dialect.CHAT:
        raise UsageError("The serving checks speak OpenAI chat.", fix="Give --api chat.")
    server, out = Server(client), []
    deadline_s = None if budget_s is None else time.monotonic() + budget_s
    for name, check in CHECKS.items():
        try:
            async with asyncio.timeout(None if deadline_s is None else max(deadline_s - time.monotonic(), 0.0)):
                finding = await check(server)
        except TimeoutError:
            finding = Finding(name, State.UNDECIDED, f"the budget of {budget_s:.0f} s for all checks was spent")
        out.append(finding)
        heard(finding)
    return out
