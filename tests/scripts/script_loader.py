"""Loads a script of scripts/, whose name has no ending, as a module."""
import importlib.machinery
import importlib.util
import sys


def load(root, name):
    folder = str(root / "scripts")
    if folder not in sys.path:
        sys.path.insert(0, folder)  # of what the script imports
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader(name, f"{folder}/{name}")
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    sys.modules[name] = module
    loader.exec_module(module)
    return module
