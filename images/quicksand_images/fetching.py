"""The code that fetches by HTTP, each part imported when it is used (PEP 562): the commands that
only list images load the builder, too, and do without httpx."""

from typing import TYPE_CHECKING

from quicksand.base.on_demand import on_demand

if TYPE_CHECKING:
    from quicksand.disks.packages.installing import install_package

    from quicksand_images.alpine import make_alpine_tree
    from quicksand_images.apk_mirror import fetch_apks
    from quicksand_images.wheels import fetch_wheels, guest_python
else:
    __getattr__, __dir__ = on_demand()
