"""The gradient of attention: forward and backward pass together, and the backward pass alone."""

from dataclasses import replace

from fluxbench.studies.study import Study

STUDY = Study(
    name="backward",
    sets={
        # On a CPU torch's flash backend takes 1.1 s of a core for the gradient at 384 tokens, the math one an eighth.
        "cpu": (
            *("flux1-128px-t128-training", "llama3.2-1b-256-training"),
            *("flux1-128px-t128-backward", "llama3.2-1b-256-backward"),
        ),
        "any": (
            *("flux1-1024px-training", "llama3-8b-training", "llama3.2-1b-training"),
            *("flux1-1024px-backward", "llama3-8b-backward", "llama3.2-1b-backward"),
        ),
    },
    references=("torch_flash", "torch_efficient", "torch_math"),
    burst_alone=("attention_backward",),  # training runs both passes: their sustained time decides
)
# Cells whose variants keep all scores: a call takes half a second at 16,384 tokens.
UNFUSED = replace(
    STUDY,
    sets={
        "cpu": STUDY.sets["cpu"],
        "any": (
            *("flux1-1024px-training", "llama3-8b-4096-training", "llama3.2-1b-4096-training"),
            *("flux1-1024px-backward", "llama3-8b-4096-backward", "llama3.2-1b-4096-backward"),
        ),
    },
)
AUTOTUNED = replace(STUDY, sets={"cpu": STUDY.sets["cpu"], "any": ("flux1-1024px-t512-training",)})
