"""What holds for all tests: only those listed in ``skips.txt`` may be skipped, and none is about time.

Those that need a cluster come first: with two processes at work, one would else wait at the end for minutes
while the other runs the last long file.
"""

from pathlib import Path

import hypothesis
import pytest

LISTED = Path(__file__).with_name("skips.txt")


# How long an example takes says how busy the machine is: no property is about time.
hypothesis.settings.register_profile(
    "untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("untimed")


def _listed() -> list[str]:
    lines = LISTED.read_text().splitlines()
    return [line.partition(": ")[0] for line in lines if line and not line.startswith("#")]


class _SkipGuard:
    def __init__(self) -> None:
        self.listed = _listed()
        self.unlisted: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not any(part in report.nodeid for part in self.listed):
            self.unlisted.append(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.unlisted:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for nodeid in self.unlisted:
            terminalreporter.write_line(f"skipped, but not listed in tests/skips.txt: {nodeid}", red=True)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_SkipGuard())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("cluster") is None)
