"""``json_contract``: where a schema is asked for, every answer keeps it."""

import json

import jsonschema

from setpoint.metrics.verdict import State
from setpoint.quality.serving.check import Finding, Server
from setpoint.records.exchange import Outcome

NAME = "json_contract"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer"}, "coast": {"type": "boolean"}},
    "required": ["city", "people", "coast"],
    "additionalProperties": False,
}
PROMPTS = ("Describe Lisbon.", "Describe Vienna as an object.", "Tell me about a town of your choice.")


async def json_contract(server: Server) -> Finding:
    """Three answers with ``response_format`` json_schema; cut ones do not count."""
    rule = {"type": "json_schema", "json_schema": {"name": "town", "schema": SCHEMA, "strict": True}}
    judged = 0
    for prompt in PROMPTS:
        row, response = await server.ask(prompt, 160, response_format=rule)
        if row.outcome is Outcome.REFUSED:
            return Finding(NAME, State.UNDECIDED, f"the target takes no json_schema: {row.error}")
        if row.outcome is not Outcome.COMPLETE:
            continue
        judged += 1
        try:
            jsonschema.validate(json.loads(response.text), SCHEMA)
        except ValueError:
            return Finding(NAME, State.MISSED, f"answer {judged} is not JSON ({len(response.text)} characters)")
        except jsonschema.ValidationError as error:
            return Finding(NAME, State.MISSED, f"answer {judged} breaks the schema at {error.json_path}")
    if not judged:
        return Finding(NAME, State.UNDECIDED, "no answer came to its end")
    return Finding(NAME, State.MET, f"{judged} answers keep the schema")
