"""A flag in the query of a request, in the words that switch a setting."""

from __future__ import annotations

from werkzeug.datastructures import MultiDict

from service.errors import InvalidInput

# *Source:* what pydantic, and so every setting, takes for a boolean; in any mixture of capitals.
YES = ("1", "true", "t", "yes", "y", "on")
NO = ("0", "false", "f", "no", "n", "off")


def flag(query: MultiDict[str, str], name: str) -> bool:
    """Whether `name` is switched on; it is not where it does not stand. Raises InvalidInput for any other word."""
    given = query.getlist(name)
    if not given:
        return False
    word = given[0].lower()
    if len(given) > 1 or word not in YES + NO:
        raise InvalidInput.at(name, f"must be given once, as one of {', '.join(YES)}, or of {', '.join(NO)}")
    return word in YES
