"""Archives: gzipped tar files that are the same bytes for the same content, and are not trusted when they are read.

Written: entries sorted by path, regular files only, mode 0644, owner 0, time 0; gzip with time 0 and without a name.
(The compressed bytes are those of one zlib; another build of zlib may compress the same tar differently, so what is
compared between machines is the manifest's list of SHA-256.)
Read: limits on bytes and entries before anything is kept; a path must be relative and plain, an entry a regular file,
no path may occur twice or be the folder of another. Nothing is written by reading.
"""

import gzip
import hashlib
import io
import json
import tarfile
import unicodedata
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from pydantic import ValidationError

from skill_bank.packages.types import Content, Draft, Package, PackageError, PackageManifest, Redactor

MANIFEST = "package.json"
MARK = b"[redacted:"
"""What a redactor leaves in the place of a secret."""


@dataclass(frozen=True)
class Limits:
    """What an archive may be when it is read."""

    packed_bytes: int = 256 * 1024 * 1024
    file_bytes: int = 256 * 1024 * 1024
    total_bytes: int = 512 * 1024 * 1024
    entries: int = 20_000
    path_length: int = 240


def pack(draft: Draft, redactor: Redactor) -> tuple[bytes, PackageManifest]:
    """The archive's bytes, and its manifest with the list of files. Raises PackageError."""
    contents: list[Content] = []
    files: dict[str, bytes] = {}
    for path in sorted(draft.files):
        check_path(path, Limits())
        clean = redactor(path, draft.files[path])
        taken = max(0, clean.count(MARK) - draft.files[path].count(MARK))
        files[path] = clean
        digest = hashlib.sha256(clean).hexdigest()
        contents.append(Content(path=path, size=len(clean), sha256=digest, redacted=taken))
    manifest = draft.manifest.model_copy(update={"contents": tuple(contents)})
    _check_tree([*files, MANIFEST])
    document = json.dumps(manifest.model_dump(mode="json"), ensure_ascii=False, indent=1, sort_keys=True) + "\n"
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.PAX_FORMAT) as stream:
        for path, data in [(MANIFEST, document.encode("utf-8")), *files.items()]:
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode, entry.mtime = len(data), 0o644, 0
            stream.addfile(entry, io.BytesIO(data))
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=packed, mode="wb", compresslevel=9, mtime=0) as out:
        out.write(tar.getvalue())
    return packed.getvalue(), manifest


def unpack(data: bytes, limits: Limits | None = None) -> Package:
    """Reads an archive and checks it against its own manifest. Raises PackageError; nothing is written."""
    limits = limits or Limits()
    if len(data) > limits.packed_bytes:
        raise PackageError(f"the archive has {len(data)} bytes; at most {limits.packed_bytes} are read.")
    files: dict[str, bytes] = {}
    total = 0
    try:
        with (
            gzip.GzipFile(fileobj=io.BytesIO(data), mode="rb") as raw,
            tarfile.open(fileobj=_Bounded(raw, limits), mode="r|") as stream,
        ):
            for entry in stream:
                check_path(entry.name, limits)
                if not entry.isreg() or entry.issparse():
                    raise PackageError(f"{entry.name!r} is no regular file; links and folders are refused.")
                if entry.name in files:
                    raise PackageError(f"{entry.name!r} occurs twice.")
                if len(files) >= limits.entries:
                    raise PackageError(f"the archive has more than {limits.entries} entries.")
                total += entry.size
                if entry.size > limits.file_bytes or total > limits.total_bytes:
                    raise PackageError(f"{entry.name!r} makes the archive larger than what is read.")
                content = stream.extractfile(entry)
                assert content is not None
                files[entry.name] = content.read()
                if len(files[entry.name]) != entry.size:
                    raise PackageError(f"{entry.name!r} is cut off.")
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError) as error:
        if isinstance(error, PackageError):
            raise
        raise PackageError(f"this is no package, or a damaged one: {error}") from error
    _check_tree(list(files))
    return _checked(files, hashlib.sha256(data).hexdigest())


def _checked(files: dict[str, bytes], sha256: str) -> Package:
    """The package, if its manifest says the same as its files."""
    if MANIFEST not in files:
        raise PackageError(f"this is no package: it has no {MANIFEST}.")
    try:
        manifest = PackageManifest.model_validate_json(files.pop(MANIFEST))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise PackageError(f"{MANIFEST} cannot be used: {where}: {first['msg']}") from error
    listed = {one.path: one for one in manifest.contents}
    for path in sorted(files.keys() ^ listed.keys()):
        missing = "is listed and missing" if path in listed else "is not listed"
        raise PackageError(f"{path!r} {missing}: the archive is not what its manifest says.")
    for path, one in listed.items():
        if len(files[path]) != one.size or hashlib.sha256(files[path]).hexdigest() != one.sha256:
            raise PackageError(f"{path!r} does not have the checksum that the manifest gives.")
    return Package(manifest, files, sha256)


class _Bounded(io.RawIOBase):
    """A stream that refuses to give more bytes than an archive may unpack to."""

    def __init__(self, inner: gzip.GzipFile, limits: Limits) -> None:
        self._inner = inner
        # headers, padding and the blocks at the end
        self._left = limits.total_bytes + limits.entries * 4096 + 1024 * 1024

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._inner.read(size if 0 <= size <= self._left else self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise PackageError("the archive unpacks to more than what is read.")
        return data


def check_path(path: str, limits: Limits) -> None:
    """Raises PackageError for a path that could leave a folder or that a file system may read differently."""
    parts = path.split("/")
    plain = all(part not in ("", ".", "..") and part == part.strip() for part in parts)
    odd = any(ord(one) < 32 or ord(one) == 127 or one in '\\:*?"<>|' for one in path)
    if not plain or odd or len(path.encode("utf-8", "surrogatepass")) > limits.path_length or not path.isprintable():
        raise PackageError(f"the path {path[:120]!r} is refused: relative, plain names and no '..' are allowed.")


def _check_tree(paths: list[str]) -> None:
    """No file may be the folder of another, and no two may be the same where case does not count."""
    files = set(paths)
    folded: dict[str, str] = {}
    for path in sorted(paths):
        for parent in PurePosixPath(path).parents:
            if str(parent) in files:
                raise PackageError(f"{str(parent)!r} is a file and the folder of {path!r}.")
        other = folded.setdefault(unicodedata.normalize("NFKC", path).casefold(), path)
        if other != path:
            raise PackageError(f"{other!r} and {path!r} are one file where case does not count.")


def unchanged(path: str, data: bytes) -> bytes:
    """A redactor that takes nothing out: for content that was redacted before."""
    return data


def digests(files: Mapping[str, bytes]) -> dict[str, str]:
    """Path → SHA-256."""
    return {path: hashlib.sha256(data).hexdigest() for path, data in sorted(files.items())}
