"""`experience:` in a workspace's `config.yaml`: embedder, services. Keys are never stored, only the variable's name.

experience:
  embedder: hashed                       # or sentence-transformers:MODEL, or endpoint
  step_labels: verifier                  # or endpoint: who labels turns where a run has step_credit
  endpoint: {base_url: http://127.0.0.1:8000/v1, model: NAME, embedding_model: NAME, api_key_env: MY_KEY}
  reme: {base_url: http://127.0.0.1:8002, workspace_id: default, version: "0.2"}
"""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainer.experience.embed import Embedder, HashedEmbedder
from trainer.experience.embed_remote import EndpointEmbedder, SentenceTransformerEmbedder
from trainer.experience.http_json import Timeouts
from trainer.experience.pool import ExperiencePool, pool_path
from trainer.experience.problems import ExperienceError
from trainer.experience.redaction import Redactor, redact_shapes
from trainer.experience.reme_client import DEFAULT_URL, RemeSource
from trainer.experience.source import STEP_WAIT_S, PoolSource
from trainer.experience.store import WAIT_S
from trainer.runs.workspace import Workspace

_SENTENCES = "sentence-transformers:"


class EndpointSettings(BaseModel):
    """A service that speaks OpenAI's API."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base_url: str = Field(description="Up to and with /v1.")
    model: str = Field(default="", description="Model that distils and labels turns.")
    embedding_model: str = Field(default="", description="Model that embeds, where embedder is `endpoint`.")
    api_key_env: str = Field(default="", description="Environment variable that holds the key; empty: no key.")
    connect_s: float = Field(default=10.0, gt=0, le=600)
    answer_s: float = Field(default=120.0, gt=0, le=3600)

    @property
    def timeouts(self) -> Timeouts:
        return Timeouts(self.connect_s, self.answer_s)


class RemeSettings(BaseModel):
    """A ReMe service."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base_url: str = DEFAULT_URL
    workspace_id: str = "default"
    version: str | None = None
    connect_s: float = Field(default=10.0, gt=0, le=600)
    answer_s: float = Field(default=30.0, gt=0, le=3600)

    def source(self) -> RemeSource:
        """The client."""
        return RemeSource(self.base_url, self.workspace_id, self.version, Timeouts(self.connect_s, self.answer_s))


class ExperienceSettings(BaseModel):
    """All of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    embedder: str = Field(default="hashed", description="hashed, sentence-transformers:MODEL or endpoint.")
    step_labels: Literal["verifier", "endpoint"] = Field(
        default="verifier", description="Who labels the turns of runs with step_credit."
    )
    endpoint: EndpointSettings | None = None
    reme: RemeSettings | None = None

    def make_embedder(self) -> Embedder:
        """The embedder. Raises ExperienceError for a name that is none, PoolError where it cannot be had."""
        if self.embedder == "hashed":
            return HashedEmbedder()
        if self.embedder.startswith(_SENTENCES):
            return SentenceTransformerEmbedder(self.embedder.removeprefix(_SENTENCES))
        if self.embedder == "endpoint":
            one = self.endpoint
            if one is None or not one.embedding_model:
                raise ExperienceError(
                    "config.yaml: experience.embedder is endpoint, which needs experience.endpoint with base_url and "
                    "embedding_model"
                )
            return EndpointEmbedder(one.base_url, one.embedding_model, one.api_key_env, one.timeouts)
        raise ExperienceError(
            f"config.yaml: experience.embedder {self.embedder!r} is not allowed; allowed: hashed, "
            "sentence-transformers:MODEL, endpoint"
        )


def settings_of(workspace: Workspace) -> ExperienceSettings:
    """The settings of a workspace. Raises ExperienceError, WorkspaceError."""
    found: Any = (workspace.config().model_extra or {}).get("experience")
    if found is None:
        return ExperienceSettings()
    try:
        return ExperienceSettings.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(["experience", *(str(part) for part in first["loc"])])
        raise ExperienceError(f"{workspace.config_path}: {name} {first['input']!r}: {first['msg']}") from error


def open_pool(
    workspace: Workspace,
    name: str,
    *,
    create: bool = False,
    redact: Redactor = redact_shapes,
    wait_s: float = WAIT_S,
) -> ExperiencePool:
    """A pool of the workspace by its settings. Raises ExperienceError, PoolError, WorkspaceError."""
    path: Path = pool_path(workspace.root, name)
    embedder = settings_of(workspace).make_embedder()
    return ExperiencePool(path, create=create, embedder=embedder, redact=redact, wait_s=wait_s)


MIN_SIMILARITY = 0.2
"""Cosine below which a lesson is not put into a prompt: an unfitting one costs more than none."""


def open_source(workspace: Workspace, name: str, **search_options: Any) -> PoolSource:
    """A pool as rollouts use it, opened with the first question. Options: those of `ExperiencePool.search`."""
    options = {"min_similarity": MIN_SIMILARITY, **search_options}
    return PoolSource(lambda: open_pool(workspace, name, wait_s=STEP_WAIT_S), name, options)
