"""135 small attentions, forward and with gradients: eager PyTorch, its fused backends and the FlashAttention family."""

from fluxbench.operations import grid_sets
from fluxbench.studies.study import Study
from fluxbench.worker.request import Effort

# On a CPU an eager call with gradients takes up to half a second of a core at 64 tokens.
_SMALL = (
    *grid_sets.named([64, 128], [32, 64], ["attention"]),
    *grid_sets.named([64], [32, 64], ["attention_training"]),
)
# Of a GPU's memory a process holds 6 GB by arithmetic (`worker.needs`), or one workload that takes more, and 2 to 4 GB
# come and go beside it. Where it needs more than others have left, it waits: an unfused call with gradients at the
# largest shapes takes up to 39 GB more. Most of a row's time is the host's, so all eight cells share a GPU, with two
# processes each.
_HELD_BYTES, _AT_ONCE, _CELL_BYTES = 6_000_000_000, 8, 9_000_000_000
_FULLY = grid_sets.named([64, 256, 1024], grid_sets.HEAD_DIMS)  # one in fifteen: each head_dim at three lengths

STUDY = Study(
    name="sdpa",
    sets={"cpu": _SMALL, "any": tuple(grid_sets.sets())},
    references=("torch_flash", "torch_math"),  # the first makes no plans in the cells of other libraries
    measures=("burst",),
    effort=Effort(
        grid=True,
        plans=True,
        held_bytes=_HELD_BYTES,
        one_reference=True,
        side_by_side=True,  # in turn, the gradients of one cell would go on alone when all others have ended
        fully=tuple(dict.fromkeys((*_FULLY, *_SMALL))),
    ),
    at_once=_AT_ONCE,
    cell_bytes=_CELL_BYTES,
    tables=("grid", "grid_published", "grid_correctness"),
    figures=("speedup",),
)
