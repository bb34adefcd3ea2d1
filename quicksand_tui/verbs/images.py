"""The verbs of images."""

from __future__ import annotations

from quicksand_tui.verbs.parameters import (
    ARCHITECTURES,
    BUILD,
    DRY_RUN,
    IMAGE,
    JSON,
    MACHINE,
    spares_max,
)
from quicksand_tui.verbs.verb import Kind, argument, command, flag, option, part

# fmt: off
_ARCH = option(
    "--arch", Kind.CHOICE, "", "Take the one for this architecture.  "
    "[default: the one that new sandboxes get]", choices=ARCHITECTURES,
)

IMAGES = command("images", ".this_host.stored_images", "List, build, check, tag and remove images.",
    JSON,
    reads=True,
    parts=(
        part("images list", JSON, reads=True),
        part("images build", argument("name", Kind.RECIPE, required=False),
              option("--arch", Kind.CHOICE, "", "Build it for this architecture.  "
                     "[default: that of this host]", choices=ARCHITECTURES),
              flag("--in-sandbox",
                   "Use no apt and no e2fsprogs of this host, but those in a sandbox."),
              option("--from-oci", Kind.TEXT, "DIR|TAR|REF",
                     "Build it of a container image: an OCI layout, a `docker save` archive, "
                     "or a reference in a registry."),
              option("--name", Kind.TEXT, "NAME", "With --from-oci: give the image this name.",
                     name="new_name"),
              option("--kernel-from", Kind.IMAGE, "IMAGE",
                     "With --from-oci: boot it with the kernel of this image.  "
                     "[default: debian]"),
              option("--pick", Kind.TEXT, "IMAGE",
                     "With --from-oci: take this one of several images in DIR or TAR."),
              flag("--init", "With --from-oci: have its own init run."),
              flag("--plain-http", "With --from-oci: ask a registry on this host without TLS."),
              flag("--build/--no-build",
                  "With --from-oci: build or install the image with the kernel if it is "
                  "missing.  [default: on a terminal, without --json]"),
              JSON),
        part("images warm", IMAGE, MACHINE,
              option("--spares", Kind.COUNT, "N",
                     "Keep N machines ready for the next starts from now on; 0 ends that.",
                     least=0, most=spares_max),
              BUILD, JSON),
        part("images inspect", argument("name", Kind.STORED), _ARCH, JSON, reads=True),
        part("images info", argument("name", Kind.STORED), _ARCH, JSON, reads=True),
        part("images ls", JSON, reads=True),
        part("images sbom", argument("name", Kind.STORED), _ARCH, reads=True),
        part("images tag", argument("name", Kind.STORED), argument("new", Kind.TEXT, "NEW"),
             _ARCH),
        part("images verify",
              argument("names", Kind.STORED, "[NAME]...", repeatable=True, required=False),
              JSON, reads=True),
        part("images rm", argument("name", Kind.STORED)),
        part("images prune", DRY_RUN, JSON),
        part("images new",
              argument("kind", Kind.CHOICE, choices=("base", "layer")),
              argument("name"),
              option("--into", Kind.DIRECTORY, "DIR",
                     "Make it in this directory.  [default: ./quicksand-NAME]"),
              option("--on", Kind.IMAGE, "IMAGE", "Lay the layer on this image.",
                     default="alpine", shows_default=True),
              JSON),
    ))
# fmt: on
