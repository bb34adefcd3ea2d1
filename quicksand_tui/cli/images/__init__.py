"""Commands of images, and of the packages that images come in."""
