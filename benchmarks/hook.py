"""What a hook costs the agent: the whole process of the installed `mcp-evo-hook` against a bare `python -c pass`.

    python benchmarks/hook.py [--rounds 40] [--writers 100] [--events 100] [--hook PATH] [--json]

Each round starts every kind once, one after the other, so that whatever else the machine does falls on all of them;
medians of the seconds and of the processor seconds (user and system) of a whole process, and their ratios to the bare
interpreter of the same installation. The kinds: an `ordinary` event of 4 KB, a `large` one of 100 KB, one of a folder
without a workspace, and events of 4 KB that are parsed and redacted: `false_alarm` looks as if it held a secret, the
others hold one (an assigned value, a maker's key, a login, an option's value, a header). One in twenty events of
recorded sessions looked suspicious. An editable installation makes every process slower, the bare one most of all: the
ratio that a user sees is that of an ordinary installation.

Then `--writers` processes append `--events` events of up to 100 KB each to one session, all at once; every line is
read back, and what is missing, torn or doubled is counted.

Exit status 1 where any kind takes more than twice the bare process, or an event was lost.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

GOAL = 2.0
"""Times the bare process."""

WRITER = """
import hashlib, json, random, sys
from optimizer.capture.hooks import capture
home, who, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = random.Random(who)
sys.stdin.readline()
for number in range(count):
    pad = "%x" % rng.getrandbits(64) * rng.randrange(1, 6_200)
    mark = hashlib.sha256(pad.encode()).hexdigest()
    event = {"session_id": "s-1", "hook_event_name": "PostToolUse", "who": who, "number": number, "mark": mark}
    capture(home, json.dumps({**event, "pad": pad}).encode())
"""


def event(text: str, cwd: Path) -> bytes:
    """A call as the client tells it."""
    document = {
        "session_id": "30719efd-2ae1-47ec-bdbc-36adcb179464",
        "cwd": str(cwd),
        "hook_event_name": "PostToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "python train.py --steps 8"},
        "tool_response": {"stdout": text, "stderr": "", "interrupted": False},
        "tool_use_id": "toolu_1",
    }
    return json.dumps(document).encode()


def environment() -> dict[str, str]:
    """Ours without what would take the compiled modules away from both sides or name a workspace."""
    left_out = ("MCP_EVO_HOME", "CLAUDE_PROJECT_DIR", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH")
    return {name: value for name, value in os.environ.items() if name not in left_out}


def texts() -> dict[str, str]:
    """Kind → what a call printed. Secrets are put together here, so that no scanner finds one in this file."""
    line = "step 12: reward=0.4375 entropy=0.0213 tokens=5120\n"
    mixed = "x1Y2z3" * 6
    first = {
        "ordinary": "",
        "false_alarm": "the secret: see below\n",
        "assigned": f"password={mixed[:12]}\n",
        "key": f"gh{'p_'}{mixed}\n",
        "login": f"postgres://app:{mixed[:9]}@db.example:5432/main\n",
        "option": f"deploy --password {mixed[:9]} main\n",
        "header": f"curl -H 'Authorization: Bearer {mixed}' https://x.example\n",
    }
    return {"large": line * 2000} | {name: text + line * 80 for name, text in first.items()}


def processor_seconds() -> float:
    """Of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def process_times(hook: Path, rounds: int, folder: Path) -> dict[str, tuple[float, float]]:
    """Kind → median (seconds, processor seconds) of a whole process."""
    project, elsewhere = folder / "project", folder / "elsewhere"
    (project / ".mcp-evo").mkdir(parents=True)
    elsewhere.mkdir()
    outputs = texts()
    kinds: dict[str, tuple[list[str], bytes]] = {
        "bare": ([str(hook.with_name("python")), "-c", "pass"], b""),
        "no_workspace": ([str(hook)], event(outputs["ordinary"], elsewhere)),
        **{name: ([str(hook)], event(text, project)) for name, text in outputs.items()},
    }
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
    for number in range(rounds + 2):
        for name, (command, data) in kinds.items():
            used, began = processor_seconds(), time.perf_counter()
            done = subprocess.run(
                command, input=data, env=environment(), cwd=folder, capture_output=True, timeout=60, check=False
            )
            seconds = time.perf_counter() - began
            if done.returncode or done.stdout or done.stderr:
                raise SystemExit(f"{command} ended with {done.returncode}: {done.stderr.decode(errors='replace')}")
            if number >= 2:  # the first ones compile modules and fill caches
                spent[name].append((seconds, processor_seconds() - used))
    session = project / ".mcp-evo" / "trajectories" / "raw" / "30719efd-2ae1-47ec-bdbc-36adcb179464" / "events.jsonl"
    lines = session.read_bytes().splitlines()
    redacted = sum(b"[redacted:" in line for line in lines)
    if (len(lines), redacted) != (len(outputs) * (rounds + 2), 5 * (rounds + 2)):
        raise SystemExit(f"{len(lines)} events were recorded, {redacted} of them redacted")
    return {
        name: (statistics.median(one[0] for one in values), statistics.median(one[1] for one in values))
        for name, values in spent.items()
    }


def write_at_once(python: Path, writers: int, events: int, folder: Path) -> dict[str, Any]:
    """What became of `writers` × `events` events that were appended at the same time."""
    home = folder / "home"
    home.mkdir()
    processes = [
        subprocess.Popen(
            [str(python), "-P", "-c", WRITER, str(home), str(who), str(events)],
            stdin=subprocess.PIPE,
            env=environment(),
            cwd=folder,
        )
        for who in range(writers)
    ]
    began = time.perf_counter()
    for process in processes:  # all are up, or soon will be: now they write
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.close()
    failed = sum(process.wait(600) != 0 for process in processes)
    seconds = time.perf_counter() - began
    found, bad = check_lines(home / "trajectories" / "raw" / "s-1" / "events.jsonl")
    return {
        "writers": writers,
        "events": writers * events,
        "failed_writers": failed,
        "lost": writers * events - len(set(found)),
        "doubled": len(found) - len(set(found)),
        "bad_lines": bad,
        "events_per_s": round(len(found) / seconds, 1),
    }


def check_lines(path: Path) -> tuple[list[tuple[int, int]], int]:
    """((writer, number) of each whole line, lines that are not what a writer wrote)."""
    import hashlib

    found: list[tuple[int, int]] = []
    bad = 0
    with open(path, "rb") as stream:
        for line in stream:
            try:
                document = json.loads(line)
                whole = hashlib.sha256(document["pad"].encode()).hexdigest() == document["mark"]
            except (ValueError, KeyError):
                whole = False
            if whole and line.endswith(b"\n"):
                found.append((document["who"], document["number"]))
            else:
                bad += 1
    return found, bad


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--writers", type=int, default=100)
    parser.add_argument("--events", type=int, default=100, help="of each writer")
    parser.add_argument("--hook", type=Path, default=Path(sys.executable).with_name("mcp-evo-hook"))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    hook = arguments.hook.absolute()
    if not hook.is_file() or not hook.with_name("python").exists():
        raise SystemExit(f"{hook} is no installed mcp-evo-hook beside its python; name one with --hook")
    with tempfile.TemporaryDirectory() as folder:
        times = process_times(hook, arguments.rounds, Path(folder))
        written = write_at_once(hook.with_name("python"), arguments.writers, arguments.events, Path(folder))
    ratio = {name: round(value[0] / times["bare"][0], 3) for name, value in times.items() if name != "bare"}
    processor = {name: round(value[1] / times["bare"][1], 3) for name, value in times.items() if name != "bare"}
    whole = not any(written[name] for name in ("failed_writers", "lost", "doubled", "bad_lines"))
    document = {
        "ratio": ratio,
        "processor_ratio": processor,
        "seconds": {name: round(value[0], 5) for name, value in times.items()},
        "rounds": arguments.rounds,
        "concurrent": written,
        "goal": GOAL,
        "ok": max(ratio.values()) <= GOAL and whole,
    }
    if arguments.json:
        print(json.dumps(document))
    else:
        print(f"{'process':14} {'ms':>8} {'× bare':>8} {'cpu ms':>8} {'× bare':>8}")
        for name, (seconds, used) in times.items():
            ratios = ratio.get(name, 1.0), processor.get(name, 1.0)
            print(f"{name:14} {seconds * 1000:8.1f} {ratios[0]:8.2f} {used * 1000:8.1f} {ratios[1]:8.2f}")
        print(", ".join(f"{name} {value}" for name, value in written.items()))
    raise SystemExit(0 if document["ok"] else 1)


if __name__ == "__main__":
    main()
