"""What `make wheelhouse` gathers for a host with Python 3.12, whatever Python gathers it."""

from __future__ import annotations

from fluxbench.environments.wheelhouse import of_host

LOCK = """\
networkx==3.6.1 ; python_full_version < '3.12' \\
    --hash=sha256:11
networkx==3.7 ; python_full_version >= '3.12' \\
    --hash=sha256:22 \\
    --hash=sha256:33
nvidia-nvtx==13.2.86 ; (platform_machine == 'aarch64' and sys_platform == 'linux') or (platform_machine == 'x86_64' and sys_platform == 'linux') \\
    --hash=sha256:44
nvidia-for-arm==1.0 ; platform_machine == 'aarch64' \\
    --hash=sha256:55
colorama==0.4.6 ; sys_platform == 'win32' \\
    --hash=sha256:66
torch==2.15.0+cu132 \\
    --hash=sha256:77
"""  # noqa: E501


def test_markers_are_judged_for_the_host_and_not_for_the_python_that_gathers() -> None:
    assert of_host(LOCK) == (
        "networkx==3.7 \\\n    --hash=sha256:22 \\\n    --hash=sha256:33\n"
        "nvidia-nvtx==13.2.86 \\\n    --hash=sha256:44\n"
        "torch==2.15.0+cu132 \\\n    --hash=sha256:77\n"
    )
