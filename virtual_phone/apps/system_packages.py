"""The phone's system packages: names, activities, versions, APK paths."""

LAUNCHER = "org.agentrl.launcher"
LAUNCHER_ACTIVITY = ".Home"
SETTINGS = "com.android.settings"
BROWSER = "com.android.chrome"
DIALER = "com.android.dialer"
ACTIVITIES = {
    SETTINGS: ".Settings",
    BROWSER: "com.google.android.apps.chrome.Main",
    DIALER: "com.android.incallui.InCallActivity",
}
"""System packages that can be started, and their activities."""
PACKAGES = (
    "android",
    BROWSER,
    DIALER,
    "com.android.inputmethod.latin",
    SETTINGS,
    "com.android.shell",
    "com.android.systemui",
    LAUNCHER,
)
"""System packages."""
SYSTEM_VERSION = ("14", 34)
"""Version name and version code of the system packages."""
KEYBOARD_PACKAGE = "com.android.adbkeyboard"
"""ADBKeyboard, which real phones also need to type arbitrary text."""


def apk_path(package: str) -> str:
    """Return the path of a package's APK."""
    if package in PACKAGES:
        return f"/system/app/{package}/{package}.apk"
    return f"/data/app/{package}/base.apk"
