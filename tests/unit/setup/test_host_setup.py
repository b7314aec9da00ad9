"""What setup.sh and install.sh do on a bare machine, told by stand-ins for apt, sudo and Python."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[2] / "support"
# Essential in every Debian: bash, coreutils, grep.
ESSENTIAL = (
    *("bash", "cat", "chmod", "cut", "dirname", "env", "grep", "ls", "mkdir", "mktemp", "rm", "sha256sum"),
    *("tail", "tee", "touch"),
)

APT_GET = """echo "apt-get $*" >> "$WORDS"
case " $* " in
  *" update "*) exit 0 ;;
  *" broken "*) echo "E: Unable to locate package broken"; exit 100 ;;
esac
echo "Need to get 10 MB of archives."
echo "Setting up something"
touch "$MACHINE/installed"
"""
# Passes for Python 3.11 with venv once apt-get ran; makes environments with a pip that does nothing.
PYTHON = """case "$*" in
  "-V") echo "Python $VERSION" ;;
  *version_info* | *ensurepip*) [ -e "$MACHINE/installed" ] || exit 1 ;;
  "-m venv "*)
    mkdir -p "$3/bin"
    printf '#!/bin/sh\\necho "pip $*" >> "$WORDS"\\n' > "$3/bin/pip"
    chmod 755 "$3/bin/pip" ;;
esac
"""
SUDO = """echo "sudo $*" >> "$WORDS"
[ "$1" != -n ] || exit "${PASSWORD:-0}"
exec "$@"
"""


class Machine:
    """A machine that has nothing but the essential programs and what a test gives it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "path"
        self.path.mkdir()
        for name in ESSENTIAL:
            real = shutil.which(name)
            assert real is not None
            (self.path / name).symlink_to(real)
        self.program("id", "echo 1000")

    def program(self, name: str, body: str) -> None:
        (self.path / name).write_text(f"#!/bin/bash\n{body}\n")
        (self.path / name).chmod(0o755)

    def run(self, script: str, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        fixed = {
            "PATH": str(self.path),
            "MACHINE": str(self.folder),
            "TMPDIR": str(self.folder),
            "WORDS": str(self.folder / "words"),
            "TREADLE_CACHE": str(self.folder / "cache"),
            "SSL_CERT_FILE": "/dev/null",
            "POLICY_RC_D": str(self.folder / "policy-rc.d"),
            "VERSION": "3.11.2",
        }
        return subprocess.run(
            ["/bin/bash", SUPPORT / script, *words],
            env=fixed | environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def words(self) -> list[str]:
        """What the stand-ins were told, in order."""
        file = self.folder / "words"
        return file.read_text().splitlines() if file.exists() else []

    def installed(self) -> list[str]:
        """The packages that apt-get was told to install."""
        lines = [line for line in self.words() if line.startswith("apt-get install")]
        return [word for line in lines for word in line.split()[2:] if word[0] != "-" and "::" not in word]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def debian(machine: Machine) -> Machine:
    """With apt, and sudo without a password; Python comes with the packages."""
    machine.program("apt-get", APT_GET)
    machine.program("sudo", SUDO)
    machine.program("python3", PYTHON)
    return machine


def test_a_machine_without_python_gets_it_and_says_so(debian: Machine) -> None:
    done = debian.run("setup.sh", "python")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{debian.path / 'python3'}\n"
    assert debian.installed() == ["python3", "python3-venv"]
    assert "apt-get install python3 python3-venv (they are not here" in done.stderr
    assert "Need to get 10 MB" in done.stderr


def test_what_is_there_already_is_not_installed(debian: Machine) -> None:
    (debian.folder / "installed").touch()
    done = debian.run("setup.sh", "python")
    assert (done.returncode, done.stderr, debian.words()) == (0, "", [])


def test_only_the_tests_need_git_and_the_stores(debian: Machine) -> None:
    (debian.folder / "installed").touch()
    assert debian.run("setup.sh", "venv").returncode == 0
    assert debian.installed() == []
    assert debian.run("setup.sh").returncode == 0
    assert {"git", "redis-server"} <= set(debian.installed()) <= {"git", "redis-server", "postgresql"}


def test_the_environment_is_made_by_hash_once_for_each_python(debian: Machine) -> None:
    first = debian.run("setup.sh", "venv")
    assert Path(first.stdout.strip()).parent == debian.folder / "cache"
    assert "MB to fetch" in first.stderr
    again = debian.run("setup.sh", "venv")
    assert (again.stdout, again.stderr) == (first.stdout, "")
    assert [line.split()[:2] for line in debian.words() if line.startswith("pip")] == [["pip", "install"]]
    assert "--require-hashes" in next(line for line in debian.words() if line.startswith("pip"))
    newer = debian.run("setup.sh", "venv", VERSION="3.13.5")
    assert newer.stdout != first.stdout


def test_a_system_whose_python_is_too_old_says_which_is_needed(debian: Machine) -> None:
    debian.program("python3", 'case "$*" in -V) echo Python 3.9.2 ;; *version_info*) exit 1 ;; esac')
    done = debian.run("setup.sh", "venv")
    assert done.returncode == 1
    assert "Python 3.11 or newer is needed, and Python 3.9.2 is what this system offers" in done.stderr


@pytest.mark.parametrize("sudo", [False, True], ids=["without sudo", "sudo wants a password"])
def test_who_may_not_install_is_told_the_whole_command(debian: Machine, sudo: bool) -> None:
    if not sudo:
        (debian.path / "sudo").unlink()
    done = debian.run("setup.sh", "venv", PASSWORD="1")
    assert done.returncode == 1
    assert done.stdout == ""
    by = "sudo " if sudo else ""
    command = f"{by}apt-get update && {by}apt-get install -y --no-install-recommends python3 python3-venv"
    assert f"  {command}\n" in done.stderr
    assert debian.installed() == []


def test_another_system_is_told_what_to_install(machine: Machine) -> None:
    done = machine.run("setup.sh", "venv")
    assert done.returncode == 1
    assert "needed: python3 python3-venv" in done.stderr
    assert "package manager of this system" in done.stderr


def test_no_package_starts_a_server_of_its_own_meanwhile(debian: Machine) -> None:
    policy = debian.folder / "policy-rc.d"
    debian.program("apt-get", f'{{ "{policy}"; echo "policy says $?"; }} >> "$WORDS"')
    assert debian.run("install.sh", "a reason", "redis-server").returncode == 0
    assert debian.words().count("policy says 101") == 2
    assert not policy.exists()


def test_a_policy_that_the_machine_has_is_left_alone(debian: Machine) -> None:
    policy = debian.folder / "policy-rc.d"
    policy.write_text("theirs")
    assert debian.run("install.sh", "a reason", "redis-server").returncode == 0
    assert policy.read_text() == "theirs"


def test_a_source_that_does_not_answer_stops_nothing(debian: Machine) -> None:
    debian.program("apt-get", 'case " $* " in *" update "*) echo E: no route; exit 100 ;; esac')
    done = debian.run("install.sh", "a reason", "git")
    assert done.returncode == 0
    assert "apt-get update had errors: E: no route" in done.stderr


def test_a_failed_installation_ends_with_the_last_words_of_apt(debian: Machine) -> None:
    done = debian.run("install.sh", "a reason", "broken")
    assert done.returncode == 1
    assert "Unable to locate package broken" in done.stderr
    assert not (debian.folder / "policy-rc.d").exists()
