"""Writes THIRD_PARTY_NOTICES.txt and a bill of materials, from one table of the foreign code in what a release has.

    tools/notices.py             says which included headers and which linked libraries the table lacks, and if the file is old
    tools/notices.py --write     writes THIRD_PARTY_NOTICES.txt
    tools/notices.py --sbom F    writes a bill of materials (CycloneDX 1.5) with the versions of this machine

Licenses and copyrights come from Debian's files, so that nobody copies them by hand.
"""

import argparse
import dataclasses
import json
import pathlib
import re
import subprocess
import sys
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOTICES = ROOT / "THIRD_PARTY_NOTICES.txt"


@dataclasses.dataclass(frozen=True)
class Part:
    """A foreign project whose code is in a release.

    `headers` matches the includes of its headers, `libraries` the names of its libraries. `package` is Debian's package with its
    copyright and version; nanobind has a wheel instead, and DLPack is a file of this tree.
    """

    name: str
    license: str  # of SPDX
    use: str
    url: str
    headers: str
    package: str = ""
    libraries: str = r"(?!)"
    only_in: str = ""  # "wheel", or "" for all


PARTS = [
    Part("oneTBB", "Apache-2.0", "libtbb.so.12 beside the library", "https://github.com/uxlfoundation/oneTBB", r"oneapi/.*", "libtbb12", r"libtbb\.so\.12"),
    Part("OpenSSL", "Apache-2.0", "linked statically", "https://www.openssl.org", r"openssl/.*", "libssl-dev"),
    Part("Highway", "Apache-2.0", "headers", "https://github.com/google/highway", r"hwy/.*", "libhwy1"),
    Part("fmt", "MIT", "headers", "https://github.com/fmtlib/fmt", r"fmt/.*", "libfmt9"),
    Part("Boost", "BSL-1.0", "headers: Asio, Beast, JSON, PFR, Unordered and what they include", "https://www.boost.org", r"boost/.*", "libboost1.81-dev"),
    Part("xxHash", "BSD-2-Clause", "headers", "https://github.com/Cyan4973/xxHash", r"xxhash\.h", "libxxhash0"),
    Part("CLI11", "BSD-3-Clause", "headers, in the command tkv", "https://github.com/CLIUtils/CLI11", r"CLI/.*", "libcli11-dev"),
    Part("DLPack", "Apache-2.0", "include/tkv/dlpack/dlpack.h", "https://github.com/dmlc/dlpack", r"tkv/dlpack/.*"),
    Part("nanobind", "BSD-3-Clause", "headers, in the Python extension", "https://github.com/wjakob/nanobind", r"nanobind/.*", only_in="wheel"),
]  # fmt: skip
# Names of types and constants alone come from these headers: no code of theirs is in a release.
DECLARATIONS = r"numpy/.*|pmix\.h|cuda\.h"
# The headers of C++, C, POSIX and the compiler.
SYSTEM_HEADERS = (
    r"[a-z_0-9]+|(sys|linux|net|netinet|arpa)/\w+\.h|(std\w+|string|strings|math|errno|limits|cxxabi|dirent|dlfcn|fcntl|ifaddrs"
    r"|netdb|poll|pthread|sched|signal|time|unistd|\wmmintrin|immintrin)\.h"
)
# The C and C++ runtime of the system, on which every program there depends.
SYSTEM_LIBRARIES = r"(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+)\.so\.\d+|ld-linux[\w-]*\.so\.\d+"


# ------------------------------------------------------------------------------------- what the table lacks
def included():
    """Return {header in angle brackets: a file of this tree that includes it}."""
    command = ["git", "ls-files", "include", "src", "cli", "python/src"]
    found = {}
    for name in subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split():
        if name.endswith((".h", ".cc")) and not name.endswith("_test.cc"):
            for header in re.findall(r"^\s*#\s*include <([^>]+)>", (ROOT / name).read_text(), re.MULTILINE):
                found.setdefault(header, name)
    return found


def unknown_headers():
    """Return the included headers of projects that the table lacks."""
    known = "|".join([part.headers for part in PARTS] + [DECLARATIONS, SYSTEM_HEADERS])
    return [f"{name} includes <{header}>" for header, name in included().items() if not re.fullmatch(known, header)]


def unknown_libraries(file):
    """Return the libraries that a program or a shared library needs and the table lacks."""
    shown = subprocess.run(["readelf", "-dW", file], check=True, capture_output=True, text=True).stdout
    known = "|".join([part.libraries for part in PARTS] + [SYSTEM_LIBRARIES])
    return [name for name in re.findall(r"\(NEEDED\).*\[(.+)\]", shown) if not re.fullmatch(known, name)]


# ------------------------------------------------------------------------------------- licenses, by Debian's files
def paragraphs(package):
    """Return the paragraphs of Debian's copyright file of a package, as [{field: text}]."""
    text = pathlib.Path(f"/usr/share/doc/{package}/copyright").read_text(errors="replace")
    found = []
    for paragraph in re.split(r"\n[ \t]*\n", text):
        fields = re.split(r"^(\S[\w-]*):", paragraph, flags=re.MULTILINE)
        found.append({name: value.strip() for name, value in zip(fields[1::2], fields[2::2], strict=True)})
    return found


def plain(text):
    """Return a text of a copyright file without its indentation and the dots of its empty lines."""
    lines = [re.sub(r"^[ \t]+", "", line).rstrip() for line in text.splitlines()]
    return "\n".join("" if line == "." else line for line in lines)


def of_debian(package):
    """Return (copyright, name of the license, its text) of all files of a package that have no other one."""
    found = paragraphs(package)
    (main,) = [paragraph for paragraph in found if paragraph.get("Files") == "*"]
    name, _, text = main["License"].partition("\n")
    if not text:  # in a paragraph of its own
        texts = [p["License"].partition("\n") for p in found if "Files" not in p and "License" in p]
        text = next((text for other, _, text in texts if other.strip() == name.strip()), "")
    return plain(main["Copyright"]), plain(text)


def of_nanobind():
    """Return (copyright, text of the license) of the nanobind that builds the extension."""
    from importlib import metadata

    (file,) = [path for path in metadata.files("nanobind") or [] if path.name == "LICENSE"]
    first, _, text = file.read_text().partition("\n\n")
    return first.strip(), text.strip()


def of(part):
    """Return (copyright, text of the license, or "" if it is that of this project)."""
    if part.package:
        holders, text = of_debian(part.package)
    elif part.name == "nanobind":
        holders, text = of_nanobind()
    else:
        holders, text = "2017 by Contributors", ""  # as its header says
    return holders, "" if part.license == "Apache-2.0" else text


RULE = "=" * 100 + "\n"
BEGIN = """Third-party software in TensorKV

The wheel, the archive of the C++ part and what is linked with libtkv.a contain code of the projects below. This file is made by
tools/notices.py. The versions are in the bill of materials of each release.
"""


def notices():
    """Return the text of THIRD_PARTY_NOTICES.txt."""
    text = BEGIN
    for part in PARTS:
        holders, license_text = of(part)
        text += f"\n{RULE}{part.name}: {part.use}\n{part.url}\nLicense: {part.license}\n\nCopyright:\n"
        text += "".join(f"  {line.strip()}\n" for line in holders.splitlines())
        text += f"\n{license_text}\n" if license_text else "\nThe text of the license is in the file LICENSE.\n"
    return text


# ------------------------------------------------------------------------------------- the bill of materials
def version_of(part):
    """Return the version that this machine links; of a Debian package without Debian's own suffix."""
    if part.package:
        shown = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Version}", part.package], check=True, capture_output=True, text=True
        )
        return re.sub(r"^\d+:|[+~]?(ds|dfsg)\d*|-[^-]*$", "", shown.stdout), shown.stdout
    if part.name == "nanobind":
        from importlib import metadata

        return metadata.version("nanobind"), ""
    text = (ROOT / "include/tkv/dlpack/dlpack.h").read_text()
    return ".".join(re.search(rf"DLPACK_{kind}_VERSION (\d+)", text)[1] for kind in ("MAJOR", "MINOR")), ""


def project_version():
    """Return the version of this project."""
    return re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]


def bill(kind=""):
    """Return the bill of materials of the wheel, of the archive ("cpp") or of both ("")."""
    components = []
    for part in PARTS:
        if part.only_in and kind and part.only_in != kind:
            continue
        version, of_package = version_of(part)
        component = {
            "type": "library",
            "bom-ref": f"{part.name}@{version}",
            "name": part.name,
            "version": version,
            "description": part.use,
            "licenses": [{"license": {"id": part.license}}],
            "externalReferences": [{"type": "website", "url": part.url}],
        }
        if of_package:
            component["purl"] = f"pkg:deb/debian/{part.package}@{of_package.replace('+', '%2B')}?distro=bookworm"
        elif part.name == "nanobind":
            component["purl"] = f"pkg:pypi/nanobind@{version}"
        components.append(component)
    version = project_version()
    own = {
        "type": "library",
        "bom-ref": f"tensorkv@{version}",
        "name": "tensorkv",
        "version": version,
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }
    names = sorted(component["bom-ref"] for component in components)
    # The serial number follows from the contents, so that the same release has the same bill.
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([own, components], sort_keys=True))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": own},
        "components": components,
        "dependencies": [{"ref": own["bom-ref"], "dependsOn": names}, *({"ref": name} for name in names)],
    }


def main():
    """Write what the arguments ask for; without any, say what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--sbom", type=pathlib.Path)
    parser.add_argument(
        "files", nargs="*", type=pathlib.Path, help="programs and libraries whose needs are compared with the table"
    )
    options = parser.parse_args()
    if options.write:
        NOTICES.write_text(notices())
    if options.sbom:
        options.sbom.write_text(json.dumps(bill(), indent=2) + "\n")
    wrong = unknown_headers()
    for file in options.files:
        wrong += [f"{file} needs {name}" for name in unknown_libraries(file)]
    wrong = [f"{line}, which the table in tools/notices.py lacks" for line in wrong]
    if not NOTICES.exists() or NOTICES.read_text() != notices():
        wrong.append("THIRD_PARTY_NOTICES.txt is old: tools/notices.py --write")
    if wrong:
        print("\n".join(["notices:", *wrong]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
