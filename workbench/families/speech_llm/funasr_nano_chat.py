"""Fun-ASR-Nano's prompt as a chat template; the answer to a message of speech alone is its transcript.

`language`, `itn` and `hotwords` are variables of the template.
"""

from __future__ import annotations

from workbench.families.speech_llm.funasr_nano import (
    HOTWORDS,
    HOTWORDS_BETWEEN,
    LANGUAGES,
    NO_THINKING,
    SYSTEM,
    TASK,
    TASK_INTO,
    WITH_ITN,
    WITHOUT_ITN,
    FunasrNanoModel,
)
from workbench.families.speech_llm.speech_chat import speech_template

_PREAMBLE = """\
{%- set language, itn, hotwords = language | default('auto'), itn | default(true), hotwords | default([]) %}
{%- set languages = %LANGUAGES% %}
{%- if language != 'auto' and language not in languages %}
{{- raise_exception('language is ' ~ language ~ '; expected auto, ' ~ languages | join(', ')) }}
{%- endif %}
{%- set words = hotwords if hotwords is string else hotwords | join(%BETWEEN%) %}
{%- set instruction = (%BEFORE% ~ words ~ %AFTER% if words else '')
    ~ (%TASK% if language == 'auto' else %INTO% ~ languages[language]) ~ (%ITN% if itn else %NO_ITN%) %}
{%- if messages[0]['role'] != 'system' %}{{- %SYSTEM% }}{% endif %}
"""
_SPEECH_MESSAGE = "(text or instruction) ~ %AUDIO%"
_TEXT_TEMPLATE = """\
{%- for message in messages %}
{{- '<|im_start|>' ~ message['role'] ~ '\\n' ~ message['content'] ~ '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"""


def chat_template(model: FunasrNanoModel) -> str:
    """See `speech_chat.speech_template`."""
    before, after = HOTWORDS.split("{}")
    values = {
        "LANGUAGES": dict(LANGUAGES),
        "BETWEEN": HOTWORDS_BETWEEN,
        "BEFORE": before,
        "AFTER": after,
        "TASK": TASK,
        "INTO": TASK_INTO,
        "ITN": WITH_ITN,
        "NO_ITN": WITHOUT_ITN,
        "SYSTEM": SYSTEM if model.sys_prompt else "",
    }
    thinking = "" if model.do_think else NO_THINKING
    return speech_template(
        _SPEECH_MESSAGE, values, model.tokenizer.chat_template or _TEXT_TEMPLATE, _PREAMBLE, thinking
    )
