"""What `fovea verify` says at its end, and the outcomes of several programs together."""

import json


def summaries_of(words, text):
    """The last lines of `fovea verify WORDS`, one for each operation. ValueError if they are not there."""
    count = words[words.index("--op") + 1].count(",") + 1 if "--op" in words else 1
    lines = text.splitlines()[-count:]
    if len(lines) < count:
        raise ValueError
    return [json.loads(line) for line in lines]


def cells_of(summary):
    """What ran: an operation, and a class of each of its axes."""
    return [(summary["operation"], *(item for item in sorted(row.items()) if item[0] != "executed"))
            for row in summary["coverage"] if row["executed"]]


def total_of(outcomes):
    keys = dict.fromkeys(key for outcome in outcomes for key in outcome)
    # Cells are those of the run that had most: which ones they were is not kept. Descriptors are the same in every run.
    # Arguments, operations and the sanitizer's version are the last run's.
    def last(words):
        return list(words)[-1]

    rules = {"cells": max, "descriptors": max, "arguments": last, "operations": last, "tool": last}
    return {key: rules.get(key, sum)(outcome.get(key, 0) for outcome in outcomes) for key in keys}
