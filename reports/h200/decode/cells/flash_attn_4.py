# /// script
# dependencies = ["fluxbench"]
# tool.uv.sources.fluxbench = { path = "../../../shared", editable = true }
# tool.fluxbench.notebook = "decode"
# tool.fluxbench.packages = ["torch==2.13.0", "numpy==2.4.6", "flash-attn-4==4.0.0b36"]
# tool.fluxbench.lock = "flash-attn-4"
# tool.fluxbench.variants = ["flash_attn_4"]
# ///
from fluxbench import bench, show
bench.measure()
show.measured()