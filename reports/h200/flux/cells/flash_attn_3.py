# /// script
# requires-python = ">=3.11"
# dependencies = ["fluxbench"]
#
# [tool.uv.sources]
# fluxbench = { path = "../../../shared", editable = true }
#
# [tool.fluxbench]
# notebook = "flux"
# packages = ["torch==2.13.0", "numpy==2.4.6", "fa3-fwd==0.0.3", "triton==3.7.1"]
# lock = "flash-attn-3"
# ///
from fluxbench import bench

bench.measure(
    *("flash_attn_3", "flash_attn_3_compile_d", "flash_attn_3_compile_ma"),
    *("flash_attn_3_fp8", "flash_attn_3_fp8_compile_d", "flash_attn_3_fp8_compile_ma"),
    "torch_fa3",
)