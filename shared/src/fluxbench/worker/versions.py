"""The versions of everything that takes part in a measurement in this process."""

from __future__ import annotations

import importlib.metadata
import sys

import torch

from fluxbench import variants


def versions(device: torch.device) -> dict[str, str]:
    """Return the versions of everything that takes part in a measurement here."""
    found = {"python": ".".join(map(str, sys.version_info[:3])), "torch": torch.__version__}
    packages = {package for variant in variants.REGISTRY for package in variant.packages} - {"torch"}
    for package in sorted(packages | {"triton", "diffusers"}):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    if device.type == "cuda" and torch.backends.cudnn.is_available():
        found["cudnn"] = str(torch.backends.cudnn.version())
    return found
