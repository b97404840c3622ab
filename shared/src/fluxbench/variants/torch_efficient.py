"""torch's memory-efficient backend of scaled_dot_product_attention.

Wraps the CUTLASS kernel that torch took from xFormers. Exact. Runs on NVIDIA GPUs of compute capability 5.0 or newer
(bfloat16 from 8.0).

`torch_efficient_det`: its backward pass does not split the keys, as torch's switch for deterministic algorithms asks.
`torch_efficient_tf32`: the same kernel on float32 inputs, judged as what it does with them from compute capability 8.0
on: three TF32 products in place of one of float32 (CUTLASS's `OpMultiplyAddFastF32`), added up in tensor cores, which
truncate sums. Emulated so on a CPU it errs by 4 to 40 times the budget of *exact*, at 128 to 4,096 tokens.
"""

from dataclasses import replace

from fluxbench.operations import precision
from fluxbench.variants import _base, _determinism, forms

VARIANT = _base.Variant(
    name="torch_efficient",
    label="Memory-efficient (SDPA)",
    diffusers="_native_efficient",
    load=lambda call: _base.sdpa("EFFICIENT_ATTENTION", call),
    capabilities=_base.Capabilities(
        dtypes=("bfloat16", "float16", "float32"),
        minimum=(5, 0),
        causal=_base.YES,
        backward=_base.YES,
        separate_head_dims=True,
    ),
    forms=forms.EVERY_FORM,
    kernel_pattern=r"fmha_cutlassF",
    backward_kernel_pattern=r"fmha_cutlassB",
)
DETERMINISTIC = _base.deterministic(
    VARIANT,
    lambda call: _determinism.deterministic_backward(_base.sdpa("EFFICIENT_ATTENTION", call)),
    "Memory-efficient det. (SDPA)",
)
TF32 = replace(
    VARIANT,
    name="torch_efficient_tf32",
    label="Efficient, 3xTF32 (SDPA)",
    diffusers="",
    capabilities=replace(VARIANT.capabilities, dtypes=("float32",), minimum=(8, 0)),
    forms=(forms.EAGER,),
    precision_class=precision.TF32,
)
