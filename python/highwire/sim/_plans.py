"""Plans: dictionaries, files, and those that come with the package."""

import os
import warnings

from . import _sim
from ._errors import Warning
from ._toml import dumps

#: What errors call a plan that is a dictionary.
DICTIONARY = "plan"


class Source:
    """A plan's text, its name in errors, and the files beside it."""

    def __init__(self, plan, folder=None, files=None):
        self.files = dict(files or {})
        self.is_dictionary = isinstance(plan, dict)
        if self.is_dictionary:
            self.file, self.text, self.folder = DICTIONARY, dumps(plan), folder
            return
        self.file = os.fspath(plan)
        if os.path.isfile(self.file):
            with open(self.file, encoding="utf-8", newline="") as text:
                self.text = text.read()
            self.folder = os.path.dirname(self.file) if folder is None else folder
            return
        # The name of a plan that comes with the package, or the error that lists them.
        self.file, self.text = _sim.shipped(self.file)
        self.folder = folder

    def read(self, name):
        """The text of a file that the plan names."""
        if name in self.files:
            return self.files[name]
        with open(os.path.join(self.folder or "", name), encoding="utf-8", newline="") as text:
            return text.read()

    def open(self, full, seeds):
        """The plan, checked; oddities are warnings."""
        opened, oddities = _sim.Plan.read(self.file, self.text, full, seeds, self.read, self.is_dictionary)
        for oddity in oddities:
            warnings.warn(oddity, Warning, stacklevel=3)
        return opened


def plans():
    """The plans that come with the package: a dictionary from name to title."""
    return dict(_sim.plans())


def check(plan, *, full=False, folder=None, files=None):
    """Looks at every word of a plan, and at what the values mean together, and plays nothing.

    Returns the number of runs. Oddities are warnings.

    Raises:
        PlanError: what is wrong, with its place.
    """
    opened = Source(plan, folder, files).open(full, None)
    opened.check()
    return opened.run_count


def explain(plan, *, full=False, folder=None, files=None):
    """The plan in words: network, traffic, schemes, what the paper leaves open."""
    return Source(plan, folder, files).open(full, None).explain()
