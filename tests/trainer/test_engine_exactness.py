"""What is recorded while sampling is what the model says: against teacher forcing, another backend, another batch."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.envs import registry
from trainer.models import shared_prefix
from trainer.models.load import LoadedModel
from trainer.rollout.engine import RolloutEngine
from trainer.rollout.types import Episode, Limits
from trainer.tasks import group_requests, requests


def play(tiny: LoadedModel, name: str, count: int = 12, seed: int = 1, temperature: float = 1.0) -> list[Episode]:
    spec = registry.load(name)
    assert spec.tasks is not None
    engine = RolloutEngine(tiny.model, tiny.tokenizer, spec, Limits(), seed=seed)
    return engine.run(requests(spec.tasks("test", count, 1, "mixed"), spec.system_prompt), temperature)


@pytest.fixture
def plain(tiny: LoadedModel):
    """The model on transformers' own attention for the length of a test."""
    tiny.model.set_attn_implementation("sdpa")
    yield tiny
    shared_prefix.install(tiny.model)


@pytest.mark.parametrize("name", ["calculator", "lookup"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_recorded_logprobs_are_those_of_a_teacher_forced_pass(tiny: LoadedModel, name: str, temperature: float) -> None:
    for episode in play(tiny, name, 6, temperature=temperature):
        ids = torch.tensor([episode.prompt_ids + episode.completion_ids])
        with torch.no_grad():
            logits = tiny.model(input_ids=ids).logits[0, len(episode.prompt_ids) - 1 : -1] / temperature
        logp = logits.log_softmax(-1).gather(-1, torch.tensor(episode.completion_ids)[:, None])[:, 0]
        recorded, mask = torch.tensor(episode.logprobs), torch.tensor(episode.mask)
        assert ((logp - recorded).abs() * mask).max() < 1e-4


def test_both_backends_play_the_same_episodes(tiny: LoadedModel) -> None:
    shared = play(tiny, "calculator", 16)
    tiny.model.set_attn_implementation("sdpa")
    try:
        cached = play(tiny, "calculator", 16)
    finally:
        shared_prefix.install(tiny.model)
    assert [e.completion_ids for e in shared] == [e.completion_ids for e in cached]
    assert (
        max(
            abs(a - b) for x, y in zip(shared, cached, strict=True) for a, b in zip(x.logprobs, y.logprobs, strict=True)
        )
        < 1e-4
    )


def test_an_episode_depends_on_its_key_not_on_its_batch(tiny: LoadedModel) -> None:
    many = play(tiny, "calculator", 12)
    few = play(tiny, "calculator", 5)
    assert [e.completion_ids for e in few] == [e.completion_ids for e in many[:5]]


def test_generations_and_occurrences_have_streams_of_their_own(tiny: LoadedModel) -> None:
    spec = registry.load("calculator")
    assert spec.tasks is not None
    row = spec.tasks("train", 1, 1, "hard")[0]
    engine = RolloutEngine(tiny.model, tiny.tokenizer, spec, Limits(), seed=1)
    first = engine.run(group_requests(row, spec.system_prompt, 0, 0, 8), 1.0)
    again = engine.run(group_requests(row, spec.system_prompt, 0, 0, 8), 1.0)
    later = engine.run(group_requests(row, spec.system_prompt, 0, 1, 8), 1.0)
    ids = lambda episodes: [e.completion_ids for e in episodes]  # noqa: E731
    assert ids(first) == ids(again)
    assert ids(first) != ids(later)
    assert len({tuple(e.completion_ids) for e in first}) > 1


def groups_for_packing() -> list[tuple[list[int], list[list[int]]]]:
    return [
        ([5, 6, 7, 8, 9], [[10, 11, 12], [13, 14], [15]]),
        ([5, 6, 7, 20, 21, 22], [[30, 31], [], [32, 33, 34, 35]]),
        ([5, 6, 7, 9], [[40] * 6]),
    ]


def groups_that_branch() -> list[tuple[list[int], list[list[int]]]]:
    """Rows alike, rows that are the beginning of others, and three levels of branches."""
    start = list(range(30, 42))
    return [
        ([5, 6, 7, 8], [start, start, start[:5], [*start, 1, 2, 3], [*start[:9], 50, *range(60, 80)], [44]]),
        ([5, 6, 9], [[*start[:9], 50, *range(60, 80)], [*start[:9], 50, *range(60, 71), 3], [*start[:9], 51], start]),
    ]


@pytest.mark.parametrize(
    "groups",
    [
        groups_for_packing(),
        groups_that_branch(),
        [([5], [[6, 7], [8]])],
        [([5, 6], [[7]]), ([9, 6], [[7, 8]])],
        [([1, 2, 3], [[4, 5, 6]])],
    ],
    ids=["tree", "branches", "one prompt token", "no common header", "single"],
)
def test_packed_log_probabilities_and_gradients_are_those_of_single_rows(
    plain: LoadedModel, groups: list[tuple[list[int], list[list[int]]]]
) -> None:
    model = plain.model
    packed = shared_prefix.pack_tree(groups)

    def together() -> torch.Tensor:
        model.set_attn_implementation(shared_prefix.NAME)
        hidden = model.base_model(
            input_ids=packed.input_ids,
            attention_mask=shared_prefix.NO_MASK,
            position_ids=packed.position_ids,
            use_cache=False,
            layout=packed.tree,
        ).last_hidden_state[0]
        logp = model.lm_head(hidden[packed.source]).log_softmax(-1)
        return logp.gather(-1, packed.target[:, None])[:, 0]

    def single() -> torch.Tensor:
        model.set_attn_implementation("sdpa")
        parts = []
        for prompt, rows in groups:
            for row in rows:
                if row:
                    logits = model(input_ids=torch.tensor([prompt + row])).logits[0, len(prompt) - 1 : -1]
                    parts.append(logits.log_softmax(-1).gather(-1, torch.tensor(row)[:, None])[:, 0])
        return torch.cat(parts)

    results = []
    for compute in (together, single):
        model.zero_grad()
        logp = compute()
        (logp * torch.linspace(-1, 1, len(logp))).sum().backward()
        results.append((logp.detach(), torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])))
    model.zero_grad()
    (logp_a, grad_a), (logp_b, grad_b) = results
    assert (logp_a - logp_b).abs().max() < 1e-4
    assert (grad_a - grad_b).norm() < 1e-4 * grad_b.norm()


small_rows = st.lists(st.integers(0, 1), min_size=0, max_size=40).map(lambda ids: [10 + i for i in ids])


@given(
    st.lists(st.tuples(st.sampled_from([[1], [1, 2], [1, 2, 3], [4, 2]]), st.lists(small_rows, max_size=6)), min_size=1)
)
@settings(deadline=None, max_examples=150)
def test_what_stands_above_a_token_is_what_its_row_said(groups: list[tuple[list[int], list[list[int]]]]) -> None:
    """Every prediction comes from a place whose ancestors and segment spell prompt and row up to the token."""
    packed = shared_prefix.pack_tree(groups)
    ids, positions = packed.input_ids[0].tolist(), packed.position_ids[0].tolist()
    sees = torch.zeros(len(ids), len(ids), dtype=torch.bool)
    for p in packed.tree.pieces:
        block = torch.ones(p.nq, p.nk, dtype=torch.bool)
        assert not (sees[p.q : p.q + p.nq, p.k : p.k + p.nk] & (block.tril() if p.causal else block)).any()
        sees[p.q : p.q + p.nq, p.k : p.k + p.nk] |= block.tril() if p.causal else block
    rows = [(prompt, row) for prompt, group in groups for row in group]
    seen = set()
    for source, target, row, column in zip(
        packed.source.tolist(), packed.target.tolist(), packed.row.tolist(), packed.column.tolist(), strict=True
    ):
        prompt, said = rows[row]
        context = [*prompt, *said[:column]]
        visible = sorted(sees[source].nonzero()[:, 0].tolist(), key=lambda at: positions[at])
        assert [ids[at] for at in visible] == context
        assert [positions[at] for at in visible] == list(range(len(context)))
        assert target == said[column]
        seen.add((row, column))
    assert seen == {(i, c) for i, (_, said) in enumerate(rows) for c in range(len(said))}
    assert packed.tree.length == len(ids) <= sum(len(p) for p, _ in groups) + sum(len(r) for _, r in rows)


def test_what_rows_say_alike_stands_there_once() -> None:
    alike = list(range(20, 60))
    packed = shared_prefix.pack_tree([([1, 2, 3], [[*alike, 5], [*alike, 6], [*alike, 7, 8]])])
    assert packed.tree.length == 3 + 40 + 1  # and the 7; last tokens are only predicted
    few = list(range(20, 24))  # saving 4 tokens is not worth a segment
    packed = shared_prefix.pack_tree([([1, 2, 3], [[*few, 5], [*few, 6]])])
    assert packed.tree.length == 3 + 2 * 4


def test_row_and_column_say_where_each_token_belongs() -> None:
    groups = groups_for_packing()
    packed = shared_prefix.pack_tree(groups)
    rows = [row for _, group in groups for row in group]
    for target, row, column in zip(packed.target.tolist(), packed.row.tolist(), packed.column.tolist(), strict=True):
        assert rows[row][column] == target
    assert len(packed.target) == sum(map(len, rows))
    assert packed.tree.length == packed.input_ids.shape[1]
