# The heat map's colour key: between the panel and the conditions, however many lines these take. heat_test.py ROOT; 77
# without matplotlib.
import unittest

import fixture  # noqa: F401
from fovea_report.heat import draw_heat
from fovea_report.style import Looks


class Key(unittest.TestCase):
    def test_stands_clear_of_panel_and_conditions(self):
        for words in (1, 30, 90):
            conditions = " ".join(["processor"] * words)
            cell = {"ratio": 1, "text": "1 ms", "best": True}
            picture = {"title": "", "conditions": conditions, "columns": ["flash"],
                       "rows": [{"label": "fwd", "cells": [cell]}]}
            figure = draw_heat(picture, Looks(["flash"]))
            figure.canvas.draw()
            panel, key = figure.axes
            below = next(text for text in figure.texts if text.get_text().startswith("processor"))
            self.assertGreater(key.get_tightbbox().y0, below.get_window_extent().y1, f"{words} words")
            self.assertLess(key.get_tightbbox().y1, panel.get_window_extent().y0, f"{words} words")


if __name__ == "__main__":
    unittest.main()
