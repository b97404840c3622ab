# /// script
# requires-python = ">=3.11"
# dependencies = ["fluxbench"]
#
# [tool.uv.sources]
# fluxbench = { path = "../../../shared", editable = true }
#
# [tool.fluxbench]
# notebook = "flux"
# packages = ["torch==2.13.0", "numpy==2.4.6", "flash-attn-4==4.0.0b36"]
# lock = "flash-attn-4"
# ///
from fluxbench import bench

bench.measure("flash_attn_4", "flex_flash", "torch_fa4")