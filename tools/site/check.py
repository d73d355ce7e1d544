"""Checks a folder of HTML pages: each link leads to a file and an anchor of it, and no page fetches anything from elsewhere.

The argument is the folder. The exit status is 1 if a link is broken, or a page needs the network.
"""

import html.parser
import pathlib
import re
import sys
import urllib.parse

FETCHED = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src"), ("source", "src")}
STYLE = re.compile(r"""(?:url\(\s*["']?|@import\s+["'])((?:https?:)?//[^"')\s]+)""")


class Page(html.parser.HTMLParser):
    """The anchors of a page, its links, and what it fetches."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links, self.fetched = {"", "top"}, [], []
        self.feed(path.read_text(errors="replace"))

    def handle_starttag(self, tag, attrs):
        """Note what a tag names."""
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            elif (tag, name) in FETCHED and ("rel", "canonical") not in attrs:
                self.fetched.append(value)
            elif name == "href":
                self.links.append(value)


def faults(folder):
    """Yield the faults of all pages."""
    pages = {path: Page(path) for path in sorted(folder.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(folder)
        for link in page.links + page.fetched:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.fetched and parts.netloc:
                    yield f"{name}: fetches {link}"
                continue
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                yield f"{name}: {link}: no such page"
            elif (
                "headers" in name.parts or target not in pages
            ):  # Doxygen's own anchors, which its templates may leave out
                continue
            elif urllib.parse.unquote(parts.fragment) not in pages[target].anchors:
                yield f"{name}: {link}: no such anchor"
    for path in sorted(folder.rglob("*.css")):
        yield from (f"{path.relative_to(folder)}: fetches {link}" for link in STYLE.findall(path.read_text()))


def main():
    """Print the faults."""
    folder = pathlib.Path(sys.argv[1]).resolve()
    found = list(faults(folder))
    print("\n".join(found) or f"{folder.name}: links and anchors lead somewhere, and nothing is fetched from elsewhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
