"""Every variant: those of the files here. To add one: its file, and a cell that measures it."""

import difflib
import importlib
import pkgutil

from fluxbench.variants import slowed
from fluxbench.variants._base import Variant
from fluxbench.variants.forms import COMPILE_BLOCKS, FormedVariant

# The order in which pages list the files; the ones that are not named here come last, by name.
_ORDER = (
    *("torch_flash", "torch_cudnn", "torch_efficient", "torch_math", "torch_native", "torch_eager", "flex"),
    *(
        "flash_attn_2",
        "flash_attn_3",
        "flash_attn_4",
        "torch_fa",
        "flex_flash",
        "triton_flash",
        "gluon_flash",
        "gluon_int8_fp8",
        "triton_decode",
    ),
    *("sageattention", "transformer_engine", "xformers", "cudnn_frontend", "hf_kernels", "hf_local", "flashinfer"),
)


def _registered() -> tuple[Variant, ...]:
    """Return the variants that the files declare, those of one file in the order in which it does."""
    present = [info.name for info in pkgutil.iter_modules(__path__) if not info.name.startswith("_")]
    files = sorted(present, key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in files]
    return tuple(value for module in modules for value in vars(module).values() if isinstance(value, Variant))


REGISTRY = _registered()
NAMES: tuple[str, ...] = tuple(name for variant in REGISTRY for name in variant.names)
# By which a library chooses its kernel when it is imported; a process has those of its variants, and no others.
VARIABLES: frozenset[str] = frozenset(key for variant in REGISTRY for key in variant.variables)
_SLOWED = (
    *("torch_flash", "torch_cudnn", "torch_math", "triton_flash"),
    *("torch_flash_compile_d", "torch_cudnn_compile_d", "flash_attn_3", "flash_attn_4"),
)
# Slower on purpose: the certificate measures them, and no page lists them.
CERTIFICATE: tuple[Variant, ...] = tuple(
    form
    for base in REGISTRY
    for of_base in base.forms
    if base.name + of_base.suffix in _SLOWED
    for form in slowed.of(FormedVariant(base, of_base))
)
_LABELS = {
    variant.name + form.suffix: variant.label + form.label
    for variant in (*REGISTRY, *CERTIFICATE)
    for form in (*variant.forms, COMPILE_BLOCKS)
}

_OTHER_WAYS = {name for variant in REGISTRY if variant.is_another_way for name in variant.names}


def notes() -> dict[str, str]:
    """Return what a reader must know of a variant, by its name without a form, where there is something."""
    return {variant.name: variant.note for variant in REGISTRY if variant.note}


def is_another_way(name: str) -> bool:
    """Say whether a variant in its form is another way to load kernels of other variants; an unknown name is not."""
    return name in _OTHER_WAYS


def label(name: str) -> str:
    """Return the name for people of a variant in its form; an unknown name is returned as it is.

    >>> label("flash_attn_3_compile_d"), label("mine")
    ('FlashAttention-3, compiled', 'mine')
    """
    return _LABELS.get(name, name)


def find(name: str) -> FormedVariant:
    """Return the variant and the form that a name stands for. Raises `ValueError` with the nearest name.

    Every variant also has the form of a model whose repeated blocks are compiled, which only models have.
    """
    for variant in (*REGISTRY, *CERTIFICATE):
        for form in (*variant.forms, COMPILE_BLOCKS):
            if variant.name + form.suffix == name:
                return FormedVariant(variant, form)
    near = difflib.get_close_matches(name, NAMES, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"the variants are {', '.join(NAMES)}"
    raise ValueError(f"variant must be a registered name, got {name!r}; {hint}")
