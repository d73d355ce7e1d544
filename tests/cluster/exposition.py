"""A strict reader of Prometheus' text format, version 0.0.4."""

import re

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (\S+)")


class Family:
    """A metric: its type, its help and its samples, by their labels in the order of the page."""

    def __init__(self, kind, text):
        self.kind = kind
        self.help = text
        self.samples = {}

    def value(self, **labels):
        """Return the value of the only sample with these labels, and maybe others."""
        [found] = [value for have, value in self.samples.items() if labels.items() <= dict(have).items()]
        return found

    def all(self, label):
        """Return the values of a label over all samples."""
        return [dict(have)[label] for have in self.samples]


def unescaped(text):
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], text)


def read(page):
    """Return {name: Family} of a page; fail at everything that the format does not allow or advises against."""
    assert page.endswith("\n"), "the last line has no end"
    families, lines = {}, page.split("\n")[:-1]
    name = None
    for at, line in enumerate(lines):
        if line.startswith("# HELP "):
            name, text = re.fullmatch(rf"# HELP ({NAME}) (.+)", line).groups()
            assert name not in families, f"{name} begins twice"
            kind = re.fullmatch(rf"# TYPE {name} (counter|gauge)", lines[at + 1])[1]
            assert name.endswith("_total") == (kind == "counter"), f"{name} is a {kind}"
            families[name] = Family(kind, text)
        elif line.startswith("#"):
            assert lines[at - 1].startswith(f"# HELP {name} "), line
        else:
            found = SAMPLE.fullmatch(line)
            assert found and found[1] == name, f"no sample of {name}: {line}"
            labels = [(key, unescaped(value)) for key, value in re.findall(LABEL, found[2] or "")]
            assert len(dict(labels)) == len(labels), line
            assert tuple(labels) not in families[name].samples, f"twice: {line}"
            value = float(found[found.lastindex])
            assert families[name].kind != "counter" or value >= 0, line
            families[name].samples[tuple(labels)] = value
    return families
