"""Lays out the pages of the site: documents of the repository, whose links lead to pages, and the reference in parts.

Arguments are the folder that Sphinx reads, and the file `llms.txt`, which lists the pages with a sentence each.
"""

import io
import pathlib
import posixpath
import re
import shutil
import subprocess
import sys

import docutils.core
from sphinx.ext.napoleon import Config, GoogleDocstring

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TRACKED = subprocess.run(
    ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True
).stdout.split()
START = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
LANGUAGES = {
    ".py": "python",
    ".cc": "cpp",
    ".h": "cpp",
    ".c": "c",
    ".java": "java",
    ".scala": "scala",
    ".sh": "sh",
    ".yaml": "yaml",
}
FENCE = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)
HEADERS = """# Headers of C++ and C

The <a href="headers/index.html">pages of the public headers</a> list each class, function and constant. The guides of [C++](cpp.md)
and [C](c.md) show how to use them.
"""


def page_of(path):
    """Return the page of a file of the repository, or the picture."""
    if path in START:
        return START[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else f"files/{path}.md"


class Site:
    """The pages of the site, by their names; links add the pages of files that they name."""

    def __init__(self):
        self.pages, self.wanted = {}, set()

    def target(self, path):
        """Return the page of a file or a folder, or None if the repository has neither."""
        inside = [name for name in TRACKED if name.startswith(f"{path}/")]
        if path == "docs/decisions":
            return "decisions/index.md"
        if path in TRACKED and page_of(path).startswith("files/"):
            self.wanted.add(path)
        self.wanted.update(inside)
        return page_of(path) if path in TRACKED else f"files/{path}/index.md" if inside else None

    def linked(self, text, source):
        """Return the text of a document whose links lead to pages."""
        here = posixpath.dirname(page_of(source)) or "."

        def link(match):
            path, mark, anchor = match[1].partition("#")
            page = self.target(posixpath.normpath(posixpath.join(posixpath.dirname(source), path))) if path else None
            return f"]({posixpath.relpath(page, here)}{mark}{anchor})" if page else match[0]

        def mention(match):
            page = self.target(match[1]) if match[1] != source else None
            return f"[`{match[1]}`]({posixpath.relpath(page, here)})" if page else match[0]

        parts = FENCE.split(text)
        for i in range(0, len(parts), 2):
            parts[i] = re.sub(r"\]\(([^)\s]+)\)", link, parts[i])
            parts[i] = re.sub(r"(?<!\[)`((?:docs|examples)/[\w./-]+\.\w+)`(?!\])", mention, parts[i])
        return "".join(parts)

    def add_documents(self):
        """Add the documents, and the list of decisions."""
        for source in [
            *START,
            *(name for name in TRACKED if re.fullmatch(r"docs/.*\.md", name) and name != "docs/api.md"),
        ]:
            self.pages[page_of(source)] = self.linked((ROOT / source).read_text(), source)
        for caption, pages in navigation().items():
            names = [f"{title} <{'self' if page == 'index' else '/' + page}>" for page, title, _ in pages]
            self.pages["index.md"] += "\n" + tree(names, hidden="", caption=caption)
        decisions = sorted(posixpath.basename(name) for name in self.pages if name.startswith("decisions/"))
        self.pages["decisions/index.md"] = "# Decisions\n\nWhy things are as they are, in half a page each.\n\n" + tree(
            decisions
        )
        self.pages["headers.md"] = HEADERS

    def add_files(self):
        """Add a page for each file of the repository that a link names, and for each of their folders."""
        folders = {}
        for path in sorted(self.wanted):
            text = (ROOT / path).read_text()
            fence = "`" * (3 + max(map(len, re.findall("`+", text)), default=0))
            language = LANGUAGES.get(pathlib.Path(path).suffix, "text")
            self.pages[page_of(path)] = f"# {path}\n\n{fence}{language}\n{text}\n{fence}\n"
            while path:
                folder = posixpath.dirname(path)
                folders.setdefault(folder, set()).add(path)
                path = folder
        for folder, inside in folders.items():
            names = [posixpath.basename(path) + ("/index" if path in folders else "") for path in sorted(inside)]
            title = folder or "Files that these pages name"
            self.pages[posixpath.normpath(f"files/{folder}/index.md")] = f"# {title}\n\n{tree(names)}"

    def add_reference(self):
        """Add docs/api.md in parts: a page for each section and each class with members, and an index of all names."""
        entries = Reference((ROOT / "docs" / "api.md").read_text())
        self.pages.update(entries.pages())
        self.pages["api.md"] = entries.index()


class Reference:
    """The entries of docs/api.md: sections of (name, signature, docstring, members)."""

    def __init__(self, text):
        self.sections, self.rest = {}, {}
        self.names = {}  # each end of a name, such as KVStore.push, and the names that have it
        for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
            title, _, body = section.partition("\n")
            head, *found = re.split(
                r"^(####?) `([\w.]+)([^\n]*)`\n\n```text\n(.*?)\n?```$", body, flags=re.MULTILINE | re.DOTALL
            )
            self.sections[title], entries = (head.strip(), []), None
            entries = self.sections[title][1]
            for level, name, signature, doc, _ in zip(*[iter(found)] * 5, strict=True):
                (entries if level == "###" else entries[-1][3]).append((name, signature, doc, []))
                for i in range(1, name.count(".") + 1):
                    self.names.setdefault(name.split(".", i)[-1], set()).add(name)
                self.names[name] = {name}

    def prose(self, doc, signature=""):
        """Return a docstring as reStructuredText: as it is if it cannot be that."""
        text = str(GoogleDocstring(doc, Config(napoleon_use_param=bool(signature)), what="function"))
        said = io.StringIO()
        docutils.core.publish_doctree(text, settings_overrides={"warning_stream": said, "report_level": 2})
        if said.getvalue():
            return "::\n\n" + indented(doc)

        def role(match):
            full = self.names.get(match[1].removesuffix("()"), set())
            page = re.fullmatch(r"docs/(\w+)\.md", match[1])
            if page:
                return f":doc:`{match[1]} </{page[1]}>`"
            return f":py:obj:`{match[1]} <{next(iter(full))}>`" if len(full) == 1 else f"``{match[1]}``"

        return re.sub(r"(?<![`:\w])`([^`<>]+)`(?![`_])", role, text)

    def entry(self, name, signature, doc, members, inside=""):
        """Return the directive of an entry, and of its members."""
        is_class = not signature and not inside
        kind = "class" if is_class else "function" if not inside else "method" if signature else "property"
        lines = [f".. py:{kind}:: {name.removeprefix(inside)}{signature}", "", indented(self.prose(doc, signature)), ""]
        lines += [indented(self.entry(*member, inside=f"{name}.")) for member in members]
        return "\n".join(lines) + "\n"

    def pages(self):
        """Return the pages of the sections and of the classes."""
        made = {}
        for title, (head, entries) in self.sections.items():
            if title == "Types":
                continue
            large = [entry for entry in entries if entry[3]]
            for entry in large:
                made[f"api/{entry[0]}.rst"] = heading(entry[0]) + self.entry(*entry)
            own = "".join(self.entry(*entry) for entry in entries if not entry[3])
            toctree = ".. toctree::\n\n" + "".join(f"   {entry[0]}\n" for entry in large) + "\n" if large else ""
            made[f"api/{slug(title)}.rst"] = heading(title) + self.prose(head) + "\n\n" + toctree + own
        return made

    def index(self):
        """Return the page that lists all names."""
        parts = tree([f"api/{slug(title)}" for title in self.sections if title != "Types"], hidden="")
        lines = [f"# Python\n\nAll names; `mx` is `tensorkv`. Every page is made from the docstrings.\n\n{parts}"]
        for title, (head, entries) in self.sections.items():
            if title == "Types":
                lines += [f"## {title}\n\n{head}\n"]
                continue
            found = " · ".join(f"{{py:obj}}`{entry[0]}`" for entry in entries)
            lines += [f"## {title}\n\n[{head.replace('``', '`')}](api/{slug(title)}.rst)\n\n{found}\n"]
        return "\n".join(lines)


def slug(title):
    """Return the name of the page of a section."""
    return re.sub(r"[^\w]+", "-", title.replace("'", "").lower()).strip("-")


def heading(title):
    """Return a heading of reStructuredText."""
    return f"{title}\n{'=' * len(title)}\n\n"


def indented(text):
    """Return the text three columns to the right."""
    return "\n".join(f"   {line}" if line else "" for line in text.splitlines())


def tree(names, **options):
    """Return a list of pages."""
    return "\n".join(["```{toctree}", *(f":{name}: {value}" for name, value in options.items()), "", *names, "```", ""])


def navigation():
    """Return the groups of the navigation: {caption: [(page, title, sentence)]}."""
    groups = {}
    for line in (HERE / "navigation.txt").read_text().splitlines():
        if line.startswith("= "):
            groups[line[2:]] = []
        elif not line.startswith("#"):
            groups[list(groups)[-1]].append(line.split(" | "))
    return groups


def llms():
    """Return the list of pages with a sentence each."""
    lines = ["# TensorKV\n\n> A parameter server whose workers may die."]
    for caption, pages in navigation().items():
        lines.append(f"\n## {caption}\n")
        lines += [f"- [{title}]({page}.html): {sentence}" for page, title, sentence in pages]
    return "\n".join(lines) + "\n"


def main():
    """Write the pages."""
    folder, listing = map(pathlib.Path, sys.argv[1:])
    site = Site()
    site.add_documents()
    site.add_reference()
    site.add_files()
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs" / "pictures", folder / "pictures")
    for name, text in site.pages.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    listing.parent.mkdir(parents=True, exist_ok=True)
    listing.write_text(llms())


if __name__ == "__main__":
    main()
