"""Model names: aliases, hub ids, folders, GGUF files, and parameter counts worked out by hand."""

import json
import struct
from pathlib import Path

import pytest

from trainer.config import ConfigError
from trainer.models.catalog import (
    CATALOG,
    ModelKind,
    aliases,
    config_params,
    default_lora,
    folder_params,
    gguf_params,
    params_in_name,
    resolve_model,
)

QWEN_05B = {
    "vocab_size": 151936,
    "hidden_size": 896,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "intermediate_size": 4864,
    "tie_word_embeddings": True,
}


def write_safetensors(path: Path, shapes: dict[str, list[int]]) -> None:
    header = {name: {"dtype": "F16", "shape": shape, "data_offsets": [0, 0]} for name, shape in shapes.items()}
    raw = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw)


def gguf_text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def write_gguf(path: Path, shapes: dict[str, list[int]], version: int = 3) -> None:
    pairs = [
        gguf_text("general.name") + struct.pack("<I", 8) + gguf_text("little"),
        gguf_text("llama.context_length") + struct.pack("<II", 4, 2048),
        gguf_text("tokenizer.tokens") + struct.pack("<IIQ", 9, 8, 2) + gguf_text("a") + gguf_text("bc"),
        gguf_text("tokenizer.types") + struct.pack("<IIQ", 9, 5, 3) + struct.pack("<3i", 1, 2, 3),
    ]
    tensors = [
        gguf_text(name)
        + struct.pack("<I", len(shape))
        + struct.pack(f"<{len(shape)}Q", *shape)
        + struct.pack("<IQ", 0, 0)
        for name, shape in shapes.items()
    ]
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs)) + b"".join(pairs + tensors))


@pytest.mark.parametrize(
    ("text", "alias"),
    [
        ("tiny", "tiny"),
        ("TINY", "tiny"),
        ("smollm2-135m", "smollm2-135m"),
        ("SmolLM2 135M", "smollm2-135m"),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "smollm2-135m"),
        ("qwen-0.5b", "qwen-0.5b"),
        ("Qwen2.5-0.5B-Instruct", "qwen-0.5b"),
        ("qwen 2.5 0.5b", "qwen-0.5b"),
        ("qwen_1.5b", "qwen2.5-1.5b"),
        ("qwen3-0.6b", "qwen3-0.6b"),
    ],
)
def test_aliases_in_many_spellings(text: str, alias: str) -> None:
    found = resolve_model(text)
    assert found.alias == alias
    assert found.kind is (ModelKind.BUNDLED if alias == "tiny" else ModelKind.HUB)
    assert found.name == alias


def test_every_alias_resolves_to_itself_and_no_alias_is_given_twice() -> None:
    names = [alias for entry in CATALOG for alias in entry.aliases]
    assert len(names) == len(set(names))
    for name in aliases():
        assert resolve_model(name).alias == name


def test_an_unlisted_hub_id_takes_its_size_from_its_name() -> None:
    found = resolve_model("some-org/Some-Model-1.5B-Chat")
    assert (found.kind, found.location, found.params, found.alias) == (
        ModelKind.HUB,
        "some-org/Some-Model-1.5B-Chat",
        1_500_000_000,
        None,
    )
    assert params_in_name("SmolLM2-135M") == 135_000_000
    assert params_in_name("no-size-here") is None
    assert params_in_name("gpt2m") is None


@pytest.mark.parametrize("text", ["nosuch", "", "qwen", "a/b/c", "a b/c", "-/x"])
def test_an_unknown_name_is_one_error_with_all_allowed_values(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_model(text)
    for name in aliases():
        assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_near_miss_is_named() -> None:
    with pytest.raises(ConfigError, match=r"Did you mean qwen-0\.5b"):
        resolve_model("qwen-0.5")


def test_a_missing_path_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        resolve_model("./nothing", tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"without config\.json"):
        resolve_model("./empty", tmp_path)
    with pytest.raises(ConfigError, match="no file"):
        resolve_model("x.gguf", tmp_path)


def test_a_folder_is_measured_by_its_safetensors_headers(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"tie_word_embeddings": True}))
    # 10*4 + 4*4 = 56; lm_head is the tied embedding stored again and counts once
    write_safetensors(folder / "model-1.safetensors", {"embed.weight": [10, 4], "lm_head.weight": [10, 4]})
    write_safetensors(folder / "model-2.safetensors", {"layer.weight": [4, 4]})
    found = resolve_model("mine", tmp_path)
    assert (found.kind, found.location, found.params, found.name) == (ModelKind.FOLDER, str(folder), 56, "mine")


def test_a_folder_wins_over_a_hub_id_of_the_same_spelling(tmp_path: Path) -> None:
    (tmp_path / "org" / "name").mkdir(parents=True)
    (tmp_path / "org" / "name" / "config.json").write_text("{}")
    assert resolve_model("org/name", tmp_path).kind is ModelKind.FOLDER
    assert resolve_model("org/other", tmp_path).kind is ModelKind.HUB


def test_a_damaged_header_falls_back_to_the_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN_05B))
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 16)
    assert folder_params(tmp_path) == config_params(QWEN_05B)
    (tmp_path / "config.json").write_text("not json")
    assert folder_params(tmp_path) is None


def test_the_estimate_of_a_known_model_is_within_a_tenth_of_a_per_cent() -> None:
    # Qwen2.5-0.5B: 151936*896 + 24*(2*896*896 + 2*896*128 + 3*896*4864 + 2*896) + 896 = 494,005,120; real 494,032,768
    assert config_params(QWEN_05B) == 494_005_120
    assert resolve_model("qwen-0.5b").params == pytest.approx(494_005_120, rel=1e-3)


def test_gguf_is_measured_by_its_header(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", {"embed": [8, 16], "layer": [16, 16, 2], "norm": [16]})
    # 8*16 + 16*16*2 + 16 = 656
    assert gguf_params(tmp_path / "m.gguf") == 656
    found = resolve_model("m.gguf", tmp_path)
    assert (found.kind, found.params, found.name) == (ModelKind.GGUF, 656, "m.gguf")


@pytest.mark.parametrize("content", [b"", b"GGUF", b"nope" + b"\0" * 40, b"GGUF" + struct.pack("<IQQ", 1, 0, 0)])
def test_what_is_no_gguf_is_refused_clearly(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(ConfigError, match="cannot be read as a GGUF file"):
        resolve_model("m.gguf", tmp_path)


def test_lora_is_the_default_only_where_full_training_does_not_fit() -> None:
    small, large = 134_515_008, 494_032_768
    assert not default_lora(small, memory_bytes=8 * 2**30)
    assert default_lora(large, memory_bytes=16 * 2**30)
    assert not default_lora(large, memory_bytes=64 * 2**30)
    assert not default_lora(None, memory_bytes=8 * 2**30)
