"""How the implementation of a call is chosen."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Verdict:
    """One implementation's answer to a problem."""

    implementation: str
    accepted: bool
    reason: str  # why it refuses, or why it runs only when named
    predicted_seconds: float  # 0: no prediction


@dataclasses.dataclass(frozen=True)
class Explanation:
    """The chosen implementation, the verdict of each, and the sizes of the call."""

    chosen: str  # empty if none accepts
    tiles: str  # how it divides the problem, for people
    verdicts: tuple[Verdict, ...]
    workspace_bytes: int
    saved_bytes: int  # state that forward may keep for backward
    flops: float  # over visible pairs of query and key
    bytes: float  # inputs read once, outputs written once
    predicted_seconds: float  # 0: no prediction

    def __str__(self):
        lines = []
        for one in self.verdicts:
            taken = one.accepted and one.implementation == self.chosen
            lines.append(f"{one.implementation}: " + ("taken" if taken else "would take it" if one.accepted else
                                                      f"refused: {one.reason}"))
        lines.append(f"chosen: {self.chosen or 'none'}")
        if self.tiles:
            lines.append(f"tiles: {self.tiles}")
        lines += [f"workspace: {self.workspace_bytes} bytes", f"flops: {self.flops:.4g}", f"bytes: {self.bytes:.4g}"]
        return "\n".join(lines)


def explanation_of(words):
    """From the dictionary of the extension module."""
    return Explanation(verdicts=tuple(Verdict(*one) for one in words.pop("walk")), **words)
