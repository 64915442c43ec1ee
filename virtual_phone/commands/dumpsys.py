"""`dumpsys`: the sections that programs read, with a function per service."""

from collections.abc import Callable

from virtual_phone.apps.system_packages import KEYBOARD_PACKAGE, PACKAGES, SYSTEM_VERSION
from virtual_phone.commands.command_table import command
from virtual_phone.phone_display import DISPLAY_ID
from virtual_phone.shell.command_context import CommandContext
from virtual_phone.system.input_devices import TOUCHSCREEN_NAME
from virtual_phone.system.phone_settings import ADB_KEYBOARD
from virtual_phone.virtual_phone import VirtualPhone

Section = Callable[[VirtualPhone, list[str]], str]
SECTIONS: dict[str, Section] = {}
_WITH_VALUE = ("-t", "-T", "--priority")


def section(name: str) -> Callable[[Section], Section]:
    """Register the function that describes a service."""

    def register(describe: Section) -> Section:
        SECTIONS[name] = describe
        return describe

    return register


@command("dumpsys")
def dumpsys(ctx: CommandContext) -> int:
    """`dumpsys [-l] [-t SECONDS | -T MS] [--priority LEVEL] [service [arguments]]`."""
    words = list(ctx.arguments)
    while words[:1] and words[0] in _WITH_VALUE:
        del words[:2]
    if words[:1] in ([], ["-l"]):
        listed = "".join(f"  {service}\n" for service in sorted(SECTIONS))
        ctx.print(f"Currently running services:\n{listed.rstrip()}")
        for name in sorted(SECTIONS) if not words else ():
            ctx.print(f"{'-' * 79}\nDUMP OF SERVICE {name}:")
            ctx.print(SECTIONS[name](ctx.phone, []).rstrip("\n"))
        return 0
    name, *arguments = words
    describe = SECTIONS.get(name)
    if describe is None:
        return ctx.fail(f"Can't find service: {name}", 0)
    return ctx.print(describe(ctx.phone, arguments).rstrip("\n"))


def _record(phone: VirtualPhone) -> str:
    return f"ActivityRecord{{d4e5f6 u0 {phone.shown.component} t1}}"


@section("window")
def window(phone: VirtualPhone, arguments: list[str]) -> str:
    """`dumpsys window`: the focused window and the state of the lock screen."""
    title = phone.faults.get("focus") or phone.shown.focus
    focus = "null" if title in (None, "null") else f"Window{{a1b2c3 u0 {title}}}"
    locked, awake = phone.power.locked, phone.power.awake
    policy = (
        "WINDOW MANAGER POLICY STATE (dumpsys window policy)\n"
        f"    mShowingLockscreen={boolean(locked)} isStatusBarKeyguard={boolean(locked)}\n"
        f"    mAwake={boolean(awake)} mScreenOnFully={boolean(awake)}\n"
        "    KeyguardServiceDelegate\n"
        f"      showing={boolean(locked)}\n      inputRestricted={boolean(locked)}\n"
        "      occluded=false\n      secure=false\n"
        f"      screenState=SCREEN_STATE_{'ON' if awake else 'OFF'}\n"
        f"      interactiveState=INTERACTIVE_STATE_{'AWAKE' if awake else 'SLEEP'}\n"
    )
    focused = f"  mCurrentFocus={focus}\n  mFocusedApp={_record(phone)}\n"
    # Android 10 moved the focus from the windows section to the displays section.
    is_old = int(phone.properties["ro.build.version.sdk"]) < 29
    ime_targets = "".join(
        f"  ime{name}Target in display# 0 {focus}\n" for name in ("Layering", "Input", "Control")
    )
    front = (
        "WINDOW MANAGER WINDOWS (dumpsys window windows)\n"
        f"  Window #0 {focus}:\n    mDisplayId=0\n    mActivityRecord={_record(phone)}\n"
        f"{focused if is_old else ime_targets}"
    )
    width, height = phone.geometry.size
    other = phone.faults.get("second_display")
    second = (
        ""
        if not other
        else (
            "  Display: mDisplayId=2 (organized)\n    init=720x720 cur=720x720 rot=0\n"
            f"  mCurrentFocus=Window{{b2c3d4 u0 {other}}}\n"
            f"  mFocusedApp=ActivityRecord{{e5f6a7 u0 {other} t9}}\n"
            "  Display: mDisplayId=0 (organized)\n"
        )
    )
    displays = (
        f"WINDOW MANAGER DISPLAY CONTENTS (dumpsys window displays)\n{second}"
        f"    init={'x'.join(map(str, phone.geometry.physical))} cur={width}x{height}"
        f" rot={phone.geometry.rotation}\n{'' if is_old else focused}"
    )
    known = {"policy": policy, "windows": front, "w": front, "displays": displays, "d": displays}
    return known.get((arguments or [""])[0], policy + front + displays)


@section("activity")
def activity(phone: VirtualPhone, arguments: list[str]) -> str:
    """`dumpsys activity`: tasks, resumed activity and processes, even before they are visible."""
    components = phone.tasks.components
    records = [
        f"ActivityRecord{{d4e5f6 u0 {component} t{task}}}"
        for task, component in enumerate(components, 1)
    ]
    tasks = "".join(
        f"  * Task{{a1b2c3 #{task} type={'standard' if task > 1 else 'home'}}}\n"
        f"    * Hist  #0: {records[task - 1]}\n"
        for task in range(len(components), 0, -1)
    )
    resumed = (
        "ACTIVITY MANAGER ACTIVITIES (dumpsys activity activities)\n"
        f"Display #0 (activities from top to bottom):\n{tasks}"
        f"    mResumedActivity: {records[-1]}\n  topResumedActivity={records[-1]}\n"
        f"  ResumedActivity: {records[-1]}\n"
    )
    component = components[-1]
    pid = phone.tasks.pid(component.partition("/")[0])
    top = f"TASK {component.partition('/')[0]} id=1\n  ACTIVITY {component} d4e5f6 pid={pid}\n"
    processes = "".join(
        f"  *APP* UID 10100 ProcessRecord{{a1b2c3 {phone.tasks.pid(name)}:{name}/u0a100}}\n"
        for name in sorted(phone.tasks.running)
    )
    known = {"top": top, "processes": processes, "p": processes}
    return known.get((arguments or [""])[0], resumed)


@section("display")
def display(phone: VirtualPhone, arguments: list[str]) -> str:
    """`dumpsys display`: size and rotation of the screen."""
    width, height = phone.geometry.size
    state = "ON" if phone.power.awake else "OFF"
    turned = phone.geometry.rotation
    frame, size = f"Rect(0, 0 - {width}, {height})", f"{width} x {height}"
    density = phone.geometry.density_override or phone.geometry.physical_density
    info = (
        'DisplayInfo{"Built-in Screen", displayId 0, displayGroupId 0, FLAG_SECURE, FLAG_TRUSTED, '
        f"real {size}, largest app {size}, smallest app {size}, appVsyncOff 1000000, mode 1, "
        f"defaultMode 1, rotation {turned}, state {state}, type INTERNAL, "
        f'uniqueId "local:{DISPLAY_ID}", '
        f"app {size}, density {density} ({density}.0 x {density}.0) dpi, layerStack 0}}"
    )
    return (
        f"  mScreenState={state}\n  Display State={state}\n"
        "  mViewports=[DisplayViewport{type=INTERNAL, valid=true, isActive=true, displayId=0, "
        f"uniqueId='local:{DISPLAY_ID}', physicalPort=0, orientation={turned}, "
        f"logicalFrame={frame}, "
        f"physicalFrame={frame}, deviceWidth={width}, deviceHeight={height}}}]\n"
        f"  mCurrentOrientation={turned}\nLogical Displays: size=1\n  Display 0:\n"
        "    mDisplayId=0\n    mLayerStack=0\n    mPrimaryDisplayDevice=Built-in Screen\n"
        f"    mBaseDisplayInfo={info}\n    mOverrideDisplayInfo={info}\n"
    )


@section("input")
def input_state(phone: VirtualPhone, arguments: list[str]) -> str:
    """`dumpsys input`: the touchscreen, its area and the focused window."""
    (width, height), (across, down) = phone.geometry.size, phone.geometry.physical
    turned, area = phone.geometry.rotation, f"[0, 0, {width}, {height}]"
    focus = phone.shown.focus
    focused = "<none>" if focus is None else f"displayId=0, name='a1b2c3 {focus}'"
    return (
        "INPUT MANAGER (dumpsys input)\n\nEvent Hub State:\n  Devices:\n"
        "    1: gpio-keys\n      Classes: KEYBOARD\n      Path: /dev/input/event0\n"
        f"    2: {TOUCHSCREEN_NAME}\n      Classes: TOUCH | TOUCH_MT\n"
        "      Path: /dev/input/event1\n"
        f"Input Reader State (Nums of device: 2):\n  Device 2: {TOUCHSCREEN_NAME}\n"
        "    Sources: KEYBOARD | TOUCHSCREEN\n    Touch Input Mapper (mode - DIRECT):\n"
        f"      Raw Touch Axes:\n        X: min=0, max={across - 1}, flat=0, fuzz=0\n"
        f"        Y: min=0, max={down - 1}, flat=0, fuzz=0\n"
        f"      Viewport INTERNAL: displayId=0, uniqueId=local:{DISPLAY_ID}, port=0, "
        f"orientation={turned}, "
        f"logicalFrame={area}, physicalFrame={area}, deviceSize=[{width}, {height}], isActive=[1]\n"
        f"      SurfaceWidth: {width}px\n      SurfaceHeight: {height}px\n"
        f"      SurfaceOrientation: {turned}\n"
        f"Input Dispatcher State:\n  DispatchEnabled: true\n  FocusedDisplayId: 0\n"
        f"  FocusedApplications:\n    displayId=0, name='{_record(phone)}', "
        f"dispatchingTimeout=5000ms\n  FocusedWindows:\n    {focused}\n"
    )


@section("location")
def location(phone: VirtualPhone, arguments: list[str]) -> str:
    """`dumpsys location`: whether location is on."""
    enabled = phone.settings.get("secure", "location_mode") != "0"
    return f"Location Manager State:\n  Location Setting: {boolean(enabled)}"


@section("SurfaceFlinger")
def surface_flinger(phone: VirtualPhone, arguments: list[str]) -> str:
    """`dumpsys SurfaceFlinger`: the displays, starting with the second display if there is one."""
    first = f'Display {DISPLAY_ID} (HWC display 0): port=0 pnpId=VRT displayName="VIRTUAL"'
    second = f'Display {DISPLAY_ID + 1} (HWC display 1): port=1 pnpId=VRT displayName="COVER"'
    return f"{second}\n{first}" if phone.faults.get("second_display") else first


@section("power")
def power(phone: VirtualPhone, arguments: list[str]) -> str:
    """`dumpsys power`: whether the phone is awake."""
    awake = phone.power.awake
    stays = phone.settings.get("global", "stay_on_while_plugged_in") not in (None, "0")
    return (
        f"POWER MANAGER (dumpsys power)\n  mWakefulness={'Awake' if awake else 'Asleep'}\n"
        f"  mStayOn={boolean(stays)}\n  mHoldingWakeLockSuspendBlocker={boolean(awake)}\n"
        f"  mHoldingDisplaySuspendBlocker={boolean(awake)}\n"
        f"Wake Locks: size=0\nDisplay Power: state={'ON' if awake else 'OFF'}\n"
    )


@section("battery")
def battery(phone: VirtualPhone, arguments: list[str]) -> str:
    """`dumpsys battery [set NAME VALUE | unplug | reset]`."""
    words = [word for word in arguments if word != "-f"]
    if words[:1] == ["set"] and len(words) == 3:
        try:
            phone.battery.set(words[1], words[2])
        except ValueError as error:
            return str(error)
        return ""
    if words[:1] == ["unplug"]:
        phone.battery.unplug()
        return ""
    if words[:1] == ["reset"]:
        phone.battery.reset()
        return ""
    lines = (f"  {name}: {value}" for name, value in phone.battery.values.items())
    return "Current Battery Service state:\n" + "\n".join(lines)


@section("input_method")
def input_method(phone: VirtualPhone, arguments: list[str]) -> str:
    """`dumpsys input_method`: the selected keyboard."""
    chosen = phone.settings.get("secure", "default_input_method")
    shown = chosen == ADB_KEYBOARD and not phone.is_hidden
    return (
        f"Current Input Method Manager state:\n  mCurMethodId={chosen}\n"
        f"  mInputShown={boolean(shown)}\n  mInteractive={boolean(phone.power.awake)}\n"
    )


@section("package")
def package(phone: VirtualPhone, arguments: list[str]) -> str:
    """`dumpsys package [PACKAGE]`."""
    known = dict.fromkeys((*PACKAGES, KEYBOARD_PACKAGE), SYSTEM_VERSION)
    known |= {name: installed.version for name, installed in phone.tasks.apps.items()}
    selected = [word for word in arguments if not word.startswith("-")]
    names = [name for name in sorted(known) if not selected or name in selected]
    if not names:
        return f"Unable to find package: {' '.join(selected)}"
    return "Packages:\n" + "\n".join(_package(name, *known[name]) for name in names)


def _package(name: str, version_name: str, version_code: int) -> str:
    flags = "SYSTEM HAS_CODE" if name in PACKAGES else "HAS_CODE ALLOW_CLEAR_USER_DATA"
    return (
        f"  Package [{name}] (0a1b2c):\n    userId=10100\n"
        f"    versionCode={version_code} minSdk=24 targetSdk=34\n    versionName={version_name}\n"
        f"    pkgFlags=[ {flags} ]\n    firstInstallTime=2023-11-14 22:13:20\n"
        "    lastUpdateTime=2023-11-14 22:13:20\n"
        "    signatures=PackageSignatures{a1b2c3 version:2, signatures:[d4e5f6], past "
        "signatures:[]}"
    )


@section("meminfo")
def meminfo(phone: VirtualPhone, arguments: list[str]) -> str:
    """`dumpsys meminfo PACKAGE`."""
    name = (arguments or [""])[-1]
    if not name:
        return (
            "Applications Memory Usage (in Kilobytes):\nTotal RAM: 4,000,000K (status normal)\n"
            " Free RAM: 2,000,000K (  500,000K cached pss + 500,000K cached kernel + 1,000,000K "
            "free)\n Used RAM: 2,000,000K (1,500,000K used pss + 500,000K kernel)"
        )
    if name not in phone.tasks.running:
        return f"No process found for: {name}"
    numbers = "    20480    10240     1024        0    16384     8192     8192"
    return f"** MEMINFO in pid {phone.tasks.pid(name)} [{name}] **\n        TOTAL{numbers}"


def boolean(value: bool) -> str:
    """Spell a boolean as Android does."""
    return "true" if value else "false"
