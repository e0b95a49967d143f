"""``long_prompt``: nothing is cut off the head of a long prompt without a word."""

from itertools import pairwise

from setpoint.metrics.verdict import State
from setpoint.quality.serving.check import Finding, Server
from setpoint.records.exchange import Outcome

NAME = "long_prompt"
NEEDLE = "73194"
FILL = "The harbour was quiet and the boats lay still in the water. "
SIZES = (10, 40, 120)  # sentences


async def long_prompt(server: Server) -> Finding:
    """Prompts of growing length with a needle at the head.

    The count of prompt tokens must grow with the prompt: that decides. Whether the needle is found says more, for a
    model that can find it in the short prompt.
    """
    counts, found = [], []
    for size in SIZES:
        prompt = f"The secret number is {NEEDLE}. {FILL * size}What is the secret number? Answer with the number only."
        row, response = await server.ask(prompt, 16)
        if row.outcome is Outcome.REFUSED:
            break  # a refusal is the opposite of a silent cut
        if not row.outcome.answered:
            return Finding(NAME, State.UNDECIDED, f"not answered: {row.outcome} ({row.error})")
        if row.prompt_tokens is None:
            return Finding(NAME, State.UNDECIDED, "the target does not count prompt tokens")
        counts.append(row.prompt_tokens)
        found.append(NEEDLE in response.text)
    if len(counts) < 2:
        return Finding(NAME, State.UNDECIDED, "fewer than two of the prompts fit")
    steps = [(b - a) / (SIZES[i + 1] - SIZES[i]) for i, (a, b) in enumerate(pairwise(counts))]
    if len(steps) > 1 and steps[1] < 0.8 * steps[0]:
        sent = counts[1] + steps[0] * (SIZES[2] - SIZES[1])
        why = f"{counts[2]} prompt tokens where {sent:.0f} were sent: the prompt was cut"
        return Finding(NAME, State.MISSED, why)
    needle = f"needle found in {sum(found)} of {len(found)}"
    if found[0] and not all(found):
        return Finding(NAME, State.UNDECIDED, f"the count of prompt tokens grows as sent, yet {needle}")
    return Finding(NAME, State.MET, f"prompt tokens grow as sent ({', '.join(map(str, counts))}); {needle}")
