"""The addresses of the indexes that are asked for packages."""

from quicksand.disks.packages.sources import IMAGES_INDEX as QUICKSAND_INDEX_URL
from quicksand_wheels.sources import PUBLIC_INDEX as PYPI_INDEX_URL

__all__ = ["PYPI_INDEX_URL", "QUICKSAND_INDEX_URL"]
