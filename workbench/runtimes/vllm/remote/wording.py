"""The requests to a server for each speech family: the text beside the speech in a chat, the fields of a transcription.

The server's own chat template writes the rest of the prompt (system message, turns, tokens).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from workbench.audio.frontend import FrontendConfig
from workbench.core.errors import BadInput
from workbench.core.options import ListeningOptions
from workbench.families.speech_llm import fireredasr, funasr_nano
from workbench.families.speech_llm.fireredasr import FireRedAsrOptions
from workbench.families.speech_llm.funasr_nano import FunasrNanoOptions
from workbench.pipelines.recognition.funasr_nano import check_written
from workbench.runtimes.vllm.remote.sampling import LOCAL_ADVICE, check_listening

DOWNSAMPLE_RATE = 2  # encoder frames per embedding of all published FireRedASR-LLM


class Wording(Protocol):
    """A family's texts and numbers; options are those of its `options_class`."""

    @property
    def options_class(self) -> type[ListeningOptions]:
        """The family's options."""
        ...

    def check(self, options: Any) -> None:
        """Raises `BadInput` for an option that no server supports."""
        ...

    def content(self, speech: Mapping[str, Any], options: Any) -> list[Mapping[str, Any]]:
        """Returns the parts of the user's message, with the speech's part among them."""
        ...

    def fields(self, options: Any) -> Mapping[str, str]:
        """Returns the fields of a transcription's form; raises `BadInput` for an option without a field."""
        ...

    def max_tokens(self, samples: int, options: Any) -> int:
        """Returns the most tokens to generate for a chunk of `samples` samples."""
        ...

    def text(self, reply: str) -> str:
        """Returns the transcript in the model's output."""
        ...


class NanoWording:
    """Fun-ASR-Nano's wording: the instruction before the speech."""

    options_class = FunasrNanoOptions

    def check(self, options: FunasrNanoOptions) -> None:
        """See `Wording.check`."""
        check_listening(options)
        check_written(options)

    def content(self, speech: Mapping[str, Any], options: FunasrNanoOptions) -> list[Mapping[str, Any]]:
        """See `Wording.content`."""
        return [_text(funasr_nano.instruction(options)), speech]

    def fields(self, options: FunasrNanoOptions) -> Mapping[str, str]:
        """See `Wording.fields`."""
        if not options.itn:
            raise BadInput(f"option itn is off, and the server's transcriptions have no such field; {LOCAL_ADVICE}")
        fields = {} if options.language == "auto" else {"language": options.language}
        return {**fields, "hotwords": ", ".join(options.hotwords)} if options.hotwords else fields

    def max_tokens(self, samples: int, options: FunasrNanoOptions) -> int:
        """See `Wording.max_tokens`."""
        return options.max_new_tokens

    def text(self, reply: str) -> str:
        """See `Wording.text`."""
        return funasr_nano.tidy(reply)


class FireRedWording:
    """FireRedASR-LLM's wording: the speech before the instruction."""

    options_class = FireRedAsrOptions

    def check(self, options: FireRedAsrOptions) -> None:
        """See `Wording.check`."""
        check_listening(options)
        if options.beam_size > 1:
            raise BadInput(
                f"option beam_size is {options.beam_size}, and vLLM's servers follow one hypothesis; set it to 1, or "
                "open the model on this machine, on pytorch or gguf"
            )
        if options.length_rule != "checkpoint":
            raise BadInput(f"option length_rule is {options.length_rule}, and a server takes its own; {LOCAL_ADVICE}")

    def content(self, speech: Mapping[str, Any], options: FireRedAsrOptions) -> list[Mapping[str, Any]]:
        """See `Wording.content`."""
        return [speech, _text(fireredasr.TASK)]

    def fields(self, options: FireRedAsrOptions) -> Mapping[str, str]:
        """See `Wording.fields`."""
        return {}

    def max_tokens(self, samples: int, options: FireRedAsrOptions) -> int:
        """See `Wording.max_tokens`; by default as many as the number of embeddings of a published model."""
        frames = FrontendConfig(window="povey").frames(samples)
        return options.max_new_tokens or fireredasr.speech_tokens(frames, DOWNSAMPLE_RATE)

    def text(self, reply: str) -> str:
        """See `Wording.text`."""
        return fireredasr.tidy(reply)


def _text(text: str) -> Mapping[str, Any]:
    return {"type": "text", "text": text}
