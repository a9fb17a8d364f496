"""A speech language model's prompt as a chat template: a message with speech gets the family's own prompt around it.

It serves servers that only know conversations. Text beside the speech replaces the family's instruction. The language
model's own template writes conversations without speech. This file knows no family.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from workbench.families.language.directory import AUDIO, TURN_END

# A message's content is a text with the placeholder in it, or a list of parts. If the template had a loop over the
# parts, vLLM would pass lists to the language model's own template too. So filters search the parts.
_TEMPLATE = """\
{%- set found = namespace(speech=false) %}
{%- for message in messages %}
{%- if message['content'] is string %}
{%- if %AUDIO% in message['content'] %}{% set found.speech = true %}{% endif %}
{%- elif message['content'] | selectattr('type', 'equalto', 'audio') | list %}{% set found.speech = true %}
{%- endif %}
{%- endfor %}
{%- if found.speech %}
<PREAMBLE>
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
{%- if speech and %AUDIO% not in text %}{{- <SPEECH_MESSAGE> }}{% else %}{{- text }}{% endif %}
{{- %TURN_END% ~ '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' ~ %THINKING% }}{% endif %}
{%- else %}
<TEXT_TEMPLATE>
{%- endif %}
"""


def speech_template(
    speech_message: str, values: Mapping[str, object], text_template: str, preamble: str = "", thinking: str = ""
) -> str:
    """Returns the template in Jinja, for `transformers` and vLLM.

    Args:
        speech_message: the expression of a message with speech, in terms of `text`, the text beside the speech, and
            %AUDIO%.
        values: the values of %NAME% in the expressions, by name.
        text_template: the template of conversations without speech.
        preamble: statements before the first message.
        thinking: the beginning of the answer.
    """
    template = _TEMPLATE.replace("<PREAMBLE>\n", preamble).replace("<SPEECH_MESSAGE>", speech_message)
    constants = {"AUDIO": AUDIO, "LENGTH": len(AUDIO), "TURN_END": TURN_END, "THINKING": thinking, **values}
    for name, value in constants.items():
        template = template.replace(f"%{name}%", json.dumps(value, ensure_ascii=False))
    return template.replace("<TEXT_TEMPLATE>", text_template)
