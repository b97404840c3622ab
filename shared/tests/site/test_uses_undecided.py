"""A card's row where it is not known which kernel is the fastest: it names all that may be."""

from __future__ import annotations

from pathlib import Path

from sites import believe, record, write

from fluxbench.site.collect import collect
from fluxbench.site.uses import recommended


def test_where_no_kernel_is_measurably_the_fastest_all_candidates_are_named(tmp_path: Path) -> None:
    wide = {"torch_flash": 1.0, "torch_cudnn": 1.3, "flex": 1.4}
    records = [record(variant, "flux1-1024px-t512", ms, ci=0.4) for variant, ms in wide.items()]
    write(tmp_path, "h200", *records, notebook="flux")
    [target] = collect(tmp_path, believe)
    found = recommended(target)
    assert found
    [kernel] = [kernel for use in found.uses for answer in use.answers for kernel in answer.kernels]
    note = "no winner: cuDNN (SDPA) and FlexAttention may be as fast"
    assert (kernel.name, kernel.note) == ("FlashAttention-2 (SDPA)", note)
