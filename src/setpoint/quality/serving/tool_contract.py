"""``tool_contract``: a demanded tool call is a call: a name that was offered, arguments that are an object."""

import json

from setpoint.metrics.verdict import State
from setpoint.quality.serving.check import Finding, Server
from setpoint.records.exchange import Outcome

NAME = "tool_contract"
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


async def tool_contract(server: Server) -> Finding:
    """``tool_choice`` required, streamed and whole."""
    for stream in (True, False):
        row, response = await server.ask(
            "What is the weather in Paris?", 120, stream=stream, tools=(TOOL,), tool_choice="required"
        )
        how = "streamed" if stream else "whole"
        if row.outcome is Outcome.REFUSED:
            return Finding(NAME, State.UNDECIDED, f"the target takes no tools: {row.error}")
        if row.outcome is Outcome.MALFORMED and response.calls:
            return Finding(NAME, State.MISSED, f"a {how} call: {row.error}")
        if not row.outcome.answered:
            return Finding(NAME, State.UNDECIDED, f"not answered: {row.outcome} ({row.error})")
        if not response.calls:
            if row.outcome is Outcome.LENGTH:
                return Finding(NAME, State.UNDECIDED, f"a {how} answer was cut before a call")
            return Finding(NAME, State.MISSED, f"a call was required and the {how} answer has none")
        for call in response.calls:
            if call.name != TOOL["function"]["name"]:  # type: ignore[index]
                return Finding(NAME, State.MISSED, f"a {how} call names a tool that was not offered")
            if "city" not in json.loads(call.arguments or "{}"):
                return Finding(NAME, State.MISSED, f"a {how} call lacks the required argument")
    return Finding(NAME, State.MET, "a required call comes, streamed and whole")
