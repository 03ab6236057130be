"""Whether the bytes of an event may hold a secret, told without parsing and without regular expressions.

`suspicious` answers yes for everything that `optimizer.redact` would change, and rarely for anything else; a false
alarm costs time, a miss would store a secret. The lists here are the ones that the redaction builds its patterns from.
"""

MARKS = (
    *("sk-", "sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_", "AKIA", "ASIA", "ABIA", "ACCA", "ghp_", "gho_"),
    *("ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "glptt-", "gldt-", "glrt-", "glcbt-", "glft-", "glsoat-"),
    *("glagent-", "gloas-", "hf_", "api_org_", "AIza", "GOCSPX-", "ya29.", "1//0", "xox", "xapp-", "npm_", "pypi-AgE"),
    *("rubygems_", "dop_v1_", "doo_v1_", "dor_v1_", "SG.", "key-", "SK", "shpat_", "shpca_", "shppa_", "shpss_"),
    *("sq0atp-", "sq0csp-", "dapi", "lin_api_", "secret_", "ntn_", "figd_", "gsk_", "r8_", "pplx-", "xai-", "nvapi-"),
    *("tgp_v1_", "sntrys_", "sntryu_", "NRAK-", "glsa_", "glc_", "hvs.", "hvb.", "dp.pt.", "dp.st.", "pul-", "sbp_"),
    *("pscale_tkn_", "pscale_oauth_", "PMAK-", "LTAI", "AKID", "AGE-SECRET-KEY-1", "dckr_pat_", "FlyV1 ", "EAA"),
    *("mcpevo_", "HRKU-", "eyJ", "ATATT3", "ATCTT3", "tskey-", "xkeysib-", "re_", "CFPAT-", "nfp_", "lsv2_", "jina_"),
)  # fmt: skip
"""Beginnings of keys by which their makers are known; no letter or digit stands before them."""

ANYWHERE = ("PRIVATE KEY", "Private-Lines:", "hooks.slack.com/", "/api/webhooks/", ".atlasv1.", "-us", ":AA", "Q~")
"""Other fixed parts of such shapes."""

HAN_NAMES = ("密码", "口令", "密钥", "秘钥", "私钥")
"""Chinese words for passwords and secret keys. The word for token is left out: it mostly counts a model's."""

STRONG_NAMES = (
    *("password", "passwd", "passphrase", "secret", "apikey", "api_key", "api-key", "accesskey", "access_key"),
    *("access-key", "secretkey", "secret_key", "secret-key", "secret_key_base", "privatekey", "private_key"),
    *("private-key", "accountkey", "account_key", "account-key", "sharedaccesskey", "signingkey", "signing_key"),
    *("signing-key", "encryptionkey", "encryption_key", "encryption-key", "masterkey", "master_key", "master-key"),
    *("accesstoken", "access_token", "access-token", "authtoken", "auth_token", "auth-token", "refreshtoken"),
    *("refresh_token", "refresh-token", "sessiontoken", "session_token", "session-token", "bottoken", "bot_token"),
    *("bot-token", "apitoken", "api_token", "api-token", "idtoken", "id_token", "id-token", "bearer_token"),
    *("bearer-token", "connectionstring", "connection_string", "connection-string", "credential", "credentials"),
    *("sharedaccesssignature", "pwd"),
)  # fmt: skip
"""Ends of names, folded, whose value is a secret whatever it looks like."""

WEAK_NAMES = ("token", "key", "pass", "auth", "pat", "sig", "_dsn")
"""Ends of names whose value is a secret where it looks like one: long, and drawn at random."""

LAST_WORDS = (
    *("password", "passwd", "passphrase", "secret", "secret_key_base", "connectionstring", "connection_string"),
    *("connection-string", "credential", "credentials", "sharedaccesssignature", "pwd", "token", "key", "pass", "auth"),
    *("pat", "sig", "_dsn"),
)
"""The names that end with no other name: whoever finds these finds them all. Written out, as is everything here: it is
paid for by each event."""

HEADERS = ("bearer", "basic", "authorization", "cookie")
"""Words before the secrets of HTTP."""

_NOISE = b"\\\"'` t"
"""What may stand between a name and its sign in JSON, also escaped once more (`\\t` is a tab)."""

_TOKEN = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.+/=~"
"""What keys consist of; at least eight of these stand behind a mark."""

_ALPHANUMERIC = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
_SPLIT = bytes(code if code in _ALPHANUMERIC else 32 for code in range(256))
"""Everything but letters and digits becomes a space: what is left are the words that marks and names consist of."""

_ESCAPES = frozenset(b"nrtbf")
"""Letters that a word may begin with because of an escape before it (`\\nsk-…`)."""

_MARK_BYTES = tuple(mark.encode() for mark in MARKS)
_ANYWHERE_BYTES = (
    *(mark.encode() for mark in ANYWHERE),
    *(name.encode() for name in HAN_NAMES),
    *(name.encode("ascii", "backslashreplace") for name in HAN_NAMES),  # as JSON may be written, too
)
_NAME_BYTES = tuple(name.encode() for name in LAST_WORDS)
_HEADER_BYTES = frozenset(name.encode() for name in HEADERS)

_BY_HEAD: dict[bytes, list[bytes]] = {}
"""First word of a mark → the marks; for those that end in their first word, its first two letters."""
for _mark in _MARK_BYTES:
    _head = _mark.translate(_SPLIT).split()[0]
    _BY_HEAD.setdefault(_head if _head != _mark else _head[:2], []).append(_mark)
_HEADS = frozenset(_BY_HEAD)

_BY_TAIL: dict[bytes, list[bytes]] = {}
"""Last three letters of a name → the names."""
for _name in _NAME_BYTES:
    _BY_TAIL.setdefault(_name[-3:], []).append(_name)
_TAILS = frozenset(_BY_TAIL)


def suspicious(data: bytes) -> bool:
    """Whether the bytes of a JSON event may hold a secret."""
    words = _words(data)
    return _has_key(data, words) or _has_word(data, words) or _has_login(data)


def marks_in(data: bytes) -> tuple[str, ...]:
    """Those of `MARKS` with which a word of a text, or of a text in JSON, may begin."""
    return tuple(mark.decode() for mark in _marks(_words(data)) if mark in data)


def _words(data: bytes) -> set[bytes]:
    """The words, and what is left of them behind an escape."""
    words = set(data.translate(_SPLIT).split())
    unescaped = {word[1:] for word in words if word[0] in _ESCAPES}
    return words | unescaped | {word[5:] for word in words if word.startswith(b"u")}


def _marks(words: set[bytes]) -> list[bytes]:
    """The marks whose first words are among these."""
    return [mark for head in _HEADS & (words | {word[:2] for word in words}) for mark in _BY_HEAD[head]]


def _has_key(data: bytes, words: set[bytes]) -> bool:
    if any(part in data for part in _ANYWHERE_BYTES):
        return True
    for mark in _marks(words):
        at = data.find(mark)
        while at >= 0:
            behind = data[at + len(mark) : at + len(mark) + 8]
            if len(behind) == 8 and not behind.translate(None, _TOKEN) and _begins(data, at):
                return True
            at = data.find(mark, at + 1)
    return False


def _begins(data: bytes, at: int) -> bool:
    """Whether a word begins at `at`: nothing alphanumeric before it, or the letter of an escape (`\\n`, `\\u0020`)."""
    if at == 0 or not data[at - 1 : at].isalnum():
        return True
    return b"\\" in data[max(at - 6, 0) : at]


def _has_word(data: bytes, words: set[bytes]) -> bool:
    """A word of HTTP or of a login, or a name that may hold a secret with a sign and a value behind it."""
    small = {word.lower() for word in words}
    if not small.isdisjoint(_HEADER_BYTES) or b"sshpass" in small or (b"login" in small and b"password" in small):
        return True
    tails = _TAILS & {word[-3:] for word in small}
    if not tails:
        return False
    folded = data.lower()
    return any(_is_assigned(folded, name) for tail in tails for name in _BY_TAIL[tail])


def _is_assigned(folded: bytes, name: bytes) -> bool:
    at = folded.find(name)
    while at >= 0:
        end = at + len(name)
        rest = folded[end : end + 24].lstrip(_NOISE)
        if rest[:1] in (b":", b"=", b","):
            return True
        if folded[end : end + 1] in b" =" and b"--" in folded[max(at - 64, 0) : at]:
            return True
        at = folded.find(name, end)
    return False


def _has_login(data: bytes) -> bool:
    """A URL with somebody before its host, or a user with a password behind an option."""
    for sign in (b"://", b":\\/\\/"):
        at = data.find(sign)
        while at >= 0:
            begin = at + len(sign)
            end = data.find(b"@", begin, begin + 600)
            if end >= 0 and not any(part in data[begin:end] for part in (b"/", b" ", b'"')):
                return True
            at = data.find(sign, begin)
    at = data.find(b"-u")  # -u, --user, --proxy-user
    while at >= 0:
        word = data[at + 2 : at + 162].removeprefix(b"ser").lstrip(b" =\\\"'").partition(b" ")[0]
        if b":" in word:
            return True
        at = data.find(b"-u", at + 2)
    return False
