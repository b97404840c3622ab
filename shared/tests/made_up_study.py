"""A study outside of the package, named `made_up_study:DECODE`."""

from fluxbench.studies.study import Study

DECODE = Study(
    name="made-up",
    sets={"any": ("llama3-8b-decode",)},
    references=("torch_flash",),
    rate="GB/s",
    tables=("ranking", "correctness"),
    figures=("latency",),
)
UNKNOWN_FIGURE = Study(name="unknown-figure", references=("torch_flash",), tables=("ranking",), figures=("latncy",))
