"""Builds the compiled noise kernel. Without a C compiler the package installs all the same, and is slower."""

import sys

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel

FLAGS = ["-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]


class AbiWheel(bdist_wheel):
    """One wheel for every Python from 3.11 on."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tag of the stable interface."""
        python, abi, platform = super().get_tag()
        return ("cp311", "abi3", platform) if python.startswith("cp") else (python, abi, platform)


setup(
    ext_modules=[
        Extension(
            "vecveil.randomness._kernel",
            ["src/vecveil/randomness/_kernel.c"],
            extra_compile_args=["/O2", "/fp:precise"] if sys.platform == "win32" else FLAGS,
            py_limited_api=True,
            optional=True,
        )
    ],
    cmdclass={"bdist_wheel": AbiWheel},
)
