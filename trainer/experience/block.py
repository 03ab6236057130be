"""How an experience enters a prompt: a block at the end of the last user message, in AgentEvolver's wording."""

TEMPLATE = "\n\nSome Related Experience to help you to complete the task:<EXP>{}</EXP>\n\n"
"""The published template; the bundled model was trained on it, so it is not a setting."""


def with_experience(messages: list[dict[str, str]], text: str) -> list[dict[str, str]]:
    """The conversation with `text` appended to its last user message; the input is left alone.

    Raises ValueError where there is no user message.
    """
    for index in range(len(messages) - 1, -1, -1):
        if messages[index]["role"] == "user":
            changed = dict(messages[index], content=messages[index]["content"] + TEMPLATE.format(text))
            return [*messages[:index], changed, *messages[index + 1 :]]
    raise ValueError("the conversation has no user message that an experience could be appended to")
