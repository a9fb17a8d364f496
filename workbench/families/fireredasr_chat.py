"""FireRedASR-LLM's prompt as a chat template: a message with speech gets the family's own words around it.

For servers that know conversations only. A message of speech alone is answered with its transcript; words beside the
speech stand instead of the instruction. A conversation without speech is written by the language model's own template.
"""

from __future__ import annotations

import json

from workbench.families.fireredasr import TASK, FireRedAsrModel
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
{%- if speech and %AUDIO% not in text %}{{- %AUDIO% ~ (text or %TASK%) }}{% else %}{{- text }}{% endif %}
{{- %TURN_END% ~ '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}
{%- else %}
%OWN%
{%- endif %}
"""

_NONE = "{{- raise_exception('the language model has no chat template; expected a message with speech') }}"


def chat_template(model: FireRedAsrModel) -> str:
    """The template in Jinja, as `transformers` and vLLM take it."""
    template = _TEMPLATE
    for name, value in {"AUDIO": AUDIO, "LENGTH": len(AUDIO), "TASK": TASK, "TURN_END": TURN_END}.items():
        template = template.replace(f"%{name}%", json.dumps(value, ensure_ascii=False))
    return template.replace("%OWN%", model.tokenizer.chat_template or _NONE)
