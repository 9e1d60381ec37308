"""What the tests of a Python project import and use, for projects that do not say it anywhere else.

Only well-known distributions are named: a guess by name alone could install anything.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePosixPath

from ratchet.kernel import decoded

_TEST = re.compile(r"(?:.*/)?(?:tests?|testing)/.*\.py|(?:.*/)?(?:test_[^/]*|[^/]*_test|conftest)\.py")
_SETTINGS = ("pyproject.toml", "pytest.ini", ".pytest.ini", "setup.cfg", "tox.ini")
_MOST_FILES = 400
_LARGEST = 400_000

KNOWN: Mapping[str, str] = {
    **{
        name: name
        for name in (
            *("aiofiles", "aiohttp", "anyio", "asgiref", "attr", "blinker", "boto3", "bottle", "certifi"),
            *(
                "chardet",
                "click",
                "cloudpickle",
                "coverage",
                "cryptography",
                "cython",
                "dirty_equals",
                "django",
            ),
            *(
                "docutils",
                "email_validator",
                "execnet",
                "exceptiongroup",
                "faker",
                "fastapi",
                "filelock",
                "flask",
            ),
            *("freezegun", "gevent", "greenlet", "gunicorn", "h11", "h2", "httpx", "hypothesis", "idna"),
            *(
                "importlib_metadata",
                "itsdangerous",
                "jsonschema",
                "lxml",
                "markupsafe",
                "mock",
                "moto",
                "msgpack",
            ),
            *(
                "mypy",
                "numpy",
                "orjson",
                "packaging",
                "pandas",
                "parameterized",
                "pexpect",
                "pluggy",
                "polars",
            ),
            *("pretend", "proxy", "psutil", "pydantic", "pyfakefs", "pygments", "pympler", "pytest"),
            *(
                "pytest_asyncio",
                "pytest_mock",
                "pytz",
                "redis",
                "requests",
                "requests_mock",
                "respx",
                "responses",
            ),
            *("rich", "ruamel", "scipy", "simplejson", "sniffio", "sortedcontainers", "sphinx", "sqlalchemy"),
            *(
                "starlette",
                "sybil",
                "syrupy",
                "tabulate",
                "testfixtures",
                "time_machine",
                "toml",
                "tomli",
                "tomlkit",
            ),
            *(
                "tornado",
                "tox",
                "trio",
                "trustme",
                "typeguard",
                "twisted",
                "typing_extensions",
                "tzdata",
                "ujson",
            ),
            *(
                "urllib3",
                "uvicorn",
                "uvloop",
                "vcr",
                "virtualenv",
                "websockets",
                "werkzeug",
                "wheel",
                "xmlschema",
            ),
            *("zstandard", "brotli", "brotlicffi", "socksio", "wsproto", "hpack", "jinja2", "mako", "genty"),
        )
    },
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "jwt": "pyjwt",
    "OpenSSL": "pyopenssl",
    "PIL": "pillow",
    "pkg_resources": "setuptools",
    "proxy": "proxy.py",
    "ruamel": "ruamel.yaml",
    "setuptools": "setuptools",
    "sklearn": "scikit-learn",
    "vcr": "vcrpy",
    "yaml": "pyyaml",
    "Crypto": "pycryptodome",
    "zmq": "pyzmq",
}
# What a text of the tests or of pytest's settings shows to be used: the module to look for, and the distribution.
_SIGNS: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (re.compile(r"--cov\b"), "pytest_cov", "pytest-cov"),
    (re.compile(r"(?:addopts.*|[\"'\s])-n[ =\"',]*(?:auto|\d)"), "xdist", "pytest-xdist"),
    (re.compile(r"asyncio_mode|mark\.asyncio"), "pytest_asyncio", "pytest-asyncio"),
    (re.compile(r"mark\.trio\b"), "pytest_trio", "pytest-trio"),
    (re.compile(r"mark\.anyio"), "anyio", "anyio"),
    (re.compile(r"mark\.timeout|^timeout\s*=", re.MULTILINE), "pytest_timeout", "pytest-timeout"),
    (re.compile(r"--benchmark|\bdef test_\w+\([^)]*\bbenchmark\b"), "pytest_benchmark", "pytest-benchmark"),
    (re.compile(r"\bdef \w+\([^)]*\bmocker\b"), "pytest_mock", "pytest-mock"),
    (re.compile(r"\bdef test_\w+\([^)]*\bsubtests\b"), "pytest_subtests", "pytest-subtests"),
    (re.compile(r"\bdef \w+\([^)]*\bhttpbin\b"), "pytest_httpbin", "pytest-httpbin"),
    (re.compile(r"\bdef \w+\([^)]*\brequests_mock\b"), "requests_mock", "requests-mock"),
    (re.compile(r"\bdef \w+\([^)]*\bhttpserver\b"), "pytest_httpserver", "pytest-httpserver"),
)


def used_by_tests(paths: Iterable[str], read: Callable[[str], bytes]) -> dict[str, str]:
    """Modules that the tests import and the project does not have, each with the distribution that brings it."""
    every = list(paths)
    tests = [path for path in every if _TEST.fullmatch(path)][:_MOST_FILES]
    own = _own(every)
    found: dict[str, str] = {}
    for path in (*tests, *(name for name in _SETTINGS if name in every)):
        text = decoded(read(path)[:_LARGEST])
        found |= {module: name for sign, module, name in _SIGNS if sign.search(text)}
        if path.endswith(".py"):
            found |= {module: KNOWN[module] for module in _imported(text) if module in KNOWN}
    return {module: name for module, name in sorted(found.items()) if module not in own}


def _imported(text: str) -> set[str]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names - sys.stdlib_module_names


def _own(paths: Iterable[str]) -> set[str]:
    """Modules of the project itself, by every name that a path to Python files may give them."""
    names: set[str] = set()
    for path in map(PurePosixPath, paths):
        if path.suffix in (".py", ".pyi"):
            names |= {path.stem, *path.parts[:-1]}
    return names
