"""Templates of published models render as `transformers` renders them, and none goes on for ever."""

from __future__ import annotations

from typing import Any

import pytest

from tfcli import templates
from tfcli.chat import render
from tfcli.errors import ConfigError
from tfcli.tokenizer.trained import Bpe

pytest.importorskip("jinja2")

LLAMA = """{{- bos_token }}
{%- if custom_tools is defined %}{%- set tools = custom_tools %}{%- endif %}
{%- if not tools_in_user_message is defined %}{%- set tools_in_user_message = true %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
{%- set said = messages[0]['content']|trim %}{%- set messages = messages[1:] %}
{%- else %}{%- set said = "" %}{%- endif %}
{{- "<|system|>\\n\\n" }}{{- said }}{{- "<|end|>" }}
{%- if tools is not none %}
{%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\\n\\n" }}{%- endfor %}
{%- endif %}
{%- for message in messages %}
{%- if not (message.role == 'ipython' or 'tool_calls' in message) %}
{{- '<|' + message['role'] + '|>\\n\\n' + message['content'] | trim + '<|end|>' }}
{%- elif 'tool_calls' in message %}
{%- if not message.tool_calls|length == 1 %}{{- raise_exception("one at a time") }}{%- endif %}
{%- set call = message.tool_calls[0].function %}
{%- for name, value in call.arguments | items %}
{{- name + '="' + value|string + '"' }}{%- if not loop.last %}{{- ", " }}{%- endif %}
{%- endfor %}{{- '{"name": "' + call.name + '", "parameters": ' }}{{- call.arguments | tojson }}{{- "}" }}
{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>\\n\\n' }}{%- endif %}"""
QWEN = """{%- for message in messages[::-1] %}{%- set last = loop.index0 %}{%- endfor %}
{%- set ns = namespace(at=messages|length - 1, texts=[]) %}
{%- for message in messages %}
{%- if (message.role == "user") or (message.role == "system" and not loop.first) or
 (message.role == "assistant" and not message.tool_calls) %}
{{- '<|' ~ message.role ~ '|>\\n' ~ message.content ~ '<|end|>\\n' }}
{%- elif message.role == "tool" %}
{%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}{{- '<|user|>' }}{%- endif %}
{{- '\\n<r>\\n' + message.content + '\\n</r>' }}
{%- else %}{{- '%s: %-6s|' % (message.role, message.content or '-') }}{%- endif %}
{%- set ns.texts = ns.texts + [message.content] %}
{%- endfor %}
{{- ns.texts | select('string') | map('trim') | map('replace', 'a', 'bb') | join('/') }}
{%- if add_generation_prompt %}{{- '<|assistant|>\\n' }}{%- endif %}"""
MISTRAL = """{%- set system = messages[0].content if messages[0].role == "system" else "" %}
{%- set rest = messages[1:] if messages[0].role == "system" else messages %}
{%- macro show(text, times=1) -%}{{ text.strip() * times }}{%- endmacro -%}
{{- bos_token }}{%- for message in rest if message.content %}
{%- if loop.length > 99 %}{% break %}{% endif %}
{%- if message["role"] == "user" %}{%- if loop.last and system %}
{{- "[INST] " + system + "\\n\\n" + show(message.content) + "[/INST]" }}
{%- else %}{{- "[INST] {} [/INST]".format(message["content"]) }}{%- endif %}
{%- elif message["role"] == "assistant" %}
{% generation %}{{- " " + message["content"]|trim + eos_token }}{% endgeneration %}
{%- endif %}{%- endfor %}
{%- for row in range(3)|batch(2, 0) %}{{ row|join(',') }}{{ loop.cycle(';', '.') }}{% endfor %}
{%- for k, v in {'a': 1, 'b': [1, 2]}|dictsort %}{{ k }}{{ v }}{% endfor %}"""
CALL = {"function": {"name": "f", "arguments": {"x": 1, "y": "é"}}}
TALKS: list[list[dict[str, Any]]] = [
    [{"role": "system", "content": "be  kind\n"}, {"role": "user", "content": " Hello a% {x} "}],
    [{"role": "user", "content": "é"}, {"role": "assistant", "content": "", "tool_calls": [CALL]},
     {"role": "tool", "content": "2"}, {"role": "user", "content": "ok\n\nso"}],
    [{"role": "user", "content": "word " * 9000}] * 3,
    [{"role": ("user", "assistant")[n % 2], "content": f"text {n}"} for n in range(300)],
]  # fmt: skip


@pytest.mark.parametrize("template", [LLAMA, QWEN, MISTRAL])
@pytest.mark.parametrize("prompt", [True, False])
def test_ordinary_templates_render_as_transformers_renders_them(template: str, prompt: bool) -> None:
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    it = Bpe(vocab_size=300).train(["hello"])
    it.chat_template = template
    named = {f"{role}_token": token for role, token in it.special.items()}
    for talk in TALKS:
        theirs, _ = utils.render_jinja_template(
            [talk], chat_template=template, add_generation_prompt=prompt, **named
        )
        assert render(it, talk, prompt) == theirs[0]


GROW = (
    "{% set n = namespace(x=SEED) %}{% for i in range(60) %}{% set n.x = STEP %}{% endfor %}{{ n.x|length }}"
)
LISTS = "{% set l = [" + "0," * 100 + "] %}" + "{% for i in l %}" * 9 + "x" + "{% endfor %}" * 9
ENDLESS = {
    "ranges": "{% for i in range(99999) %}{% for j in range(99999) %}{% for k in range(99999) %}"
              "{% endfor %}{% endfor %}{% endfor %}",
    "lists": LISTS,
    "breaks": "{% for i in range(99999) %}{% for j in range(99999) %}{% break %}{% endfor %}{% endfor %}",
    "macro": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "recursion": "{% for x in [60] recursive %}{% if x %}{{ loop([x - 1, x - 1]) }}{% endif %}{% endfor %}",
    "block": "{% block b %}{{ self.b() }}{{ self.b() }}{% endblock %}",
    "texts": "{% for i in range(99999) %}" + "x" * 50000 + "{% endfor %}",
    "captured": "{% set y %}{% for i in range(99999) %}" + "x" * 50000 + "{% endfor %}{% endset %}",
    "times": "{{ 'ab' * 10**9 }}", "list times": "{{ ([0] * 10**9)|length }}",
    "times of text": "{{ 10**9 * 'ab' }}",
    "power": "{{ 9**(9**9) }}", "squares": GROW.replace("SEED", "9").replace("STEP", "n.x * n.x"),
    "sum": GROW.replace("SEED", "'ab'").replace("STEP", "n.x + n.x"),
    "joined": GROW.replace("SEED", "'ab'").replace("STEP", "n.x ~ n.x"),
    "list": GROW.replace("SEED", "[1]").replace("STEP", "n.x + n.x"),
    "nested": GROW.replace("SEED", "[1]").replace("STEP", "[n.x, n.x]").replace("|length", ""),
    "dicts": GROW.replace("SEED", "1").replace("STEP", "{'a': n.x, 'b': n.x}").replace("length", "tojson"),
    "namespaces": GROW.replace("SEED", "1").replace("STEP", "namespace(a=n.x, b=n.x)").replace("|length", ""),
    "replace": GROW.replace("SEED", "'aa'").replace("STEP", "n.x.replace('a', n.x)"),
    "filter replace": GROW.replace("SEED", "'aa'").replace("STEP", "n.x|replace('a', n.x)"),
    "join": GROW.replace("SEED", "'aa'").replace("STEP", "n.x|join(n.x)"),
    "method join": GROW.replace("SEED", "'aa'").replace("STEP", "n.x.join(n.x|list)"),
    "sums": GROW.replace("SEED", "[1]").replace("STEP", "[n.x, n.x]|sum(start=[])"),
    "format": "{{ '{:>1000000000}'.format(1) }}", "percent": "{{ '%1000000000d' % 1 }}",
    "star": "{{ '%*d' % (10**8, 1) }}", "filter format": "{{ '%1000000000d'|format(1) }}",
    "center": "{{ 'a'|center(10**9) }}", "ljust": "{{ 'a'.ljust(10**9) }}", "zfill": "{{ 'a'.zfill(10**9) }}",
    "indent": "{{ 'a'|indent(10**9, true) }}", "json": "{{ [1]|tojson(indent=10**9) }}",
    "tabs": "{{ '\\t'.expandtabs(10**9) }}", "slices": "{{ [1]|slice(10**9)|list }}",
    "mapped": "{{ [1]|map('center', 10**9)|list }}", "bytes": "{{ (5).to_bytes(10**9)|length }}",
    "round": "{{ 1.5|round(10**9, 'ceil') }}", "lipsum": "{{ lipsum(10**6) }}", "size": "x" * (1 << 19),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDLESS)
def test_a_template_without_end_or_measure_is_one_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    it = Bpe(vocab_size=300).train(["hello"])
    it.chat_template = ENDLESS[name]
    monkeypatch.setattr("tfcli.bounds.SECONDS", float("inf"))  # steps and sizes suffice
    with pytest.raises(ConfigError, match="^chat template") as error:
        render(it, [{"role": "user", "content": "hello"}])
    assert "\n" not in str(error.value) and "emory" not in str(error.value)


def test_bounds_grow_with_the_messages() -> None:
    talk = [{"role": "user", "content": "x" * 3_000_000}, {"role": "user", "content": "y" * 3_000_000}]
    text = templates.render("{% for m in messages %}{{ m.content + '.' }}{% endfor %}", talk)
    assert len(text) == 6_000_002


def test_time_ends_what_steps_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfcli.bounds.SECONDS", -1.0)
    with pytest.raises(ConfigError, match="^chat template: its loops and calls go on without end"):
        templates.render("{{ messages|length }}", [{"role": "user", "content": "hello"}])
