"""Chat templates in the formats of well-known model families, and the end-of-turn token of each."""

_TURNS = "{% for m in messages %}"
_END = "{% endfor %}"

TEMPLATES: dict[str, tuple[str, str]] = {
    "chatml": (
        _TURNS
        + "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
        + _END
        + "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
        "<|im_end|>",
    ),
    "chatml, thoughts of earlier turns left out": (
        "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}"
        "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
        + _TURNS
        + "{% set text = m.content %}{% if m.role == 'assistant' and '</think>' in text and loop.index0 < ns.last %}"
        "{% set text = text.split('</think>')[-1] %}{% endif %}"
        "{{ '<|im_start|>' + m.role + '\n' + text + '<|im_end|>\n' }}"
        + _END
        + "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
        "<|im_end|>",
    ),
    "headers": (
        "{{ bos_token }}"
        + _TURNS
        + "{{ '<|head|>' + m.role + '<|/head|>\n\n' + m.content | trim + '<|eot|>' }}"
        + _END
        + "{% if add_generation_prompt %}{{ '<|head|>assistant<|/head|>\n\n' }}{% endif %}",
        "<|eot|>",
    ),
    "instructions in brackets": (
        "{{ bos_token }}" + _TURNS + "{% if m.role == 'assistant' %}{{ ' ' + m.content + '</s>' }}"
        "{% else %}{{ '[INST] ' + m.content + ' [/INST]' }}{% endif %}" + _END,
        "</s>",
    ),
    "system inside the first instruction": (
        "{% if messages[0].role == 'system' %}{% set first = '<<SYS>>\n' + messages[0].content + '\n<</SYS>>\n\n' %}"
        "{% set rest = messages[1:] %}{% else %}{% set first = '' %}{% set rest = messages %}{% endif %}"
        "{% for m in rest %}{% if m.role == 'assistant' %}{{ ' ' + m.content + ' </s>' }}{% else %}"
        "{{ '<s>[INST] ' + (first if loop.first else '') + m.content + ' [/INST]' }}{% endif %}{% endfor %}",
        "</s>",
    ),
    "turns of user and model": (
        "{{ bos_token }}"
        + _TURNS
        + "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else 'user') + '\n' + m.content | trim"
        " + '<end_of_turn>\n' }}" + _END + "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}",
        "<end_of_turn>",
    ),
    "roles as tokens": (
        _TURNS
        + "{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}"
        + _END
        + "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}",
        "<|end|>",
    ),
    "names and colons": (
        _TURNS + "{% if m.role == 'assistant' %}{{ 'ASSISTANT: ' + m.content + '</s>' }}"
        "{% else %}{{ m.role | upper + ': ' + m.content + ' ' }}{% endif %}"
        + _END
        + "{% if add_generation_prompt %}{{ 'ASSISTANT: ' }}{% endif %}",
        "</s>",
    ),
    "headings": (
        _TURNS + "{{ '### ' + ('Response' if m.role == 'assistant' else 'Instruction') + ':\n' + m.content + '\n' }}"
        "{% if m.role == 'assistant' %}{{ '<|stop|>' }}{% endif %}{{ '\n' }}"
        + _END
        + "{% if add_generation_prompt %}{{ '### Response:\n' }}{% endif %}",
        "<|stop|>",
    ),
    "tools as JSON": (
        "{%- for m in messages %}\n{%- if m.role == 'tool' %}\n"
        "{{- '<tool_response>\n' + ({'result': m.content} | tojson) + '\n</tool_response>\n' }}\n{%- else %}\n"
        "{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}\n{%- endif %}\n{%- endfor %}\n"
        "{%- if add_generation_prompt %}\n{{- '<|im_start|>assistant\n' }}\n{%- endif %}",
        "<|im_end|>",
    ),
    "marked for training": (
        _TURNS + "{% if m.role == 'assistant' %}{{ '<a>' }}{% generation %}{{ m.content + '</a>' }}{% endgeneration %}"
        "{% else %}{{ '<q>' + m.content + '</q>' }}{% endif %}"
        + _END
        + "{% if add_generation_prompt %}{{ '<a>' }}{% endif %}",
        "</a>",
    ),
    "roles must alternate": (
        "{% for m in messages %}{% if loop.index0 > 0 and m.role == messages[loop.index0 - 1].role %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}{{ '<' + m.role[0] + '>' + m.content + '</t>' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<a>' }}{% endif %}",
        "</t>",
    ),
}
