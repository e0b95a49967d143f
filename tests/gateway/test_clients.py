"""The official clients, unchanged, on both sides of a translation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.gateway.conftest import Served, config_of, served
from tests.lazy import lazily

from setpoint.testing.fake_engine import fake_engine
from setpoint.testing.script import Fault, FaultKind, Script

if TYPE_CHECKING:
    import anthropic
    import openai
else:
    anthropic, openai = lazily("anthropic"), lazily("openai")

WORDS = " one two three four"
QUESTION = "hello there"


@pytest.fixture(params=["chat", "messages"])
def gateway(state: Path, request: pytest.FixtureRequest) -> Iterator[Served]:
    """In front of an engine that speaks one dialect only."""
    dialects = [request.param] if request.param == "messages" else ["chat", "completions", "embeddings"]
    with fake_engine(Script()) as engine:
        with served(config_of(state, engine.url, model={"dialects": dialects}, auth={})) as made:
            made.key = made.keys().create("local")[1]
            yield made


@pytest.fixture
def ai(gateway: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"http://127.0.0.1:{gateway.port}/v1", api_key=gateway.key, max_retries=0) as client:
        yield client


@pytest.fixture
def claude(gateway: Served) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=f"http://127.0.0.1:{gateway.port}", api_key=gateway.key, max_retries=0) as client:
        yield client


def test_openai_chat(ai: openai.OpenAI) -> None:
    made = ai.chat.completions.create(model="fake", max_tokens=4, messages=[{"role": "user", "content": QUESTION}])
    assert made.choices[0].message.content == WORDS
    assert made.usage is not None
    assert made.usage.completion_tokens == 4


def test_openai_chat_stream(ai: openai.OpenAI) -> None:
    with ai.chat.completions.create(
        model="fake", max_tokens=4, stream=True, messages=[{"role": "user", "content": QUESTION}],
        stream_options={"include_usage": True},
    ) as stream:  # fmt: skip
        chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == WORDS
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 4


def test_openai_responses(ai: openai.OpenAI) -> None:
    made = ai.responses.create(model="fake", max_output_tokens=4, input=QUESTION)
    assert made.output_text == WORDS
    with ai.responses.stream(model="fake", max_output_tokens=4, input=QUESTION) as stream:
        kinds = [event.type for event in stream]
    assert kinds[0] == "response.created"
    assert kinds[-1] in ("response.completed", "response.incomplete")


def test_openai_models(ai: openai.OpenAI) -> None:
    assert [model.id for model in ai.models.list()] == ["fake"]
    with pytest.raises(openai.NotFoundError):
        ai.models.retrieve("nothing")


def test_anthropic_messages(claude: anthropic.Anthropic) -> None:
    made = claude.messages.create(model="fake", max_tokens=4, messages=[{"role": "user", "content": QUESTION}])
    assert made.content[0].type == "text"
    assert made.content[0].text == WORDS
    assert made.stop_reason == "max_tokens"


def test_anthropic_stream(claude: anthropic.Anthropic) -> None:
    with claude.messages.stream(
        model="fake", max_tokens=4, messages=[{"role": "user", "content": QUESTION}]
    ) as stream:  # fmt: skip
        assert "".join(stream.text_stream) == WORDS
        assert stream.get_final_message().usage.output_tokens == 4


def test_anthropic_counts_tokens(claude: anthropic.Anthropic) -> None:
    made = claude.messages.count_tokens(model="fake", messages=[{"role": "user", "content": QUESTION}])
    assert made.input_tokens > 0


def test_a_wrong_key_is_an_authentication_error_to_both(gateway: Served) -> None:
    ai = openai.OpenAI(base_url=f"http://127.0.0.1:{gateway.port}/v1", api_key="wrong", max_retries=0)
    claude = anthropic.Anthropic(base_url=f"http://127.0.0.1:{gateway.port}", api_key="wrong", max_retries=0)
    with ai, pytest.raises(openai.AuthenticationError):
        ai.models.list()
    with claude, pytest.raises(anthropic.AuthenticationError):
        claude.messages.create(model="fake", max_tokens=4, messages=[{"role": "user", "content": QUESTION}])


def test_embeddings_and_completions(state: Path) -> None:
    with fake_engine(Script()) as engine, served(config_of(state, engine.url)) as gateway:
        with openai.OpenAI(base_url=f"http://127.0.0.1:{gateway.port}/v1", api_key="-", max_retries=0) as ai:
            with pytest.raises(openai.AuthenticationError):  # a wrong key is no anonymous caller
                ai.embeddings.create(model="fake", input="x", encoding_format="float")
            gateway.key = gateway.keys().create("local")[1]
        with openai.OpenAI(base_url=f"http://127.0.0.1:{gateway.port}/v1", api_key=gateway.key, max_retries=0) as ai:
            assert ai.embeddings.create(model="fake", input="x", encoding_format="float").data[0].embedding == [
                0.1,
                0.2,
                0.3,
            ]
            assert ai.completions.create(model="fake", prompt="x", max_tokens=4).choices[0].text == WORDS


@pytest.mark.parametrize("fault", [FaultKind.TRUNCATE, FaultKind.RESET, FaultKind.ERROR_EVENT, FaultKind.BAD_TOOL])
@pytest.mark.parametrize("dialect", ["chat", "messages"])
def test_a_stream_that_failed_raises_in_both_clients(state: Path, fault: FaultKind, dialect: str) -> None:
    """Neither client can take it for an answer."""
    with fake_engine(Script(faults=(Fault(kind=fault),))) as engine:
        model = {"dialects": [dialect], "retries": {"attempts": 1}, "health": {"canary": 0, "failures": 100}}
        with served(config_of(state, engine.url, model=model)) as gateway:
            key = gateway.keys().create("local")[1]
            ai = openai.OpenAI(base_url=f"http://127.0.0.1:{gateway.port}/v1", api_key=key, max_retries=0)
            claude = anthropic.Anthropic(base_url=f"http://127.0.0.1:{gateway.port}", api_key=key, max_retries=0)
            with ai, pytest.raises(openai.APIError):
                list(
                    ai.chat.completions.create(
                        model="fake", max_tokens=8, stream=True, messages=[{"role": "user", "content": QUESTION}]
                    )
                )
            with (
                claude,
                pytest.raises(anthropic.APIError),
                claude.messages.stream(
                    model="fake", max_tokens=8, messages=[{"role": "user", "content": QUESTION}]
                ) as stream,
            ):
                stream.get_final_message()
