"""Find phrases that our style guide replaces, in docstrings, comments, messages and pages.

Run as `python tests/prose.py [paths]`; `make lint` runs it on the whole project. It is a list of words, not a style
engine: it holds what came back most often.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PATHS = ("src", "benchmarks", "docs", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")

WORDS = {
    r"whole numbers?": "integer",
    r"mend(s|ed)?": "fix",
    r"anew": "again",
    r"(?<!half )(?<!twice )as many": "the number of",
    r"of which": "a sentence of its own",
    r"(is|are|be|was) said": "report",
    r"not put down to chance": "statistically significant",
    r"excerpts?": "sample",
    r"dear(er|est)?": "expensive",
    r"(?<!in )(?<!in-)(?<!in the )(?<!take )(?<!takes )(?<!decimal )places?(?! of\b)(?!:)": "position or device",
}
OPENINGS = ("What", "Where", "Which", "How", "Whether")
WHERE_LIMIT = 60
"""Uses of "where" in src, which is rarely the right conjunction for a condition."""
MESSAGE_LIMIT = 160


def main(paths: list[str]) -> int:
    """Print every finding and return their number."""
    files = [
        file
        for path in paths
        for file in ([ROOT / path] if (ROOT / path).is_file() else sorted((ROOT / path).rglob("*")))
    ]
    findings, wheres = [], []
    for file in files:
        if file.suffix == ".py":
            source = file.read_text()
            prose = list(prose_of(source))
            findings += [f"{file}:{line}: {problem}" for line, problem in structure(source)]
            if ROOT / "src" in file.parents:
                wheres += [
                    f"{file}:{line}: where" for line, text in prose for _ in re.findall(r"\bwhere\b(?!\()", text, re.I)
                ]
        elif file.suffix == ".md":
            prose = list(enumerate(without_code(file.read_text()).splitlines(), 1))
        else:
            continue
        findings += [f"{file}:{line}: {problem}" for line, text in prose for problem in phrases(text)]
    if len(wheres) > WHERE_LIMIT:
        findings += [*wheres, f"{len(wheres)} uses of 'where'; at most {WHERE_LIMIT}: write if, when or in which"]
    print("\n".join(finding.replace(f"{ROOT}/", "") for finding in findings))
    return len(findings)


def phrases(text: str) -> Iterator[str]:
    """Yield one message for every listed phrase in `text`."""
    for pattern, better in WORDS.items():
        for found in re.finditer(rf"(?<![\w`.])({pattern})(?![\w`=(])", text, re.IGNORECASE):
            yield f"'{found[0]}': write {better}"


def structure(source: str) -> Iterator[tuple[int, str]]:
    """Yield docstrings that open with a question word and messages that are too long."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = (ast.get_docstring(node) or "").split(maxsplit=1)
            if first and first[0] in OPENINGS:
                yield getattr(node, "lineno", 1), f"docstring opens with '{first[0]}'"
        elif isinstance(node, ast.Raise) and node.exc is not None:
            constants = [
                n.value for n in ast.walk(node.exc) if isinstance(n, ast.Constant) and isinstance(n.value, str)
            ]
            if sum(map(len, constants)) > MESSAGE_LIMIT:
                yield node.lineno, f"message of more than {MESSAGE_LIMIT} characters"


def prose_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield line number and text of every comment and every string of at least three words."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and token.string.count(" ") > 1):
            text = re.sub(r"``?[^`]*``?|\{[^{}]*\}", "`code`", token.string)  # nor the values of an f-string
            yield from enumerate(text.splitlines(), token.start[0])


def without_code(page: str) -> str:
    """Blank out fenced and inline code of a Markdown page."""
    page = re.sub(r"```.*?```", lambda found: "\n" * found[0].count("\n"), page, flags=re.DOTALL)
    return re.sub(r"`[^`\n]*`|\{[^{}\n]*\}", "`code`", page)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(PATHS)) > 0)
