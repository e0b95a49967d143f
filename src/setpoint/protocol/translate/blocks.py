"""Parts of an answer that may interleave, put into blocks that never do.

A chat stream may mix the pieces of several calls; Anthropic's blocks and the items of a response come one after the
other. The open block is passed on as it arrives; what belongs to later blocks waits until the open one is whole: text
and reasoning at once, a call when its arguments are a whole object, told to have ended, or when the answer ends.
"""

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from setpoint.protocol.translate.arguments import ObjectScan
from setpoint.protocol.translate.writer import BrokenAnswer, Envelope, Spent


class Kind(Enum):
    """What a block holds."""

    TEXT = "text"
    THINKING = "thinking"
    CALL = "tool_use"


@dataclass(slots=True)
class Block:
    """One block.

    Attributes:
        kind: What it holds.
        call_id: Identifier of the call.
        name: Name of the tool.
        held: Pieces that wait for the block to open.
        ended: No more pieces will come.
    """

    kind: Kind
    call_id: str = ""
    name: str = ""
    held: list[str] = field(default_factory=list)
    ended: bool = False
    closed: bool = False
    _scan: ObjectScan = field(default_factory=ObjectScan)
    _unscanned: list[str] = field(default_factory=list)

    def sent(self, piece: str) -> None:
        """A piece went out: to be scanned when somebody waits."""
        if self.kind is Kind.CALL:
            self._unscanned.append(piece)

    def whole(self) -> bool:
        """Whether the next block may open."""
        if self.kind is not Kind.CALL or self.ended:
            return True
        for piece in self._unscanned:
            self._scan.feed(piece)
        self._unscanned.clear()
        return self._scan.complete


class BlockSequence:
    """Puts pieces in order.

    Args:
        output: Where the blocks go: strictly open, piece, …, close, then the next.
    """

    __slots__ = ("_calls", "_open", "_output", "_waiting")

    def __init__(self, output: "BlockWriter") -> None:
        self._output = output
        self._open: Block | None = None
        self._waiting: deque[Block] = deque()
        self._calls: dict[int, Block] = {}

    def add(self, kind: Kind, text: str) -> None:
        """A piece of text or reasoning; joins the last block when that is of its kind."""
        last = self._waiting[-1] if self._waiting else self._open
        if last is None or last.kind is not kind:
            last = Block(kind)
            self._append(last)
        self._piece(last, text)

    def call(self, position: int, call_id: str, name: str) -> None:
        """A call begins."""
        block = Block(Kind.CALL, call_id, name)
        self._calls[position] = block
        self._append(block)

    def arguments(self, position: int, text: str) -> None:
        """A piece of a call's arguments.

        Raises:
            BrokenAnswer: the call's object was whole and more than white space follows.
        """
        block = self._calls[position]
        if not block.closed:
            self._piece(block, text)
            self._advance()
        elif text.strip():
            raise BrokenAnswer("tool_calls", "arguments go on after their object has ended")

    def ended(self, position: int) -> None:
        """A call has all its arguments."""
        self._calls[position].ended = True
        self._advance()

    def close(self) -> None:
        """The answer ends: every block is whole."""
        while self._open is not None:
            self._next()

    def _append(self, block: Block) -> None:
        self._waiting.append(block)
        if self._open is None:
            self._next()
        else:
            self._advance()

    def _piece(self, block: Block, text: str) -> None:
        if block is self._open:
            block.sent(text)
            self._output.piece(block, text)
        else:
            block.held.append(text)

    def _advance(self) -> None:
        while self._waiting and self._open is not None and self._open.whole():
            self._next()

    def _next(self) -> None:
        """Closes the open block and opens the one that waits longest."""
        if self._open is not None:
            self._open.closed = True
            self._output.close(self._open)
        self._open = block = self._waiting.popleft() if self._waiting else None
        if block is None:
            return
        self._output.open(block)
        for piece in block.held:
            block.sent(piece)
            self._output.piece(block, piece)
        block.held.clear()


class BlockWriter(ABC):
    """What writers of blocks share: pieces go through a sequence of blocks, which calls ``open``, ``piece``, ``close``.

    Args:
        envelope: What the answer must say.
    """

    __slots__ = ("_blocks", "_envelope", "_spent", "out")

    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope
        self._blocks = BlockSequence(self)
        self._spent = Spent()
        self.out: list[bytes] = []

    def text(self, text: str) -> None:
        """A piece of a text block."""
        self._blocks.add(Kind.TEXT, text)

    def thinking(self, text: str) -> None:
        """A piece of a block of reasoning."""
        self._blocks.add(Kind.THINKING, text)

    def call(self, position: int, call_id: str, name: str) -> None:
        """A block of a call."""
        self._blocks.call(position, call_id, name)

    def arguments(self, position: int, text: str) -> None:
        """A piece of its arguments."""
        self._blocks.arguments(position, text)

    def call_ended(self, position: int) -> None:
        """Its arguments are whole."""
        self._blocks.ended(position)

    def spent(self, spent: Spent) -> None:
        """For the last event."""
        self._spent = spent

    @abstractmethod
    def open(self, block: Block) -> None:
        """A block begins."""

    @abstractmethod
    def piece(self, block: Block, text: str) -> None:
        """A piece of the open block."""

    @abstractmethod
    def close(self, block: Block) -> None:
        """The open block ends."""
