"""Tokenizers built in memory: word-level and byte-level, encoding, decoding and saving."""

import pytest

from thespis.core.errors import UserError
from thespis.language.tokenizer import END, UNKNOWN, byte_tokenizer, word_tokenizer


def test_word_tokenizer():
    tokenizer = word_tokenizer(["go", "north", "south"], special_tokens=["<obs>"])
    tokens = tokenizer.encode("<obs> go north<end>")
    assert tokenizer.decode(tokens) == "<obs> go north <end>" and tokens[-1] == tokenizer.stop_tokens[
        0
    ] == tokenizer.token_to_id(END)
    assert tokenizer.decode(tokens, keep_special_tokens=False) == "go north" and tokenizer.decode(
        [*tokens, -1, -1]
    ) == tokenizer.decode(tokens)
    assert tokenizer.encode("west") == [tokenizer.token_to_id(UNKNOWN)] and tokenizer.vocab_size == 7
    with pytest.raises(UserError, match="no token 'west'"):
        tokenizer.token_to_id("west")


@pytest.mark.parametrize("text", ["go  north\n", "größer als π 🙂", " leading", "a<end>b", ""])
def test_byte_tokenizer_round_trip(text):
    tokenizer = byte_tokenizer()
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert (tokenizer.stop_tokens[0] in tokenizer.encode(text)) == (END in text) and tokenizer.vocab_size == 259
    assert all(i < tokenizer.vocab_size for i in tokenizer.encode(text))


def test_save_tokenizer(tmp_path):
    from tokenizers import Tokenizer

    tokenizer = word_tokenizer(["yes", "no"])
    tokenizer.save(tmp_path)
    assert Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode("no yes").ids == tokenizer.encode("no yes")
