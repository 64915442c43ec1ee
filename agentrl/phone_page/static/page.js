// Shows frames drawn by the server and sends gestures back. It contains no game logic.
"use strict";

const LOST_AFTER_MS = 6500; // three missed beats
const NOTICE_AFTER_MS = 500; // shorter interruptions are not shown
const LONGEST_PAUSE_MS = 2000;
const SMALLEST_SIDE = 64;
const REPLACED = 4001;

const canvas = document.querySelector("canvas");
const notice = document.querySelector("#notice");
const paper = canvas.getContext("2d", { alpha: false });
const page = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) =>
  byte.toString(16).padStart(2, "0"),
).join("");

let socket = null; // null while disconnected
let welcomed = false;
let heard = 0; // when the server was last heard
let pause = 100;
let over = false;
let size = null; // in the screen's pixels: {width, height}
let shown = null; // the frame on the page: {number, left, top, width, height, calibrating}
let finger = null; // a gesture that has begun
let count = 0;
const waiting = []; // gestures that the server has not confirmed, oldest first

function connect() {
  if (over || socket) return;
  const mine = new WebSocket(`ws://${location.host}${location.pathname}/socket`);
  mine.binaryType = "arraybuffer";
  socket = mine;
  heard = performance.now();
  mine.onopen = () => {
    mine.opened = true;
    mine.send(JSON.stringify({ type: "hello", page, ...size, visible: !document.hidden }));
  };
  mine.onmessage = (event) => {
    if (mine !== socket) return;
    heard = performance.now();
    if (typeof event.data === "string") listen(JSON.parse(event.data));
    else draw(event.data, mine).catch(() => lose(mine));
  };
  mine.onclose = (event) => {
    if (event.code === REPLACED) end("This game is open on another page.");
    else lose(mine);
  };
}

function lose(mine) {
  if (mine !== socket) return;
  socket = null;
  welcomed = false;
  mine.close();
  setTimeout(() => {
    if (!welcomed && !over) announce("Connecting …");
  }, NOTICE_AFTER_MS);
  setTimeout(connect, pause * (1 + Math.random() / 2));
  pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
  if (!mine.opened) askWhetherOver();
}

async function askWhetherOver() {
  try {
    const answer = await fetch(location.pathname, { cache: "no-store" });
    if (answer.status === 404) end("This game has ended.");
  } catch {
    /* the server is down; retry later */
  }
}

function end(text) {
  over = true;
  socket = null;
  welcomed = false;
  announce(text);
}

function announce(text) {
  notice.textContent = text;
  notice.hidden = false;
}

function say(message) {
  if (welcomed) socket.send(JSON.stringify(message));
}

function listen(message) {
  if (message.type === "welcome") {
    welcomed = true;
    pause = 100;
    if (message.replaced) console.info("this page has replaced another");
    confirm(message.handled);
    sendSize();
    sendVisible();
    waiting.forEach(say);
  } else if (message.type === "handled") {
    confirm(message.number);
  }
}

function confirm(number) {
  while (waiting.length && waiting[0].number <= number) waiting.shift();
}

async function draw(data, mine) {
  const header = new DataView(data);
  const [number, left, top, width, height, flags] = [0, 4, 8, 12, 16, 20].map((at) => header.getUint32(at));
  const png = new Blob([new Uint8Array(data, 24)], { type: "image/png" });
  const picture = await createImageBitmap(png, { colorSpaceConversion: "none" });
  requestAnimationFrame(() => {
    if (mine !== socket) return;
    if (canvas.width !== picture.width) canvas.width = picture.width;
    if (canvas.height !== picture.height) canvas.height = picture.height;
    paper.drawImage(picture, 0, 0);
    picture.close();
    shown = { number, left, top, width, height, calibrating: flags & 1 };
    notice.hidden = true;
    // The second callback runs once this frame has been handed to the screen.
    requestAnimationFrame(() => {
      if (mine === socket) say({ type: "painted", frame: number });
    });
  });
}

function place(event) {
  const box = canvas.getBoundingClientRect();
  const x = ((event.clientX - box.left) / box.width) * canvas.width;
  const y = ((event.clientY - box.top) / box.height) * canvas.height;
  return [(x - shown.left) / shown.width, (y - shown.top) / shown.height];
}

function press(event) {
  if (!event.isPrimary || event.button !== 0 || !shown || !notice.hidden) return;
  if (finger) finish(event, true); // the previous gesture never ended
  const [x1, y1] = place(event);
  finger = {
    x1,
    y1,
    frame: shown.number,
    calibrating: shown.calibrating,
    since: event.timeStamp,
    at: [event.clientX, event.clientY],
    moved: 0,
    pointer: event.pointerId,
  };
  canvas.setPointerCapture(event.pointerId);
}

function move(event) {
  if (!finger || event.pointerId !== finger.pointer) return;
  const [x, y] = finger.at;
  finger.moved = Math.max(finger.moved, Math.hypot(event.clientX - x, event.clientY - y));
}

function lift(event, cancelled) {
  move(event);
  if (finger && event.pointerId === finger.pointer) finish(event, cancelled);
}

async function finish(event, cancelled) {
  const { x1, y1, frame, moved, since, calibrating } = finger;
  const [x2, y2] = cancelled ? [x1, y1] : place(event);
  finger = null;
  if (calibrating) await fillScreen();
  count += 1;
  const ms = Math.round(event.timeStamp - since);
  const gesture = { type: "gesture", number: count, frame, x1, y1, x2, y2, ms, moved, cancelled };
  waiting.push(gesture);
  say(gesture);
}

// Browsers allow this only during a touch; the game's touches must not do it, as it moves the page.
async function fillScreen() {
  const asked = [
    document.documentElement.requestFullscreen?.({ navigationUI: "hide" }),
    navigator.wakeLock?.request("screen"),
  ];
  const settled = Promise.allSettled(asked); // a refusal changes nothing
  await Promise.race([settled, new Promise((done) => setTimeout(done, LONGEST_PAUSE_MS))]);
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
}

function sendSize() {
  say({ type: "size", ...size });
}

function sendVisible() {
  say({ type: "visible", visible: !document.hidden });
}

function measure(entries) {
  const { contentRect, devicePixelContentBoxSize } = entries[0];
  const [box] = devicePixelContentBoxSize ?? [];
  const width = inPixels(contentRect.width, box?.inlineSize);
  const height = inPixels(contentRect.height, box?.blockSize);
  if (Math.min(width, height) < SMALLEST_SIDE) return;
  size = { width, height };
  sendSize();
  connect();
}

// The browser's own count is exact for fractional ratios; emulated screens do not provide it.
function inPixels(length, counted) {
  const computed = length * devicePixelRatio;
  return Math.abs(computed - counted) <= 1 ? counted : Math.round(computed);
}

canvas.addEventListener("pointerdown", press);
canvas.addEventListener("pointermove", move);
canvas.addEventListener("pointerup", (event) => lift(event, false));
canvas.addEventListener("pointercancel", (event) => lift(event, true));
for (const name of ["contextmenu", "selectstart", "dragstart", "touchmove", "wheel", "gesturestart"])
  document.addEventListener(name, (event) => event.preventDefault(), { passive: false });
document.addEventListener("visibilitychange", () => {
  sendVisible();
  if (!document.hidden && !socket && size) connect();
});
addEventListener("pagehide", () => say({ type: "visible", visible: false }));
addEventListener("pageshow", sendVisible);
new ResizeObserver(measure).observe(canvas, { box: "device-pixel-content-box" });
setInterval(() => {
  if (socket && performance.now() - heard > LOST_AFTER_MS) lose(socket);
}, 1000);
