"""Separates what a model thinks from what it says. `<think>` and `</think>` are reserved: they end no call's text."""

OPEN, CLOSE = "<think>", "</think>"


def split_thinking(text: str, *, opened: bool = False) -> tuple[str, str]:
    """(thinking, the rest). An unclosed block reaches to the end; a `</think>` without an opening closes a block that
    began before the text. `opened`: the prompt ends with `<think>`, so the text starts inside a block.
    """
    first_open, first_close = text.find(OPEN), text.find(CLOSE)
    inside = opened or (first_close >= 0 and (first_open < 0 or first_close < first_open))
    if opened and text.lstrip().startswith(OPEN):
        inside = False
    thinking: list[str] = []
    said: list[str] = []
    at = 0
    while at <= len(text):
        tag = CLOSE if inside else OPEN
        end = text.find(tag, at)
        (thinking if inside else said).append(text[at:] if end < 0 else text[at:end])
        if end < 0:
            break
        at = end + len(tag)
        inside = not inside
    return "\n".join(t.strip() for t in thinking if t.strip()), "".join(said)
