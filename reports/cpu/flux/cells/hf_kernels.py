# /// script
# requires-python = ">=3.11"
# dependencies = ["fluxbench"]
#
# [tool.uv.sources]
# fluxbench = { path = "../../../shared", editable = true }
#
# [tool.fluxbench]
# notebook = "flux"
# packages = ["torch==2.13.0", "numpy==2.4.6", "kernels==0.17.2"]
# lock = "hf-kernels"
# ///
from fluxbench import bench

bench.measure("hf_flash_attn2", "hf_flash_attn3", "hf_sage")