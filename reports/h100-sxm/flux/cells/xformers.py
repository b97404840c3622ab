# /// script
# dependencies = ["fluxbench"]
# tool.uv.sources.fluxbench = { path = "../../../shared", editable = true }
# tool.fluxbench.notebook = "flux"
# tool.fluxbench.packages = ["torch==2.13.0", "numpy==2.4.6", "xformers==0.0.35"]
# tool.fluxbench.lock = "xformers"
# tool.fluxbench.variants = ["xformers", "xformers_compile_d", "xformers_compile_ma"]
# ///
from fluxbench import bench, show
bench.measure()
show.measured()