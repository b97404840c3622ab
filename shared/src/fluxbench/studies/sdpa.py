"""135 small attentions, forward and with gradients: eager PyTorch, its fused backends and the FlashAttention family."""

from fluxbench.operations import grid_sets
from fluxbench.studies.study import Study
from fluxbench.worker.request import Effort

# On a CPU an eager call with gradients takes up to half a second of a core at 64 tokens.
_SMALL = (
    *grid_sets.named([64, 128], [32, 64], ["attention"]),
    *grid_sets.named([64], [32, 64], ["attention_training"]),
)
_FULLY = grid_sets.named([64, 256, 1024], grid_sets.HEAD_DIMS)  # one in fifteen: each head_dim at three lengths

STUDY = Study(
    name="sdpa",
    sets={"cpu": _SMALL, "any": tuple(grid_sets.sets())},
    references=("torch_flash", "torch_math"),  # the first makes no plans in the cells of other libraries
    measures=("burst",),
    effort=Effort(grid=True, plans=True, held_bytes=2_000_000_000, fully=tuple(dict.fromkeys((*_FULLY, *_SMALL)))),
    tables=("grid", "grid_published", "grid_correctness"),
    figures=("speedup",),
)
