"""Database task: questions about a small SQLite database, and changes to it, by SQL over several turns.

``how many pens did ann buy`` can be answered in two turns:

    sql select amount from orders where item = 'pens' and name = 'ann'
    answer 7

A response that begins with ``sql`` is executed, and its result is the next message, ``result 7``; ``answer`` ends the
episode and earns 1 if it is right. Some tasks ask for a change, ``set the age of ann to 9``: an answer, whatever it is,
then ends the episode, and earns 1 if the database is what it should be. A change cannot be undone, as nothing tells
what was there before.

The database is SQLite's, in memory, so any statement may be tried: reading of its two tables and changing of their rows
are allowed, everything else is refused, and a statement that takes too long is stopped.

Use it as ``--env thespis.envs.host.database:DatabaseTask``, with a tokenizer of its own words or a checkpoint's.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

NAMES = ("ann", "bob", "cid", "dan", "eve", "fay", "gus", "hal", "ida", "jon")
CITIES = ("oslo", "rome", "lima", "cairo")
ITEMS = ("pens", "cups", "hats", "lamps")
MAX_NUMBER = 60
"""Numbers up to this are words."""
SQL_WORDS = (
    *("select", "from", "where", "and", "or", "not", "in", "order", "by", "desc", "limit", "update", "set", "group"),
    *("count", "sum", "max", "min", "people", "orders", "name", "city", "age", "item", "amount"),
    *("(", ")", "*", ",", "=", "<", ">"),
)
PROMPT_WORDS = (
    *("how", "many", "live", "old", "is", "who", "oldest", "did", "buy", "bought", "most", "were", "the", "of", "to"),
    *("sql", "answer", "done", "result", "error", "more", "nothing", "what"),
)
MAX_RESULT_WORDS = 6
"""Values of a result that are told; of more of them the message ends with ``more``."""
MAX_INSTRUCTIONS = 20_000
"""Steps of SQLite's virtual machine after which a statement is stopped."""
MAX_VALUE_BYTES = 10_000
"""The longest value that a statement may make."""
_TABLES = ("people", "orders")


class DatabaseTask:
    """Database task in plain strings: questions about people and their orders, and changes, answered by SQL.

    ``num_people``: rows of ``people`` (name, city, age), 2 to 10; each has bought up to two items (``orders``: name,
    item, amount). ``change_rate``: the share of tasks that ask for a change. ``demonstrator_noise``: the share of the
    demonstrator's responses that are those to another task. ``max_turns``: responses that an episode allows.
    """

    max_message_tokens: ClassVar[int] = 12
    max_response_tokens: ClassVar[int] = 32
    words: ClassVar[list[str]] = list(
        dict.fromkeys(
            [
                *SQL_WORDS,
                *PROMPT_WORDS,
                *(word for names in (NAMES, CITIES, ITEMS) for name in names for word in (name, f"'{name}'")),
                *map(str, range(MAX_NUMBER + 1)),
            ]
        )
    )

    def __init__(
        self, num_people: int = 5, change_rate: float = 0.0, demonstrator_noise: float = 0.3, max_turns: int = 3
    ):
        """Raise ``ValueError`` for a number of people for whom there are no names."""
        if not 2 <= num_people <= len(NAMES):
            raise ValueError(f"num_people={num_people}: 2 to {len(NAMES)}")
        self.num_people, self.change_rate = num_people, change_rate
        self.demonstrator_noise, self.max_turns = demonstrator_noise, max_turns

    def reset(self, rng: np.random.Generator) -> str:
        """A new database, and the question or the change that is asked for."""
        self._rng = rng
        self._people, self._orders = self._draw_rows()
        self._database = _open_database(self._people, self._orders)
        is_change = bool(rng.uniform() < self.change_rate)
        self._task, self._statement, self._answer, self._goal = self._draw_task(is_change)
        self._last_result = ""
        return self._task

    def step(self, response: str) -> tuple[str, float, bool]:
        """The result of a statement, or the end with the reward of an answer."""
        kind, _, text = response.strip().partition(" ")
        if kind == "answer":
            is_right = text == self._answer if self._goal is None else self._rows() == self._goal
            return "", float(is_right), True
        self._last_result = self._execute(text) if kind == "sql" else "what"
        return self._last_result, 0.0, False

    def demonstrate(self) -> str:
        """The statement that the task needs, then the answer that its result gives; at times those of another task."""
        statement, answer = self._statement, self._last_result.removeprefix("result ")
        if self._rng.uniform() < self.demonstrator_noise:
            _, statement, answer, _ = self._draw_task(self._goal is not None)
        return f"sql {statement}" if self._last_result == "" else f"answer {answer}"

    def _draw_rows(self) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """Rows of both tables: ages differ, and so do the amounts of an item, so that the largest is one."""
        rng, count = self._rng, self.num_people
        names = [NAMES[i] for i in rng.permutation(len(NAMES))[:count]]
        ages = (1 + rng.permutation(MAX_NUMBER)[:count]).tolist()
        people = [(name, CITIES[rng.integers(len(CITIES))], age) for name, age in zip(names, ages, strict=True)]
        amounts = {item: (1 + rng.permutation(len(NAMES))).tolist() for item in ITEMS}
        orders = []
        for name in names:
            for i in rng.permutation(len(ITEMS))[: rng.integers(3)]:
                orders.append((name, ITEMS[i], amounts[ITEMS[i]].pop()))
        return people, orders

    def _draw_task(self, is_change: bool) -> tuple[str, str, str, Any]:
        """A task in words, a statement for it, its answer, and the rows that a change should lead to, else ``None``."""
        drawers: list[Callable[[], Any]] = [self._count_people, self._age, self._oldest]
        if self._orders:
            drawers += [self._bought_by, self._most, self._bought_in]
        if is_change:
            drawers = [self._new_age, *([self._new_amount] if self._orders else [])]
        return drawers[self._rng.integers(len(drawers))]()

    def _count_people(self) -> tuple[str, str, str, None]:
        city = CITIES[self._rng.integers(len(CITIES))]
        answer = sum(row[1] == city for row in self._people)
        statement = f"select count ( * ) from people where city = '{city}'"
        return f"how many live in {city}", statement, str(answer), None

    def _age(self) -> tuple[str, str, str, None]:
        name, _, age = self._people[self._rng.integers(self.num_people)]
        return f"how old is {name}", f"select age from people where name = '{name}'", str(age), None

    def _oldest(self) -> tuple[str, str, str, None]:
        name = max(self._people, key=lambda row: row[2])[0]
        return "who is oldest", "select name from people order by age desc limit 1", name, None

    def _bought_by(self) -> tuple[str, str, str, None]:
        name, item, amount = self._orders[self._rng.integers(len(self._orders))]
        statement = f"select amount from orders where item = '{item}' and name = '{name}'"
        return f"how many {item} did {name} buy", statement, str(amount), None

    def _most(self) -> tuple[str, str, str, None]:
        item = self._orders[self._rng.integers(len(self._orders))][1]
        name = max((row for row in self._orders if row[1] == item), key=lambda row: row[2])[0]
        statement = f"select name from orders where item = '{item}' order by amount desc limit 1"
        return f"who bought most {item}", statement, name, None

    def _bought_in(self) -> tuple[str, str, str, None]:
        name, item, _ = self._orders[self._rng.integers(len(self._orders))]
        cities = {row[0]: row[1] for row in self._people}
        amount = sum(row[2] for row in self._orders if row[1] == item and cities[row[0]] == cities[name])
        inner = f"select name from people where city = '{cities[name]}'"
        statement = f"select sum ( amount ) from orders where item = '{item}' and name in ( {inner} )"
        return f"how many {item} were bought in {cities[name]}", statement, str(amount), None

    def _new_age(self) -> tuple[str, str, str, Any]:
        index, age = self._rng.integers(self.num_people), int(self._rng.integers(1, MAX_NUMBER + 1))
        name, city, _ = self._people[index]
        people = [(name, city, age) if row[0] == name else row for row in self._people]
        statement = f"update people set age = {age} where name = '{name}'"
        return f"set the age of {name} to {age}", statement, "done", (sorted(people), sorted(self._orders))

    def _new_amount(self) -> tuple[str, str, str, Any]:
        name, item, _ = self._orders[self._rng.integers(len(self._orders))]
        amount = int(self._rng.integers(1, len(NAMES) + 1))
        orders = [(*row[:2], amount) if row[:2] == (name, item) else row for row in self._orders]
        statement = f"update orders set amount = {amount} where name = '{name}' and item = '{item}'"
        return f"set the {item} of {name} to {amount}", statement, "done", (sorted(self._people), sorted(orders))

    def _rows(self) -> Any:
        """All rows of the database as it is."""
        return tuple(sorted(self._database.execute(f"select * from {table}").fetchall()) for table in _TABLES)

    def _execute(self, statement: str) -> str:
        """Execute a statement and tell the values of its result, row by row."""
        calls = itertools.count()
        self._database.set_progress_handler(lambda: next(calls) >= MAX_INSTRUCTIONS // 100, 100)
        try:
            cursor = self._database.execute(statement)
            rows = cursor.fetchmany(MAX_RESULT_WORDS + 1)
        except (sqlite3.Error, sqlite3.Warning, OverflowError):
            return "error"
        finally:
            self._database.set_progress_handler(None, 0)
        if cursor.description is None:
            return "result done" if statement else "error"
        values = [_word(value) for row in rows for value in row]
        text = " ".join(values[:MAX_RESULT_WORDS]) or "nothing"
        return f"result {text}{' more' if len(values) > MAX_RESULT_WORDS else ''}"


_VALUES = {"nothing", *NAMES, *CITIES, *ITEMS, *map(str, range(MAX_NUMBER + 1))}


def _word(value: Any) -> str:
    """A value as a word; ``what`` where it is none."""
    text = "nothing" if value is None else str(value)
    return text if text in _VALUES else "what"


def _open_database(people: list[tuple[Any, ...]], orders: list[tuple[Any, ...]]) -> sqlite3.Connection:
    """A database with these rows, in which nothing but reading and changing of rows is allowed from now on."""
    database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    database.execute("create table people (name text, city text, age integer)")
    database.execute("create table orders (name text, item text, amount integer)")
    database.executemany("insert into people values (?, ?, ?)", people)
    database.executemany("insert into orders values (?, ?, ?)", orders)
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
    database.set_authorizer(_authorize)
    return database


def _authorize(action: int, first: str | None, second: str | None, *details: Any) -> int:
    """Whether SQLite may do something: read and change rows of the two tables, and call functions."""
    is_of_rows = action in (sqlite3.SQLITE_READ, sqlite3.SQLITE_UPDATE) and first in _TABLES
    is_allowed = is_of_rows or action == sqlite3.SQLITE_SELECT
    is_allowed |= action == sqlite3.SQLITE_FUNCTION and second != "load_extension"
    return sqlite3.SQLITE_OK if is_allowed else sqlite3.SQLITE_DENY
