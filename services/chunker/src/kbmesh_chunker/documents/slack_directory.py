"""Who and what the ids of a Slack workspace stand for."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_NAME = 100
"""Characters of a name at most."""
SLACKBOT = "USLACKBOT"
_LABELLED = re.compile(r"<(?:@|#|!subteam\^)(\w{1,40})\|([^<>|\n]{1,200})>")


@dataclass(frozen=True, kw_only=True)
class Person:
    """Somebody who writes, or something that does."""

    name: str
    bot: bool = False


@dataclass(kw_only=True)
class Directory:
    """The names of users and channels, by their id."""

    people: dict[str, Person] = field(default_factory=dict)
    channels: dict[str, str] = field(default_factory=dict)
    """Without `#`."""
    labels: dict[str, str] = field(default_factory=dict)
    """What messages call those that are in no list, without `@` and `#`."""

    def add_users(self, users: Any) -> None:
        """Takes `users.json`, what `users.list` answers, or a table by id. What is no user is passed over."""
        for identity, user in _entries(users, "members"):
            name = user_name(user)
            if name:
                self.people[identity] = Person(name=name, bot=user.get("is_bot") is True or identity == SLACKBOT)
                profile = user.get("profile")
                if isinstance(profile, dict) and isinstance(profile.get("bot_id"), str):
                    self.people.setdefault(profile["bot_id"], Person(name=name, bot=True))

    def add_profile(self, message: Mapping[str, Any]) -> None:
        """Takes what a message says of its author, where nothing is known of that user yet."""
        identity, profile = message.get("user"), message.get("user_profile")
        if isinstance(identity, str) and identity not in self.people and isinstance(profile, dict):
            name = user_name({"profile": profile, **profile})
            if name:
                self.people[identity] = Person(name=name, bot=identity == SLACKBOT)

    def add_channels(self, channels: Iterable[Mapping[str, Any]]) -> None:
        """Takes channels as `channels.json` lists them."""
        for channel in channels:
            identity, name = channel.get("id"), one_line(channel.get("name"))
            if isinstance(identity, str) and name:
                self.channels[identity] = name

    def add_labels(self, text: str) -> None:
        """Takes the names that mentions in a text carry."""
        for identity, label in _LABELLED.findall(text) if "|" in text else ():
            name = one_line(label).removeprefix("@").removeprefix("#")
            if name:
                self.labels.setdefault(identity, name)

    def user(self, identity: str) -> str:
        """The name of a user; the id itself where nobody has it."""
        person = self.people.get(identity)
        return person.name if person is not None else self.labels.get(identity) or one_line(identity)

    def channel(self, identity: str) -> str:
        """The name of a channel; the id itself where none has it."""
        return self.channels.get(identity) or self.labels.get(identity) or one_line(identity)

    def group(self, identity: str) -> str:
        """The name of a group of users; the id itself where no message told it."""
        return self.labels.get(identity) or one_line(identity)


def user_name(user: Mapping[str, Any]) -> str:
    """Display name, else real name, else the name of the account. Empty where there is none."""
    profile = user.get("profile")
    profile = profile if isinstance(profile, dict) else {}
    candidates = (
        profile.get("display_name"),
        profile.get("real_name"),
        user.get("real_name"),
        user.get("name"),
        profile.get("name"),
    )
    return next((name for candidate in candidates if (name := one_line(candidate))), "")


def one_line(value: Any, most: int = MAX_NAME) -> str:
    """A string without line ends and white space around it, shortened. Empty where the value is no string."""
    if not isinstance(value, str):
        return ""
    line = " ".join(value[: 4 * most].split())
    return line if len(line) <= most else line[: most - 1] + "…"


def string(value: Any) -> str:
    """A string as it is; empty where the value is none."""
    return value if isinstance(value, str) else ""


def dicts(value: Any) -> list[dict[str, Any]]:
    """Those members of a list that are objects; none where it is no list."""
    return [member for member in value if isinstance(member, dict)] if isinstance(value, list) else []


def _entries(value: Any, name: str) -> Iterable[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict):
        if isinstance(value.get(name), list):
            value = value[name]
        else:
            yield from (
                (identity, user if isinstance(user, dict) else {"name": user}) for identity, user in value.items()
            )
            return
    for user in dicts(value):
        if isinstance(user.get("id"), str):
            yield user["id"], user
