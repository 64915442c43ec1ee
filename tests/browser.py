"""A real browser for tests of pages."""

import os
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserType

_CHROMIUM = Path(os.environ.get("AGENTRL_TEST_CHROMIUM", "/usr/bin/chromium"))
# Every new context opens a window, and each window loads two pages for the list below its address
# bar, which no test shows: they took most of a context's CPU time. Chromium reads only its last
# such list, so Playwright's own features are here too.
_DISABLED_FEATURES = (
    "WebUIOmniboxPopup", "WebUIOmniboxAimPopup",
    "AimEnabled", "AvoidCorsURLLoaderRestartOnRedirect", "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose", "HttpsFirstBalancedModeAutoEnable", "HttpsUpgrades",
    "LensOverlay", "MediaRouter", "NetworkTimeServiceQuerying", "OptimizationHints",
    "PaintHolding", "PreconnectToSearch", "ThirdPartyStoragePartitioning",
)  # fmt: skip
_ARGUMENTS = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    f"--disable-features={','.join(_DISABLED_FEATURES)}",
    "--disable-sync",
    "--no-first-run",
]


def start_chromium(kind: BrowserType, *arguments: str) -> Browser:
    """Chromium, with these arguments beside the usual ones."""
    if not os.access(_CHROMIUM, os.X_OK):
        pytest.fail(
            f"the tests of pages need Chromium, and {_CHROMIUM} is none: apt-get install -y "
            "chromium, or name another one in AGENTRL_TEST_CHROMIUM",
            pytrace=False,
        )
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    return kind.launch(
        executable_path=_CHROMIUM, args=[*_ARGUMENTS, *root, *arguments], timeout=90_000
    )
