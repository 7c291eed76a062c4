"""Draws the pictures of `fovea report` from the description that the program writes (pictures.json)."""
