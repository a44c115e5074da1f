"""The ``laplace`` method: isotropic Laplace noise, which learns nothing of the concept."""

from vecveil.protector.method import Method, isotropic

LAPLACE = Method("laplace", "isotropic Laplace noise", isotropic)
