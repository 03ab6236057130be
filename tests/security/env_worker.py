"""A worker that trains nothing and writes down what it can see of its surroundings."""

import json
import os
import sys
from pathlib import Path

if __name__ == "__main__":
    folder = Path(sys.argv[-1])
    handles = {
        name: os.readlink(f"/proc/self/fd/{name}")
        for name in os.listdir("/proc/self/fd")
        if os.path.lexists(f"/proc/self/fd/{name}")
    }
    seen = {
        "environment": dict(os.environ),
        "arguments": sys.argv,
        "handles": handles,
        "session": os.getsid(0) == os.getpid(),
        "path": sys.path,
    }
    (folder / "seen.json").write_text(json.dumps(seen))
