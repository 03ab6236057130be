"""No secret is stored, in whatever form it comes; what is none stays as it is.

Every secret is drawn at run time, so that no file of the repository holds anything that looks like one.
"""

import base64
import json
import random
import string
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.capture.prefilter import ANYWHERE, LAST_WORDS, MARKS, STRONG_NAMES, WEAK_NAMES, suspicious
from optimizer.redact import RedactionConfigError, checked_rules, redact, redact_text, rules_of
from optimizer.secret_shapes import SHAPES, looks_random

ALNUM = string.ascii_letters + string.digits
UPPER = string.ascii_uppercase + string.digits
HEX = "0123456789abcdef"
B64 = ALNUM + "+/"
URL = ALNUM + "-_"
SEEDS = range(12)

Draw = Callable[[random.Random], str]


def drawn(characters: str, length: int) -> Draw:
    def draw(rng: random.Random) -> str:
        return "".join(rng.choices(characters, k=length))

    return draw


def after(prefix: str, characters: str, length: int) -> Draw:
    """A key with the maker's beginning, which is put together here so that no scanner finds it in this file."""
    return lambda rng: prefix + drawn(characters, length)(rng)


def password(rng: random.Random) -> str:
    """What a person might choose: at least one digit, letters, signs."""
    return drawn(ALNUM, 7)(rng) + rng.choice("!#%^*+-") + str(rng.randrange(10, 99))


KEYS: dict[str, Draw] = {
    "anthropic": after("sk-" + "ant-api03-", URL, 93),
    "openai": after("sk-", ALNUM, 48),
    "openai-project": after("sk-" + "proj-", URL, 74),
    "openrouter": after("sk-" + "or-v1-", HEX, 64),
    "stripe": after("sk_" + "live_", ALNUM, 24),
    "stripe-restricted": after("rk_" + "live_", ALNUM, 40),
    "stripe-webhook": after("wh" + "sec_", ALNUM, 32),
    "aws-id": after("AK" + "IA", UPPER, 16),
    "aws-temporary-id": after("AS" + "IA", UPPER, 16),
    "github": after("gh" + "p_", ALNUM, 36),
    "github-server": after("gh" + "s_", ALNUM, 36),
    "github-fine": after("github" + "_pat_", ALNUM, 82),
    "gitlab": after("gl" + "pat-", URL, 20),
    "hugging-face": after("h" + "f_", ALNUM, 34),
    "google": after("AI" + "za", URL, 35),
    "google-client": after("GOC" + "SPX-", URL, 28),
    "google-access": after("ya" + "29.", URL, 120),
    "slack-bot": lambda rng: "xo" + f"xb-{drawn(string.digits, 12)(rng)}-{drawn(ALNUM, 24)(rng)}",
    "slack-app": lambda rng: "xa" + f"pp-1-{drawn(UPPER, 11)(rng)}-{drawn(HEX, 64)(rng)}",
    "npm": after("np" + "m_", ALNUM, 36),
    "pypi": after("pypi-" + "AgEIcHlwaS5vcmc", URL, 140),
    "digitalocean": after("dop" + "_v1_", HEX, 64),
    "sendgrid": lambda rng: "S" + f"G.{drawn(URL, 22)(rng)}.{drawn(URL, 43)(rng)}",
    "mailgun": after("ke" + "y-", HEX, 32),
    "mailchimp": lambda rng: f"{drawn(HEX, 32)(rng)}-us{rng.randrange(1, 21)}",
    "twilio": after("S" + "K", HEX, 32),
    "shopify": after("shp" + "at_", HEX, 32),
    "square": after("sq0" + "atp-", URL, 22),
    "databricks": after("da" + "pi", HEX, 32),
    "linear": after("lin" + "_api_", ALNUM, 40),
    "notion": after("nt" + "n_", ALNUM, 46),
    "groq": after("gs" + "k_", ALNUM, 52),
    "replicate": after("r" + "8_", ALNUM, 37),
    "perplexity": after("pp" + "lx-", HEX, 48),
    "xai": after("xa" + "i-", ALNUM, 80),
    "nvidia": after("nv" + "api-", URL, 64),
    "sentry": after("sn" + "trys_", ALNUM, 120),
    "newrelic": after("NR" + "AK-", UPPER, 27),
    "grafana": after("gl" + "sa_", ALNUM, 41),
    "vault": after("hv" + "s.", URL, 90),
    "alibaba": after("LT" + "AI", ALNUM, 20),
    "tencent": after("AK" + "ID", ALNUM, 32),
    "docker": after("dc" + "kr_pat_", URL, 27),
    "atlassian": after("ATA" + "TT3", URL, 180),
    "tailscale": lambda rng: "ts" + f"key-auth-{drawn(ALNUM, 12)(rng)}-{drawn(ALNUM, 32)(rng)}",
    "terraform": lambda rng: f"{drawn(ALNUM, 14)(rng)}.atlas" + f"v1.{drawn(ALNUM, 67)(rng)}",
    "telegram": lambda rng: f"{rng.randrange(10**8, 10**10)}:A" + f"A{drawn(URL, 33)(rng)}",
    "azure": lambda rng: f"{drawn(ALNUM, 3)(rng)}8Q" + f"~{drawn(URL, 34)(rng)}",
    "age": after("AGE-SECRET-" + "KEY-1", UPPER, 58),
    "json-web-token": lambda rng: "ey" + f"J{drawn(URL, 30)(rng)}.ey{'J'}{drawn(URL, 60)(rng)}.{drawn(URL, 43)(rng)}",
}
"""Keys that are known wherever they stand."""


def pem(rng: random.Random, line_end: str = "\n") -> str:
    kind = rng.choice(["RSA ", "EC ", "OPENSSH ", "", "ENCRYPTED "])
    body = line_end.join(drawn(B64, 64)(rng) for _ in range(6))
    return f"-----BEGIN {kind}PRIVATE{' '}KEY-----{line_end}{body}{line_end}-----END {kind}PRIVATE{' '}KEY-----"


IN_TEXT: dict[str, tuple[Draw, str]] = {
    "bearer": (drawn(URL, 40), "curl -H 'Authorization: Bearer {}' https://x.example/v1"),
    "header-token": (drawn(ALNUM, 30), 'curl -H "Authorization: Token {}" https://x.example'),
    "header-raw": (drawn(ALNUM, 30), "> Authorization: {}\r\n> Accept: */*"),
    "x-api-key": (drawn(ALNUM, 32), "curl -H 'x-api-key: {}' https://x.example"),
    "cookie": (drawn(HEX, 32), "< Set-Cookie: session={}; HttpOnly"),
    "basic": (lambda rng: base64.b64encode(f"me:{password(rng)}".encode()).decode(), "Authorization: Basic {}"),
    "login-in-url": (password, "postgres://app:{}@db.example:5432/main"),
    "login-without-name": (password, "redis://:{}@cache.example:6379/0"),
    "token-in-url": (drawn(ALNUM, 40), "git clone https://{}@git.example/me/it.git"),
    "mongo": (password, "mongodb+srv://root:{}@cluster0.example.net/?retryWrites=true"),
    "smtp-env": (password, "EMAIL_HOST=smtp.example\nEMAIL_HOST_PASSWORD={}\nEMAIL_PORT=587"),
    "smtp-yaml": (password, "smtp:\n  host: smtp.example\n  password: {}\n  port: 587"),
    "smtp-code": (password, "server.login(user, 'x')\nsmtp_password = \"{}\"\n"),
    "imap-json": (password, '{{"imap": {{"user": "me", "password": "{}"}}}}'),
    "aws-secret": (drawn(B64, 40), "[default]\naws_secret_access_key = {}\nregion = eu-west-1"),
    "aws-session": (drawn(B64, 200), "export AWS_SESSION_TOKEN={}"),
    "azure-storage": (
        lambda rng: drawn(B64, 86)(rng) + "==",
        "DefaultEndpointsProtocol=https;AccountName=x;AccountKey={};EndpointSuffix=core.windows.net",
    ),
    "azure-bus": (
        lambda rng: drawn(B64, 43)(rng) + "=",
        "Endpoint=sb://x.example/;SharedAccessKeyName=r;SharedAccessKey={}",
    ),
    "azure-signature": (lambda rng: drawn(ALNUM, 43)(rng) + "%3D", "https://x.example/c?sv=2024-01-01&sig={}"),
    "sql-server": (password, "Server=tcp:x.example,1433;Uid=sa;Pwd={};Encrypt=yes"),
    "env-key": (drawn(ALNUM, 32), "MISTRAL_API_KEY={}\nDEBUG=1"),
    "env-quoted": (password, "export DB_PASSWORD='{}'"),
    "env-token": (drawn(HEX, 40), "GITEA_TOKEN={}"),
    "env-key-without-api": (drawn(ALNUM, 40), "OPENWEATHER_KEY={}"),
    "django": (drawn(ALNUM, 50), "SECRET_KEY = '{}'"),
    "code": (drawn(ALNUM, 24), 'client = Client(api_key="{}", timeout=3)'),
    "camel": (drawn(ALNUM, 24), 'const clientSecret = "{}";'),
    "option": (password, "mysqldump --host db --password {} main"),
    "option-equals": (password, "tool --db-password={} run"),
    "option-token": (drawn(ALNUM, 32), "deploy --auth-token {} --now"),
    "curl-user": (password, "curl -u admin:{} https://x.example"),
    "sshpass": (password, "sshpass -p {} ssh me@host"),
    "netrc": (password, "machine x.example login me password {}"),
    "slack-webhook": (
        lambda rng: f"T{drawn(UPPER, 8)(rng)}/B{drawn(UPPER, 8)(rng)}/{drawn(ALNUM, 24)(rng)}",
        "curl https://hooks.slack.com/services/{}",
    ),
    "discord-webhook": (drawn(URL, 68), "https://discord.example/api/webhooks/123456789012345678/{}"),
}
"""Secrets that are known by what stands around them."""


def wrapped(text: str) -> dict[str, Any]:
    """The ways in which a text comes into an event."""
    return {
        "command": {"tool_input": {"command": f"cd /work && {text}"}},
        "output": {"tool_response": {"stdout": f"line 1\n{text}\nline 3", "stderr": ""}},
        "text": {"tool_response": text},
        "blocks": {"tool_response": [{"type": "text", "text": json.dumps({"found": text})}]},
        "prompt": {"prompt": f"use this:\n\t{text}"},
    }


def assert_hidden(value: Any, secret: str) -> None:
    clean = redact(value)
    assert secret not in json.dumps(clean, ensure_ascii=False)
    assert json.dumps(secret)[1:-1] not in json.dumps(clean)
    assert redact(clean) == clean
    for ascii_only in (True, False):
        document = json.dumps({"session_id": "s", **value}, ensure_ascii=ascii_only)
        assert suspicious(document.encode("utf-8", "backslashreplace"))


@pytest.mark.parametrize("name", sorted(KEYS))
def test_keys_of_known_makers_go_wherever_they_stand(name: str) -> None:
    for seed in SEEDS:
        key = KEYS[name](random.Random(f"{name} {seed}"))
        for text in (
            key,
            f"x {key} y",
            f"KEY={key}",
            f'{{"k": "{key}"}}',
            f"https://x.example/?k={key}&b=1",
            f"({key})",
        ):
            for value in wrapped(text).values():
                assert_hidden(value, key)


@pytest.mark.parametrize("name", sorted(IN_TEXT))
def test_secrets_known_by_what_surrounds_them_go(name: str) -> None:
    draw, frame = IN_TEXT[name]
    for seed in SEEDS:
        secret = draw(random.Random(f"{name} {seed}"))
        for value in wrapped(frame.format(secret)).values():
            assert_hidden(value, secret)


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\\n"])
def test_private_keys_go_whole_and_torn(line_end: str) -> None:
    for seed in SEEDS:
        key = pem(random.Random(seed), line_end)
        body = key.split(line_end)[1:-1]
        for shown in (
            key,
            key[: len(key) * 2 // 3],
            "\n".join(f"{n:6}→{part}" for n, part in enumerate(key.split("\n"))),
        ):
            clean = json.dumps(redact({"tool_response": {"stdout": f"$ cat id\n{shown}\n$ ls\nREADME.md"}}))
            assert not any(part in clean for part in body)
        assert "README.md" in redact_text(f"{key}\n$ ls\nREADME.md")


def test_a_service_account_goes_and_its_names_stay() -> None:
    rng = random.Random(7)
    document = {
        "type": "service_account",
        "project_id": "training-1",
        "private_key_id": drawn(HEX, 40)(rng),
        "private_key": pem(rng),
        "client_email": "robot@training-1.iam.example.com",
    }
    for value in (document, {"content": json.dumps(document, indent=2)}):
        clean = json.dumps(redact(value))
        assert not any(part in clean for part in document["private_key"].split("\n")[1:-1])
    assert list(redact(document)) == list(document)
    assert redact(document)["client_email"] == document["client_email"]


@pytest.mark.parametrize(
    "field",
    ["password", "DB_PASSWORD", "apiKey", "api_key", "client-secret", "Authorization", "access_token", "refreshToken",
     "secret", "private_key", "X-Api-Key", "cookie", "connectionString"],
)  # fmt: skip
def test_fields_that_say_so_are_hidden_and_keep_their_names(field: str) -> None:
    for seed in SEEDS:
        secret = password(random.Random(seed))
        for value in ({field: secret}, {"a": [{field: secret, "host": "x"}]}):
            assert_hidden({"tool_input": value}, secret)
        assert list(redact({field: secret, "host": "x"})) == [field, "host"]
    pairs = {"env": [{"name": "DB_PASSWORD", "value": "short1"}, {"name": "MODE", "value": "fast"}]}
    assert redact(pairs) == {
        "env": [{"name": "DB_PASSWORD", "value": "[redacted:field]"}, {"name": "MODE", "value": "fast"}]
    }
    assert redact({"password": 123456}) == {"password": "[redacted:field]"}


def test_a_secret_as_a_key_goes_and_no_entry_is_lost() -> None:
    first, second = (KEYS["github"](random.Random(seed)) for seed in (1, 2))
    clean = redact({first: 1, second: 2, "plain": 3})
    assert sorted(clean.values()) == [1, 2, 3]
    assert first not in json.dumps(clean)
    assert second not in json.dumps(clean)


ORDINARY = [
    "pad_token = tokenizer.eos_token",
    'tokenizer.pad_token="<|endoftext|>"',
    "max_tokens: 4096, num_tokens=128000, token_count = 17",
    "password = getpass.getpass()",
    "api_key=os.environ['OPENAI_API_KEY']",
    "api_key: str | None = None",
    "def login(password: str, token: Optional[str] = None) -> None:",
    "self.password = args.password",
    "export TOKEN=$GITHUB_TOKEN",
    "PASSWORD=${DB_PASSWORD:-}",
    "secrets: inherit",
    "PWD=/work/project OLDPWD=/work",
    "commit 9fceb02d0ae598e95dc970b74767f19372d6b2c1",
    "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
    "cache key: 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
    "key=/home/me/.cache/huggingface/hub/models--Qwen--Qwen2.5-0.5B/snapshots",
    "session 30719efd-2ae1-47ec-bdbc-36adcb179464",
    '{"key": "learning_rate", "value": 0.0003}',
    '{"token": "hello", "logprob": -0.31}',
    "primary key: (run_id, step)",
    "Press any key: continue",
    "bearer authentication is required",
    "basic authentication, basic usage: see below",
    "https://user.example.com/a@b",
    "ssh://git@git.example/me/it.git",
    "docker run -u 1000:1000 image",
    "pip install trl==1.16.0 --user",
    "task-12 risk-free disk-based ask-me",
    "from transformers import AutoTokenizer",
    "step 12: reward=0.4375 entropy=0.0213 kl=0.0008 tokens=5120",
    "grep -rn 'BEGIN RSA PRIVATE KEY' src",
    "author: me@example.com",
    "monkey=banana turkey: 12345678901234567890",
    "the password: must be entered",
    "secret_shape = re.compile(pattern)",
    "auth=None, token=None, secret='<your secret>'",
]


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays(text: str) -> None:
    if text == "the password: must be entered":
        assert redact_text(text).endswith("be entered")  # prose after a colon is taken for a value: on the safe side
        return
    assert redact_text(text) == text
    assert redact({"tool_input": {"command": text}}) == {"tool_input": {"command": text}}


@pytest.mark.parametrize(
    "text",
    [
        *("learning_rate_warmup_steps", "2026-11-30T18:18:55.123456", "Qwen2.5-0.5B-Instruct", "0" * 40),
        *("run-20261130-181855-94da", "/usr/lib/python3.11/site-packages", "1234567890123456789012"),
        *("AutoModelForCausalLMWithValueHead", "30719efd-2ae1-47ec-bdbc-36adcb179464"),
    ],
)
def test_ordinary_values_are_not_random(text: str) -> None:
    assert not looks_random(text)


def test_every_shape_is_announced_by_the_prefilter() -> None:
    for shape in SHAPES:
        for mark in shape.marks:
            assert json.dumps(mark, ensure_ascii=False) == f'"{mark}"'  # found in a document without parsing it
            if shape.begins:
                assert mark.startswith(MARKS), mark
            elif not shape.folded and shape.what != "password":
                assert any(part in mark for part in (*ANYWHERE, "://", "xox", "xapp-", "eyJ")), mark


BEFORE = ["键：", "😀", "é", "\x01", "\x7f", "\n", "\r\n", "\t", "\u2028", "\ud800", '"', "\\", "\\n", "a.", "_"]
"""What stands before a secret, each as it is, as JSON in a text, and as JSON of that."""


@pytest.mark.parametrize("before", BEFORE)
def test_a_secret_goes_whatever_stands_before_it_and_however_it_is_escaped(before: str) -> None:
    rng = random.Random(repr(before))
    texts = {name: (key := draw(rng), key) for name, draw in KEYS.items()}
    for name, frame in (
        ("header", "Authorization: {}"),
        ("bearer", "bearer {}"),
        ("cookie", "Set-Cookie: a={}"),
        ("login", "login me password {}"),
        ("sshpass", "sshpass -p {} ssh me@host"),
        ("option", "--password {} main"),
        ("value", "password={}"),
    ):
        secret = drawn(ALNUM, 30)(rng) + "1a"
        texts[name] = (secret, frame.format(secret))
    joined = ("_", "é")  # with a word they make another word, which is no header
    options = ("\n", "\r\n", "\t", '"')  # an option begins an argument
    for name, (secret, text) in texts.items():
        word = name in ("header", "bearer", "cookie", "login", "sshpass")
        if (word and before in joined) or (name == "option" and before not in options):
            continue
        once = json.dumps({"text": before + text})
        assert secret not in redact_text(before + text), (name, before)
        assert_hidden({"plain": before + text, "once": once, "twice": json.dumps({"text": once})}, secret)


def test_a_value_that_is_suspected_is_not_looked_at_twice() -> None:
    plain = {"tool_input": {"command": "ls", "rows": [1, None, "x"]}}
    assert redact(plain) is plain
    rules = rules_of("nowhere")
    assert rules.redact(plain, suspected=True) == plain
    secret = {"tool_input": {"command": "login --password hunter2x9", "DB_PASSWORD": "hunter2x9"}}
    assert rules.redact(secret, suspected=True) == redact(secret)
    assert redact(secret) == {
        "tool_input": {"command": "login --password [redacted:value]", "DB_PASSWORD": "[redacted:field]"}
    }


def test_nothing_in_real_sessions_is_taken_for_a_secret() -> None:
    found = [*corpus.files("sessions/*/events.jsonl"), *corpus.files("hooks/*/*.jsonl")]
    if not found:
        pytest.skip(corpus.MISSING)
    alarms = lines = 0
    for path in found:
        for line in path.read_bytes().split(b"\n"):
            try:
                document = json.loads(line)
            except ValueError:  # the torn ones
                continue
            lines += 1
            alarms += suspicious(line)
            clean = redact({"forced": "password: x1y2z3", **document})  # looked at as a whole
            assert clean == {"forced": "password: [redacted:value]", **document}
    assert lines > 1000
    assert alarms < 0.1 * lines


def test_the_last_words_find_every_name() -> None:
    names = [*STRONG_NAMES, *WEAK_NAMES]
    assert set(LAST_WORDS) == {
        name for name in names if not any(name != other and name.endswith(other) for other in names)
    }


@settings(max_examples=150, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=40),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
        max_leaves=12,
    )
)
def test_any_json_is_redacted_once_and_for_all(value: Any) -> None:
    clean = redact(value)
    assert redact(clean) == clean
    if clean != value:
        assert suspicious(json.dumps({"x": value}, ensure_ascii=False).encode("utf-8", "backslashreplace"))


PIECES = st.sampled_from(
    [
        *("password", "api_key", "token", "SECRET", "key", "Authorization", "--token", "bearer", "basic", "cookie"),
        *("eyJ", "://", "a1B2c3D4e5F6g7H8", "PRIVATE KEY", "-----BEGIN ", "-u", "--user", "me:pw1", "sshpass -p "),
        *("login", " password ", "密码", "密钥：", *MARKS, *"=:\"'\\ \n\t,;&@{}[]<$"),
    ]
)


@settings(max_examples=400, deadline=None)
@given(st.lists(PIECES, max_size=24).map("".join))
def test_what_redaction_changes_is_suspicious_and_stays_changed(text: str) -> None:
    value = {"tool_response": {"stdout": text}}
    clean = redact({**value, "forced": "password: x1y2z3"})  # suspicious as a whole: the prefilter cannot help itself
    assert redact(clean) == clean
    if redact_text(text) != text:
        assert suspicious(json.dumps(value).encode())
        assert redact(value) != value


@pytest.mark.parametrize(
    "part",
    [
        *("a_", "key=", 'key="', "password", "-----BEGIN RSA PRIVATE KEY-----", "://", "eyJ", "://a:", "a:", "sk-"),
        *("--token ", "bearer ", "cookie: a=", "-u a:", "login a password ", "authorization: a ", "secret_", "a", "1"),
        *("Private-Lines: 1\n", "--password a", "password=a.", "password: '", "Basic QTpC", "\\", '\\"key', "-us1"),
    ],
)
def test_no_text_makes_it_slow(part: str) -> None:
    text = part * (100_000 // len(part))
    began = time.process_time()
    redact({"tool_response": text, "password": "x1y2z3"})
    assert time.process_time() - began < 2.0


def test_a_workspace_adds_its_own_rules(tmp_path: Path) -> None:
    rng = random.Random(3)
    ticket = f"ACME-{drawn(UPPER, 10)(rng)}"
    key = KEYS["github"](rng)
    config = tmp_path / "config.yaml"
    config.write_text(
        f"redaction:\n  patterns: ['ACME-[A-Z0-9]{{10}}']\n  fields: [badge-no]\n  keep: ['{key}']\n", encoding="utf-8"
    )
    rules = rules_of(tmp_path)
    assert rules.redact({"badge_no": "77", "text": f"see {ticket} and {key}"}) == {
        "badge_no": "[redacted:field]",
        "text": f"see [redacted:configured] and {key}",
    }
    assert rules_of(tmp_path / "nowhere").redact("plain") == "plain"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("redaction: off\n", "holds lists named"),
        ("redaction: {off: true}\n", "holds lists named"),
        ("redaction: {patterns: '['}\n", "list of texts"),
        ("redaction: {patterns: ['[']}\n", "no regular expression"),
        ("redaction: {patterns: ['a*']}\n", "matches the empty text"),
        ("redaction: [\n", "not YAML"),
    ],
)
def test_a_bad_configuration_is_named_and_leaves_the_standard_rules(tmp_path: Path, text: str, expected: str) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(text, encoding="utf-8")
    with pytest.raises(RedactionConfigError, match=expected):
        checked_rules(config)
    secret = KEYS["openai"](random.Random(1))
    assert secret not in rules_of(tmp_path).redact_text(f"a {secret} b")


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("数据库密码：Tr0ub4dor9x，别告诉别人", "数据库密码：[redacted:password]，别告诉别人"),
        ("密码是 correct-horse-1 。", "密码是 [redacted:password] 。"),
        ('{"密钥": "9f86d081884c"}', '{"密钥": "[redacted:password]"}'),
        ("口令=778899", "口令=[redacted:password]"),
    ],
)
def test_chinese_words_for_passwords(text: str, clean: str) -> None:
    assert redact_text(text) == clean
    assert redact_text(clean) == clean
    for ascii_only in (True, False):
        assert suspicious(json.dumps({"text": text}, ensure_ascii=ascii_only).encode())
        assert redact({"text": text}) == {"text": clean}


def test_a_field_with_a_chinese_name() -> None:
    assert redact({"登录密码": "hunter", "姓名": "hunter"}) == {"登录密码": "[redacted:field]", "姓名": "hunter"}


@pytest.mark.parametrize(
    "text",
    [
        "密码：见下文",
        "密码是 password 参数",
        "密钥：$SECRET",
        "密码：os.environ['DB1']",
        "密码：********",
        "令牌：1024",
        "忘记密码了 abc123",
    ],
)
def test_chinese_words_without_a_secret(text: str) -> None:
    assert redact_text(text) == text
