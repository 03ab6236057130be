"""Forms by which a secret is known wherever it stands, one line a maker; and what "drawn at random" means.

Each form has marks: fixed texts without which it cannot match, so that a text is searched only for what it may hold.
Formats are those that the makers document or that their keys visibly have; lengths are lower bounds.
"""

from __future__ import annotations

import re

from optimizer.capture.prefilter import HAN_NAMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Replacement = Callable[[re.Match[str]], str | None]
    """What takes a match's place; None: the match is no secret."""


class Shape:
    """One form. No dataclass and compiled when first used: a hook pays for what it imports, each time."""

    __slots__ = ("_compiled", "begins", "folded", "marks", "replaced", "source", "what")

    def __init__(
        self,
        what: str,
        source: str,
        marks: tuple[str, ...],
        *,
        begins: bool = False,
        folded: bool = False,
        replaced: Replacement | None = None,
    ) -> None:
        self.what = what
        self.source = source
        """The pattern, or what of it stands behind the marks."""
        self.marks = marks
        """One of these is in every match."""
        self.begins = begins
        """A match begins with one of the marks, at the beginning of a word."""
        self.folded = folded
        """The pattern ignores case, that of ASCII only, and the marks stand in the folded text."""
        self.replaced = replaced
        """None: `[redacted:<what>]`."""
        self._compiled: re.Pattern[str] | None = None

    @property
    def pattern(self) -> re.Pattern[str]:
        """Compiled."""
        if self._compiled is None:
            marks = f"{_EDGE}(?:{'|'.join(map(re.escape, self.marks))})" if self.begins else ""
            self._compiled = re.compile(marks + self.source, re.IGNORECASE | re.ASCII if self.folded else 0)
        return self._compiled

    def may_be_in(self, text: str, folded: str) -> bool:
        """Whether one of the marks is in a text; `folded` is the same in lower case."""
        searched = folded if self.folded else text
        return any(mark in searched for mark in self.marks)


_ESCAPE = r"(?<=\\[nrtbf])|(?<=\\u[0-9A-Fa-f]{4})"
"""Before a word in JSON that stands in a text."""

_EDGE = rf"(?:(?<![A-Za-z0-9])|{_ESCAPE})"
"""Before a key: no letter or digit, or an escape."""

_WORD = rf"(?:\b|{_ESCAPE})"


def _key(what: str, *marks: str, body: str = r"[A-Za-z0-9_-]{20,512}") -> Shape:
    """A key that begins with one of the marks."""
    return Shape(what, body, marks, begins=True)


def looks_random(value: str, *, hexadecimal: bool = True) -> bool:
    """Whether a value is long and mixed enough to be a generated secret, and no path, name, number or date.

    `hexadecimal`: whether one that consists of hexadecimal digits only counts; such a one may as well be a hash.
    """
    if not 16 <= len(value) <= 4096 or re.match(_RANDOM, value) is None:
        return False
    digits = sum(one.isdigit() for one in value)
    upper = sum(one.isupper() for one in value)
    lower = sum(one.islower() for one in value)
    if re.match(_HEX, value) is not None:
        return hexadecimal and digits >= 3 and upper + lower >= 3 and re.match(_UUID, value) is None
    if value.count("/") >= 2 and re.match(_WORD_PATH, value) is not None:
        return False
    words = re.split(r"[^A-Za-z0-9]+", value)
    if max(map(len, words)) < 12:  # words, versions and dates joined by signs
        return False
    if digits >= 2:
        return upper + lower >= 4 and (min(upper, lower) >= 2 or digits >= 4)
    return min(upper, lower) >= 0.3 * len(value)  # CamelCase has fewer capitals


_RANDOM = r"[A-Za-z0-9_\-.+/=~%]+\Z"
_HEX = r"[0-9a-fA-F-]+\Z"
_UUID = r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\Z"
_WORD_PATH = r"[/.~]?(?:[A-Za-z0-9_.-]{1,40}/)+[A-Za-z0-9_.-]{0,40}\Z"


def _bearer(match: re.Match[str]) -> str | None:
    value = match["value"]
    mixed = any(one.isdigit() for one in value) or (value.lower() != value and value.upper() != value)
    return f"{match['head']}[redacted:bearer]" if mixed or len(value) >= 32 else None


def _basic(match: re.Match[str]) -> str | None:
    """Redacts what is `user:password` in base 64."""
    import base64

    value = match["value"]
    try:
        decoded = base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
    except ValueError:
        return None
    return f"{match['head']}[redacted:basic-auth]" if b":" in decoded else None


def _header(match: re.Match[str]) -> str | None:
    value = match["value"]
    if value.startswith(("[redacted", "$", "{", "<", "%")) or "[redacted" in value:
        return None
    return f"{match['head']}[redacted:header]"


def _login(match: re.Match[str]) -> str | None:
    user, _, password = match["login"].partition(":")
    if not password and (len(user) < 16 or not looks_random(user)):
        return None
    if password.startswith(("$", "{", "<")):
        return None
    return "[redacted:url-password]"


def _option_user(match: re.Match[str]) -> str | None:
    value = match["value"]
    if value.isdigit() or value.startswith(("$", "[redacted", "{", "<")):
        return None
    return f"{match['head']}[redacted:password]"


def _value(match: re.Match[str]) -> str | None:
    value = match["value"]
    return None if value.startswith(("[redacted", "$")) else f"{match['head']}[redacted:password]"


def _han_value(match: re.Match[str]) -> str | None:
    """Redacts a literal; a name of something (letters only), a reference or a placeholder is none."""
    value = match["value"]
    named = re.match(r"[A-Za-z_.-]+\Z|[*xX.•_-]+\Z|os\.", value) is not None
    if named or value.startswith(("[redacted", "$", "{", "<", "%")):
        return None
    return f"{match['head']}[redacted:password]"


_SIGNS = r"!#-&*+\-./0-:=?@A-Z\[^_a-z|~"
"""What a password behind a Chinese word for it consists of: printable ASCII without spaces, quotation marks, brackets
and what ends a clause. Not written as what is left out: a class of nearly all of Unicode takes 2 ms to compile."""

_PEM_NAME = r"(?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?"

SHAPES: tuple[Shape, ...] = (
    Shape(
        "private-key",
        (rf"-----BEGIN {_PEM_NAME}-----"
            rf"(?:(?:(?!-----BEGIN)[\s\S]){{0,20000}}?-----END {_PEM_NAME}-----|[A-Za-z0-9+/=\s\\]{{40,}})"),
        ("PRIVATE KEY",),
    ),
    Shape("private-key", r"Private-Lines: \d+\s[A-Za-z0-9+/=\s\\]{40,}", ("Private-Lines:",)),
    _key("mcp-evo-token", "mcpevo_", body=r"[A-Za-z0-9_-]{40,64}"),
    _key("age-key", "AGE-SECRET-KEY-1", body=r"[A-Z0-9]{50,60}"),
    _key("anthropic-key", "sk-ant-"),
    _key("api-key", "sk-"),
    _key("stripe-key", "sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_", body=r"[A-Za-z0-9+/=]{16,256}"),
    _key("aws-key", "AKIA", "ASIA", "ABIA", "ACCA", body=r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _key("github-token", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", body=r"[A-Za-z0-9_]{20,256}"),
    _key("gitlab-token", "glpat-", "glptt-", "gldt-", "glrt-", "glcbt-", "glft-", "glsoat-", "glagent-", "gloas-",
         body=r"[A-Za-z0-9_.-]{16,256}"),
    _key("hf-token", "hf_", "api_org_", body=r"[A-Za-z0-9]{20,256}"),
    _key("google-key", "AIza", body=r"[A-Za-z0-9_-]{30,64}"),
    _key("google-secret", "GOCSPX-"),
    _key("google-token", "ya29.", "1//0", body=r"[A-Za-z0-9._-]{24,2048}"),
    Shape("slack-token", _EDGE + r"(?:xox[a-z](?:\.[a-z0-9]+)?-|xapp-)[A-Za-z0-9-]{10,512}",
          ("xox", "xapp-")),
    Shape("webhook", r"(?<=hooks\.slack\.com/)(?:services|workflows|triggers)/[A-Za-z0-9/_-]{16,256}",
          ("hooks.slack.com/",)),
    Shape("webhook", r"(?<=/api/webhooks/)\d{10,24}/[A-Za-z0-9_-]{40,128}", ("/api/webhooks/",)),
    _key("npm-token", "npm_", body=r"[A-Za-z0-9]{36,64}"),
    _key("pypi-token", "pypi-AgE", body=r"[A-Za-z0-9_-]{50,1024}"),
    _key("rubygems-key", "rubygems_", body=r"[a-f0-9]{40,64}"),
    _key("digitalocean-token", "dop_v1_", "doo_v1_", "dor_v1_", body=r"[a-f0-9]{40,80}"),
    _key("sendgrid-key", "SG.", body=r"[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{30,64}"),
    _key("mailgun-key", "key-", body=r"[0-9a-f]{32}(?![0-9a-f])"),
    Shape("mailchimp-key", _EDGE + r"[0-9a-f]{32}-us\d{1,2}(?!\d)", ("-us",)),
    _key("brevo-key", "xkeysib-", body=r"[a-f0-9]{40,80}(?:-[A-Za-z0-9]{10,24})?"),
    _key("resend-key", "re_", body=r"[A-Za-z0-9]{6,12}_[A-Za-z0-9]{20,32}"),
    _key("twilio-key", "SK", body=r"[0-9a-f]{32}(?![0-9a-zA-Z])"),
    _key("shopify-token", "shpat_", "shpca_", "shppa_", "shpss_", body=r"[a-fA-F0-9]{32,64}"),
    _key("square-token", "sq0atp-", "sq0csp-"),
    _key("databricks-token", "dapi", body=r"[0-9a-f]{32}(?:-\d)?(?![0-9a-f])"),
    _key("linear-key", "lin_api_", body=r"[A-Za-z0-9]{32,64}"),
    _key("notion-token", "secret_", "ntn_", body=r"[A-Za-z0-9]{40,64}"),
    _key("figma-token", "figd_"),
    _key("groq-key", "gsk_", body=r"[A-Za-z0-9]{40,80}"),
    _key("replicate-token", "r8_", body=r"[A-Za-z0-9]{36,64}"),
    _key("perplexity-key", "pplx-", body=r"[A-Za-z0-9]{40,80}"),
    _key("xai-key", "xai-", body=r"[A-Za-z0-9]{40,120}"),
    _key("nvidia-key", "nvapi-", body=r"[A-Za-z0-9_-]{40,120}"),
    _key("together-key", "tgp_v1_"),
    _key("langsmith-key", "lsv2_", body=r"(?:pt|sk)_[a-f0-9]{32}_[a-f0-9]{10}"),
    _key("jina-key", "jina_", body=r"[A-Za-z0-9_-]{40,80}"),
    _key("sentry-token", "sntrys_", "sntryu_", body=r"[A-Za-z0-9_=+/-]{40,512}"),
    _key("newrelic-key", "NRAK-", body=r"[A-Z0-9]{27}"),
    _key("grafana-token", "glsa_", "glc_", body=r"[A-Za-z0-9_=+/]{30,512}"),
    _key("vault-token", "hvs.", "hvb.", body=r"[A-Za-z0-9_-]{24,512}"),
    _key("doppler-token", "dp.pt.", "dp.st.", body=r"[A-Za-z0-9._-]{40,128}"),
    _key("pulumi-token", "pul-", body=r"[a-f0-9]{40}"),
    _key("supabase-token", "sbp_", body=r"[a-f0-9]{40}"),
    _key("planetscale-token", "pscale_tkn_", "pscale_oauth_", body=r"[A-Za-z0-9_.=-]{32,128}"),
    _key("postman-key", "PMAK-", body=r"[a-f0-9]{24}-[a-f0-9]{34}"),
    _key("alibaba-key", "LTAI", body=r"[A-Za-z0-9]{16,24}(?![A-Za-z0-9])"),
    _key("tencent-key", "AKID", body=r"[A-Za-z0-9]{32}(?![A-Za-z0-9])"),
    _key("docker-token", "dckr_pat_"),
    _key("fly-token", "FlyV1 ", body=r"fm[0-9a-z]{1,3}_[A-Za-z0-9+/=,_-]{40,4096}"),
    _key("facebook-token", "EAA", body=r"[A-Za-z0-9]{60,512}"),
    _key("heroku-key", "HRKU-", body=r"[A-Za-z0-9_-]{32,128}"),
    _key("atlassian-token", "ATATT3", "ATCTT3", body=r"[A-Za-z0-9_=-]{40,512}"),
    _key("tailscale-key", "tskey-", body=r"[a-z]{2,10}-[A-Za-z0-9]{6,32}-[A-Za-z0-9]{16,64}"),
    _key("contentful-token", "CFPAT-", body=r"[A-Za-z0-9_-]{40,64}"),
    _key("netlify-token", "nfp_", body=r"[A-Za-z0-9]{36,64}"),
    Shape("terraform-token", _EDGE + r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,80}", (".atlasv1.",)),
    Shape("telegram-token", _EDGE + r"\d{8,10}:AA[A-Za-z0-9_-]{32,36}(?![A-Za-z0-9])", (":AA",)),
    Shape("azure-secret", _EDGE + r"[A-Za-z0-9_~.-]{3}\dQ~[A-Za-z0-9_~.-]{31,34}(?![A-Za-z0-9])", ("Q~",)),
    Shape("jwt", _EDGE + r"eyJ[A-Za-z0-9_-]{10,4096}\.[A-Za-z0-9_-]{10,16384}(?:\.[A-Za-z0-9_-]{5,4096})?",
          ("eyJ",)),
    Shape("bearer", _WORD + r"(?P<head>bearer[ \t]{1,4})(?P<value>[A-Za-z0-9._~+/=-]{12,4096})",
          ("bearer",), folded=True, replaced=_bearer),
    Shape("basic-auth", _WORD + r"(?P<head>basic[ \t]{1,4})(?P<value>[A-Za-z0-9+/]{6,1024}={0,2})",
          ("basic",), folded=True, replaced=_basic),
    Shape(
        "header",
        (_WORD + r"(?P<head>(?:proxy-)?authorization\\{0,2}[\"']?[ \t]{0,4}[:=][ \t]{0,4}\\{0,2}[\"']?"
            r"(?!(?:bearer|basic)\b)(?:[a-z][a-z0-9-]{1,20}[ \t]{1,4})?)(?P<value>[^\s\"'\\,;}\])(]{8,4096})"),
        ("authorization",), folded=True, replaced=_header,
    ),
    Shape(
        "header",
        _WORD + r"(?P<head>(?:set-)?cookie:[ \t]{0,4})(?P<value>[^\s\"'\\=;]{1,128}=[^\r\n\"'\\]{6,4096})",
        ("cookie:",), folded=True, replaced=_header,
    ),
    Shape("url-password", r"(?<=://)(?P<login>[^\s:/@\"'<>]{0,256}(?::[^\s/\"'<>]{1,256})?)(?=@[A-Za-z0-9\[])",
          ("://",), replaced=_login),
    Shape(
        "password",
        (r"(?P<head>(?<![^\s\"'`])(?:-u|--user|--proxy-user)[ =]?[\"']?[^\s:\"'/\\-][^\s:\"'/\\]{0,127}:)"
            r"(?P<value>[^\s\"'\\]{3,512})"),
        ("-u", "--user", "--proxy-user"), replaced=_option_user,
    ),
    Shape("password", _WORD + r"(?P<head>sshpass[ ]+-p[ ]*[\"']?)(?P<value>[^\s\"'\\]{3,512})",
          ("sshpass",), replaced=_value),
    Shape(
        "password",
        _WORD + r"(?P<head>login\s{1,4}\S{1,128}\s{1,4}password\s{1,4})(?P<value>[^\s\"'\\]{3,512})",
        ("login",), folded=True, replaced=_value,
    ),
    Shape(
        "password",
        (rf"(?P<head>(?:{'|'.join(HAN_NAMES)})\\{{0,2}}[\"'`”」]?\s{{0,4}}(?:是|为|:|：|=|＝)\s{{0,4}}\\{{0,2}}[\"'`“「]?)"
            rf"(?P<value>[{_SIGNS}][{_SIGNS}\x00-\x08\x0e-\x1b\x7f]{{3,511}})"),
        HAN_NAMES, replaced=_han_value,
    ),
)  # fmt: skip
"""All forms, narrower ones before wider ones."""
