"""The design: A and B interleaved in randomised blocks, so that drift of the machine falls on both.

    block 1   A B B A      one schedule, sent four times
    block 2   B A A B      another schedule
    ...

Half of the blocks begin with A, half with B, in random order. A drift that is linear within a block cancels in it. The
two runs of one arm in a block are the A/A control: nothing was changed between them.
"""

import random
from dataclasses import dataclass

FEWEST_BLOCKS = 5
RUNS_A_BLOCK = 4


@dataclass(frozen=True, slots=True)
class Design:
    """A plan of runs.

    Attributes:
        blocks: How many.
        seed: Of the order; block ``i`` sends the schedule of seed ``seed + i``.
    """

    blocks: int
    seed: int

    @property
    def orders(self) -> tuple[str, ...]:
        """``ABBA`` or ``BAAB``, one a block."""
        generator = random.Random(f"orders/{self.seed}")
        orders = ["ABBA", "BAAB"] * ((self.blocks + 1) // 2)
        if self.blocks % 2 and generator.random() < 0.5:
            orders.reverse()
        orders = orders[: self.blocks]
        generator.shuffle(orders)
        return tuple(orders)

    def schedule_seed(self, block: int) -> int:
        """Seed of a block's schedule; the same for all its runs."""
        return self.seed + block
