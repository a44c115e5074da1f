"""Builds the compiled noise kernel. Without a C compiler the package installs all the same, and is slower."""

import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel

FLAGS = ["-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]


class AbiWheel(bdist_wheel):
    """One wheel for every Python from 3.11 on; for every platform if nothing was compiled."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tag of the stable interface, or of pure Python."""
        python, abi, platform = super().get_tag()
        if not any(Path(self.bdist_dir or "build").rglob("_kernel*.*so")) and not any(
            Path("build").rglob("_kernel*.*so")
        ):
            return "py3", "none", "any"
        if sysconfig.get_config_var("Py_GIL_DISABLED") or not python.startswith("cp"):
            return python, abi, platform
        return "cp311", "abi3", platform


setup(
    ext_modules=[
        Extension(
            "vecveil.privacy.randomness._kernel",
            ["src/vecveil/privacy/randomness/_kernel.c"],
            extra_compile_args=["/O2", "/fp:precise"] if sys.platform == "win32" else FLAGS,
            py_limited_api=True,
            optional=True,
        )
    ],
    cmdclass={"bdist_wheel": AbiWheel},
)
