"""Guesses of what a row says next, so that one pass of the model can confirm several tokens at once.

Tool calls are mostly format. Because a token's random number depends only on where it stands (`sampler.py`), a pass
over guessed tokens samples at every position exactly what one pass after another would have sampled; the guesses up to
the first wrong one stand, so they change the speed and never the episode. (Speculative decoding, arXiv 2211.17192, with
a table instead of a small model; copying from the prompt as in prompt look-up decoding.)

Everything is learned within one rollout, from example calls and from what its rows say: a run that is resumed guesses
the same as one that was not interrupted.
"""

from collections.abc import Sequence

from trainer.models.templates import Message, TemplateFault
from trainer.rollout.rendering import Renderer

ORDER = 3
"""Tokens of context."""

SURE = 3
"""Ceiling of an entry's score: it is wrong this often before it is replaced."""

ACCEPTED = 0.8
"""Share of guessed tokens that stand, for the choice of a width; seen on calculator episodes: 0.75 to 0.9."""


class Drafts:
    """What usually follows three tokens, and what follows two tokens in a row's own question."""

    def __init__(self, examples: Sequence[Sequence[int]] = ()) -> None:
        self._next: dict[tuple[int, ...], list[int]] = {}
        self._copy: list[dict[tuple[int, ...], int]] = []
        for ids in examples:
            for at in range(ORDER, len(ids)):
                self.learn(tuple(ids[at - ORDER : at]), ids[at])

    def read_prompts(self, prompts: Sequence[Sequence[int]], header: int) -> None:
        """What the rows of prompt g may copy; `header`: tokens that all prompts share."""
        self._copy = [
            {(p[at - 2], p[at - 1]): p[at] for at in range(len(p) - 1, max(header, 2) - 1, -1)} for p in prompts
        ]

    def learn(self, context: tuple[int, ...], token: int) -> None:
        """After `context` came `token`."""
        entry = self._next.get(context)
        if entry is None:
            self._next[context] = [token, 1]
        elif entry[0] == token:
            entry[1] = min(entry[1] + 1, SURE)
        else:
            entry[1] -= 1
            if entry[1] < 0:
                self._next[context] = [token, 1]

    def guess(self, context: tuple[int, ...], group: int, count: int) -> list[int]:
        """At most `count` tokens that probably follow."""
        guessed: list[int] = []
        copied = self._copy[group]
        while len(guessed) < count:
            entry = self._next.get(context)
            if entry is not None and entry[1] > 0:
                token = entry[0]
            elif context[1:] in copied:
                token = copied[context[1:]]
            else:
                break
            guessed.append(token)
            context = (*context[1:], token)
        return guessed


def example_calls(renderer: Renderer) -> list[list[int]]:
    """A call of each tool as the chat template writes it, with what stands before it; none where it cannot."""
    asked: list[Message] = [{"role": "user", "content": "q"}]
    examples = []
    for schema in renderer.tools:
        function = schema["function"]
        arguments = dict.fromkeys(function.get("parameters", {}).get("properties", {}), "1")
        call = {"type": "function", "function": {"name": function["name"], "arguments": arguments}}
        turn = {"role": "assistant", "content": "", "tool_calls": [call]}
        try:
            prompt = renderer.prompt_text(asked)
            whole = renderer.tokenizer.apply_chat_template([*asked, turn], tools=renderer.tools, tokenize=False)
        except (TemplateFault, ValueError, TypeError, KeyError):
            return []
        if not isinstance(whole, str) or not whole.startswith(prompt):
            return []
        ids = lambda text: list(renderer.tokenizer(text, add_special_tokens=False)["input_ids"])  # noqa: E731
        examples.append([*ids(prompt)[-ORDER:], *ids(whole[len(prompt) :])])
    return examples


def best_width(certain: Sequence[int], guessed: Sequence[int], widest: int, overhead: float) -> int:
    """Tokens a row for the next pass: most confirmed tokens for its cost.

    certain, guessed: for each living row how many tokens it can feed that must stand (at least 1), and how many guesses
    after them. A pass costs `overhead` + rows x width, in units of what one token costs.
    """
    best, chosen = 0.0, 1
    for width in range(1, min(widest, max(c + g for c, g in zip(certain, guessed, strict=True))) + 1):
        confirmed = 0.0
        for c, g in zip(certain, guessed, strict=True):
            sure = min(c, width)
            confirmed += sure
            more = min(g, width - sure)
            if more > 0:  # 0.8 + 0.8² + …
                confirmed += ACCEPTED * (1 - ACCEPTED**more) / (1 - ACCEPTED)
        rate = confirmed / (overhead + len(certain) * width)
        if rate > best * 1.001:
            best, chosen = rate, width
    return chosen
