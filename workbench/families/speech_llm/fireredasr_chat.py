"""FireRedASR-LLM's prompt as a chat template; the answer to a message of speech alone is its transcript."""

from __future__ import annotations

from workbench.families.speech_llm.fireredasr import TASK, FireRedAsrModel
from workbench.families.speech_llm.speech_chat import speech_template

_SPEECH_MESSAGE = "%AUDIO% ~ (text or %TASK%)"
_WITHOUT_TEMPLATE = "{{- raise_exception('the language model has no chat template; expected a message with speech') }}"


def chat_template(model: FireRedAsrModel) -> str:
    """See `speech_chat.speech_template`."""
    return speech_template(_SPEECH_MESSAGE, {"TASK": TASK}, model.tokenizer.chat_template or _WITHOUT_TEMPLATE)
