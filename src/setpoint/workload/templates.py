"""Commented cards to begin with, one a use case."""

from setpoint.errors import UsageError

_HEAD = """\
# A Setpoint workload card: what your traffic looks like and what you promise. Change the numbers to yours.
# Check it with `setpoint card check FILE`; every field is explained in docs/card.md.
apiVersion: setpoint/v1
kind: Workload
name: {name}
description: {description}
"""

_CONSTRAINTS = """
# What limits the solution. Empty or absent means no limit.
constraints:
  commercial: true        # the product earns money: models with non-commercial licences are out
  # budget: {per_hour: 8}           # USD for the whole service
  # regions: [eu-west]
  # licences: [Apache-2.0, MIT]
  # hardware: [H100-SXM, L40S]
"""

_CHAT = """
contract:
  unit: answered message  # what cost and goodput are counted in
  api: chat               # OpenAI /v1/chat/completions; `messages` is Anthropic's
  streaming: true

traffic:
  class: interactive
  arrivals:               # how conversations begin; constant, poisson, gamma, ramp, closed or replay
    process: poisson
    rate: 2/s
  prompt_tokens: {p50: 300, p90: 1200, p99: 4k}   # opening prompt, the system prompt included
  output_tokens: {p50: 180, p90: 450, p99: 900}
  prefix:                 # the system prompt that conversations share
    tokens: 200
    share: 100%
  conversation:
    turns: {p50: 2, p90: 6, max: 12}
    think_time: {p50: 8 s, p90: 40 s}
    follow_up_tokens: {p50: 40, p90: 150}
  duration: 5m
  warmup_requests: 8

promises:
  - p95 ttft <= 800 ms    # 95% of requests show something within 800 ms of their planned send
  - p95 tpot <= 60 ms     # 95% of answers stream at 17 tokens a second or faster
  - answered >= 99%       # complete answers; errors, refusals, truncated and empty answers count against it
"""

_AGENT = """
contract:
  unit: finished task
  api: messages           # coding agents speak Anthropic's API
  streaming: true
  tools: 12

traffic:
  class: interactive
  arrivals: {process: closed, users: 8}   # agents at work at the same time
  prompt_tokens: {p50: 24k, p90: 60k}     # opening: system prompt, tools, files
  output_tokens: {p50: 120, p90: 600, p99: 2.5k}
  prefix: {tokens: 12k, share: 100%}      # system prompt and tool definitions
  agent:
    tool_turns: {p50: 8, p90: 30, max: 60}
    tool_time: {p50: 4 s, p90: 30 s}
    result_tokens: {p50: 450, p90: 4.7k}
  duration: 15m

promises:
  - p90 ttft <= 5 s
  - p95 itl <= 150 ms     # no stalls in the middle of an answer
  - answered >= 98%
"""

_RAG = """
contract:
  unit: answered question
  api: chat
  streaming: true

traffic:
  class: interactive
  arrivals: {process: gamma, rate: 1/s, burstiness: 3}   # comes in bursts; 1 is Poisson
  prompt_tokens: {p50: 6k, p90: 12k, p99: 20k}           # question and retrieved passages
  output_tokens: {p50: 150, p90: 350}
  prefix: {tokens: 400, share: 100%}                     # instructions; passages differ and share nothing
  duration: 5m

promises:
  - p95 ttft <= 2 s
  - p95 e2e <= 15 s
  - answered >= 99%
"""

_BATCH = """
contract:
  unit: extracted document
  api: chat
  response: json
  streaming: false        # nobody reads along

traffic:
  class: batch
  arrivals: {process: closed, users: 64}   # as many as the pipeline keeps in flight
  prompt_tokens: {p50: 3k, p90: 8k}
  output_tokens: {p50: 250, p90: 600}
  prefix: {tokens: 900, share: 100%}       # the extraction schema
  duration: 10m

promises:
  - p99 e2e <= 120 s
  - answered >= 99.5%
"""

_EMBEDDINGS = """
contract:
  unit: embedded passage
  modality: embedding
  api: embeddings
  response: vector
  streaming: false

traffic:
  class: interactive
  arrivals: {process: poisson, rate: 20/s}
  prompt_tokens: {p50: 220, p90: 480, max: 512}
  output_tokens: 1        # vectors have no length; the field is needed and not used
  duration: 2m

promises:
  - p95 e2e <= 200 ms
  - answered >= 99.9%
"""

_CASES = {
    "chat": ("support-chat", "People chatting with an assistant.", _CHAT),
    "coding-agent": ("coding-agent", "Agents that read, run and edit code.", _AGENT),
    "rag": ("rag-answers", "Questions answered from retrieved passages.", _RAG),
    "batch-extraction": ("batch-extraction", "Fields extracted from documents overnight.", _BATCH),
    "embeddings": ("embeddings", "Passages turned into vectors.", _EMBEDDINGS),
}
USE_CASES = tuple(_CASES)


def template(use_case: str) -> str:
    """The commented card of a use case.

    Raises:
        UsageError: there is none of that name.
    """
    if use_case not in _CASES:
        raise UsageError(f"There is no use case {use_case!r}.", fix=f"Choose one of: {', '.join(USE_CASES)}.")
    name, description, body = _CASES[use_case]
    return _HEAD.format(name=name, description=description) + body + _CONSTRAINTS
