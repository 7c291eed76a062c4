# Enforces docs/architecture.md: who may include whom is read from the table there; the limits of its last section too.
# Every environment variable that is read stands in docs/environment.md. Links and paths of pages lead somewhere. Words
# of retired_words.txt are refused.
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
DOCUMENT, VARIABLES = "docs/architecture.md", "docs/environment.md"
MAX_LINES, MAX_FUNCTION_LINES, MAX_TEMPLATE_PARAMETERS, MAX_COLUMNS = 400, 60, 3, 120
REPORTS, REPORTS_LINES = "python/fovea_report", 2500  # all of its Python files together stay below
SOURCES = {".h", ".cpp", ".c", ".cu", ".cuh", ".in"}
SCRIPTS = {".py", ".cmake", ".sh", ""}
POSIX = re.compile(
    r"(sys/|linux/)\S+|(unistd|dlfcn|fcntl|sched|pthread|signal|poll|spawn|link|elf|cpuid|time|malloc)\.h")
STANDARD = re.compile(r"[a-z_0-9]+|(std(arg|bool|def|int|io|lib)|math|string|errno|limits|float|assert)\.h")
# Headers of released versions stay as they were released, whatever the rules have become since.
UNCHECKED = re.compile(r"__pycache__|/corpus/|^tests/c_api/frozen/")
CODE = re.compile(r"\s*//\s*(\w[\w:<>*& ]*\s+\w+\s*=.*;|[\w.:>-]+\(.*\);|(if|for|while)\s*\(.*\{|return\b.*;)\s*$")
WORDS = "tests/architecture/retired_words.txt"
FORBIDDEN_NAMES = {"utils", "util", "common", "helpers", "helper", "misc"}


def read_table():
    """Rows of the table: folder -> (folders it may include, outside headers it may include)."""
    rows = {}
    for line in (ROOT / DOCUMENT).read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("| `") or len(cells) != 4:
            continue
        name = re.findall(r"`([^`]+)`", cells[0])[0].rstrip("/")
        rows[name] = (re.findall(r"`([^`]+)`", cells[2]), re.findall(r"`([^`]+)`|\b(C\+\+|POSIX)", cells[3]))
    return {name: ([f.rstrip("/") for f in inner], [a or b for a, b in outer]) for name, (inner, outer) in rows.items()}


def row_of(path, table):
    """The most exact row that covers a path."""
    covering = [name for name in table if path == name or path.startswith(name + "/")]
    return max(covering, key=len, default=None)


def target_of(included, source):
    """Path from the root of a quoted include."""
    beside = (ROOT / source).parent / included
    if "/" not in included and beside.exists():
        return str(beside.relative_to(ROOT))
    return f"include/{included}" if included.startswith("fovea/") else f"src/{included}"


def outside_allowed(header, allowed):
    if any(header == word or (word.endswith("/") and header.startswith(word)) for word in allowed):
        return True
    return ("C++" in allowed and STANDARD.fullmatch(header)) or ("POSIX" in allowed and POSIX.fullmatch(header))


def check_includes(path, text, table):
    row = row_of(path, table)
    if row is None:
        yield f"{path}: no row of {DOCUMENT} covers it"
        return
    inner, outer = table[row]
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if not found:
            continue
        where, header = f"{path}:{number}", found[2]
        target = target_of(header, path)
        # A quoted header that is nowhere here, not even as a template, is made by the build or comes from outside.
        here = (ROOT / target).exists() or (ROOT / f"{target}.in").exists()
        if found[1] == "<" or not here:
            if not outside_allowed(header, outer):
                yield f"{where}: {row} may not include {header}"
            continue
        target_row = row_of(target, table)
        # A row may name a folder or one file of it, as `src/cpu/cpu.h`.
        if target_row != row and target not in inner and target_row not in inner:
            yield f"{where}: {row} may not include {target}"


def check_text(path, text):
    lines = text.splitlines()
    first = next((line for line in lines if line.strip() and not line.startswith("#!")), "")
    if not re.match(r"(//|#|/\*|<!--|\"\"\")", first) or first.startswith(("#pragma", "#include", "#if")):
        yield f"{path}: no comment at the head that says what this file is"
    if len(lines) > MAX_LINES:
        yield f"{path}: {len(lines)} lines, the limit is {MAX_LINES}"
    for number, line in enumerate(lines, 1):
        if path.endswith(".py") and len(line) > MAX_COLUMNS:
            yield f"{path}:{number}: {len(line)} columns, the limit is {MAX_COLUMNS}"
        if re.search(r"\b(TO[D]O|FIX[M]E|XX[X])\b", line):
            yield f"{path}:{number}: a note to do something later"
        if CODE.match(line):
            yield f"{path}:{number}: code in a comment"


def check_reports():
    files = list((ROOT / REPORTS).rglob("*.py"))
    lines = sum(len(file.read_text().splitlines()) for file in files)
    if not files or lines >= REPORTS_LINES:
        yield f"{REPORTS}: {lines} lines in {len(files)} files, the limit is below {REPORTS_LINES}"


def parameters_of(text, start):
    """How many template parameters the list has that opens at `start`."""
    depth, count = 0, 1
    for character in text[start:]:
        depth += (character in "<(") - (character in ">)")
        if depth == 0:
            return count if text[start + 1] != ">" else 0
        count += character == "," and depth == 1
    return 0


def check_functions(path, text):
    """Lengths of functions, told by the indentation that clang-format gives, and template parameters."""
    for found in re.finditer(r"^\s*template (<)", text, re.MULTILINE):
        count = parameters_of(text, found.start(1))
        if count > MAX_TEMPLATE_PARAMETERS:
            number = text.count("\n", 0, found.start(1)) + 1
            yield f"{path}:{number}: {count} template parameters, the limit is {MAX_TEMPLATE_PARAMETERS}"
    last = {}  # indentation -> the last line that has it, which is where the block that ends next at it began
    for number, line in enumerate(text.splitlines(), 1):
        indent = len(line) - len(line.lstrip())
        if line.strip() == "}" and number - last.get(indent, number) + 1 > MAX_FUNCTION_LINES:
            length = number - last[indent] + 1
            yield f"{path}:{last[indent]}: a function of {length} lines, the limit is {MAX_FUNCTION_LINES}"
        if line.strip() and not line.startswith("#"):
            last[indent] = number


def check_links(path, text):
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        if not ((ROOT / path).parent / link).exists():
            yield f"{path}: the link {link} leads nowhere"


def check_paths(path, text):
    """Paths in pages exist. NAME, <gpu> and * stand for something else."""
    for named in re.findall(r"`((?:cmake|data|docs|examples|include|python|results|scripts|src|tests)/[^`\s]*)", text):
        if not re.search(r"NAME|[<*]", named) and not (ROOT / named).exists():
            yield f"{path}: there is no {named}"


def check_idioms(path, text):
    """One way each: refusals name their fields, and an object that is never destroyed comes from never_destroyed.h."""
    for found in re.finditer(r"\bfail\(\{\s*(?:\w+::)*\w+::|=\s*\*new ", text):
        number = text.count("\n", 0, found.start()) + 1
        yield f"{path}:{number}: " + ("a refusal without names" if "fail" in found[0] else "not by never_destroyed()")


def check_variables(path, text, page):
    for variable in re.findall(r'(?:getenv|environment)\("(\w+)"\)', text):
        if f"`{variable}`" not in page:
            yield f"{path}: the variable {variable} is not in {VARIABLES}"


def read_retired():
    """Pairs of a retired word's pattern and what replaces it."""
    lines = [line for line in (ROOT / WORDS).read_text().splitlines() if line and not line.startswith("#")]
    return [(re.compile(pattern), better) for pattern, better in (line.split(" -> ") for line in lines)]


def check_words(path, text, retired):
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, better in retired:
            found = pattern.search(line)
            if found:
                yield f"{path}:{number}: `{found[0]}` is retired: {better}"


def main():
    table = read_table()
    retired = read_retired()
    variables = (ROOT / VARIABLES).read_text()
    problems = [f"{DOCUMENT}: the table has no rows"] if not table else []
    problems += check_reports()
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        problems += check_links(page.relative_to(ROOT), page.read_text())
        problems += check_paths(page.relative_to(ROOT), page.read_text())
        problems += check_words(page.relative_to(ROOT), page.read_text(), retired)
    count = 0
    for top in ("include", "src", "tests", "examples", "cmake", "scripts", "python"):
        for file in sorted((ROOT / top).rglob("*")):
            path = str(file.relative_to(ROOT))
            if not file.is_file() or file.suffix not in SOURCES | SCRIPTS or UNCHECKED.search(path):
                continue
            if file.suffix == "" and top != "scripts":
                continue
            count += 1
            if FORBIDDEN_NAMES & set(re.split(r"[/._-]", path)):
                problems.append(f"{path}: a name that says nothing")
            text = file.read_text()
            problems += check_text(path, text)
            problems += check_words(path, text, retired)
            if file.suffix in SOURCES:
                problems += check_functions(path, text)
            if (top in ("include", "src") or path.startswith("python/")) and file.suffix in SOURCES:
                problems += check_includes(path, text, table)
                problems += check_variables(path, text, variables)
            if top in ("include", "src", "tests") and file.suffix in SOURCES:
                problems += check_idioms(path, text)
    print("\n".join(problems))
    print(f"{count} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
