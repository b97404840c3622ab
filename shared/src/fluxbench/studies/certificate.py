"""The harness itself: kernels that are slowed by a known share, in several runs."""

from fluxbench.studies.study import Study

STUDY = Study(
    name="certificate",
    sets={
        "cpu": ("flux1-512px-t128",),
        "any": ("flux1-1024px-t128", "flux1-1024px-t384", "flux1-1024px-t512"),
    },
    references=("torch_flash", "torch_efficient", "torch_math"),
    measures=("burst", "sustained"),
)
