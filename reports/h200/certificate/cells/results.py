# /// script
# dependencies = ["fluxbench"]
# tool.uv.sources.fluxbench = { path = "../../../shared", editable = true }
# tool.fluxbench.reads = ["flux"]
# ///
from fluxbench import show
show.results("certificate")