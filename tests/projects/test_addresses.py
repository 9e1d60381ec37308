from pathlib import Path

import pytest

from ratchet.kernel import Misuse
from ratchet.projects.address import over_ssh, read_address, remote_key
from ratchet.projects.clone import check_branch


@pytest.mark.parametrize(
    "address",
    [
        "https://github.com/Example/Demo.git",
        "https://GitHub.com/example/demo",
        "https://github.com/example/demo/",
        "http://github.com:8080/example/demo.git",
        "ssh://git@github.com/example/demo.git",
        "ssh://git@github.com:2222/example/demo",
        "git@github.com:example/demo.git",
        "github.com:example/demo",
    ],
)
def test_every_address_of_a_repository_has_the_same_key(address: str) -> None:
    assert remote_key(address) == "github.com/example/demo"


def test_the_key_of_a_repository_on_this_machine_is_its_path(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    real = tmp_path.resolve() / "demo.git"
    assert remote_key(f"{link}/demo.git") == remote_key(f"file://{link}/demo.git") == str(real)


@pytest.mark.parametrize(
    "hostile",
    [
        "",
        "ext::sh -c 'touch /tmp/owned'",
        "ext::sh -c id /x",
        "fd::17/foo",
        "--upload-pack=touch /tmp/owned",
        "-oProxyCommand=id",
        "ssh://-oProxyCommand=id/demo",
        "ssh://git@-oProxyCommand=id/demo",
        "git@-oProxyCommand=id:demo",
        "host:-oProxyCommand=id",
        "ssh://git@host/-demo",
        "git://github.com/example/demo.git",
        "HTTPS://github.com/example/demo",
        "ftp://host/demo",
        "https://host/a/../../demo",
        "https://host/",
        "https:///demo",
        "https://host:99x/demo",
        "https://host/demo?x=--upload-pack",
        "https://ho st/demo",
        "file://elsewhere/demo",
        "relative/path",
        "../demo",
        "demo",
        " https://host/demo",
        "https://host/de\nmo",
        "https://host/" + "a" * 3000,
        "/path\0/demo",
    ],
)
def test_what_could_be_taken_for_a_command_or_an_option_is_no_address(hostile: str) -> None:
    with pytest.raises(Misuse):
        read_address(hostile)
    assert remote_key(hostile) is None


@pytest.mark.parametrize(
    "address",
    [
        "https://ada:hunter2secret@github.com/example/demo.git",
        "https://hunter2secret@github.com/example/demo.git",
        "ssh://git:hunter2secret@github.com/example/demo.git",
        "git:hunter2secret@github.com:example/demo.git",
    ],
)
def test_an_address_with_a_password_is_refused_without_repeating_it(address: str) -> None:
    with pytest.raises(Misuse) as refused:
        read_address(address)
    assert "hunter2secret" not in f"{refused.value} {refused.value.hint}"


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("https://github.com/example/demo.git", "demo"),
        ("git@host:demo", "demo"),
        ("file:///srv/origin", "origin"),
        ("https://host/a/..hidden.git", "hidden"),
        ("https://host/a/.git", "repository"),
        ("https://host/a/de%20mo", "de-mo"),
    ],
)
def test_a_clone_is_called_like_its_repository(address: str, name: str) -> None:
    assert read_address(address).name == name


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("https://github.com/example/demo.git", "git@github.com:example/demo.git"),
        ("https://github.com/example/demo", "git@github.com:example/demo.git"),
        ("git@github.com:example/demo.git", "git@github.com:example/demo.git"),
        ("https://gitlab.com/example/demo.git", "https://gitlab.com/example/demo.git"),
        ("/srv/demo.git", "/srv/demo.git"),
    ],
)
def test_only_github_over_https_becomes_ssh(before: str, after: str) -> None:
    assert over_ssh(before) == after


@pytest.mark.parametrize("name", ["main", "0007-add-login", "feature/a.b_c", "größe", "a@b"])
def test_plain_names_of_branches_are_taken(name: str) -> None:
    assert check_branch(name) == name


@pytest.mark.parametrize(
    "name",
    [
        *("", "-x", "--force", "a b", "a..b", "a~1", "a^", "a:b", "a?", "a*", "a[b", "a\\b", "@", "HEAD"),
        *("a'b", 'a"b', "a`b`", "/a", "a/", "a//b", ".a", "a/.b", "a.", "a.lock", "a.lock/b", "a@{1}"),
        *("a\nb", "a\0b", "a\x1bb", "a\x7fb", "\u202eab", "\ud800", "a" * 300),
    ],
)
def test_names_that_git_or_a_shell_would_misunderstand_are_refused(name: str) -> None:
    with pytest.raises(Misuse):
        check_branch(name)
