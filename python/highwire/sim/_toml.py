"""A dictionary as the text of a plan."""

import json
import math
import os

from ._errors import PlanError


def dumps(plan):
    """The plan as TOML, a line per key at the top."""
    return "".join(f"{_key(key)} = {_value(value, key)}\n" for key, value in plan.items())


def _key(key):
    if not isinstance(key, str):
        raise PlanError(f"keys of a plan are text, not {key!r}", key=str(key), problem="keys are text")
    return _text(key)


def _text(text):
    # JSON's escapes are TOML's, but for the pairs of surrogates that it would make of other planes, and for DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value, path):
    # Numbers of NumPy and their like know what they are.
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):
        value = value.item()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, (str, os.PathLike)):
        return _text(os.fspath(value))
    if isinstance(value, dict):
        inner = ", ".join(f"{_key(key)} = {_value(item, f'{path}.{key}')}" for key, item in value.items())
        return f"{{{inner}}}"
    if isinstance(value, (list, tuple, range)):
        return f"[{', '.join(_value(item, path) for item in value)}]"
    problem = f"{type(value).__name__} is no value of a plan: text, numbers, bool, lists and dictionaries are"
    raise PlanError(f"`{path}`: {problem}", key=path, problem=problem)
