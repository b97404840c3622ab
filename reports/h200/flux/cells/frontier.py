# /// script
# requires-python = ">=3.11"
# dependencies = ["fluxbench"]
#
# [tool.uv.sources]
# fluxbench = { path = "../../../shared", editable = true }
# ///
from fluxbench import show

show.frontier()