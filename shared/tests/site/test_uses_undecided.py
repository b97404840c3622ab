"""A card's row where it is not known which kernel is the fastest: it names all that may be."""

from __future__ import annotations

from pathlib import Path

from sites import believe, record, write

from fluxbench.records.schema import BURST, Flag, Record
from fluxbench.records.status import FlagKind
from fluxbench.site.collect import collect
from fluxbench.site.uses import Kernel, recommended


def the_one_kernel(reports: Path, notebook: str, records: list[Record]) -> Kernel:
    """Return the only kernel that is named of a target's only notebook."""
    write(reports, "h200", *records, notebook=notebook)
    [target] = collect(reports, believe)
    found = recommended(target)
    assert found
    [kernel] = [kernel for use in found.uses for answer in use.answers for kernel in answer.kernels]
    return kernel


def test_where_no_kernel_is_measurably_the_fastest_all_candidates_are_named(tmp_path: Path) -> None:
    wide = {"torch_flash": 1.0, "torch_cudnn": 1.3, "flex": 1.4}
    records = [record(variant, "flux1-1024px-t512", ms, ci=0.4) for variant, ms in wide.items()]
    kernel = the_one_kernel(tmp_path, "flux", records)
    note = "FlashAttention-2 (SDPA), cuDNN (SDPA) and FlexAttention may be the fastest"
    assert (kernel.name, kernel.note, kernel.number) == ("no winner", note, "")


def test_one_without_a_rank_in_a_grid_is_named_among_them_and_once(tmp_path: Path) -> None:
    replayed = [Flag(kind=FlagKind.REPLAYED, regime=BURST, value=1.0)]
    records = [
        record(variant, "sdpa-b8-s128-h12-d64-bf16", ms, regimes=[BURST], flags=flags, burst_ci=0.4)
        for variant, ms, flags in (
            ("torch_native", 1.0, replayed), ("flash_attn_4", 0.9, replayed), ("flex", 0.019, []),
        )
    ]  # fmt: skip
    kernel = the_one_kernel(tmp_path, "sdpa", records)
    assert kernel.name == "no winner"
    assert kernel.note.count("FlexAttention") == 1
