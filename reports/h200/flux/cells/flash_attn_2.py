# /// script
# requires-python = ">=3.11"
# dependencies = ["fluxbench"]
#
# [tool.uv.sources]
# fluxbench = { path = "../../../shared", editable = true }
#
# [tool.fluxbench]
# notebook = "flux"
# packages = ["torch==2.13.0", "numpy==2.4.6", "flash-attn==2.8.3.post2"]
# lock = "flash-attn-2"
# ///
from fluxbench import bench

bench.measure("flash_attn_2", "flash_attn_2_compile_d", "flash_attn_2_compile_ma")