# /// script
# requires-python = ">=3.11"
# dependencies = ["fluxbench"]
#
# [tool.uv.sources]
# fluxbench = { path = "../../../shared", editable = true }
#
# [tool.fluxbench]
# notebook = "flux"
# packages = ["torch==2.13.0", "numpy==2.4.6", "xformers==0.0.35"]
# lock = "xformers"
# ///
from fluxbench import bench

bench.measure("xformers", "xformers_compile_d", "xformers_compile_ma")