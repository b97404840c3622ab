"""The gradient of attention: forward and backward pass together, and the backward pass alone."""

from fluxbench.studies.study import Study

STUDY = Study(
    name="backward",
    sets={
        "cpu": (
            *("flux1-256px-t128-training", "flux1-256px-t256-training", "llama3.2-1b-512-training"),
            *("flux1-256px-t128-backward", "flux1-256px-t256-backward", "llama3.2-1b-512-backward"),
        ),
        "any": (
            *("flux1-1024px-training", "llama3-8b-training", "llama3.2-1b-training"),
            *("flux1-1024px-backward", "llama3-8b-backward", "llama3.2-1b-backward"),
        ),
    },
    references=("torch_flash", "torch_efficient", "torch_math"),
)
