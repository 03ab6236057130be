"""Whether a text says more than the machine form beside it: a cause, a judgement, a forecast, another number.

The lists name ways of saying so in English and Chinese. They decide only whether a text is kept as untested, so a word
too many costs a shade of a verdict and never makes a claim true.
"""

import re
from collections.abc import Iterable

from optimizer.analyze.readings import NUMBER, rounds_to

_MORE = re.compile(
    r"\b(?:because|cause[sd]?|due|since|so|thus|hence|therefore|thanks|explain\w*|lead\w*|led|result\w*|reason|root|why|"
    r"mak(?:e|es|ing)|made|driv(?:e|es|en)|effect\w*|improv\w*|better|worse|best|worst|help\w*|hurt\w*|harm\w*|good|bad|"
    r"rais\w*|lower(?:ed|s|ing)|boost\w*|jump\w*|gain\w*|too|should|must|need\w*|recommend\w*|will|would|could|may|might|"
    r"likely|probabl\w*|expect\w*|converg\w*|collaps\w*|overfit\w*|unstable|stable|premature\w*|crash\w*|fail\w*|success\w*|"
    r"broken|truncat\w*|never|always|no|not|none|without|same|identical|equal|different|than|versus|vs|compar\w*|silent|"
    r"increas\w*|decreas\w*|times|percent|mean(?:s|ing)|show[ns]?|prov\w*|evidence|significan\w*)\b"
    r"|[→×%]|因为|由于|导致|因此|所以|说明|证明|原因|根因|提升|提高|下降|改善|更好|更差|最好|最差|应该|需要|建议|将会|会达到|可能|收敛|"
    r"崩溃|失败|成功|过高|过低|太|没有|未|不|相同|一致|对比|相比|优于|倍|静默",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W\d_][\w'-]*")
_NUMBERS = re.compile(rf"(?<![\w.]){NUMBER}(?![\w])")

MAX_FREE_WORDS = 12
"""Words beside the claim's own that a neutral sentence needs (`the value of … at step … is`)."""


def says_more(text: str, own: Iterable[str], numbers: Iterable[float]) -> bool:
    """Whether the text goes beyond the claim's own words (metric, run, split, value) and the numbers it rests on."""
    if not text.strip():
        return False
    rest = text
    for one in sorted(own, key=len, reverse=True):
        rest = re.sub(re.escape(one), " ", rest, flags=re.IGNORECASE)
    if _MORE.search(rest):
        return True
    known = list(numbers)
    for printed in _NUMBERS.findall(rest):
        if not any(rounds_to(one, printed) for one in known):
            return True
    return len(_WORD.findall(rest)) > MAX_FREE_WORDS
