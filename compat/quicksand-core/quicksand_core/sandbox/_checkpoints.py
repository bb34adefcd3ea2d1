"""A part of the published sandbox's class; here all of its methods are those of `Sandbox`."""

from quicksand import Sandbox

__all__ = ["Sandbox"]
