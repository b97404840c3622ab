"""Our flash attention as a repository in the layout of Hugging Face kernels, made from the sources of this folder.

    python -m fluxbench.kernels.package FOLDER

The package `kernels` loads it with `get_local_kernel(Path(FOLDER))`. It is pure Python, so that one build serves every
torch (`torch-universal`); it needs torch, and the Triton that torch brings.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import json
import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType

NAME = "fluxbench-attention"
VERSION = 1
_SOURCES = Path(__file__).parent
_INIT = '''"""Flash attention of fluxbench: `attention(q, k, v)` of `[batch, seq_len, heads, head_dim]`."""

from .flash_attention import attention

__all__ = ["attention"]
'''


def write(folder: Path) -> None:
    """Write the repository into a folder, which is made where it is missing.

    Its modules are those of this folder, with imports of one another made relative. The id holds a hash of them all:
    Python keeps a kernel's modules by it, so that two contents never share a module or an operator of torch.
    """
    build = folder / "build" / "torch-universal"
    build.mkdir(parents=True, exist_ok=True)
    modules = {path.name: path.read_text(encoding="utf-8") for path in sorted(_SOURCES.glob("flash_*.py"))}
    files = {"__init__.py": _INIT}
    files |= {name: text.replace("from fluxbench.kernels.", "from .") for name, text in modules.items()}
    content = hashlib.sha256("".join(files.values()).encode()).hexdigest()[:8]
    metadata = {
        "id": f"_{NAME.replace('-', '_')}_{content}",
        "name": NAME,
        "version": VERSION,
        "license": "Apache-2.0",
        "python-depends": [],
        "backend": {"type": "cuda"},
    }
    for name, text in (files | {"metadata.json": json.dumps(metadata, indent=2) + "\n"}).items():
        (build / name).write_text(text, encoding="utf-8")


@functools.cache
def load() -> ModuleType:
    """Return the kernel's module, loaded by the package `kernels` from a temporary folder, once for the process."""
    from kernels import get_local_kernel

    folder = Path(tempfile.mkdtemp(prefix=f"{NAME}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # Triton reads the sources at a kernel's first launch
    write(folder)
    module: ModuleType = get_local_kernel(folder)
    return module


if __name__ == "__main__":
    write(Path(sys.argv[1]))
