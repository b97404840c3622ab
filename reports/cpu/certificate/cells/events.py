# /// script
# requires-python = ">=3.11"
# dependencies = ["fluxbench"]
#
# [tool.uv.sources]
# fluxbench = { path = "../../../shared", editable = true }
#
# [tool.fluxbench]
# notebook = "certificate"
# packages = ["torch==2.13.0", "numpy==2.4.6"]
# ///
from fluxbench import bench

bench.ceilings()