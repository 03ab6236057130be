"""Builds the bundled model `tiny`: supervised training of a 1 M parameter Qwen 2 on generated tool-use transcripts.

Run `python -P -m trainer.models.build_tiny OUT`; about half an hour on two cores. Phases (seen to be several times
faster than one long run): without the tool header and with operator tokens weighted 5x, then with the header, then
long and exact, last a short phase on imperfect demonstrations, so that the model succeeds sometimes and RL has what
to mend. The header is rendered exactly as training renders it later and shared by the rows of a batch (packing), so
it costs little.
"""

import argparse
import os
import random
import time
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from trainer.envs import registry
from trainer.models.demonstrations import SHARES, Faults, Message, transcript
from trainer.models.shared_prefix import NO_MASK, PackedTree, install, pack_tree
from trainer.rollout.rendering import tool_schemas

SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
]
VOCABULARY = 560
TEMPLATE = Path(__file__).with_name("chat.jinja")


@dataclass(frozen=True)
class Phase:
    """One stretch of supervised training."""

    name: str
    steps: int
    batch: int
    """Transcripts a step."""
    peak: float
    """Learning rate after warm-up; cosine to a twentieth of it."""
    header: bool
    """With the tools in the prompt."""
    operator_weight: float = 1.0
    digit_weight: float = 1.0
    faults: Faults = field(default_factory=Faults)


PHASES = (
    Phase("format", 450, 32, 3e-3, header=False, operator_weight=5.0),
    Phase("header", 250, 32, 2e-3, header=True, operator_weight=3.0),
    Phase("exact", 800, 32, 2e-3, header=True, operator_weight=2.0),
    Phase("sure", 900, 32, 1.5e-3, header=True),
    Phase("numbers", 700, 32, 1e-3, header=True, digit_weight=3.0),
    Phase("imperfect", 150, 32, 5e-4, header=True, faults=Faults(wrong_operator=0.58, no_finish=0.22, wrong_hop=0.35)),
)


class Headers:
    """What comes before the user's message, per environment, as text."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self.tokenizer = tokenizer
        self.tools = {name: tool_schemas(registry.load(name)) for name in SHARES}
        self.system = {name: str(registry.load(name).system_prompt) for name in SHARES}

    def text(self, name: str, messages: list[Message], *, header: bool) -> tuple[str, str]:
        """(shared prefix, the rest) of a conversation."""
        whole: str = self.tokenizer.apply_chat_template(
            [{"role": "system", "content": self.system[name]}, *messages], tools=self.tools[name], tokenize=False
        )
        at = whole.index("<|im_start|>user")
        return (whole[:at] if header else "<|endoftext|>"), whole[at:]


def build_tokenizer(rng: random.Random) -> PreTrainedTokenizerFast:
    """Byte-level BPE with single digits, learned on transcripts."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    core.decoder = decoders.ByteLevel()
    probe = PreTrainedTokenizerFast(tokenizer_object=core)
    probe.chat_template = TEMPLATE.read_text()
    headers = Headers(probe)
    texts = []
    for i in range(1500):
        name, prompt, turns = transcript(rng, Faults(no_finish=0.2))
        texts.append("".join(headers.text(name, [*prompt, *turns], header=i % 20 == 0)))
    core.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            special_tokens=SPECIAL,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer.chat_template = TEMPLATE.read_text()
    return tokenizer


def model_of(tokenizer: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    """The untrained model."""
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer),
            hidden_size=128,
            intermediate_size=448,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=4096,
            tie_word_embeddings=True,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
        )
    )


class Batches:
    """Packed batches of transcripts with a loss weight for each predicted token."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self.tokenizer = tokenizer
        self.headers = Headers(tokenizer)
        self.start, self.end = tokenizer.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"])
        self.assistant = tokenizer("assistant", add_special_tokens=False)["input_ids"][0]
        self.operators = {
            i for i in range(len(tokenizer)) if tokenizer.decode([i]).strip() in ("+", "-", "*", "(", ")")
        }
        self.digits = set(tokenizer.convert_tokens_to_ids(list("0123456789")))
        self.prefixes: dict[str, list[int]] = {}

    def weights(self, ids: list[int], phase: Phase) -> list[float]:
        """Weight of each token: 0 where the environment or the user speaks, 1 (or more) where the assistant does."""
        weights, speaking = [0.0] * len(ids), False
        for i in range(2, len(ids)):
            if ids[i - 2] == self.start and ids[i - 1] == self.assistant:
                speaking = True
                continue  # the line feed behind the role belongs to the prompt
            if speaking:
                weights[i] = 1.0
                if ids[i] in self.operators:
                    weights[i] = phase.operator_weight
                elif ids[i] in self.digits:
                    weights[i] = phase.digit_weight
                speaking = ids[i] != self.end
        return weights

    def draw(self, rng: random.Random, phase: Phase) -> tuple[PackedTree, torch.Tensor]:
        """A batch and the weights of its predicted tokens (S,)."""
        by_env: dict[str, list[tuple[list[int], list[float]]]] = {}
        for _ in range(phase.batch):
            name, prompt, turns = transcript(rng, phase.faults)
            prefix, rest = self.headers.text(name, [*prompt, *turns], header=phase.header)
            if prefix not in self.prefixes:
                self.prefixes[prefix] = self.tokenizer(prefix, add_special_tokens=False)["input_ids"]
            ids = self.tokenizer(rest.removesuffix("\n"), add_special_tokens=False)["input_ids"]
            by_env.setdefault(prefix, []).append((ids, self.weights(ids, phase)))
        groups: list[tuple[list[int], list[list[int]]]] = []
        weights: list[float] = []
        for prefix, rows in by_env.items():
            groups.append((self.prefixes[prefix], [ids for ids, _ in rows]))
            weights.extend(w for _, row in rows for w in row)
        return pack_tree(groups), torch.tensor(weights)


def train_phase(model: Qwen2ForCausalLM, batches: Batches, phase: Phase, rng: random.Random) -> None:
    """Runs one phase in place."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=phase.peak, weight_decay=0.05, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, phase.peak, total_steps=phase.steps, pct_start=0.08, final_div_factor=20
    )
    began = time.perf_counter()
    for step in range(phase.steps):
        packed, weights = batches.draw(rng, phase)
        hidden = model.model(
            input_ids=packed.input_ids,
            attention_mask=NO_MASK,
            position_ids=packed.position_ids,
            use_cache=False,
            layout=packed.tree,
        ).last_hidden_state
        keep = weights > 0
        logits = model.lm_head(hidden.flatten(0, 1)[packed.source[keep]])
        losses = torch.nn.functional.cross_entropy(logits, packed.target[keep], reduction="none")
        loss = (losses * weights[keep]).sum() / weights[keep].sum()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if step % 50 == 0 or step == phase.steps - 1:
            print(f"{phase.name} {step} loss {loss.item():.4f} {time.perf_counter() - began:.0f} s", flush=True)


def build(out: Path, seed: int = 0, begin: str | None = None) -> None:
    """Trains and writes model (half precision) and tokenizer to `out`, after each phase a full-precision state beside.

    `begin`: start with this phase, from the state that the one before it left.
    """
    rng = random.Random(seed)
    torch.manual_seed(seed)
    tokenizer = build_tokenizer(rng)
    model = model_of(tokenizer)
    print(f"{model.num_parameters() / 1e6:.2f} M parameters, vocabulary {len(tokenizer)}", flush=True)
    install(model)
    batches = Batches(tokenizer)
    out.mkdir(parents=True, exist_ok=True)
    phases = list(PHASES)
    if begin is not None:
        at = [phase.name for phase in phases].index(begin)
        model.load_state_dict(torch.load(out.parent / f"{out.name}.{phases[at - 1].name}.pt", weights_only=True))
        phases = phases[at:]
    for phase in phases:
        train_phase(model, batches, phase, rng)
        torch.save(model.state_dict(), out.parent / f"{out.name}.{phase.name}.pt")
    save(model, tokenizer, out)


def save(model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    """Writes the model in half precision with its tokenizer."""
    model.half().save_pretrained(out)
    tokenizer.save_pretrained(out)


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the bundled model `tiny`.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--begin", choices=[phase.name for phase in PHASES[1:]])
    arguments = parser.parse_args()
    build(arguments.out, seed=arguments.seed, begin=arguments.begin)


if __name__ == "__main__":
    main()
