"""Verifies the signatures of Alpine's indexes and packages, by the keys of a recipe."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
from cryptography.hazmat.primitives.hashes import SHA1, SHA256, SHA512, HashAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from quicksand.base.errors import ImageError

from quicksand_images.apk_file import Signature, read_signed

BITS_MIN = 2048
"""Bits of a key; Alpine's oldest that still counts has as many."""

KEYS_MAX = 64
_KEY = re.compile(r"-----BEGIN PUBLIC KEY-----[A-Za-z0-9+/=\s]+-----END PUBLIC KEY-----")
_HASHES: Mapping[str, HashAlgorithm] = {
    "sha1": SHA1(),  # noqa: S303 - what Alpine signs with
    "sha256": SHA256(),
    "sha512": SHA512(),
}


class TrustedKeys:
    """RSA keys. They have no names here: a signature is compared with all of them, whichever it
    names."""

    def __init__(self, text: str) -> None:
        """``text`` has the keys in PEM's form. Raises ImageError for an invalid one."""
        self._keys: dict[str, RSAPublicKey] = {}
        for found in _KEY.findall(text)[:KEYS_MAX]:
            try:
                key = load_pem_public_key(found.encode())
            except (ValueError, UnsupportedAlgorithm) as error:
                raise ImageError(f"a key of the recipe cannot be read: {error}") from error
            if not isinstance(key, RSAPublicKey) or key.key_size < BITS_MIN:
                raise ImageError(f"a key of the recipe is no RSA key of {BITS_MIN} bits or more")
            self._keys[f"{found}\n"] = key
        if not self._keys:
            raise ImageError("the recipe has no keys")

    def require_signed(self, path: Path, what: str, *, metadata: bool = False) -> tuple[str, str]:
        """Return the name and the text of the key with which an index, or with ``metadata`` a
        package, is signed. Raises ImageError if none of these keys has signed it."""
        signed = read_signed(path, what, metadata=metadata)
        for signature in signed.signatures:
            text = self._signer(signature, signed.digests[signature.hash])
            if text is not None:
                return signature.key, text
        names = ", ".join(sorted({one.key for one in signed.signatures}))
        raise ImageError(
            f"{what} is refused: "
            + (
                f"its signature is wrong, or by another key ({names})"
                if names
                else "it is unsigned"
            ),
            hint="the recipe's `keys` have to be those of its mirror",
        )

    def _signer(self, signature: Signature, digest: bytes) -> str | None:
        hashed = Prehashed(_HASHES[signature.hash])
        for text, key in self._keys.items():
            try:
                key.verify(signature.data, digest, PKCS1v15(), hashed)
            except InvalidSignature:
                continue
            return text
        return None
