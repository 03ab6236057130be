"""Shell commands taken apart, what they write, and the intents that they and other calls show."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.call_fields import CallInput
from optimizer.intents import intents_of_shell, intents_of_tool
from optimizer.shell import path_keys, read_command, written_files


def programs(command: str) -> list[str]:
    return [program for program, _ in read_command(command).commands]


def intents(command: str, background: bool = False) -> list[str]:
    return [str(kind) for kind, _ in intents_of_shell(read_command(command).commands, background)]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cd /x && python -m pytest 'a b.py' -q 2>&1 | tail -5", ["python", "tail"]),
        ("A=1 B='x y' sudo timeout 60 ./run.sh --x 'a;b' & ls", ["run.sh", "ls"]),
        ("cat > f <<'EOF'\npytest\nrm -rf x\nEOF\nls", ["cat", "ls"]),
        ("cat <<A; cat <<-B\none\nA\ntwo\n\tB\nls", ["cat", "cat", "ls"]),
        ("echo 'pytest; ls' # pytest\nls", ["ls"]),
        ('x="$(grep -c a "b.log")"', []),
        ("for f in a b; do wc -l $f; done", ["wc"]),
        ("make \\\n  test", ["make"]),
        ("", []),
    ],
)
def test_programs_in_command_position(command: str, expected: list[str]) -> None:
    assert programs(command) == expected


def test_quoted_words_come_back() -> None:
    command = """grep "a b" 'c'd"e" # "gone"\ncat "f g" """
    assert [words for _, words in read_command(command).commands] == [["grep", "a b", "cde"], ["cat", "f g"]]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("echo x > out.txt", [("out.txt", ">")]),
        ("echo x >> 'my out.txt' 2>/dev/null", [("my out.txt", ">>")]),
        ("python a.py 2>&1 | tee -a run.log", [("run.log", "tee")]),
        ("sed -i 's/a/b/' c.py d.py", [("c.py", "sed -i"), ("d.py", "sed -i")]),
        ("sed 's/a/b/' c.py", []),
        ("cp -r a b; mv c d", [("b", "cp"), ("d", "mv")]),
        ("cat a > /dev/null; test 3 -gt 2; f 2>&1", []),
        ("cat <<E > conf.yaml\na > b\nE", [("conf.yaml", ">")]),
    ],
)
def test_written_files_are_guessed(command: str, expected: list[tuple[str, str]]) -> None:
    assert written_files(read_command(command)) == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cd p && python -m pytest -q", ["test"]),
        ("uv run pytest", ["test"]),
        ("/usr/bin/npm test", ["test"]),
        ("echo pytest", []),
        ("grep -rn pytest .", []),
        ("cat test_a.py", []),
        ("nohup python train.py --lr 1 > t.log &", ["launch"]),
        ("bash run_train.sh", ["launch"]),
        ("torchrun --nproc 2 x.py", ["launch"]),
        ("python -m rllm.train", ["launch"]),
        ("python -c 'import train'", []),
        ("ls train.py", []),
        ("tail -5 train.log", ["log"]),
        ("tail -f train.log", ["monitor"]),
        ("sleep 60; tail -5 train.log", ["monitor"]),
        ("nvidia-smi | head", ["monitor"]),
        ("cat config.yaml", []),
        ("mcp-evo train 'x'", ["launch"]),
        ("mcp-evo runs show", ["monitor"]),
    ],
)
def test_intents_of_shell_commands(command: str, expected: list[str]) -> None:
    assert intents(command) == expected


def test_a_command_in_the_background_is_a_launch() -> None:
    assert intents("./serve --port 1", background=True) == ["launch"]
    assert intents("tail -f x.log", background=True) == ["monitor"]


@pytest.mark.parametrize(
    ("tool", "call", "expected"),
    [
        ("Edit", CallInput(file_path="/p/a.py"), ["edit"]),
        ("Write", CallInput(file_path="/p/train.yaml"), ["config"]),
        ("Write", CallInput(file_path="/p/config.json"), ["config"]),
        ("Write", CallInput(file_path="/p/data.json"), ["edit"]),
        ("Read", CallInput(file_path="/p/logs/run.txt"), ["log"]),
        ("Read", CallInput(file_path="/p/catalog.py"), []),
        ("Read", CallInput(file_path=3), []),
        ("ScheduleWakeup", CallInput(), ["monitor"]),
        ("mcp__evo__start_training", CallInput(), ["launch"]),
        ("mcp__evo__monitor_run", CallInput(), ["monitor"]),
        ("TaskUpdate", CallInput(), []),
    ],
)
def test_intents_of_tools(tool: str, call: CallInput, expected: list[str]) -> None:
    assert [str(kind) for kind, _ in intents_of_tool(tool, call)] == expected


def test_keys_of_files() -> None:
    assert path_keys(read_command("diff /a/b.py c.py -x d.py http://e/f.html v1.5")) == ["b.py", "c.py", "d.py"]


@given(st.text(alphabet=st.sampled_from(list("ab \n'\"\\<>|&;()#$`E\x01=-./")), max_size=60))
def test_any_text_is_taken_apart(command: str) -> None:
    shell = read_command(command)
    written_files(shell)
    path_keys(shell)
    intents_of_shell(shell.commands, background=True)
    assert all(words and isinstance(program, str) for program, words in shell.commands)
