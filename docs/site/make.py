#!/usr/bin/env python3
"""Makes the site from README.md, docs/*.md and the headers: plain HTML, no script, nothing from elsewhere.

    docs/site/make.py [--api] [--source CHECKOUT] OUT

State diagrams become pictures where Graphviz is installed (Debian: graphviz). --api adds the reference that Doxygen makes.
Ends with status 1, naming them, if links of the site lead nowhere or a public name lacks a word about it. Needs Debian's
python3-markdown and python3-pygments, and for --api doxygen.
"""
import argparse
import html
import html.parser
import pathlib
import re
import shutil
import subprocess
import sys

import markdown
from pygments.formatters import HtmlFormatter

here = pathlib.Path(__file__).resolve().parent
# Pages that are not named here come last, under "More".
GUIDE = (("Start", ("README", "coming-from", "faq", "packaging")),
         ("Guide", ("api", "concepts", "cookbook", "threading", "errors", "metrics", "software-rnic", "topology", "guest")),
         ("Parts", ("device", "collectives", "bootstrap", "nccl", "stripes", "staging")),
         ("Inside", ("protocol", "design", "proof")),
         ("Figures", ("performance", "peers")))


def slug(text, _separator="-"):
    """As GitHub does."""
    return re.sub(r"[^\w -]", "", text.lower()).strip().replace(" ", "-")


def title_of(text, default):
    found = re.search(r"^# (.*)$", text, re.M)
    return found.group(1).replace("`", "") if found else default


def diagram(text):
    """A Mermaid state diagram as a picture, or None."""
    if not text.startswith("stateDiagram-v2") or not shutil.which("dot"):
        return None
    edges = re.findall(r"^\s+(\S+) --> (\w+|\[\*\])(?:: (.*))?$", text, re.M)
    dot = 'digraph { bgcolor="transparent"; node [shape=box style=rounded fontname="sans-serif" fontsize=11]; '
    dot += 'edge [fontname="sans-serif" fontsize=9]; "[*]" [shape=point width=0.15 label=""]; '
    dot += " ".join('"{}" -> "{}" [label="{}"];'.format(a, b, "\\n".join(re.findall(r".{1,34}(?:\s|$)", label))) for a, b, label in edges)
    made = subprocess.run(["dot", "-Tsvg"], input=dot + "}", capture_output=True, text=True, check=True).stdout
    return "<figure>" + made[made.index("<svg"):] + "</figure>"


class site:
    def __init__(self, out):
        self.out = out
        self.pages = {"README": top / "README.md"}
        self.pages.update({p.stem: p for p in sorted((top / "docs").glob("*.md"))})
        self.texts = {name: page.read_text(encoding="utf-8") for name, page in self.pages.items()}
        self.groups = [(group, [n for n in names if n in self.pages]) for group, names in GUIDE]
        named = {n for _, names in self.groups for n in names}
        more = [n for n in self.pages if n not in named]
        if more:
            self.groups.append(("More", more))

    def address(self, name):
        return "index.html" if name == "README" else f"{name}.html"

    def navigation(self, current, api):
        out = ""
        for group, names in self.groups:
            links = "".join(f'<a href="{self.address(n)}"{" class=here" if n == current else ""}>{html.escape(title_of(self.texts[n], n))}</a>' for n in names)
            out += f"<h2>{group}</h2>{links}"
        out += '<h2>Reference</h2><a href="headers.html"' + (" class=here" if current == "headers" else "") + ">Headers</a>"
        return out + ('<a href="api/index.html">API</a>' if api else "")

    def relink(self, page, target):
        """Where a link of a page leads on the site."""
        path, _, anchor = target.partition("#")
        anchor = "#" + anchor if anchor else ""
        if "://" in target or not path:
            return target
        to = (page.parent / path).resolve()
        for name, other in self.pages.items():
            if other.resolve() == to:
                return self.address(name) + anchor
        if to.is_file():  # a header, a picture: beside the pages
            kept = self.out / "files" / to.relative_to(top)
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(to, kept if to.suffix in (".svg", ".png") else kept.with_name(kept.name + ".txt"))
            return f"files/{to.relative_to(top)}" + ("" if to.suffix in (".svg", ".png") else ".txt")
        return f"missing/{path}"

    def body(self, name):
        page, text = self.pages[name], self.texts[name]
        pictures = []

        def picture(found):
            made = diagram(found.group(1))
            if made is None:
                return found.group(0)
            pictures.append(made)
            return f"\n\nPICTURE-{len(pictures) - 1}-HERE\n\n"

        text = re.sub(r"^```mermaid\n(.*?)^```$", picture, text, flags=re.M | re.S)
        text = re.sub(r"^```(\w+) [^\n]*$", r"```\1", text, flags=re.M)  # words after the language are for the tests
        made = markdown.markdown(text, extensions=["tables", "fenced_code", "toc", "codehilite", "sane_lists"],
                                 extension_configs={"toc": {"slugify": slug}, "codehilite": {"guess_lang": False}})
        for number, svg in enumerate(pictures):
            made = made.replace(f"<p>PICTURE-{number}-HERE</p>", svg)
        return re.sub(r'(href|src)="([^"]*)"', lambda m: f'{m.group(1)}="{html.escape(self.relink(page, html.unescape(m.group(2))))}"', made)

    def link_to_public(self):
        return '<a href="api.html#what-is-public">what is public</a>' if "api" in self.pages else "docs/api.md"

    def headers(self):
        """A table of all headers with what their first lines say; the reference leaves out those that are "inside"."""
        out = "<h1>Headers</h1><p>From the ground up: a header includes only its own folder or one above it on this page. "
        out += f'"Inside": a part of others, not for programs ({self.link_to_public()}).</p>'
        left_out = re.search(r"^EXCLUDE +=((?:.*\\\n)*.*)", (here / "Doxyfile").read_text(), re.M).group(1).replace("\\", " ").split()
        order = re.search(r"^set\(layers (.*)\)$", (top / "tests/package/layers.cmake").read_text(), re.M).group(1).split()
        include = top / "include/vccl"
        for layer in ["", *order]:
            found = sorted((include / layer).rglob("*.[hc]*") if layer else include.glob("*.[hc]*"))
            rows = ""
            for header in found:
                text = header.read_text(encoding="utf-8")
                said = re.search(r"/// \\file\n((?:///.*\n)+)", text)
                about = re.sub(r"^/// ?", "", said.group(1), flags=re.M).strip() if said else ""
                first = re.split(r"(?<=\.)\s", " ".join(about.split("\n\n")[0].split()))[0]
                first = re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(first))
                name = str(header.relative_to(include.parent))
                if any(name == one or name.startswith(one + "/") for one in left_out):
                    first = "<em>Inside.</em> " + first
                where = html.escape(self.relink(include / "x", str(header)))
                rows += f'<tr><td><a href="{where}">{name}</a></td><td>{first}</td></tr>'
            if rows:
                out += f'<h2 id="{layer or "top"}">{layer or "umbrellas"}</h2><table>{rows}</table>'
        return out

    def write(self, name, title, body, api):
        (self.out / self.address(name)).write_text(
            f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            f'<title>{html.escape(title)}</title><link rel="stylesheet" href="style.css">'
            f'<nav>{self.navigation(name, api)}</nav><main>{body}</main></html>\n', encoding="utf-8")

    def make(self, api):
        self.out.mkdir(parents=True, exist_ok=True)
        colours = HtmlFormatter(style="friendly").get_style_defs(".codehilite")
        (self.out / "style.css").write_text((here / "style.css").read_text() + colours, encoding="utf-8")
        for name in self.pages:
            self.write(name, title_of(self.texts[name], name), self.body(name), api)
        self.write("headers", "Headers", self.headers(), api)


def reference(out):
    """Doxygen's pages into out/api. Returns what it complains about: above all public names without a word about them."""
    settings = (here / "Doxyfile").read_text() + f'\nINPUT_FILTER = "sed -f {here}/filter.sed"\nOUTPUT_DIRECTORY = "{out}"\n'
    said = subprocess.run(["doxygen", "-"], input=settings, stderr=subprocess.PIPE, text=True, check=True, cwd=top / "include").stderr
    return [line.removeprefix(f"{top / 'include'}/") for line in said.splitlines()]


class links(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.to, self.ids = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("href", "src"):
                self.to.append(value)
            elif name == "id":
                self.ids.add(value)


def broken(out):
    seen = {page.name: links(page.read_text(encoding="utf-8")) for page in out.glob("*.html")}
    for page, of in seen.items():
        for target in of.to:
            path, _, anchor = target.partition("#")
            to = path or page
            if "://" in target:
                continue
            if not (out / to).exists():
                yield f"{page}: {target} leads nowhere"
            elif anchor and to in seen and anchor not in seen[to].ids:
                yield f"{page}: {target}: there is no such heading"


options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
options.add_argument("--api", action="store_true", help="add Doxygen's reference")
options.add_argument("--source", type=pathlib.Path, default=here.parent.parent, metavar="CHECKOUT", help="default: this one")
options.add_argument("out", type=pathlib.Path)
given = options.parse_args()
top = given.source.resolve()
site(given.out.resolve()).make(given.api)
wrong = reference(given.out.resolve()) if given.api else []
wrong += broken(given.out)
print("\n".join(wrong) or f"{given.out}/index.html")
sys.exit(1 if wrong else 0)
