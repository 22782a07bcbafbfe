"""Certificates for tests of TLS."""

import subprocess
from pathlib import Path


def openssl(*arguments: str, folder: Path) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


class Certificates:
    """A certificate authority of the test's own and what it signs."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.folder = folder
        self.ca = name
        openssl(
            *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-keyout", f"{name}.key", "-out", f"{name}.crt", "-subj", f"/CN={name}"),
            folder=folder,
        )

    def path(self, name: str) -> Path:
        return self.folder / name

    def sign(self, name: str, san: str, *, expired: bool = False) -> None:
        openssl(
            *("req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key"),
            *("-out", f"{name}.csr", "-subj", f"/CN={name}"),
            folder=self.folder,
        )
        self.path(f"{name}.ext").write_text(f"subjectAltName={san}\n")
        openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-CA", f"{self.ca}.crt"),
            *("-CAkey", f"{self.ca}.key", "-CAcreateserial", "-out", f"{name}.crt"),
            *("-days", "-1" if expired else "2", "-extfile", f"{name}.ext"),
            folder=self.folder,
        )
