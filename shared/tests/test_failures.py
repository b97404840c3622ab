"""What an exception of a library becomes: a status, and a sentence that says what to do."""

from __future__ import annotations

import re

import pytest
import torch

from fluxbench.records.schema import Status
from fluxbench.worker.failures import classify, first_sentence

SYMBOL = "made_up.so: undefined symbol: _ZN3c104cuda9SetDeviceEab"


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (ImportError("No module named 'made_up'"), Status.UNAVAILABLE, r"'made_up'; install what is missing$"),
        (ImportError("too old; install 2.0"), Status.UNAVAILABLE, r"^too old; install 2\.0$"),
        (
            ImportError(SYMBOL),
            Status.UNAVAILABLE,
            r"^it was built for another torch than .*; install a build that fits$",
        ),
        (OSError(SYMBOL), Status.UNAVAILABLE, r"^it was built for another torch than .*undefined symbol"),
        (OSError("device is gone"), Status.ERROR, r"^OSError: device is gone$"),
        (NotImplementedError("no plan\nmore words"), Status.UNSUPPORTED, r"refuses this call here: no plan$"),
        (torch.OutOfMemoryError("Tried to allocate"), Status.OUT_OF_MEMORY, r"^Tried to allocate$"),
        (
            RuntimeError("CUDA error: no kernel image is available for"),
            Status.UNSUPPORTED,
            r"has no kernels for this GPU",
        ),
        (RuntimeError("No available kernel. Aborting"), Status.UNSUPPORTED, r"^torch refuses this backend here"),
        (ValueError("shape"), Status.ERROR, r"^ValueError: shape$"),
    ],
)
def test_what_an_exception_becomes(error: Exception, status: Status, reason: str) -> None:
    found, sentence = classify(error)
    assert found is status
    assert re.search(reason, sentence), sentence


def test_a_sentence_is_one_line_and_not_long() -> None:
    assert first_sentence(ValueError("\n  first \nsecond")) == "first"
    assert len(first_sentence(ValueError("x" * 500))) == 200
    assert first_sentence(ValueError()) == "ValueError"
