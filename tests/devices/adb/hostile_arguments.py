"""Strings that try to be more than the one argument that they are."""

QUOTES = [
    "'", '"', "''", '""', "'''", "`", "\\", "\\\\", "\\'", '\\"', "'\\''", "a\\", "it's",
    "'\"'\"'", "';reboot;'", '";reboot;"', "'; reboot; echo '", '"; reboot; echo "',
    "'$(reboot)'", "\"`reboot`\"", "$'reboot'", "$'\\x3breboot'", "$\"reboot\"", "'\n'",
    "\\\nreboot",
]  # fmt: skip
COMMANDS = [
    ";reboot", "; reboot", ";;reboot", "&reboot", "& reboot", "&&reboot", "&& reboot", "|reboot",
    "| reboot", "||reboot", "|| reboot", "|&reboot", "\nreboot", "\nreboot\n", "\rreboot\r",
    "\r\nreboot\r\n", "a\n\nreboot", "(reboot)", "{ reboot; }", "((1+1))", "[[ a ]]", "! reboot",
    "reboot #", "# reboot", "#", "true; reboot", "false || reboot", "; exit 0", "exit",
    "exec reboot", "if true; then reboot; fi", "while :; do :; done", "f() { reboot; }; f",
    ":(){ :|:& };:", "eval reboot", ". /sdcard/x", "trap reboot EXIT",
    "case a in a) reboot;; esac",
]  # fmt: skip
EXPANSIONS = [
    "$(reboot)", "$( reboot )", "`reboot`", "` reboot `", "$(echo $(reboot))", "$((1+1))",
    "$[1+1]", "$HOME", "${HOME}", "${HOME:-reboot}", "${IFS}", "${IFS}reboot", "a${IFS}b",
    "$IFS$9reboot", "$?", "$$", "$!", "$0", "$@", "$*", "$#", "$-", "${!x}", "${x:=$(reboot)}",
    "~", "~root", "~/x", "*", "?", "/*", "[a-z]", "{a,b}", "{1..9}", "a*b?c", "!", "!!",
    "!reboot", "!$", "^a^b", "PATH=/x reboot", "IFS=x", "A=1",
]  # fmt: skip
REDIRECTIONS = [
    "> /sdcard/x", ">/sdcard/x", ">> /sdcard/x", "< /etc/passwd", "<<EOF", "<<<x", "2>&1",
    "2>/dev/null", "&>/sdcard/x", ">&2", "<(reboot)", ">(reboot)", "| tee /sdcard/x",
    "</dev/null",
]  # fmt: skip
OPTIONS = [
    "-n", "-e", "-", "--", "--help", "-version", "--es", "--ez a true",
    "-a android.intent.action.REBOOT", "--user 0", "-c", "-S", "-W", "-n org.agentrl.probe/.Main",
    "-- reboot", "-p", "-rf /",
]  # fmt: skip
PERCENT = [
    "%s", "%%s", "%", "%%", "%n", "%d", "%x%x%x", "%1$s", "%0a", "%20reboot", "%00", "a%sb",
    "%s%s", "% s", "{0}", "{x.__class__}", "\\x41", "\\u0041", "\\n", "\\0", "\\c", "&amp;",
    "&#59;reboot",
]  # fmt: skip
CONTROL = [
    "\x01", "\x03", "\x04", "\x07", "\x08", "\x08\x08\x08reboot", "\t", "\v", "\f", "\x1a",
    "\x1b", "\x1b[2J", "\x1b]0;reboot\x07", "\x1bP1$tx\x1b\\", "\x7f", "\x80", "\x9b2J", "", " ",
    "  ", "a  b", " a ", "\ta\t", "\n", "\n\n", "\r", "\x1c\x1d\x1e\x1f", "\x03\x01\x02\x03",
]  # fmt: skip
UNICODE = [
    "\u2019; reboot", "\u2018reboot\u2019", "\u201creboot\u201d", "\uff07;reboot;\uff07",
    "\uff1breboot", "\uff5creboot", "\uff06\uff06reboot", "\uff04(reboot)", "\uff40reboot\uff40",
    "\u037ereboot", "\u202ereboot", "\u2066reboot\u2069", "\u200breboot", "\u200d",
    "\ufeffreboot", "\u2028reboot", "\u2029reboot", "\u0085reboot", "\u00a0reboot",
    "\u3000reboot", "\u00adreboot", "e\u0301", "\u00e9", "\u0130i", "\u1e9e",
    "\u0430\u0440\u0440", "\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\U0001f1e9\U0001f1ea", "\u4f60\u597d", "\u0645\u0631\u062d\u0628\u0627",
    "\u0e2a\u0e27\u0e31", "z\u0351\u036b\u0343\u036a\u0302", "\ufffd", "\ufffe", "\U0010ffff",
    "\ue000", "\u212a",
]  # fmt: skip
PROTOCOL = [
    "shell:reboot", "exec:reboot", "host:kill", "000Chost:version", "OKAY", "FAIL0004no",
    "X4EXIT:0", "==0000000000000000==0", "echo ==x==$?", "</action>",
    "<action>tap(0, 0)</action>", "\"}", "{\"touches\": 9}", "../../etc/passwd",
    "/data/local/tmp/agentrl/../x", "u0 org.other/.Main}", "Window{a u0 b/c}",
    "mCurrentFocus=Window{a u0 org.other/.Main}", "Error: no", "Error",
]  # fmt: skip
LONG = [
    "x" * 5000, "'" * 5000, ";reboot" * 500, "$(" * 2000, "\\" * 5000, "\u00e9" * 5000,
    " " * 3000, "a\n" * 2000, "%s" * 50,
]  # fmt: skip
NEVER = ["\0", "a\0b", "\0reboot", "a;\0reboot", "\ud800", "a\udfff", "\udc80", "\ud83d"]
"""Arguments that no shell accepts and no keyboard types."""
TOO_LONG = ["y" * 70_000, "'" * 20_000]
"""No service can be asked for in so many bytes."""

HOSTILE = [
    *QUOTES, *COMMANDS, *EXPANSIONS, *REDIRECTIONS, *OPTIONS, *PERCENT, *CONTROL, *UNICODE,
    *PROTOCOL, *LONG,
]  # fmt: skip
