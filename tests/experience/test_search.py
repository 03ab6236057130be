"""Tokens, embeddings, ranking: Chinese down to one character, values worked out by hand, signatures against cosines."""

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_helpers import lesson

from trainer.experience import search
from trainer.experience.embed import HashedEmbedder
from trainer.experience.pool import OFFERED, ExperiencePool
from trainer.experience.search import VectorIndex, fuse, to_blob
from trainer.experience.tokens import index_text, literals, tokens


def test_tokens() -> None:
    assert tokens("In House 12, x @ 3.50") == ["in", "house", "12", "x", "@", "3.50"]
    assert tokens("查询天气") == ["查", "询", "天", "气", "查询", "询天", "天气"]
    assert tokens("ＡＢ　１２") == ["ab", "12"]  # full width
    assert tokens("well-known a@b") == ["well", "known", "a", "b"]
    assert literals("7*(5 - 3.5)") == {"7", "*", "5", "-", "3.5"}


@given(st.text(max_size=60))
def test_any_text_has_tokens_and_an_embedding(text: str) -> None:
    index_text(text)
    (vector,) = HashedEmbedder().embed([text])
    assert vector.shape == (256,)
    assert np.all(np.isfinite(vector))
    assert math.isclose(float(vector @ vector), 1.0, abs_tol=1e-5) or not vector.any()


def test_embeddings_do_not_change_between_processes() -> None:
    # pools on disk rest on it; if this fails, the embedder needs another id
    (vector,) = HashedEmbedder(64).embed(["Compute the average 平均值 of 3"])
    again = np.round(np.float64(vector[:6]), 4).tolist()
    assert again == EXPECTED


EXPECTED = [-0.0319, -0.0797, -0.0877, 0.0558, 0.1594, 0.0]


def test_similar_texts_are_near() -> None:
    embed = HashedEmbedder().embed
    asked, other_form, slip, unlike = embed(
        ["computing the average of numbers", "averages of some number", "computng the avrage of nubmers", "send a mail"]
    )
    assert asked @ other_form > 2 / 16  # twice the standard error
    assert asked @ slip > 2 / 16  # twice the standard error
    assert abs(float(asked @ unlike)) < 2 / 16


def test_fusion_by_hand() -> None:
    # 1/61 + 1/62 = 0.0325225 for b; 1/61 + 1/63 for a; c only in the second list
    scores = fuse([["b", "a"], ["a", "b", "c"]])  # type: ignore[list-item]
    assert scores["a"] == pytest.approx(1 / 62 + 1 / 61)
    assert scores["b"] == pytest.approx(1 / 61 + 1 / 62)
    assert scores["c"] == pytest.approx(1 / 63)


@pytest.mark.parametrize("query", ["天气", "气", "天", "查询城市天气", "今天天气怎么样"])
def test_chinese_down_to_one_character(pool: ExperiencePool, query: str) -> None:
    pool.add(lesson("查询城市天气时", "先查城市编号", id="weather"))
    pool.add(lesson("计算平均值", "先求和", id="mean"))
    pool.add(lesson("Sorting names", "compare in lower case", id="sort"))
    assert [hit.record.id for hit in pool.search(query)] == ["weather"]


def test_texts_that_could_break_a_query(pool: ExperiencePool) -> None:
    pool.add(lesson('What is "a" AND b* NEAR (c)?', "use search", id="quoted"))
    for query in ('"', "AND", "a* OR", "NEAR(", "col:x", "\x00", "\ud800", "-", "🙂", "'; DROP TABLE records; --"):
        pool.search(query)
    assert pool.search('"a" AND b*')[0].record.id == "quoted"


def test_words_that_everybody_has_cost_nothing(pool: ExperiencePool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "COMMON", 20)
    monkeypatch.setattr(search, "BUDGET", 20)
    for number in range(60):
        pool.store.insert(lesson(f"house {number} again", f"use tool {number}", id=f"r{number}"), None, "none")
    assert pool._text.search("house 7 again", OFFERED) == [8]  # only the rare token is asked for
    newest = pool._text.search("house", OFFERED, 3)
    assert newest == [60, 59, 58]  # all are as good: the newest, unranked


def test_signatures_find_what_all_cosines_find(pool: ExperiencePool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "EXACT", 300)
    monkeypatch.setattr(search, "SHORTLIST", 150)
    rng = random.Random(4)
    words = [f"{a}{b}{c}" for a in "bdfgklm" for b in "aeiou" for c in "nrstp"]
    texts = [" ".join(rng.choices(words, k=6)) for _ in range(1200)]
    vectors = HashedEmbedder().embed(texts)
    with pool.store.changing():
        for number, blob in enumerate(to_blob(vectors)):
            pool.store.insert(lesson(texts[number], "x", id=str(number)), blob, "hashed-1:256")
    index = VectorIndex(pool.store, "hashed-1:256", 256)
    index.refresh()
    assert len(index) == len(texts)
    found = wanted = 0
    for number in range(60):
        (vector,) = HashedEmbedder().embed([" ".join(texts[number].split()[:4])])
        exact = {n for n, _ in index.search(vector, OFFERED, 3, exact=True)}
        found += len(exact & {n for n, _ in index.search(vector, OFFERED, 3)})
        wanted += len(exact)
        truth = np.argsort(-(vectors @ vector))[:1]
        assert int(truth[0]) + 1 in exact
    assert found >= 0.95 * wanted


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(0, 20), unique=True, max_size=8), max_size=3))
def test_fusion_never_prefers_a_record_that_is_behind_in_every_list(lists: list[list[int]]) -> None:
    scores = fuse(lists)
    for a in scores:
        for b in scores:
            places = [(one.index(a) if a in one else 99, one.index(b) if b in one else 99) for one in lists]
            if all(x <= y for x, y in places) and any(x < y for x, y in places):
                assert scores[a] > scores[b]
