"""Building packages of skills, and promoting them: stable → experimental → vertical, each step for a reason."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from skill_bank.bank import SkillBank
from skill_bank.compile import compile_skills, digest_of, load_bank
from skill_bank.files import encoded
from skill_bank.format import Reader
from skill_bank.packages.sources import bank_text, read_sources
from skill_bank.packages.store import PackageStore
from skill_bank.packages.types import (
    WITH_SKILLS,
    Draft,
    Evidence,
    Kind,
    Package,
    PackageError,
    PackageManifest,
    PackedSkill,
    Redactor,
    RegistryEntry,
)

NEXT = {Kind.STABLE: Kind.EXPERIMENTAL, Kind.EXPERIMENTAL: Kind.VERTICAL}
"""Kind → what it is promoted to."""


def draft_of_bank(
    bank: SkillBank,
    name: str,
    *,
    kind: Kind = Kind.STABLE,
    domain: str | None = None,
    agents: Sequence[str] = (),
    description: str = "",
    target: str = "all",
    base: str | None = None,
    evidence: Sequence[Evidence] = (),
) -> Draft:
    """The skills of a bank (one, a group or all), sources and compiled, as a package to be.

    Raises BankError if they do not compile; PackageError if one of them depends on a skill that is not among them.
    """
    built = bank.compile(target, dry_run=True).skills
    index = bank.index()
    files: dict[str, bytes] = {}
    packed: list[PackedSkill] = []
    for skill, one in sorted(built.items()):
        entry = index.skills[skill]
        source = bank.source(skill)
        for patch in one.patches:
            for need in source.patches[patch].depends_on:
                other = need.rpartition(":")[0]
                if other and other not in built:
                    raise PackageError(f"{skill} depends on {need}: pack {other} too, for instance with `all`.")
        files.update({f"bank/{path}": data for path, data in read_sources(bank.root, entry.group, skill).items()})
        files.update({f"compiled/{skill}/{path}": data for path, data in one.files.items()})
        children = tuple(child for child in entry.children if child in built)
        packed.append(
            PackedSkill(name=skill, group=entry.group, digest=one.digest, patches=one.patches, children=children,
                        protected=entry.protected)
        )  # fmt: skip
    layout = str(index.settings.get("layout", "plain"))
    groups = {group: index.groups[group] for group in sorted({one.group for one in packed})}
    files["bank/bank.yaml"] = encoded(bank_text(groups, packed, layout))
    manifest = PackageManifest(
        kind=kind, name=name, domain=domain, agents=tuple(sorted(set(agents))), description=description, base=base,
        evidence=tuple(evidence), skills=tuple(packed), layout=layout,
    )  # fmt: skip
    return Draft(manifest, files)


def build(store: PackageStore, draft: Draft, redactor: Redactor) -> tuple[RegistryEntry, bool]:
    """Packs skills; what a redactor takes out of a skill is taken out of its compiled text, too."""
    clean = {path: redactor(path, data) for path, data in draft.files.items()}
    skills = []
    for one in draft.manifest.skills:
        prefix = f"compiled/{one.name}/"
        mine = {path[len(prefix) :]: data for path, data in clean.items() if path.startswith(prefix)}
        skills.append(one.model_copy(update={"digest": digest_of(mine)}))
    manifest = draft.manifest.model_copy(update={"skills": tuple(skills)})
    return store.add(Draft(manifest, draft.files), redactor)


def promote(
    store: PackageStore,
    label: str,
    evidence: Evidence,
    redactor: Redactor,
    *,
    domain: str | None = None,
    name: str | None = None,
    agents: Sequence[str] | None = None,
    bank: SkillBank | None = None,
) -> tuple[RegistryEntry, bool]:
    """Builds `draft_of_promotion`; (its entry, whether it is new). Raises PackageError."""
    draft = draft_of_promotion(store, label, evidence, domain=domain, name=name, agents=agents, bank=bank)
    return build(store, draft, redactor)


def draft_of_promotion(
    store: PackageStore,
    label: str,
    evidence: Evidence,
    *,
    domain: str | None = None,
    name: str | None = None,
    agents: Sequence[str] | None = None,
    bank: SkillBank | None = None,
) -> Draft:
    """The next kind of a package, with the evidence for it, as a package to be; writes nothing.

    The content is that of the package, or, with `bank`, that bank's present state of the same skills. A stable package
    needs a `domain`; an experimental one keeps its own. Raises PackageError.
    """
    entry = store.find(label)
    package = store.open(entry.label)
    manifest = package.manifest
    if manifest.kind not in NEXT:
        where = "is promoted as far as it goes" if manifest.kind is Kind.VERTICAL else "holds a record, not skills"
        raise PackageError(f"{entry.label} {where}: only stable and experimental packages are promoted.")
    chosen = manifest.domain or domain
    if chosen is None:
        raise PackageError(f"{entry.label} is for any domain: say which one it is promoted for (--domain).")
    if manifest.domain is not None and domain not in (None, manifest.domain):
        raise PackageError(f"{entry.label} is for the domain {manifest.domain}, not {domain}.")
    kind = NEXT[manifest.kind]
    update = {
        "kind": kind,
        "domain": chosen,
        "name": name or manifest.name,
        "agents": manifest.agents if agents is None else tuple(sorted(set(agents))),
        "base": entry.label,
        "evidence": (*manifest.evidence, evidence),
    }
    if bank is None:
        return Draft(manifest.model_copy(update={**update, "contents": ()}), package.files)
    return _present(bank, package, update)


def _present(bank: SkillBank, package: Package, update: Mapping[str, object]) -> Draft:
    names = {one.name for one in package.manifest.skills}
    missing = sorted(names - set(bank.skills()))
    if missing:
        raise PackageError(f"the bank has no skill {', '.join(missing)}, which the package holds.")
    draft = draft_of_bank(bank, package.manifest.name)
    kept = tuple(one for one in draft.manifest.skills if one.name in names)
    prefixes = tuple(f"bank/{one.group}/{one.name}/" for one in kept) + tuple(f"compiled/{one.name}/" for one in kept)
    files = {path: data for path, data in draft.files.items() if path.startswith(prefixes)}
    groups = {group: text for group, text in bank.index().groups.items() if any(one.group == group for one in kept)}
    files["bank/bank.yaml"] = encoded(bank_text(dict(sorted(groups.items())), kept, draft.manifest.layout))
    description = package.manifest.description
    manifest = draft.manifest.model_copy(update={**update, "skills": kept, "description": description})
    return Draft(manifest, files)


def verify(package: Package) -> None:
    """Compiles the sources of a package and compares with what it says. Raises PackageError, BankError."""
    if package.manifest.kind not in WITH_SKILLS:
        return
    sources = {path[len("bank/") :]: data for path, data in package.files.items() if path.startswith("bank/")}
    built = compile_skills(
        load_bank(Reader(Path("/nonexistent"), sources)), [one.name for one in package.manifest.skills]
    )
    for one in package.manifest.skills:
        if built[one.name].digest != one.digest:
            raise PackageError(f"{one.name} does not compile to the text that the package holds for it.")
