"""What goes wrong, with its place."""


class PlanError(ValueError):
    """A plan that is wrong: where, and what would be right.

    ``file``, ``line`` and ``column`` say where it stands in the plan's text, ``key`` which word it is about, as in
    ``network.buffer``, and ``problem`` what is wrong. A plan that is a dictionary has no lines: ``line`` is ``None``.
    """

    def __init__(self, message, file=None, line=None, column=None, key="", problem=""):
        super().__init__(message)
        self.file = file
        self.line = line
        self.column = column
        self.key = key
        self.problem = problem


class SimulationError(RuntimeError):
    """Runs that have no outcome. ``failures`` names each: plan, scheme, point, seed, and why.

    ``result`` has the table of the runs that have one.
    """

    def __init__(self, message, failures=(), result=None):
        super().__init__(message)
        self.failures = list(failures)
        self.result = result


class Warning(UserWarning):
    """Something odd about a plan: it can be played, and is probably not what was meant."""
