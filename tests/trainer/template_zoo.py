"""Small tokenizers that speak the way known model families do: bytes as tokens, short templates of our own."""

from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

QWEN3 = """\
{%- set ns = namespace(query=0) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.query = loop.index0 %}{% endif %}{% endfor %}
{%- if tools or messages[0].role == 'system' %}{{ '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{ messages[0].content + '\\n\\n' }}{% endif %}
{%- if tools %}{{ '<tools>' }}{% for t in tools %}{{ '\\n' + (t | tojson) }}{% endfor %}{{ '\\n</tools>' }}{% endif %}
{{- '<|im_end|>\\n' }}{% endif %}
{%- for m in messages %}
{%- if m.role == 'user' %}{{ '<|im_start|>user\\n' + m.content + '<|im_end|>\\n' }}
{%- elif m.role == 'assistant' %}
{%- set thought = m.content.split('</think>')[0].split('<think>')[-1].strip() if '</think>' in m.content else '' %}
{%- set said = m.content.split('</think>')[-1].strip() %}
{{- '<|im_start|>assistant\\n' }}
{%- if loop.index0 > ns.query and (loop.last or thought) %}{{ '<think>\\n' + thought + '\\n</think>\\n\\n' }}{% endif %}
{{- said }}
{%- for c in m.tool_calls or [] %}
{{- '\\n' if said or not loop.first }}
{{- '<tool_call>\\n{"name": "' + c.function.name + '", "arguments": ' + (c.function.arguments | tojson) + '}' }}
{{- '\\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\\n' }}
{%- elif m.role == 'tool' %}
{{- '<|im_start|>user' if messages[loop.index0 - 1].role != 'tool' }}
{{- '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}
{{- '<|im_end|>\\n' if loop.last or messages[loop.index0 + 1].role != 'tool' }}
{%- endif %}{%- endfor %}
{{- '<|im_start|>assistant\\n' if add_generation_prompt }}"""

QWEN35 = (
    QWEN3.replace(
        """{{- '<tool_call>\\n{"name": "' + c.function.name + '", """
        """"arguments": ' + (c.function.arguments | tojson) + '}' }}""",
        """{{- '<tool_call>\\n<function=' + c.function.name + '>\\n' }}
{%- for k, v in c.function.arguments.items() %}{{ '<parameter=' + k + '>\\n' }}
{{- v | string if v is string or v is number else v | tojson }}{{ '\\n</parameter>\\n' }}{% endfor %}
{{- '</function>' }}""",
    )
    .replace("(loop.last or thought)", "true")
    .replace("'<|im_start|>assistant\\n' if add", "'<|im_start|>assistant\\n<think>\\n' if add")
)

LLAMA3 = """\
{{- bos_token }}
{%- if date_string is not defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}
{%- set rest = messages %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\nToday Date: ' + date_string + '\\n\\n' }}
{%- if messages[0].role == 'system' %}{{ messages[0].content | trim }}{% set rest = messages[1:] %}{% endif %}
{{- '<|eot_id|>' }}
{%- for m in rest %}
{%- if m.role in ('tool', 'ipython') %}
{{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' + (m.content | tojson) + '<|eot_id|>' }}
{%- elif m.tool_calls %}
{%- if m.tool_calls | length != 1 %}{{ raise_exception('one call at once') }}{% endif %}
{%- set f = m.tool_calls[0].function %}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + f.name + '", "parameters": ' }}
{{- f.arguments | tojson }}{{ '}<|eot_id|>' }}
{%- else %}
{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' }}
{%- if loop.first and tools %}{% for t in tools %}{{ (t | tojson(indent=4)) + '\\n\\n' }}{% endfor %}{% endif %}
{{- (m.content | trim) + '<|eot_id|>' }}
{%- endif %}{%- endfor %}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' if add_generation_prompt }}"""

SMOLLM2 = """\
{% for m in messages %}{% if loop.first and m.role != 'system' %}
{{- '<|im_start|>system\\nYou are a helper.<|im_end|>\\n' }}{%- endif %}
{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

MISTRAL = """\
{{- bos_token }}
{%- set system = messages[0].content if messages[0].role == 'system' else '' %}
{%- set turns = messages[1:] if system else messages %}
{%- set ns = namespace(last=0) %}
{%- for m in turns %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for m in turns %}
{%- if m.role == 'user' %}
{%- if loop.index0 == ns.last and tools %}
{{- '[AVAILABLE_TOOLS] ' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{% endif %}
{{- '[INST] ' + (system + '\\n\\n' if system and loop.index0 == ns.last else '') + m.content + '[/INST]' }}
{%- elif m.role == 'tool' %}
{%- if m.tool_call_id | length != 9 %}{{ raise_exception('ids have nine characters') }}{% endif %}
{{- '[TOOL_RESULTS] {"content": ' + m.content + ', "call_id": "' + m.tool_call_id + '"}[/TOOL_RESULTS]' }}
{%- elif m.tool_calls %}
{{- '[TOOL_CALLS] [' }}{% for c in m.tool_calls %}{{ c.function | tojson }}{% endfor %}{{ ']' + eos_token }}
{%- elif m.role == 'assistant' %}{{ ' ' + m.content + eos_token }}
{%- else %}{{ raise_exception('roles are user, assistant and tool') }}{% endif %}{%- endfor %}"""

GEMMA = """\
{{- bos_token }}{% for m in messages %}
{%- if m.role not in ('user', 'assistant') %}{{ raise_exception('System role not supported') }}{% endif %}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}
{{- '<start_of_turn>' + ('model' if m.role == 'assistant' else 'user') + '\\n' + (m.content | trim) }}
{{- '<end_of_turn>\\n' }}{% endfor %}{{ '<start_of_turn>model\\n' if add_generation_prompt }}"""

PLAIN_TEXT = """\
{% for m in messages %}{{ '### ' + m.role + '\\n' + m.content + '\\n\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '### assistant\\n' }}{% endif %}"""


@dataclass(frozen=True)
class Family:
    """A tokenizer's special tokens and template."""

    template: str | None
    specials: tuple[str, ...]
    eos: str
    bos: str | None = None
    pad: str | None = None

    def tokenizer(self) -> PreTrainedTokenizerFast:
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        core = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
        core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        core.decoder = decoders.ByteLevel()
        named: dict[str, Any] = {"eos_token": self.eos, "bos_token": self.bos, "pad_token": self.pad}
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, **{k: v for k, v in named.items() if v})
        tokenizer.add_special_tokens({"additional_special_tokens": list(self.specials)})
        tokenizer.chat_template = self.template
        return tokenizer


CHATML = ("<|im_start|>", "<|im_end|>")
LLAMA_MARKS = ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>", "<|python_tag|>")

FAMILIES = {
    "qwen3": Family(QWEN3, CHATML, eos="<|im_end|>", pad="<|endoftext|>"),
    "qwen3_base": Family(QWEN3, CHATML, eos="<|endoftext|>", pad="<|endoftext|>"),
    "qwen35": Family(QWEN35, CHATML, eos="<|im_end|>", pad="<|endoftext|>"),
    "llama3": Family(LLAMA3, LLAMA_MARKS, eos="<|eot_id|>", bos="<|begin_of_text|>"),
    "smollm2": Family(SMOLLM2, CHATML, eos="<|im_end|>", bos="<|im_start|>", pad="<|im_end|>"),
    "mistral": Family(MISTRAL, ("[INST]", "[/INST]", "[TOOL_CALLS]"), eos="</s>", bos="<s>"),
    "gemma": Family(GEMMA, ("<start_of_turn>", "<end_of_turn>"), eos="<eos>", bos="<bos>", pad="<pad>"),
    "plain_text": Family(PLAIN_TEXT, (), eos="</s>"),
    "base": Family(None, (), eos="<|endoftext|>"),
}
