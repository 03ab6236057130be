"""Completions for every variable of a resource template and every argument of a prompt.

Values come from the workspace, the newest or last changed first, and are those that the resource or the prompt accepts.
A workspace that is not there yet, or that cannot be read, completes to nothing; it is not made for that.
"""

from collections.abc import Callable, Iterable
from typing import Any

import anyio.to_thread
from mcp.server.mcpserver import MCPServer
from mcp_types import Completion, CompletionArgument, CompletionContext, PromptReference, ResourceTemplateReference

from mcp_server.resources.prompts import DEFAULT_REQUEST, DEFAULT_ROUNDS
from mcp_server.resources.views import LAYERS
from mcp_server.skills.served import SCHEME, ServedSkills, UnservedSkill
from mcp_server.state import ServerState
from mcp_server.tooling import is_domain_error

MAX_VALUES = 100
"""Of one completion (the protocol's limit)."""

DASHBOARD = "evo://dashboard/"

DASHBOARD_PATHS = ("overview", "runs", "rounds", "patches", "experience", "skills")
"""Documents of the dashboard."""

ROUNDS = (DEFAULT_ROUNDS, "1", "3", "5", "10")

Values = Callable[[dict[str, str]], Iterable[str]]
"""Gives what fits, from the arguments that are known already."""


class Completions:
    """Gives the values that fit."""

    def __init__(self, state: ServerState, skills: ServedSkills) -> None:
        self._state = state
        self._skills = skills
        self._sources: dict[str, Values] = {
            "run_id": self._runs,
            "session": self._sessions,
            "layer": lambda known: LAYERS,
            "number": self._rounds,
            "patch_id": self._patches,
            "skill": lambda known: self._skills.names(),
            "path": self._files,
            "request": self._requests,
            "rounds": lambda known: ROUNDS,
            "evolution": self._evolutions,
        }

    def serve(self, server: MCPServer[Any]) -> None:
        """Registers the handler."""

        @server.completion()
        async def complete(
            ref: PromptReference | ResourceTemplateReference,
            argument: CompletionArgument,
            context: CompletionContext | None,
        ) -> Completion:
            known = dict(context.arguments or {}) if context is not None else {}
            if isinstance(ref, ResourceTemplateReference) and ref.uri.startswith(DASHBOARD):
                found = [one for one in DASHBOARD_PATHS if one.startswith(argument.value)]
            else:
                found = await anyio.to_thread.run_sync(self.values, argument.name, argument.value, known)
            if isinstance(ref, PromptReference) and ref.name == "traj-train-optimize":
                found = [*found, *(["all"] if "all".startswith(argument.value) else [])]
            return Completion(values=found[:MAX_VALUES], total=len(found), has_more=len(found) > MAX_VALUES)

    def values(self, name: str, begun: str, known: dict[str, str]) -> list[str]:
        """The values of a variable that begin so, whatever the case."""
        source = self._sources.get(name)
        if source is None:
            return []
        try:
            found = list(dict.fromkeys(source(known)))
        except (UnservedSkill, OSError):
            return []
        except Exception as problem:
            if not is_domain_error(problem):
                raise
            return []
        return [one for one in found if one.lower().startswith(begun.lower())]

    def _runs(self, known: dict[str, str]) -> list[str]:
        from trainer.runs.registry import list_runs
        from trainer.runs.workspace import Workspace

        if not self._state.exists:
            return []
        return [run.document.run_id for run in list_runs(Workspace(self._state.root))]

    def _sessions(self, known: dict[str, str]) -> list[str]:
        if not self._state.exists:
            return []
        return list(reversed(self._state.trajectories().sessions()))

    def _rounds(self, known: dict[str, str]) -> list[str]:
        from optimizer.round_store import RoundStore

        return [str(number) for number in reversed(RoundStore(self._state.root).numbers())]

    def _patches(self, known: dict[str, str]) -> list[str]:
        from optimizer.patch_store import PatchStore

        store = PatchStore(self._state.root)
        changed = {one: (store.folder(one) / "patch.json").stat().st_mtime_ns for one in store.ids()}
        return sorted(changed, key=lambda one: (changed[one], one), reverse=True)

    def _files(self, known: dict[str, str]) -> list[str]:
        skill = known.get("skill")
        if skill is None:
            return ["SKILL.md"]
        return [uri.removeprefix(f"{SCHEME}{skill}/") for uri in self._skills.files_of(skill)]

    def _requests(self, known: dict[str, str]) -> list[str]:
        from trainer.runs.registry import list_runs
        from trainer.runs.workspace import Workspace

        if not self._state.exists:
            return [DEFAULT_REQUEST]
        made = [run.document.request for run in list_runs(Workspace(self._state.root)) if run.document.request]
        return [*made, DEFAULT_REQUEST]

    def _evolutions(self, known: dict[str, str]) -> list[str]:
        from mcp_server.jobs.campaigning import open_campaigns
        from mcp_server.jobs.evolving import requested_evolutions
        from optimizer.round_store import RoundStore

        if not self._state.exists:
            return []
        return [*reversed(requested_evolutions(RoundStore(self._state.root))), *open_campaigns(self._state)]
