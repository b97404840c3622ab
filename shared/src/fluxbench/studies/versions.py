"""FlashAttention's versions, forward, at a published guide's shapes: batch 8, 32 heads of 64, 512 to 8,192 tokens."""

from fluxbench.studies.study import Study

STUDY = Study(
    name="versions",
    sets={"cpu": ("speed-guide-small",), "any": ("speed-guide",)},
    references=("torch_flash", "torch_math"),
    unlike_lengths=True,
    tables=("versions", "capabilities"),
)
