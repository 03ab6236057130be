"""The packages of a workspace: archives and `registry.json`, their index.

An archive is written before the index names it, and both in one step each, so a writer that is killed leaves the old
index or the new one; an archive without an entry is overwritten by the next build. The same content is never stored
twice: building it again gives the version there is.
"""

import hashlib
import time
from pathlib import Path

from pydantic import ValidationError

from skill_bank.files import lock_of, read_json, write_bytes_atomic, write_json_atomic
from skill_bank.packages.archive import pack, unpack
from skill_bank.packages.types import Draft, Kind, Package, PackageError, Redactor, Registry, RegistryEntry, check_names

REGISTRY = "registry.json"
SUFFIX = ".tar.gz"


class PackageStore:
    """The `packages` folder of a workspace."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def registry(self) -> Registry:
        """The index; empty where there is none. Raises PackageError if it cannot be read."""
        try:
            return Registry.model_validate(read_json(self.root / REGISTRY))
        except FileNotFoundError:
            return Registry()
        except (ValidationError, ValueError) as error:
            raise PackageError(f"{self.root / REGISTRY} cannot be read: {error}") from error

    def entries(self, kind: Kind | None = None) -> list[RegistryEntry]:
        """Every version of every package, by id and version."""
        found = [one for one in self.registry().packages if kind is None or one.kind is kind]
        return sorted(found, key=lambda one: (one.id, one.version))

    def find(self, label: str) -> RegistryEntry:
        """A package by `id@version` or, for its newest version, by id. Raises PackageError naming those there are."""
        id_, _, version = label.partition("@")
        mine = [one for one in self.entries() if one.id == id_]
        wanted = [one for one in mine if not version or str(one.version) == version]
        if not wanted:
            known = ", ".join(one.label for one in (mine or self.entries())) or "none yet"
            raise PackageError(f"there is no package {label!r}. There are: {known}.")
        return wanted[-1]

    def open(self, label: str) -> Package:
        """Reads a package of the index and checks archive and contents. Raises PackageError."""
        entry = self.find(label)
        path = self.root / entry.archive
        try:
            data = path.read_bytes()
        except OSError as error:
            raise PackageError(f"the archive of {entry.label} cannot be read: {path}: {error.strerror}.") from error
        if hashlib.sha256(data).hexdigest() != entry.sha256:
            raise PackageError(f"{path} is not the archive that {REGISTRY} names for {entry.label}: it was changed.")
        return unpack(data)

    def add(self, draft: Draft, redactor: Redactor, *, now: float | None = None) -> tuple[RegistryEntry, bool]:
        """Packs a draft; (its entry, whether it is new). Raises PackageError, or OSError with nothing changed."""
        data, manifest = pack(draft, redactor)
        check_names(manifest)
        return self._register(data, unpack(data), now)

    def add_archive(self, data: bytes, *, now: float | None = None) -> tuple[RegistryEntry, bool]:
        """Takes an archive from elsewhere into the index. Raises PackageError if it is damaged or unsafe."""
        package = unpack(data)
        check_names(package.manifest)
        return self._register(data, package, now)

    def _register(self, data: bytes, package: Package, now: float | None) -> tuple[RegistryEntry, bool]:
        manifest = package.manifest
        self.root.mkdir(parents=True, exist_ok=True)
        with lock_of(self.root / "registry"):
            registry = self.registry()
            mine = sorted((one for one in registry.packages if one.id == manifest.id), key=lambda one: one.version)
            for one in mine[-1:]:
                path = self.root / one.archive
                if one.sha256 == package.sha256 and path.is_file() and path.read_bytes() == data:
                    return one, False
            version = mine[-1].version + 1 if mine else 1
            folder = f"{manifest.kind}/{manifest.domain}" if manifest.domain is not None else str(manifest.kind)
            entry = RegistryEntry(
                id=manifest.id,
                version=version,
                kind=manifest.kind,
                name=manifest.name,
                domain=manifest.domain,
                agents=manifest.agents,
                base=manifest.base,
                archive=f"{folder}/{manifest.name}-v{version}{SUFFIX}",
                sha256=package.sha256,
                size=len(data),
                skills=tuple(one.name for one in manifest.skills),
                evidence=manifest.evidence,
                created_at=time.time() if now is None else now,
            )
            path = self.root / entry.archive
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes_atomic(path, data)
            for one in mine:
                one.current = False
            registry.packages.append(entry)
            write_json_atomic(self.root / REGISTRY, registry.model_dump(mode="json"))
        return entry, True
