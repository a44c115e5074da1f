"""The section that says how the figures came about, so that somebody else can get them again."""

from __future__ import annotations

from vecveil.report import figures as f
from vecveil.report.markup import Child, Safe, join, tag
from vecveil.report.parts import cell, facts_list, section, table
from vecveil.report.record import Attack, Audit
from vecveil.report.wording import adaptivity, judged_on

__all__ = ["computed", "facts"]


def _parameters(audit: Audit) -> list[str]:
    return [f"{name} = {f.parameter(value)}" for name, value in audit.parameters.items()]


def _attack_row(attack: Attack) -> Safe:
    who = tag("th", attack.name, tag("small", attack.description), scope="row")
    return tag(
        "tr",
        who,
        tag("td", adaptivity(attack)),
        tag("td", judged_on(attack)),
        cell(f.duration(attack.seconds)),
        tag("td", attack.cost or f.MISSING),
    )


def _encoder(audit: Audit) -> str:
    if audit.encoder is None:
        return "not recorded: the audit was given vectors"
    known = [(key, audit.encoder[key]) for key in ("name", "precision", "fingerprint")]
    return ", ".join(
        value if key != "fingerprint" else f"fingerprint {value}" for key, value in known if value
    )


def _attacked(audit: Audit) -> str:
    """Return how much of the concept the attacks are about: words are attacked where enough texts hold them."""
    texts, split = audit.texts, audit.split
    found, used = texts["word_occurrences"], sum(split[k] for k in ("train", "validation", "test"))
    share = f.percent(texts["token_instances"] / found) if found else f.MISSING
    return (
        f"{f.count(texts['vocabulary'])} of {f.count(texts['words'])} words of the concept, those that enough "
        f"texts hold: {share} of their occurrences ({f.count(texts['token_instances'])} of {f.count(found)}, a word "
        f"counted once in a text). Texts without an attacked word are not used: {f.count(used)} of the "
        f"{f.count(texts['with_concept'])} with the concept are"
    )


def facts(audit: Audit) -> list[tuple[str, str | None]]:
    """Return split, seeds, parameters and versions: name and value."""
    texts = {key: f.count(number) for key, number in audit.texts.items()}
    # Neither with nor without it: removing it leaves nothing. Not every record has the count.
    alone = f", and {texts['emptied']} consist of it alone" if audit.texts.get("emptied") else ""
    split = {key: each if key == "unit" else f.count(each) for key, each in audit.split.items()}
    return [
        ("Method", audit.method),
        ("Parameters", ", ".join(_parameters(audit)) or "none"),
        ("Encoder", _encoder(audit)),
        (
            "Texts",
            f"{texts['total']}, of which {texts['with_concept']} hold the concept and "
            f"{texts['without_concept']} do not{alone}",
        ),
        ("Words attacked", _attacked(audit)),
        (
            "Split",
            f"by {split['unit']}, {split['groups']} groups: {split['train']} texts to train, "
            f"{split['validation']} to validate, {split['test']} to test",
        ),
        ("Seed", str(audit.seed)),
        ("Noise of the audited release", audit.randomness),
        ("Tier", audit.tier),
        ("Time taken", f.duration(audit.seconds)),
        ("Made", f"{audit.created} with vecveil {audit.vecveil}"),
    ]


def computed(audit: Audit) -> Safe:
    """Return split, seeds, attacks with cost and adaptivity, command and versions."""
    command = (
        "not recorded"
        if audit.command is None
        else tag("pre", tag("code", audit.command), tabindex=0, aria_label="Command")
    )
    shown: dict[str, Child] = dict(facts(audit))
    if pairs := _parameters(audit):
        shown["Parameters"] = join((tag("span", pair, class_="pair") for pair in pairs), ", ")
    rows = [_attack_row(attack) for attack in audit.attacks]
    caption = (
        "Attacks: how each learns, on how many texts, or occurrences of words in them, it is judged, "
        "its time and its cost."
    )
    return section(
        "computed",
        "How it was computed",
        facts_list([*shown.items(), ("Command", command)]),
        table(
            caption,
            ("Attack", "Learning", "Judged on", "Time", "Cost"),
            "cost",
            rows,
            words=(0, 1, 2, 4),
        ),
    )
