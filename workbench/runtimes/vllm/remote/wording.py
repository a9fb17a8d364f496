"""How each speech family is asked of a server: the words beside the speech in a chat, the fields of a transcription.

What stands around them (system message, turns, tokens) the server's own chat template writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from workbench.audio.frontend import FrontendConfig
from workbench.core.errors import BadInput
from workbench.core.options import ListeningOptions
from workbench.families import fireredasr, funasr_nano
from workbench.families.fireredasr import FireRedAsrOptions
from workbench.families.funasr_nano import FunasrNanoOptions
from workbench.runtimes.vllm.remote.sampling import HERE, check_listening

DOWNSAMPLE_RATE = 2  # encoder frames in an embedding of all published FireRedASR-LLM


class Wording(Protocol):
    """A family's words and numbers; options are those of its `options_class`."""

    @property
    def options_class(self) -> type[ListeningOptions]:
        """The family's options."""
        ...

    def check(self, options: Any) -> None:
        """Raises `BadInput` for an option that no server honours."""
        ...

    def content(self, speech: Mapping[str, Any], options: Any) -> list[Mapping[str, Any]]:
        """The parts of the user's message, with that of the speech among them."""
        ...

    def fields(self, options: Any) -> Mapping[str, str]:
        """The fields of a transcription's form; raises `BadInput` for an option that it has no field for."""
        ...

    def most(self, samples: int, options: Any) -> int:
        """Most tokens to generate for a stretch of so many samples."""
        ...

    def text(self, written: str) -> str:
        """The transcript of what was written."""
        ...


class NanoWording:
    """Fun-ASR-Nano's: the instruction before the speech."""

    options_class = FunasrNanoOptions

    def check(self, options: FunasrNanoOptions) -> None:
        """As `Wording.check`."""
        check_listening(options)

    def content(self, speech: Mapping[str, Any], options: FunasrNanoOptions) -> list[Mapping[str, Any]]:
        """As `Wording.content`."""
        return [_text(funasr_nano.instruction(options)), speech]

    def fields(self, options: FunasrNanoOptions) -> Mapping[str, str]:
        """As `Wording.fields`."""
        if not options.itn:
            raise BadInput(f"option itn is off, and the server's transcriptions have no such field; {HERE}")
        found = {} if options.language == "auto" else {"language": options.language}
        return {**found, "hotwords": ", ".join(options.hotwords)} if options.hotwords else found

    def most(self, samples: int, options: FunasrNanoOptions) -> int:
        """As `Wording.most`."""
        return options.max_new_tokens

    def text(self, written: str) -> str:
        """As `Wording.text`."""
        return funasr_nano.tidy(written)


class FireRedWording:
    """FireRedASR-LLM's: the speech before the instruction."""

    options_class = FireRedAsrOptions

    def check(self, options: FireRedAsrOptions) -> None:
        """As `Wording.check`."""
        check_listening(options)
        if options.beam_size > 1:
            raise BadInput(
                f"option beam_size is {options.beam_size}, and vLLM's servers follow one hypothesis; set it to 1, or "
                "open the model on this machine, on pytorch or gguf"
            )
        if options.length_rule != "checkpoint":
            raise BadInput(f"option length_rule is {options.length_rule}, and a server takes its own; {HERE}")

    def content(self, speech: Mapping[str, Any], options: FireRedAsrOptions) -> list[Mapping[str, Any]]:
        """As `Wording.content`."""
        return [speech, _text(fireredasr.TASK)]

    def fields(self, options: FireRedAsrOptions) -> Mapping[str, str]:
        """As `Wording.fields`."""
        return {}

    def most(self, samples: int, options: FireRedAsrOptions) -> int:
        """As `Wording.most`; where the options leave it open, as many as a published model has embeddings for it."""
        frames = FrontendConfig(window="povey").frames(samples)
        return options.max_new_tokens or fireredasr.speech_tokens(frames, DOWNSAMPLE_RATE)

    def text(self, written: str) -> str:
        """As `Wording.text`."""
        return fireredasr.tidy(written)


WORDINGS: Mapping[str, Wording] = {"funasr_nano": NanoWording(), "fireredasr": FireRedWording()}
"""By family."""


def _text(text: str) -> Mapping[str, Any]:
    return {"type": "text", "text": text}
