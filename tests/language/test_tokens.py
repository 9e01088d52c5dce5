"""Tokenizers made on the fly."""

import pytest

from thespis.core.errors import UserError
from thespis.language.tokens import END, UNKNOWN, characters, words


def test_words_of_a_closed_vocabulary():
    made = words(["go", "north", "south"], special=["<obs>"])
    ids = made.encode("<obs> go north<end>")
    assert made.decode(ids) == "<obs> go north <end>" and ids[-1] == made.stop[0] == made.id_of(END)
    assert made.decode(ids, special=False) == "go north" and made.decode([*ids, -1, -1]) == made.decode(ids)
    assert made.encode("west") == [made.id_of(UNKNOWN)] and made.size == 7
    with pytest.raises(UserError, match="no token 'west'"):
        made.id_of("west")


@pytest.mark.parametrize("text", ["go  north\n", "größer als π 🙂", " leading", "a<end>b", ""])
def test_any_text_comes_back_from_bytes(text):
    made = characters()
    assert made.decode(made.encode(text)) == text
    assert (made.stop[0] in made.encode(text)) == (END in text) and made.size == 259
    assert all(i < made.size for i in made.encode(text))


def test_a_tokenizer_is_kept(tmp_path):
    from tokenizers import Tokenizer

    made = words(["yes", "no"])
    made.save(tmp_path)
    assert Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode("no yes").ids == made.encode("no yes")
