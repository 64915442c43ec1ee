"""Sections of `dumpsys` for services whose state rarely changes on a virtual phone."""

from virtual_phone.commands.dumpsys import SECTIONS, Section, section
from virtual_phone.virtual_phone import VirtualPhone

_STREAMS = {"VOICE_CALL": (1, 5), "RING": (0, 7), "MUSIC": (0, 15), "ALARM": (1, 7)}
"""Lowest and highest volume of each audio stream."""
_TEXTS = {
    "connectivity": "Active default network: none\n\nCurrent Networks:\n\nNetwork Requests:",
    "media_session": "MEDIA SESSION SERVICE (dumpsys media_session)\n\n0 sessions listeners.\n"
    "Global priority session is null\nSessions Stack - have 0 sessions:",
    "notification": "Current Notification Manager state:\n  Notification List:\n\n"
    "  mArchive=Archive (0 notifications)\n  mMaxPackageEnqueueRate=5.0\n"
    "  mInterruptionFilter=1",
    "telephony.registry": "last known state:\n  Phone Id=0\n    mCallState=0\n"
    "    mRingingCallState=0\n    mDataActivity=0\n    mDataConnectionState=0",
}
"""Sections that never change: no network, media session, notification, call or SIM card."""


def _constant(text: str) -> Section:
    return lambda phone, arguments: text


SECTIONS.update((name, _constant(text)) for name, text in _TEXTS.items())


@section("audio")
def audio(phone: VirtualPhone, arguments: list[str]) -> str:
    """`dumpsys audio`: all streams at medium volume."""
    streams = "".join(
        f"- STREAM_{name}:\n   Muted: false\n   Muted Internally: false\n   Min: {low}\n"
        f"   Max: {high}\n   streamVolume:{(low + high) // 2}\n   Current: 2 (speaker): "
        f"{(low + high) // 2}\n   Devices: speaker(2)\n"
        for name, (low, high) in _STREAMS.items()
    )
    return f"Stream volumes (device: index)\n{streams}\nRinger mode: \n- mode (internal) = NORMAL"


@section("wifi")
def wifi(phone: VirtualPhone, arguments: list[str]) -> str:
    """`dumpsys wifi`: whether Wi-Fi is on; it is never connected."""
    state = "disabled" if phone.settings.get("global", "wifi_on") == "0" else "enabled"
    return (
        f"Wi-Fi is {state}\nVerbose logging is off\nmNetworkInfo [type: WIFI[], state: "
        "DISCONNECTED/DISCONNECTED, reason: (unspecified), extra: (none), failover: false, "
        "available: true, roaming: false]\nmWifiInfo SSID: <unknown ssid>, BSSID: <none>, "
        "MAC: 02:00:00:00:00:00, Supplicant state: DISCONNECTED, RSSI: -127\n"
    )


@section("alarm")
def alarm(phone: VirtualPhone, arguments: list[str]) -> str:
    """`dumpsys alarm`: no alarms."""
    up_ms = int(phone.clock.uptime_s() * 1000)
    return (
        f"Current Alarm Manager state:\n  nowELAPSED={up_ms}\n\n  0 pending alarms:\n\n"
        "  Next wakeup alarm: none"
    )


@section("gfxinfo")
def gfxinfo(phone: VirtualPhone, arguments: list[str]) -> str:
    """`dumpsys gfxinfo PACKAGE`: no janky frames."""
    name = next((word for word in arguments if "." in word), "")
    up_ms = int(phone.clock.uptime_s() * 1000)
    head = f"Applications Graphics Acceleration Info:\nUptime: {up_ms} Realtime: {up_ms}\n"
    if name and name not in phone.tasks.running:
        return f"No process found for: {name}"
    percentiles = "".join(f"{percent}th percentile: 5ms\n" for percent in (50, 90, 95, 99))
    return head + "".join(
        f"\n** Graphics info for pid {phone.tasks.pid(package)} [{package}] **\n\n"
        "Stats since: 0ns\nTotal frames rendered: 60\nJanky frames: 0 (0.00%)\n"
        f"{percentiles}Number Missed Vsync: 0\nNumber High input latency: 0\n"
        for package in ([name] if name else sorted(phone.tasks.running))
    )


@section("deviceidle")
def device_idle(phone: VirtualPhone, arguments: list[str]) -> str:
    """`dumpsys deviceidle [force-idle | unforce | enable | disable]`; the phone never idles."""
    answers = {
        "force-idle": "Now forced in to deep idle mode",
        "unforce": "Light state: ACTIVE, deep state: ACTIVE",
        "enable": "Deep idle mode enabled\nLight idle mode enabled",
        "disable": "Deep idle mode disabled\nLight idle mode disabled",
    }
    return answers.get((arguments or [""])[0], "  Settings:\n  mState=ACTIVE\n  mLightState=ACTIVE")
