"""Frames of the user's code in errors of this process, and in those that come from another one."""

import pickle
from pathlib import Path

import pytest

import thespis
from thespis.core.errors import UserError
from thespis.runtime.user_frames import noting_user_frames, user_frame_text, with_frame_of

ENV = "def step():\n    return 1 / 0\n"
WORKER = """
@noting_user_frames()
def work(step):
    try:
        step()
    except ZeroDivisionError as error:
        raise UserError(f"the environment raised {error}") from error
"""


def run(source: str, filename: str, **names) -> dict:
    """The names that a source defines, as if it stood in ``filename``."""
    exec(compile(source, filename, "exec"), names)
    return names


@pytest.fixture
def error(tmp_path) -> UserError:
    """An environment's error in a worker of the package, as it arrives in the main process: pickled."""
    (tmp_path / "my_env.py").write_text(ENV)
    step = run(ENV, str(tmp_path / "my_env.py"))["step"]
    package_file = str(Path(thespis.__file__).parent / "training" / "worker_of_a_test.py")
    work = run(WORKER, package_file, noting_user_frames=noting_user_frames, UserError=UserError)["work"]
    with pytest.raises(UserError) as caught:
        work(step)
    return pickle.loads(pickle.dumps(caught.value))


def test_the_frame_survives_pickling(error):
    assert error.__cause__ is None and error.__traceback__ is None
    text = user_frame_text(error)
    assert "my_env.py" in text and "line 2, in step" in text and text.endswith("return 1 / 0")
    outer = with_frame_of(UserError(f"worker 1: {error}"), error)
    assert user_frame_text(outer) == text and str(outer) == "worker 1: the environment raised division by zero"


def test_an_error_without_a_user_frame_has_no_note():
    package_file = str(Path(thespis.__file__).parent / "training" / "worker_of_a_test.py")
    source = "@noting_user_frames()\ndef work():\n    raise UserError('of the package')\n"
    work = run(source, package_file, noting_user_frames=noting_user_frames, UserError=UserError)["work"]
    with pytest.raises(UserError) as caught:
        work()
    assert user_frame_text(pickle.loads(pickle.dumps(caught.value))) == ""
