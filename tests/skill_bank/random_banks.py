"""Random banks of several skills that are valid by construction: sections, patches of every action, new sections,
policy with conditions, dependencies inside a skill and across skills."""

import random

from skill_bank_builder import SkillFiles, patch_text

WORDS = (
    "Watch the reward.",
    "- a list\n- of two",
    "| a | b |\n|---|---|\n| x | y |",
    "中文说明。",
    "```\ncode {x}\n```",
    "Size {{policy.size}} or so.",
    "First.\n\n\nThird line after two blank ones.",
)
WHENS = (
    '{params: "<10M"}',
    '{params: "300M-2B"}',
    "{env: calculator}",
    '{params: "<10M", env: [calculator, lookup]}',
    "{lora: true}",
)
BASE_POLICY = "```yaml policy\nsize: 4\nrate:\n  - {default: 1e-3, min: 1e-6, max: 1e-1}\n```"


class RandomSkill:
    """One skill; `base_count` of its patches are active, the rest is staged and would apply on top of them."""

    def __init__(self, chance: random.Random, name: str, others: "list[RandomSkill]", *, later: int = 0) -> None:
        self.name = name
        names = ["alpha", "beta", "gamma", "delta"][: chance.randint(1, 4)]
        self.sections = {one: chance.choice(WORDS) for one in names}
        holder = chance.choice(names)
        self.sections[holder] += "\n\n" + BASE_POLICY
        if chance.random() < 0.5:
            self.sections[holder] += "\n\nText behind the block."
        self.patches: dict[str, str] = {}
        self.actions: dict[str, tuple[str, str]] = {}
        known: dict[str, str | None] = dict.fromkeys(names)
        touching: dict[str, list[str]] = {one: [] for one in names}
        count = chance.randint(0, 7) + later
        for number in range(count):
            one = f"{number:03d}-{chance.choice('abc')}"
            section = chance.choice(list(known))
            action = chance.choice(["append", "prepend", "insert_after", "insert_after", "replace"])
            needs = [earlier for earlier in self.patches if chance.random() < 0.2]
            maker = known[section]
            if maker is not None:
                needs.append(maker)
            fields: dict[str, str] = {}
            if action == "replace":
                fields["supersedes"] = f"[{', '.join(_quoted(touching[section]))}]"
                needs += touching[section]
            else:
                needs += [earlier for earlier in touching[section] if self.actions[earlier][1] == "replace"]
            if action == "insert_after" and chance.random() < 0.5:
                fields["new_section"] = f"new-{number}"
                known[fields["new_section"]] = one
                touching[fields["new_section"]] = [one]
            if others and chance.random() < 0.2:
                other = chance.choice(others)
                if other.active:
                    needs.append(f"{other.name}:{chance.choice(other.active)}")
            body = chance.choice((*WORDS, "")) if action != "replace" else chance.choice(WORDS)
            if chance.random() < 0.5:
                when = chance.choice(WHENS)
                fields["scope"] = when
                rule = f"```yaml policy\nrate:\n  - {{when: {when}, default: {number + 2}e-3}}\n```"
                body = "\n\n".join(chance.sample([body, rule], 2)) if body else rule
            elif not body:
                body = WORDS[0]
            if needs:
                fields["depends_on"] = f"[{', '.join(_quoted(dict.fromkeys(needs)))}]"
            status = "active" if number < count - later else "staged"
            self.patches[one] = patch_text(one, section, body, action=action, status=status, **fields)
            self.actions[one] = (section, action)
            if action != "insert_after":
                touching[section].append(one)
        self.active = list(self.patches)[: count - later]
        self.staged = list(self.patches)[count - later :]
        chance.shuffle(self.active)

    def files(self) -> SkillFiles:
        """As `write_bank` wants it."""
        return SkillFiles(self.sections, self.patches, [f"'{one}'" for one in self.active], head="# Head")


def _quoted(names: object) -> list[str]:
    return [f"'{one}'" for one in names]  # type: ignore[attr-defined]


def random_bank(seed: int, *, later: int = 0, skills: int = 3) -> dict[str, RandomSkill]:
    """Skills a, b, …: each depends on earlier ones only."""
    chance = random.Random(seed)
    made: list[RandomSkill] = []
    for number in range(chance.randint(1, skills)):
        made.append(RandomSkill(chance, "abcdef"[number], made, later=later))
    return {one.name: one for one in made}
