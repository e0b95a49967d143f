"""A task of Inspect AI: the words of ``tests.quality.suites``, asked and scored there."""

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import exact
from inspect_ai.solver import generate

WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "glade", "heron", "inlet", "jetty")


@task  # type: ignore[untyped-decorator]  # Inspect is not installed where types are checked
def words() -> Task:
    """Twenty words to say."""
    asked = [f"{WORDS[i % 10]}{i}" for i in range(20)]
    samples = [Sample(id=f"word-{i}", input=f"Say {word}.", target=word) for i, word in enumerate(asked)]
    return Task(dataset=samples, solver=generate(), scorer=exact())
