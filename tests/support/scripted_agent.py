"""A training agent without a language model: a stdio client that trains one round as its task says.

    scripted_agent.py TASK

The workspace is the one of `MCP_EVO_HOME`; the worker the one of `MCP_EVO_WORKER`.
"""

import os
import re
import sys

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main(task: str) -> None:
    request = re.search(r"request: (round=\d+ \| .*?)\. Start", task)
    profile = re.search(r'profile="(\w+)"', task)
    assert request is not None, task
    server = StdioServerParameters(
        command=sys.executable, args=["-P", "-m", "mcp_server.cli.main", "serve"], env=dict(os.environ)
    )
    with open(os.devnull, "a", encoding="utf-8") as log:
        async with Client(stdio_client(server, errlog=log)) as client:
            await client.call_tool("load_skill", {"name": "rllm-train"})
            arguments = {"request": request[1]}
            if profile is not None:
                arguments["profile"] = profile[1]
            started = await client.call_tool("start_training", arguments)
            assert not started.is_error, started.content
            run_id = started.structured_content["run_id"]
            for _ in range(60):
                seen = await client.call_tool("monitor_run", {"run_id": run_id, "wait_s": 2})
                if seen.structured_content["state"] in ("finished", "failed", "stopped", "lost"):
                    break
            await client.call_tool("analyze_run", {"run_id": run_id})
            print(f"trained {run_id}")


anyio.run(main, sys.argv[1])
