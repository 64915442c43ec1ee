// What third-party Node clients ask of a phone: runs one client and prints a line per call.
//
//     node node_clients.mjs CLIENT SERIAL ADB ADB_SERVER_PORT   (in a folder with the packages)
//
// A call fails here if it throws, or if its answer is not what a real phone would say.
import crypto from "node:crypto";
import { createRequire } from "node:module";
import path from "node:path";
import { Readable } from "node:stream";
import { isDeepStrictEqual } from "node:util";
import { pathToFileURL } from "node:url";

// The packages are in the working directory, not beside this file.
const require = createRequire(path.join(process.cwd(), "package.json"));
const load = (name) => import(pathToFileURL(require.resolve(name)));

const PACKAGE = "org.agentrl.probe";
const ACTIVITY = `${PACKAGE}.Main`;
const CAT_STATE = `cat /data/local/tmp/agentrl/${PACKAGE}.json`;
const sent = crypto.randomBytes(100_000);
const [client, serial, adb, port] = process.argv.slice(2);
const has =
  (...texts) =>
  (answer) =>
    texts.every((text) => (typeof answer === "string" ? answer : JSON.stringify(answer)).includes(text));

async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks);
}

async function touches(shell, act) {
  const count = async () => JSON.parse(await shell(CAT_STATE)).touches;
  const before = await count();
  await act();
  return (await count()) - before;
}

const isPng = (data) =>
  data.readUInt32BE(16) === 720 && data.readUInt32BE(20) === 1280 && data.length > 2000;

async function* adbkit() {
  const { Adb } = require("@devicefarmer/adbkit");
  const server = Adb.createClient({ host: "127.0.0.1", port: Number(port) });
  const device = server.getDevice(serial);
  const shell = async (script) => (await collect(await device.shell(script))).toString();

  yield ["listDevices", async () => (await server.listDevices()).map((d) => d.id), has(serial)];
  yield ["getState", () => device.getState(), "device"];
  yield ["waitBootComplete", () => device.waitBootComplete(), true];
  yield ["getProperties", () => device.getProperties(), has("Virtual Phone")];
  yield ["getFeatures", () => device.getFeatures(), has("android.hardware.touchscreen")];
  yield ["getPackages", () => device.getPackages(), has(PACKAGE)];
  yield ["isInstalled", () => device.isInstalled(PACKAGE), true];
  yield ["shell", () => shell("echo hello"), "hello\n"];
  const activity = { component: `${PACKAGE}/${ACTIVITY}`, wait: true };
  yield ["startActivity", () => device.startActivity(activity), true];
  yield ["input tap", () => touches(shell, () => shell("input tap 100 200")), 1];
  yield ["screencap", async () => isPng(await collect(await device.screencap())), true];
  const push = async () => {
    const transfer = await device.push(Readable.from([sent], { objectMode: false }), "/sdcard/sent");
    await new Promise((resolve, reject) => transfer.on("end", resolve).on("error", reject));
  };
  yield ["push", push, undefined];
  yield ["stat", async () => (await device.stat("/sdcard/sent")).size, sent.length];
  yield ["readdir", async () => (await device.readdir("/sdcard")).map((e) => e.name), has("sent")];
  yield ["pull", async () => sent.equals(await collect(await device.pull("/sdcard/sent"))), true];
  yield ["forward", () => device.forward(`tcp:${Number(port) + 1}`, "tcp:9"), true];
  yield ["listForwards", () => device.listForwards(), has("tcp:9")];
  yield ["reverse", () => device.reverse("tcp:10", "tcp:9"), true];
  yield ["listReverses", () => device.listReverses(), has("tcp:10")];
  const logcat = async () => {
    const reader = await device.openLogcat({ clear: true });
    const entry = new Promise((resolve) => reader.once("entry", resolve));
    await shell("log -t clients said");
    const { message } = await entry;
    reader.end();
    return message;
  };
  yield ["openLogcat", logcat, "said"];
  const procStat = async () => {
    const stat = await device.openProcStat();
    const loads = await new Promise((resolve) => stat.once("load", resolve));
    stat.end();
    return Object.keys(loads).length;
  };
  yield ["openProcStat", procStat, 2];
  yield ["clear", () => device.clear(PACKAGE), true];
}

async function* tangoAdb() {
  const { AdbServerClient } = await load("@yume-chan/adb");
  const { AdbServerNodeTcpConnector } = await load("@yume-chan/adb-server-node-tcp");
  const { ReadableStream } = await load("@yume-chan/stream-extra");
  const server = new AdbServerClient(
    new AdbServerNodeTcpConnector({ host: "127.0.0.1", port: Number(port) }),
  );
  let device;
  const shell = (script) => device.subprocess.noneProtocol.spawnWaitText(script);
  const text = (stream) => collect(stream).then(String);

  yield ["getDevices", async () => (await server.getDevices()).map((d) => d.serial), has(serial)];
  const connect = async () => (device = await server.createAdb({ serial })).serial;
  yield ["createAdb", connect, serial];
  yield ["getProp", () => device.getProp("ro.product.model"), "Virtual Phone"];
  yield ["noneProtocol.spawnWaitText", () => shell("echo hello"), "hello\n"];
  const both = async () => {
    const done = await device.subprocess.shellProtocol.spawnWaitText("echo out; echo err >&2; exit 3");
    return [done.stdout, done.stderr, done.exitCode];
  };
  yield ["shellProtocol.spawnWaitText", both, ["out\n", "err\n", 3]];
  const typed = async () => {
    const process = await device.subprocess.shellProtocol.spawn("cat");
    const writer = process.stdin.getWriter();
    await writer.write(Buffer.from("typed"));
    await writer.close();
    return text(process.stdout);
  };
  yield ["shellProtocol.spawn", typed, "typed"];
  const pty = async () => {
    const process = await device.subprocess.noneProtocol.pty();
    const writer = process.input.getWriter();
    await writer.write(Buffer.from("echo $((3 * 7)); exit\n"));
    return text(process.output);
  };
  yield ["noneProtocol.pty", pty, has("21")];
  const terminal = async () => {
    const process = await device.subprocess.shellProtocol.pty({ command: "exit 7" });
    await text(process.output);
    return process.exited;
  };
  yield ["shellProtocol.pty", terminal, 7];
  yield ["am start", () => shell(`am start -n ${PACKAGE}/${ACTIVITY}`), has("Starting")];
  yield ["input tap", () => touches(shell, () => shell("input tap 100 200")), 1];
  yield ["framebuffer", async () => (await device.framebuffer()).width, 720];
  const sync = async (act) => {
    const session = await device.sync();
    try {
      return await act(session);
    } finally {
      await session.dispose();
    }
  };
  const file = () => new ReadableStream({ start: (c) => (c.enqueue(new Uint8Array(sent)), c.close()) });
  const write = (session) => session.write({ filename: "/sdcard/sent", file: file() });
  yield ["sync.write", () => sync(write), undefined];
  const size = (session) => session.stat("/sdcard/sent");
  yield ["sync.stat", async () => Number((await sync(size)).size), sent.length];
  const names = async (session) => (await session.readdir("/sdcard")).map((entry) => entry.name);
  yield ["sync.readdir", () => sync(names), has("sent")];
  const read = async (session) => sent.equals(await collect(session.read("/sdcard/sent")));
  yield ["sync.read", () => sync(read), true];
  yield ["rm", () => device.rm("/sdcard/sent"), ""];
  yield ["reverse.addExternal", () => device.reverse.addExternal("tcp:10", "tcp:9"), "tcp:10"];
  yield ["reverse.list", () => device.reverse.list(), has("tcp:10")];
  yield ["reverse.remove", () => device.reverse.remove("tcp:10"), undefined];
  yield ["tcpip.getListenAddresses", () => device.tcpip.getListenAddresses(), has("")];
  yield ["power.powerButton", () => device.power.powerButton(), ""];
  yield ["close", () => device.close(), undefined];
}

async function* mobileMcp() {
  const sdk = path.dirname(require.resolve("@modelcontextprotocol/sdk/client/index.js"));
  const { Client } = require(path.join(sdk, "index.js"));
  const { StdioClientTransport } = require(path.join(sdk, "stdio.js"));
  const server = path.join(
    path.dirname(require.resolve("@mobilenext/mobile-mcp/package.json")),
    "lib/index.js",
  );
  const transport = new StdioClientTransport({
    command: process.execPath,
    args: [server, "--stdio"],
    stderr: "ignore",
    env: {
      ...process.env,
      PATH: `${path.dirname(adb)}:${process.env.PATH}`,
      ANDROID_ADB_SERVER_PORT: port,
      MOBILEMCP_LEGACY_ROBOT: "1", // the one over adb alone; the other installs its own app
      MOBILEMCP_DISABLE_TELEMETRY: "1",
    },
  });
  const mcp = new Client({ name: "test", version: "1" });
  const ask = (name, args = {}) => async () => {
    const answer = await mcp.callTool({ name: `mobile_${name}`, arguments: { device: serial, ...args } });
    const said = answer.content.map((part) => part.text ?? `${part.mimeType} ${part.data.length}`).join("\n");
    if (answer.isError || /^Error|Please fix the issue/.test(said)) throw new Error(said);
    return said;
  };
  const any = has("");
  yield ["connect", () => mcp.connect(transport), undefined];
  yield ["list_available_devices", ask("list_available_devices"), has(serial)];
  yield ["get_screen_size", ask("get_screen_size"), has("720x1280")];
  yield ["list_apps", ask("list_apps"), has(PACKAGE)];
  yield ["launch_app", ask("launch_app", { packageName: PACKAGE }), has(PACKAGE)];
  yield ["list_elements_on_screen", ask("list_elements_on_screen"), has("[")];
  const at = { x: 100, y: 200 };
  yield ["click_on_screen_at_coordinates", ask("click_on_screen_at_coordinates", at), has("100")];
  yield ["double_tap_on_screen", ask("double_tap_on_screen", at), has("100")];
  yield ["long_press_on_screen_at_coordinates", ask("long_press_on_screen_at_coordinates", at), any];
  yield ["swipe_on_screen", ask("swipe_on_screen", { direction: "up" }), has("up")];
  yield ["type_keys", ask("type_keys", { text: "hello world", submit: true }), has("hello world")];
  yield ["press_button", ask("press_button", { button: "BACK" }), has("BACK")];
  yield ["take_screenshot", ask("take_screenshot"), has("image/")];
  yield ["get_orientation", ask("get_orientation"), has("portrait")];
  yield ["set_orientation", ask("set_orientation", { orientation: "landscape" }), has("landscape")];
  yield ["open_url", ask("open_url", { url: "http://127.0.0.1:1/" }), has("127.0.0.1")];
  yield ["terminate_app", ask("terminate_app", { packageName: PACKAGE }), has(PACKAGE)];
  yield ["close", () => mcp.close(), undefined];
}

const clients = {
  "@devicefarmer/adbkit": adbkit,
  "@yume-chan/adb": tangoAdb,
  "@mobilenext/mobile-mcp": mobileMcp,
};

for await (const [call, act, expected] of clients[client]()) {
  const start = Date.now();
  let refusal = "";
  try {
    let timer;
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error("no answer within 10 s")), 10_000);
    });
    const answer = await Promise.race([act(), late]).finally(() => clearTimeout(timer));
    const isRight =
      typeof expected === "function" ? expected(answer) : isDeepStrictEqual(answer, expected);
    if (!isRight) refusal = `answered ${JSON.stringify(answer)}`;
  } catch (error) {
    refusal = String(error?.stack ?? error);
  }
  refusal = refusal.replace(/\s+/g, " ").slice(0, 300);
  console.log(JSON.stringify({ call, refusal, seconds: (Date.now() - start) / 1000 }));
}
process.exit(0);
