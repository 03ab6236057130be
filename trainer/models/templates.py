"""What a chat template does, measured on small conversations instead of looked up by a model's name."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

Message = dict[str, Any]

QUESTION: list[Message] = [{"role": "user", "content": "q"}]

MARKER = "qzMARKzq"
"""A text that no template contains and none escapes."""

DATE = "26 Jul 2024"
"""Llama 3 templates write today's date into the prompt, which would make a run differ from day to day; this is their
own default where they cannot ask for it."""

FALLBACK = Path(__file__).with_name("fallback.jinja")


class TemplateFault(ValueError):
    """A chat template that cannot carry a conversation; the text says what to use instead."""


def fallback_template(tokenizer: PreTrainedTokenizerBase) -> str:
    """The built-in template for a tokenizer that has none. Raises TemplateFault where nothing could end a turn."""
    if tokenizer.eos_token is None:
        raise TemplateFault(
            f"{tokenizer.name_or_path} has neither a chat template nor an end token, so a turn could not end. Use an "
            "instruct model (for example smollm2-135m or qwen-0.5b)."
        )
    ids = tokenizer("a")["input_ids"]
    starts = tokenizer.bos_token_id is not None and ids[:1] == [tokenizer.bos_token_id]
    return ("{{ bos_token }}" if starts else "") + FALLBACK.read_text(encoding="utf-8")


def made_up_turns(tokenizer: PreTrainedTokenizerBase) -> tuple[str, ...]:
    """Texts with which a base model goes on to speak for others, where roles are plain text."""
    uses_fallback = isinstance(tokenizer.chat_template, str) and tokenizer.chat_template.endswith(
        FALLBACK.read_text(encoding="utf-8")
    )
    return ("\nUser:", "\nSystem:") if uses_fallback else ()


def tool_call(function: dict[str, Any], number: int = 0) -> dict[str, Any]:
    """A tool call of a message. Some templates insist on an id, Mistral's on nine letters and digits."""
    return {"type": "function", "id": f"call{number:05d}", "function": function}


def render(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], tools: Any = None, *, generate: bool
) -> str:
    """The text of a conversation. Raises TemplateFault with the template's own words."""
    if not tokenizer.chat_template:
        raise TemplateFault(
            f"{tokenizer.name_or_path} has no chat template. Load it with trainer.models.load, which gives it the "
            "built-in one, or use an instruct model."
        )
    try:
        text: str = tokenizer.apply_chat_template(
            list(messages),
            tools=list(tools) if tools else None,
            add_generation_prompt=generate,
            tokenize=False,
            date_string=DATE,
        )
    except Exception as error:  # templates raise whatever jinja and their own raise_exception raise
        roles = ", ".join(str(m.get("role")) for m in messages)
        raise TemplateFault(
            f"the chat template of {tokenizer.name_or_path} cannot render the roles {roles}: {error}. Use a model with "
            "another template (tiny, smollm2-135m, qwen-0.5b), or change the messages."
        ) from error
    return text


def attempt(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], tools: Any = None, *, generate: bool
) -> str | None:
    """The same, or None where the template refuses."""
    try:
        return render(tokenizer, messages, tools, generate=generate)
    except TemplateFault:
        return None


def shows_tools(tokenizer: PreTrainedTokenizerBase, tools: Any) -> bool:
    """Whether the template writes tools into the prompt."""
    shown = attempt(tokenizer, QUESTION, tools, generate=True)
    return shown is not None and shown != attempt(tokenizer, QUESTION, generate=True)


def takes_system(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether a system message reaches the model (Gemma's template raises, others drop it)."""
    text = attempt(tokenizer, [{"role": "system", "content": MARKER}, *QUESTION], generate=True)
    return text is not None and MARKER in text


def turn_end(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The special token with which the template ends an assistant's turn; None where it ends it with plain text."""
    text = attempt(tokenizer, [*QUESTION, {"role": "assistant", "content": MARKER}], generate=False)
    if text is None or MARKER not in text:
        return None
    tail = text.rsplit(MARKER, 1)[1].strip()
    ids = tokenizer(tail, add_special_tokens=False)["input_ids"] if tail else []
    return int(ids[0]) if ids and ids[0] in tokenizer.added_tokens_decoder else None


def end_texts(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Texts that may end a turn in a rendering: every special token that the tokenizer or its template ends with."""
    ids = {turn_end(tokenizer), tokenizer.eos_token_id} - {None}
    texts = [str(tokenizer.decode([i])) for i in sorted(ids)]
    # Llama 3.1 ends a call to a built-in tool with <|eom_id|> instead of <|eot_id|>
    return [*texts, *(t for t in ("<|eom_id|>",) if t in tokenizer.get_vocab())]


def before_end(tokenizer: PreTrainedTokenizerBase, text: str) -> str:
    """A turn's text up to its end token, or all of it."""
    places = [at for end in end_texts(tokenizer) if (at := text.find(end)) >= 0]
    return text[: min(places)] if places else text


def after_end(tokenizer: PreTrainedTokenizerBase, text: str) -> str | None:
    """What follows the first end token in a text; None where there is none."""
    places = [(at, at + len(end)) for end in end_texts(tokenizer) if (at := text.find(end)) >= 0]
    return text[min(places)[1] :] if places else None
