"""Campaigns on disk: `campaigns/<id>.json`, replaced in one step each time a campaign moves on.

One process at a time carries a campaign on: it holds the campaign's lock, which the operating system frees when the
process dies. Reading needs no lock.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from pydantic import ValidationError

from optimizer.campaign.types import Campaign, CampaignError, CampaignState
from optimizer.ids import ID_PATTERN, check_id
from skill_bank.files import read_json, write_json_atomic

LATEST = "latest"


class CampaignStore:
    """Campaigns of a workspace."""

    def __init__(self, workspace: Path) -> None:
        self.root = workspace / "campaigns"

    def path(self, campaign_id: str) -> Path:
        return self.root / f"{check_id(campaign_id, 'campaign')}.json"

    def process_folder(self, campaign_id: str) -> Path:
        """Where the process that a server started for it is noted."""
        return self.root / "processes" / check_id(campaign_id, "campaign")

    def exists(self, campaign_id: str) -> bool:
        """Whether there is a campaign of that id; False for what cannot be an id."""
        return ID_PATTERN.match(campaign_id) is not None and self.path(campaign_id).exists()

    def ids(self) -> list[str]:
        """All campaigns, oldest first; one that cannot be read comes first, and says why when it is read."""
        if not self.root.is_dir():
            return []
        names = [path.stem for path in self.root.glob("*.json") if ID_PATTERN.match(path.stem)]
        return sorted(names, key=lambda name: (self._created_at(name), name))

    def _created_at(self, name: str) -> float:
        try:
            return self._load(self.path(name)).created_at
        except CampaignError:
            return 0.0

    def read(self, campaign_id: str) -> Campaign:
        """One campaign, or the latest. Raises CampaignError naming those there are."""
        if campaign_id == LATEST:
            known = self.ids()
            if not known:
                raise CampaignError('there are no campaigns yet: start one with `mcp-evo train "…" --auto`')
            campaign_id = known[-1]
        path = self.path(campaign_id)
        if not path.exists():
            known_text = ", ".join(self.ids()[-5:]) or "none yet"
            raise CampaignError(f"there is no campaign {campaign_id!r}. There are: {known_text}")
        return self._load(path)

    def _load(self, path: Path) -> Campaign:
        try:
            return Campaign.model_validate(read_json(path))
        except (ValueError, ValidationError) as error:
            raise CampaignError(f"{path} cannot be read: {' '.join(str(error).split())}") from error

    def create(self, campaign: Campaign) -> Campaign:
        """Writes a new campaign. Raises CampaignError where the id is taken."""
        self.root.mkdir(mode=0o700, exist_ok=True)
        path = self.path(campaign.campaign_id)
        if campaign.campaign_id == LATEST or path.exists():
            raise CampaignError(f"campaign {campaign.campaign_id} exists already. Choose another id, or leave it out")
        self._write(campaign)
        return campaign

    def move(self, campaign: Campaign, state: CampaignState, **fields: Any) -> Campaign:
        """Writes the campaign in a state, which may be the one it is in."""
        history = campaign.history
        if state is not campaign.state:
            history = [*history, {"time": time.time(), "state": str(state)}]
        moved = campaign.model_copy(update={**fields, "state": state, "history": history})
        self._write(moved)
        return moved

    def _write(self, campaign: Campaign) -> None:
        write_json_atomic(self.path(campaign.campaign_id), campaign.model_dump(mode="json"))

    def lock(self, campaign_id: str) -> FileLock:
        """Held by the process that carries the campaign on."""
        return FileLock(f"{self.path(campaign_id)}.lock", mode=0o600)

    @contextmanager
    def carrying_on(self, campaign_id: str, *, timeout_s: float = 2.0) -> Iterator[None]:
        """Only one process at a time. Raises CampaignError where another one is at it; a mere look (`is_carried_on`)
        is waited for."""
        lock = self.lock(campaign_id)
        try:
            lock.acquire(timeout=timeout_s)
        except Timeout as error:
            raise CampaignError(
                f"campaign {campaign_id} is carried on by another process: see `mcp-evo campaigns show {campaign_id}`"
            ) from error
        try:
            yield
        finally:
            lock.release()

    def is_carried_on(self, campaign_id: str) -> bool:
        """Whether a process holds the campaign now."""
        try:
            with self.carrying_on(campaign_id, timeout_s=0.0):
                return False
        except CampaignError:
            return True
