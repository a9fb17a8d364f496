"""Fun-ASR-Nano's prompt as a chat template: a message with speech gets the family's own words around it.

For servers that know conversations only. A message of speech alone is answered with its transcript; `language`, `itn`
and `hotwords` are variables of the template. Words beside the speech stand instead of the instruction. A conversation
without speech is written by the language model's own template.
"""

from __future__ import annotations

import json

from workbench.families.funasr_nano import (
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
from workbench.families.language import AUDIO, TURN_END

# A message's content is a text with the placeholder in it, or a list of parts. A loop over the parts would make vLLM
# give lists to the language model's own template too, so filters go through them.
_TEMPLATE = """\
{%- set found = namespace(speech=false) %}
{%- for message in messages %}
{%- if message['content'] is string %}
{%- if %AUDIO% in message['content'] %}{% set found.speech = true %}{% endif %}
{%- elif message['content'] | selectattr('type', 'equalto', 'audio') | list %}{% set found.speech = true %}
{%- endif %}
{%- endfor %}
{%- if found.speech %}
{%- set language, itn, hotwords = language | default('auto'), itn | default(true), hotwords | default([]) %}
{%- set languages = %LANGUAGES% %}
{%- if language != 'auto' and language not in languages %}
{{- raise_exception('language is ' ~ language ~ '; expected auto, ' ~ languages | join(', ')) }}
{%- endif %}
{%- set words = hotwords if hotwords is string else hotwords | join(%BETWEEN%) %}
{%- set instruction = (%BEFORE% ~ words ~ %AFTER% if words else '')
    ~ (%TASK% if language == 'auto' else %INTO% ~ languages[language]) ~ (%ITN% if itn else %NO_ITN%) %}
{%- if messages[0]['role'] != 'system' %}{{- %SYSTEM% }}{% endif %}
{%- for message in messages %}
{%- set content = message['content'] %}
{%- set speech = (%AUDIO% in content) if content is string
    else content | selectattr('type', 'equalto', 'audio') | list | length > 0 %}
{%- if content is not string %}
{%- set text = content | selectattr('type', 'equalto', 'text') | map(attribute='text') | join('\\n') %}
{%- elif content.startswith(%AUDIO%) %}{% set text = content[%LENGTH%:] | trim %}
{%- else %}{% set text = content %}
{%- endif %}
{{- '<|im_start|>' ~ message['role'] ~ '\\n' }}
{%- if speech and %AUDIO% not in text %}{{- (text or instruction) ~ %AUDIO% }}{% else %}{{- text }}{% endif %}
{{- %TURN_END% ~ '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' ~ %THINKING% }}{% endif %}
{%- else %}
%OWN%
{%- endif %}
"""

_PLAIN = """\
{%- for message in messages %}
{{- '<|im_start|>' ~ message['role'] ~ '\\n' ~ message['content'] ~ '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"""


def chat_template(model: FunasrNanoModel) -> str:
    """The template in Jinja, as `transformers` and vLLM take it."""
    before, after = HOTWORDS.split("{}")
    values: dict[str, object] = {
        "AUDIO": AUDIO,
        "LENGTH": len(AUDIO),
        "LANGUAGES": dict(LANGUAGES),
        "BETWEEN": HOTWORDS_BETWEEN,
        "BEFORE": before,
        "AFTER": after,
        "TASK": TASK,
        "INTO": TASK_INTO,
        "ITN": WITH_ITN,
        "NO_ITN": WITHOUT_ITN,
        "SYSTEM": SYSTEM if model.sys_prompt else "",
        "TURN_END": TURN_END,
        "THINKING": "" if model.do_think else NO_THINKING,
    }
    template = _TEMPLATE
    for name, value in values.items():
        template = template.replace(f"%{name}%", json.dumps(value, ensure_ascii=False))
    return template.replace("%OWN%", model.tokenizer.chat_template or _PLAIN)
