"""What of a lock an air-gapped host installs: one with Python 3.12 on Linux x86-64, whatever Python gathers its wheels.

pip judges a marker such as `python_full_version < '3.12'` by the interpreter that runs it and not by its
`--python-version`. `make wheelhouse` therefore gives it a lock without markers: `.venv/bin/python wheelhouse.py LOCK`
prints it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from packaging.markers import Marker

_HOST = {
    "implementation_name": "cpython",
    "implementation_version": "3.12.0",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "python_full_version": "3.12.0",
    "python_version": "3.12",
    "sys_platform": "linux",
}
# A requirement as `uv pip compile --generate-hashes` writes it: name==version ; marker \\ and its hashes.
_REQUIREMENT = re.compile(
    r"(?m)^(?P<pin>[\w.-]+==[^\s;\\]+)(?: ; (?P<marker>[^\\\n]+?))?(?P<hashes> \\\n(?:    .*\n?)+)"
)


def of_host(lock: str) -> str:
    """Return the requirements of a lock that the host installs, without markers and with their hashes."""
    return "".join(
        requirement["pin"] + requirement["hashes"]
        for requirement in _REQUIREMENT.finditer(lock)
        if requirement["marker"] is None or Marker(requirement["marker"]).evaluate(_HOST)
    )


if __name__ == "__main__":
    sys.stdout.write(of_host(Path(sys.argv[1]).read_text(encoding="utf-8")))
