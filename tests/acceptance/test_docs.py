"""What the documentation shows is tried, and what it lists is compared with the code."""

from __future__ import annotations

import contextlib
import doctest
import importlib.util
import inspect
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any
from uuid import uuid4

import pytest
from servers import postgres, rabbitmq, redis
from servers.celery_worker import broker
from servers.ports import free_port
from servers.redis_nodes import sentinel_group
from shell_user import ShellUser
from wait import HANG

import shoal
from shoal.cli.main import COMMANDS
from shoal.commands.run import EXIT_CODES
from shoal.config.cluster_file import FILE_VARIABLE, SCHEMA
from shoal.config.load import SETTINGS
from shoal.core.page import Response
from shoal.demo.site import Site
from shoal.errors import ActionRequired
from shoal.extract.selection import Selection
from shoal.fetch.curl_errors import CAUSES
from shoal.queue.base import Queue
from shoal.store.export import FORMATS
from shoal.worker.task import failure

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(DOCS.rglob("*.md"))
DEMO_SITE = "127.0.0.1:8808"  # where the documentation has the demo site
SERVER = "127.0.0.1:8080"  # and the server
WEBHOOK_RECEIVER = "127.0.0.1:8900"  # and a program that hears of what ended
WORKER_PORT = "127.0.0.1:9470"  # and a worker that accepts tasks
LOGIN_SITE = "https://members.example"  # and where it has a site with a login
REDIS = "redis://queue.internal/0"  # and servers of a fleet
CELERY_BROKER = "redis://broker.internal/0"  # likewise, as other programs reach it
POSTGRES = "postgresql://shoal@db.internal/shoal"
SENTINELS = "redis+sentinel://:PASSWORD@s1.internal,s2.internal,s3.internal/mymaster/0?sentinel_password=OTHER"
BROKER, MANAGEMENT = "amqp://shoal@broker.internal/shoal", "http://shoal@broker.internal:15672"
BLOCK = re.compile(r"(?:<!-- (run|file)([^\n]*?) -->\n)?```(\w+)\n(.*?)```", re.DOTALL)
RUNNABLE = [str(page.relative_to(ROOT)) for page in PAGES if "\n<!-- run" in page.read_text("utf-8")]


def text_of(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_nobody_is_told_to_install_a_name_that_is_not_released(page: Path) -> None:
    """Somebody else may take it: until there is a release, everything is installed from the source."""
    assert not re.findall(r"""(?:pip|pipx|uv)[\w -]* (?:install|add) [^\n`#]*?["' ]shoal\b""", page.read_text("utf-8"))


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# What can be run


class LoginSite(BaseHTTPRequestHandler):
    """A site with a login: a form that gives a cookie, and pages for those who have it."""

    def do_GET(self) -> None:
        links = '<a class="order" href="/orders/1">1</a> <a class="order" href="/orders/2">2</a>'
        known = "member=ada" in self.headers.get("Cookie", "")
        order = f"<h1>{self.path}</h1><p class=total>€12.50</p>{links}"
        self._answer(order if known else '<form class="login" action="/login" method="post"></form>')

    def do_POST(self) -> None:
        said = self.rfile.read(int(self.headers["Content-Length"]))
        cookie = "member=ada; Path=/" if said == b"user=ada&password=lovelace" else "member=; Path=/"
        self._answer("welcome", ("Set-Cookie", cookie))

    def _answer(self, text: str, *headers: tuple[str, str]) -> None:
        body = text.encode()
        self.send_response(404 if self.path == "/robots.txt" else 200)
        for name, value in (("Content-Type", "text/html"), ("Content-Length", str(len(body))), *headers):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None: ...


@contextlib.contextmanager
def login_site() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), LoginSite) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class DocsReader:
    """Somebody who does what a page says, in an empty folder; at the end whatever still goes on is ended."""

    def __init__(self, user: ShellUser, login_site: str) -> None:
        self.user = user
        self.addresses = {
            DEMO_SITE: f"127.0.0.1:{user.site.port}",
            SERVER: f"127.0.0.1:{free_port()}",
            WEBHOOK_RECEIVER: f"127.0.0.1:{free_port()}",
            WORKER_PORT: f"127.0.0.1:{free_port()}",
        }
        self.login_site = login_site
        self.namespace = f"docs_{uuid4().hex[:12]}"
        self.vhost = ""
        self.closing = contextlib.ExitStack()
        self.groups: list[int] = []
        self.broker = ""
        self.environment = dict(user.environment)
        self.environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.environment |= {"LC_ALL": "C.UTF-8", "SHOAL_LISTEN": self.addresses[SERVER]}

    def __enter__(self) -> DocsReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for group in self.groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        self.closing.close()

    def with_test_servers(self, text: str) -> str:
        """A text with the servers of this test in place of those that the pages name."""
        for address, real in self.addresses.items():
            text = text.replace(address, real)
        text = text.replace(LOGIN_SITE, self.login_site)
        if REDIS in text:
            text = text.replace(REDIS, redis.url(self.namespace))
        if CELERY_BROKER in text:
            self.broker = self.broker or self.closing.enter_context(broker())
            text = text.replace(CELERY_BROKER, self.broker)
        if SENTINELS in text:
            text = text.replace(SENTINELS, self.closing.enter_context(sentinel_group()).url(self.namespace))
        if POSTGRES in text:
            text = text.replace(POSTGRES, postgres.shared().url(self.namespace))
        if BROKER in text or MANAGEMENT in text:
            self.vhost = self.vhost or self.closing.enter_context(rabbitmq.vhost())
            server = rabbitmq.shared()
            text = text.replace(BROKER, server.url(self.vhost)).replace(MANAGEMENT, server.management_url)
        return text

    def follow(self, name: str) -> int:
        """Do every marked block in order; says how many."""
        done = 0
        for mark, options, language, body in BLOCK.findall(text_of(name)):
            if mark == "file":
                (self.user.folder / options.strip()).write_text(self.with_test_servers(body), "utf-8")
            elif mark == "run":
                status = int(options.partition("exit=")[2] or 0)
                self.run_console(body, status) if language == "console" else self.run_python(body)
                done += 1
            self._rewrite_scripts()
        return done

    def run_console(self, body: str, status: int) -> None:
        for command, shown in commands(body):
            name, equals, value = command.removeprefix("export ").partition("=")
            if command.startswith("export ") and equals:
                self.environment[name] = self._value(self.with_test_servers(value))
                continue
            # What a job says of itself when it begins is shown before its first page has come.
            self.user.site.site.host_delay = 3.0 if "/api/scraping/start" in command else 0.0
            out = self._call(["bash", "-c", self.with_test_servers(command)], status, command)
            wanted = pattern(self.with_test_servers(shown))
            assert wanted.search(out), f"{command}\nshould say:\n{shown}\nbut says:\n{out}"

    def _value(self, given: str) -> str:
        """What `export` sets; where a command says it, what that prints."""
        return self._call(["bash", "-c", f"printf %s {given}"], 0, given) if given.startswith("$(") else given

    def run_python(self, body: str) -> None:
        script = self.user.folder / "block.py"
        script.write_text(self.with_test_servers(body), "utf-8")
        self._call([sys.executable, script.name], 0, body)

    def _call(self, command: list[str], status: int, what: str) -> str:
        process = subprocess.Popen(
            command,
            cwd=self.user.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            process_group=0,
        )
        if "&" in what:  # it leaves something in the background
            self.groups.append(process.pid)
        out, _ = process.communicate(timeout=HANG)
        assert process.returncode == status, f"{what}\nended with {process.returncode}:\n{out}"
        return out

    def _rewrite_scripts(self) -> None:
        """What a command wrote (`shoal new`) leads to the site of this test, too."""
        for script in self.user.folder.glob("*.py"):
            script.write_text(self.with_test_servers(script.read_text("utf-8")), "utf-8")


def commands(body: str) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with the output shown below it."""
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, _, shown = re.sub(r" \\\n *", " ", part).partition("\n")
        command = command.partition("  #")[0].strip()
        while command.count("'") % 2:  # what is quoted goes on in the next line
            more, _, shown = shown.partition("\n")
            command += f"\n{more}"
        yield command, shown


def pattern(shown: str) -> re.Pattern[str]:
    """Output as it is shown: "…" stands for anything, on a line of its own for any lines."""
    lines = [".*" if line == "…" else re.escape(line).replace("…", "[^\n]*") for line in shown.splitlines()]
    return re.compile("^" + r"\n?".join(lines), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("name", RUNNABLE)
def test_every_marked_block_does_what_it_shows(name: str, tmp_path: Path) -> None:
    if "$ curl " in text_of(name) and shutil.which("curl") is None:
        pytest.fail("no curl here") if os.environ.get("CI") else pytest.skip("no curl here")
    with ShellUser(tmp_path, products=200) as user, login_site() as site, DocsReader(user, site) as reader:
        if LOGIN_SITE in text_of(name):  # it stands for a site on the internet
            reader.environment["SHOAL_ALLOW_PRIVATE"] = site.partition("://")[2]
        assert reader.follow(name) >= 1


def test_the_first_pages_that_people_read_can_be_tried() -> None:
    first = ("README.md", "docs/tutorial.md", "docs/how-to/lists.md", "docs/how-to/templates.md")
    first += ("docs/going-distributed.md", "docs/dashboard.md", "docs/api.md", "docs/how-to/batch-api.md")
    assert set(first) <= set(RUNNABLE)


def test_expected_output_is_really_compared() -> None:
    shown = "a …\n…\n  seen 3 = done 3\n"
    assert pattern(shown).search("a b\nc\nd\n  seen 3 = done 3\n")
    assert not pattern(shown).search("a b\nc\nd\n  seen 3 = done 2\n")
    assert list(commands("$ one   # why\nout\n$ two\n")) == [("one", "out\n"), ("two", "")]
    assert list(commands("$ one \\\n    two\nout\n")) == [("one two", "out\n")]
    assert list(commands("$ one '\n two'\nout\n")) == [("one '\n two'", "out\n")]


def test_the_examples_in_the_reference_of_scraper_and_page_are_true() -> None:
    site = Site()
    path = site.product_paths()[0]
    answer = site.answer("GET", path, {}, 1)
    response = Response(f"http://{DEMO_SITE}{path}", answer.status, answer.headers, answer.body)
    blocks = re.findall(r"```pycon\n(.*?)```", text_of("docs/reference/scraper-and-page.md"), re.DOTALL)
    test = doctest.DocTestParser().get_doctest(
        "\n".join(blocks), {"page": shoal.Page(response)}, "scraper-and-page", None, 0
    )
    said: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=said.append)
    assert not result.failed, "".join(said)
    assert result.attempted > 30


# What comes from the code


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_generated_parts_are_what_the_code_says(page: Path) -> None:
    text = page.read_text("utf-8")
    assert _generator().filled(text) == text, ".venv/bin/python docs/generate.py brings it up to date"


def test_every_setting_and_every_command_is_in_the_reference() -> None:
    settings, commands = text_of("docs/reference/settings.md"), text_of("docs/reference/cli.md")
    for setting in SETTINGS.values():
        assert f"`{setting.flag}` | `{setting.variable}` | `{setting.name}`" in settings
    for name in COMMANDS:
        assert f"## shoal {name}\n" in commands


def test_every_verb_of_the_queue_is_in_the_contract_page() -> None:
    verbs = {name for name, _ in inspect.getmembers(Queue, inspect.isfunction) if not name.startswith("_")}
    listed = set(re.findall(r"^\| `(\w+)` \|", text_of("docs/reference/queue-contract.md"), re.MULTILINE))
    assert listed == verbs


@pytest.mark.parametrize("kind", [shoal.Scraper, shoal.Page, Selection, shoal.Result])
def test_every_public_member_is_in_the_reference(kind: type) -> None:
    text = text_of("docs/reference/scraper-and-page.md")
    login_site = {name for name in dir(kind) if not name.startswith("_")} - {"of"}  # which makes Selections
    missing = {name for name in login_site if not re.search(rf"\.{name}\b", text)}
    assert not missing


def test_every_public_name_is_in_the_reference() -> None:
    text = text_of("docs/reference/scraper-and-page.md")
    assert all(f"`shoal.{name}`" in text for name in shoal.__all__)


def test_every_cause_is_in_the_reference() -> None:
    text = text_of("docs/reference/errors-and-causes.md")
    causes = {cause for cause, _ in CAUSES.values()}
    source = "".join(path.read_text("utf-8") for path in (ROOT / "src/shoal").rglob("*.py"))
    causes |= set(re.findall(r"\b(?:Retry|GiveUp|FetchRefused|FetchFailed|ExcludedByRule)\(\s*\"([a-z_.]+)\"", source))
    assert len(causes) > 12 and failure.__doc__
    missing = {cause for cause in causes if f"`{cause}`" not in text}
    assert not missing


def test_exit_codes_are_those_of_the_code() -> None:
    given = {*EXIT_CODES.values(), *(kind.exit_code for kind in ActionRequired.__subclasses__())}
    for name in ("docs/reference/exit-codes.md",):
        listed = {int(code) for code in re.findall(r"^\| (\d) \|", text_of(name), re.MULTILINE)}
        assert listed == given, name


def test_every_kind_of_advice_is_explained() -> None:
    source = "".join(path.read_text("utf-8") for path in (ROOT / "src/shoal/view").glob("*.py"))
    kinds = set(re.findall(r"\bRecommendation\(\s*\"([a-z_]+)\"", source))
    text = text_of("docs/recommendations.md")
    assert len(kinds) > 15 and not {kind for kind in kinds if f"`{kind}`" not in text}


def test_output_forms_are_those_of_the_code() -> None:
    assert all(f"`{ending}`" in text_of("docs/how-to/export.md") for ending in FORMATS)


# What holds them together


def _anchors(text: str) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_internal_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        address, _, anchor = target.partition("#")
        file = (page.parent / address).resolve() if address else page
        assert file.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in _anchors(file.read_text("utf-8")), f"{page.name}: {target}"


def test_images_that_the_pages_show_are_there() -> None:
    for page in PAGES:
        for image in re.findall(r"(?:src|srcset)=\"([^\"]+)\"", page.read_text("utf-8")):
            assert (page.parent / image).exists(), f"{page.name}: {image}"


def test_every_page_is_in_the_navigation_and_in_the_index() -> None:
    listed = set(re.findall(r"^\s*- (\S+\.md)$", text_of("mkdocs.yml"), re.MULTILINE))
    assert listed == {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    index = text_of("docs/index.md")
    assert all(f"({name})" in index for name in listed - {"index.md"})


CLUSTER = {f"{FILE_VARIABLE}_{section}_{key}".upper() for section in SCHEMA for key in SCHEMA[section]}


def test_variables_that_the_pages_name_exist() -> None:
    known = {setting.variable for setting in SETTINGS.values()}
    known |= {"SHOAL_CONFIG", "SHOAL_DEMO_URL", "SHOAL_SEED", "SHOAL_HYPOTHESIS", "SHOAL_RAET", "SHOAL_"}
    known |= {
        FILE_VARIABLE,
        "SHOAL_TEST_REDIS",
        "SHOAL_TEST_POSTGRES",
        "SHOAL_ROLE",
        "SHOAL_IMAGE",
        "SHOAL_TEST_REDIS_SERVER",
        "SHOAL_TEST_RABBITMQ",
        "SHOAL_TEST_LEDGER",
    } | CLUSTER
    for page in PAGES:
        named = set(re.findall(r"\bSHOAL_[A-Z0-9_]*", page.read_text("utf-8")))
        named = {name for name in named if not name.startswith("SHOAL_SECRET_")}  # those are for you to name
        assert named <= known, page.name


KUBECTL = {"--from-literal", "--kustomize", "--namespace"}
SYSTEMCTL = {"--now", "--create"}
CURL = {"--retry", "--retry-delay", "--retry-connrefused", "--data-binary"}
DOCKER = {"--security-opt", "--shm-size", "--rm", "--volumes", "--compose-file"}


def test_flags_that_the_pages_name_exist() -> None:
    source = "".join(path.read_text("utf-8") for path in (ROOT / "src/shoal").rglob("*.py"))
    known = {setting.flag for setting in SETTINGS.values()} | set(re.findall(r"\"(--[a-z0-9-]+)\"", source))
    known |= {f"--no-{setting.flag[2:]}" for setting in SETTINGS.values() if setting.is_boolean}
    known |= {"--help", "--version"} | CURL | KUBECTL | SYSTEMCTL | DOCKER
    known |= set(re.findall(r"--[a-z]+", (ROOT / "scripts/start-distributed.sh").read_text("utf-8")))
    for page in PAGES:
        if page.name in ("demo-site.md", "CHANGELOG.md"):
            continue
        used = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", page.read_text("utf-8")))
        assert used <= known, f"{page.name}: {used - known}"
