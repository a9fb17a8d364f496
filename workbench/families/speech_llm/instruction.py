"""What a user tells a speech model to do with a recording, in place of the instruction that it was trained with."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.families.language.directory import TURN_END


@dataclass(frozen=True)
class Instruction:
    """The texts of a conversation about one recording; an empty one stands for the family's own."""

    text: str = ""  # beside the recording
    system: str = ""

    @property
    def system_turn(self) -> str:
        """The system message as ChatML; empty without one."""
        return f"<|im_start|>system\n{self.system}{TURN_END}\n" if self.system else ""


DEFAULT_INSTRUCTION = Instruction()  # the family's own instruction
