"""The words of operations, statuses, flags and implementations, as `fovea info --json` prints them."""

import json
import math
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Iterable, Mapping

Case = Mapping[str, Any]  # a problem line: key to word, whole number or number


class Refused(Exception):
    """Bad input, described in a sentence."""


@dataclass(frozen=True)
class Key:
    """One key of an operation's problem line."""

    word: str
    kind: str = "word"  # word, size or number
    noun: str = ""  # stands before the value; where empty, the value speaks for itself
    shown: str = "title"  # title, column or axis
    values: Mapping[str, str] = field(default_factory=dict)
    follows: str = ""  # the key whose value is this key's default
    usual: str = ""  # the value that needs no mention

    def text(self, value: Any) -> str:
        said = short(value) if self.kind == "size" and self.shown == "axis" else self.values.get(str(value), str(value))
        return f"{self.noun} {said}" if self.noun else said

    @property
    def head(self) -> str:
        return self.noun or {"dtype": "type"}.get(self.word, self.word)


@dataclass(frozen=True)
class Operation:
    name: str
    keys: tuple[Key, ...]

    def shown(self, *places: str) -> list[Key]:
        return [key for key in self.keys if key.shown in places]

    def axis(self, case: Case) -> tuple[str, float]:
        """Where a case is on a curve: its label (4k, or 1:4k if the axis has keys that differ), and the last value."""
        values = [case[key.word] for key in self.shown("axis") if key.word in case]
        texts = list(dict.fromkeys(short(value) for value in values))
        return ":".join(texts) or "-", float(values[-1]) if values else 0.0

    @property
    def along(self) -> str:
        """What curves run over."""
        return next((key.noun or key.word for key in self.shown("axis")), "")

    def title(self, case: Case, places: Iterable[str] = ("title",), without: Iterable[str] = ()) -> str:
        """The keys that the cases of one table share; the pass first."""
        chosen = [key for key in self.keys if key.shown in places and key.word in case and key.word not in without]
        chosen.sort(key=lambda key: (key.word != "pass", key.kind != "word"))
        return ", ".join(key.text(case[key.word]) for key in chosen if not self.goes_without(key, case))

    def goes_without(self, key: Key, case: Case) -> bool:
        is_usual = bool(key.usual) and str(case[key.word]) == key.usual
        return is_usual or (bool(key.follows) and (key.kind != "size" or case[key.word] == case.get(key.follows)))

    def label(self, case: Case, without: Iterable[str] = ("pass",)) -> str:
        """The whole case in words."""
        axis = [key for key in self.shown("axis") if key.word in case]
        said = [f"{axis[0].noun} {self.axis(case)[0]}"] if axis else []
        return listed(*said, *(self.title(case, (place,), without) for place in ("column", "title")))

    def order(self, case: Case) -> tuple:
        """Sorts cases: by words in the order of their list, then by sizes, the axis last."""
        words = [([*key.values, value].index(value), str(value)) for key in self.keys
                 if key.kind == "word" and not key.follows for value in [case.get(key.word)]]
        sizes = [value if isinstance(value := case.get(key.word, 0), (int, float)) else math.inf  # unlimited
                 for place in ("title", "column", "axis") for key in self.shown(place) if key.kind != "word"]
        return (*words, *sizes)


@dataclass(frozen=True)
class Flag:
    word: str
    mark: str = ""
    ranked: bool = True
    help: str = ""


@dataclass(frozen=True)
class Vocabulary:
    operations: Mapping[str, Operation]
    statuses: Mapping[str, str]
    flags: tuple[Flag, ...]
    implementations: tuple[tuple[str, str], ...]  # pattern of names and kind, in the order shown

    def rank(self, implementation: str) -> int:
        """The place of the first pattern that matches; `*` is tried last."""
        found = [n for n, (names, _) in enumerate(self.implementations) if fnmatchcase(implementation, names)]
        return min(found, key=lambda n: self.implementations[n][0] == "*", default=len(self.implementations))

    def kind(self, implementation: str) -> str:
        """baseline, reference, peer or library."""
        rank = self.rank(implementation)
        return self.implementations[rank][1] if rank < len(self.implementations) else "peer"

    def unranked(self) -> set[str]:
        return {flag.word for flag in self.flags if not flag.ranked}

    def marks(self, flags: Iterable[str]) -> str:
        marks = "".join(flag.mark for flag in self.flags if flag.word in flags)
        return f" {marks}" if marks else ""

    def legend(self) -> str:
        return "; ".join(f"{flag.mark}: {flag.word} ({flag.help})" for flag in self.flags if flag.mark)

    def status(self, word: str) -> str:
        return self.statuses.get(word, word)

    def operation(self, name: str, cases: list[Case]) -> Operation:
        """The operation as described, or else as its cases show it. Curves run over its axis, or else over the size
        that has the most values."""
        keys = self.operations[name].keys if name in self.operations else keys_of(cases)
        keys = [replace(key, follows="") if key.kind != "size" and not follows(key, cases) else key for key in keys]
        sizes = [key.word for key in keys if key.kind == "size" and key.word != "seed"]
        if sizes and not any(key.shown == "axis" for key in keys):
            most = max(sizes, key=lambda word: len({case.get(word) for case in cases}))
            keys = [replace(key, shown="axis") if key.word == most else key for key in keys]
        return Operation(name, tuple(keys))


def keys_of(cases: list[Case]) -> list[Key]:
    words = list(dict.fromkeys(word for case in cases for word in case if word != "op"))
    sizes = [word for word in words if all(isinstance(case.get(word, 0), int) for case in cases)]
    passes = {"fwd": "forward", "bwd": "backward", "e2e": "forward + backward"}
    return [Key(word, "size" if word in sizes else "word", "" if word in ("pass", "dtype") else word,
                values=passes if word == "pass" else {}) for word in words]


def follows(key: Key, cases: list[Case]) -> bool:
    """Whether another key determines this one: such a number is not mentioned, such a word only in tables."""
    pairs = {(case.get(key.word), case.get(key.follows)) for case in cases}
    return len(pairs) == len({second for _, second in pairs})


def listed(*words: str) -> str:
    """The words that are not empty, separated by commas."""
    return ", ".join(filter(None, words))


def short(value: Any) -> str:
    """4096 is 4k."""
    if not isinstance(value, (int, float)) or not float(value).is_integer():
        return str(value)
    if value >= 1e7:
        return f"{value / 1e6:.0f}M"
    return f"{int(value) // 1024}k" if value >= 1024 and value % 1024 == 0 else str(int(value))


def parse_case(line: str) -> dict[str, Any]:
    """The words of a problem line; sizes and numbers as such."""
    case: dict[str, Any] = {}
    for word in line.split():
        key, equals, value = word.partition("=")
        if not equals or not key or key in case:
            raise Refused(f"no problem line: `{line}`")
        case[key] = number(value)
    if "op" not in case:
        raise Refused(f"a problem line without `op=`: `{line}`")
    return case


def number(text: str) -> Any:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def vocabulary_of(info: Mapping[str, Any]) -> Vocabulary:
    words = info["vocabulary"]
    kinds = {"word": "word", "number": "number"}  # the others are whole numbers
    operations = {one["name"]: Operation(one["name"], tuple(
        Key(key["key"], kinds.get(key["kind"], "size"), key["noun"], key["place"], key["values"],
            key.get("follows", ""), key.get("usual", "")) for key in one["keys"])) for one in info["operations"]}
    return Vocabulary(operations, words["statuses"], tuple(Flag(**flag) for flag in words["flags"]),
                      tuple((one["names"], one["kind"]) for one in words["implementations"]))


def ask(program: str) -> Vocabulary:
    """The vocabulary that the program prints."""
    try:
        done = subprocess.run([program, "info", "--json", "--quick"], capture_output=True, text=True, check=True)
        return vocabulary_of(json.loads(done.stdout))
    except (OSError, subprocess.CalledProcessError, ValueError, KeyError, TypeError) as failed:
        said = f"`{program} info --json` prints no vocabulary ({failed})"
        raise Refused(f"{said}; name the program with --program") from None
