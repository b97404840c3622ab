# /// script
# dependencies = ["fluxbench"]
# tool.uv.sources.fluxbench = { path = "../../../shared", editable = true }
# tool.fluxbench.notebook = "flux"
# tool.fluxbench.packages = ["torch==2.13.0", "numpy==2.4.6", "transformer-engine==2.20.2"]
# tool.fluxbench.lock = "transformer-engine"
# tool.fluxbench.variants = ["te_fused", "te_fused_compile_d", "te_fused_compile_ma", "te_flash", "te_unfused"]
# ///
from fluxbench import bench, show
bench.measure()
show.measured()