"""Attention as FLUX.1 calls it: which kernel on this device, over text lengths."""

from fluxbench.studies.study import Study

# At six lengths a process holds 13 GB of an H200, and up to 49 for a moment while it checks; less of a smaller card.
# By a replay of the steps of an H200's page six cells at once save 55 s of 725, eight no more.
_AT_ONCE, _AT_LEAST, _CELL_BYTES = 6, 4, 19_000_000_000
# Of a CPU, whose calls take a few hundred times as long, a smaller image at four lengths, two of them with all kinds of
# inputs: the page is to take five minutes on two cores without AVX-512.
_OF_CPU = tuple(f"flux1-256px-t{text}" for text in (128, 256, 384, 512))
STUDY = Study(
    name="flux",
    sets={"cpu": _OF_CPU, "any": ("flux1-1024px",)},
    references=("torch_flash", "torch_efficient", "torch_math"),
    fully_on_cpu=(_OF_CPU[0], _OF_CPU[-1]),
    at_once=_AT_ONCE,
    at_least=_AT_LEAST,
    cell_bytes=_CELL_BYTES,
)
