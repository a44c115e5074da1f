"""A member written as the term was that it takes the place of: its case, its plural, its possessive."""

from __future__ import annotations

import re

__all__ = ["is_plural", "substituted", "written_like"]

_VOWEL_SOUND = re.compile(r"[aeiou]", re.IGNORECASE)
_ARTICLE = re.compile(r"(?<![^\W_])(an?|An?|AN)(\s+)\Z")
_SIBILANT = ("s", "x", "z", "ch", "sh")
_POSSESSIVES = ("'s", "’s")


def is_plural(term: str, known: frozenset[str]) -> bool:
    """Return whether ``term`` is the plural of another known term: *Americans* beside *American*.

    English endings; without the singular nothing says that a final s is one (*Paris*).
    """
    folded = term.casefold()
    singulars = []
    if folded.endswith("ies"):
        singulars.append(folded[:-3] + "y")
    if folded.endswith("es"):
        singulars.append(folded[:-2])
    if folded.endswith("s") and not folded.endswith("ss"):
        singulars.append(folded[:-1])
    return any(singular in known for singular in singulars)


def written_like(member: str, original: str, *, plural: bool) -> str:
    """Return ``member`` as it stands where ``original`` stood.

    Capitals throughout, or at the beginning, are taken over; a small letter is not: names keep their capital.
    ``plural`` adds an English plural to a member of one word that has none. A possessive *'s* stays.

    Args:
        original: what stood in the text.
    """
    ending = next((end for end in _POSSESSIVES if original.endswith(end)), "")
    if ending and not member.endswith(_POSSESSIVES):
        original = original[: -len(ending)]
    else:
        ending = ""
    if plural and " " not in member and member.isalpha() and not member.endswith("s"):
        member = _plural(member)
    letters = [char for char in original if char.isalpha()]
    if len(letters) > 1 and all(char.isupper() for char in letters):
        member = member.upper()
    elif letters and original[0].isupper():
        member = member[:1].upper() + member[1:]
    return member + ending


def substituted(text: str, start: int, end: int, member: str) -> str:
    """Return ``text`` with ``member`` in place of ``text[start:end]``; an article before it is adapted."""
    head = text[:start]
    article = _ARTICLE.search(head)
    if article is not None and text[start:end][:1].isascii() and member[:1].isalpha():
        old, new = (bool(_VOWEL_SOUND.match(word)) for word in (text[start:end], member))
        if old == (article[1].lower() == "an") and old != new:  # a rule that held before
            letter = article[1][0]
            n = "N" if article[1] == "AN" else "n"
            head = head[: article.start()] + letter + (n if new else "") + article[2]
    return head + member + text[end:]


def _plural(word: str) -> str:
    folded = word.casefold()
    if folded.endswith(_SIBILANT):
        return word + "es"
    if folded.endswith("y") and not folded.endswith(("ay", "ey", "oy", "uy")):
        return word[:-1] + "ies"
    return word + "s"
