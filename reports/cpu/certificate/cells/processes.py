# /// script
# dependencies = ["fluxbench"]
# tool.uv.sources.fluxbench = { path = "../../../shared", editable = true }
# ///
from fluxbench import show
show.table("processes")