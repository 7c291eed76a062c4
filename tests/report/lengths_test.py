# Words of cells without a time in the pictures: where they stand, and whose. lengths_test.py ROOT; 77 without matplotlib.
import unittest

import fixture  # noqa: F401
from fovea_report.lengths import draw_lengths
from fovea_report.style import Looks


def series(name: str, missing: list[int]) -> dict:
    points = [{"x": x, "y": 1.0 + x / 1e4, "clean": True} for x in (128, 1024, 4096)]
    return {"implementation": name, "points": points, "missing": [{"x": x, "word": "timeout"} for x in missing]}


def words_of(kind: str) -> list:
    panels = [{"title": str(n), "series": [series("naive", [8192, 16384]), series("fused", [8192, 16384])]} for n in range(9)]
    picture = {"kind": kind, "title": "", "conditions": "", "baseline": "naive", "panels": panels}
    figure = draw_lengths(picture, Looks(["naive", "fused"]))
    figure.canvas.draw()
    return [text for text in figure.axes[0].texts if text.get_text() == "timeout"]


class Words(unittest.TestCase):
    def test_none_stands_over_another(self):
        words = words_of("memory")
        self.assertEqual(len(words), 4)
        boxes = [word.get_window_extent() for word in words]
        for number, one in enumerate(boxes):
            for other in boxes[:number]:
                self.assertFalse(one.overlaps(other), "timeouttimeout")

    def test_of_a_speed_up_are_of_whom_the_legend_names(self):
        colours = {word.get_color() for word in words_of("speedup")}
        self.assertEqual(colours, {Looks(["naive", "fused"]).colour("fused")})


if __name__ == "__main__":
    unittest.main()
