"""``streaming``: a streamed answer is the answer that comes in one piece."""

from setpoint.metrics.verdict import State
from setpoint.quality.serving.check import Finding, Server, failed

NAME = "streaming"
PROMPTS = ("Name three colours.", "Write the numbers from 1 to 15.", "Say: ä, ö, ü, €, 漢字, 🙂")
TOKENS = 48


async def streaming(server: Server) -> Finding:
    """Each prompt whole, streamed, whole again. Where the two whole ones differ the target itself is not repeatable."""
    compared = 0
    for prompt in PROMPTS:
        texts = []
        for stream in (False, True, False):
            row, response = await server.ask(prompt, TOKENS, stream=stream)
            if not row.outcome.answered:
                return failed(NAME, row)
            texts.append(response.text)
        whole, streamed, again = texts
        if whole != again:
            continue
        compared += 1
        if streamed != whole:
            same = next(
                (i for i, (a, b) in enumerate(zip(whole, streamed, strict=False)) if a != b), min(map(len, texts))
            )
            return Finding(
                NAME, State.MISSED,
                f"the streamed answer leaves the whole one at character {same} ({len(streamed)} against {len(whole)})",
            )  # fmt: skip
    if not compared:
        return Finding(NAME, State.UNDECIDED, "no answer was the same when it was asked twice without streaming")
    return Finding(NAME, State.MET, f"{compared} answers are the same streamed and whole")
