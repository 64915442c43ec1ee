// Play an episode in the browser with taps, swipes, keys and text.
import { base, fact, get, h, notice, number, post, replace, signed, tone } from "../lib/dom.js";

const LOOK_MS = 150;
/** Delay after a failed request. */
const AGAIN_MS = 2000;
const ARROWS = { ArrowUp: "up", ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right" };
const SIGNS = { left: "←", up: "↑", down: "↓", right: "→" };
/** Fraction of the image's width: a shorter movement is a tap. */
const STILL = 0.03;
/** On touch screens, focusing the text field would open a keyboard over the image. */
const touch = matchMedia("(pointer: coarse), (max-width: 700px)");

export async function play(place, run) {
  if (!run.plays) {
    replace(place, h("h1", {}, "Play"), h("p", { class: "empty" }, "No episode is being played. Start one with ", h("code", {}, "agentrl play ENV --browser"), "."));
    return;
  }
  const screen = h("div", { class: "stage" });
  const said = h("div");
  const words = h("input", { class: "answer", "aria-label": "answer", autocomplete: "off", });
  const form = h("form", { class: "filters", onsubmit: (event) => {
    event.preventDefault();
    answer(words.value);
    words.value = "";
    if (!touch.matches) words.focus({ preventScroll: true });
  } }, words, h("button", { class: "button strong" }, "Answer"), h("button", { class: "button", type: "button", onclick: () => send({}) }, "Stop"));
  const arrows = h("div", { class: "choose" });
  const history = h("ol", { class: "turns", tabindex: "0" });
  const instructions = h("p", { class: "instructions" });
  replace(place, h("h1", {}, "Play"), h("div", { class: "player" },
    h("div", { class: "left" }, screen), h("div", { class: "panel tab" }, instructions, said, arrows, form, history)));
  let version = -1;
  let asked = false;
  let ways = [];

  async function send(parameters) {
    try { await post("/api/play/answer", parameters); await look(); } catch (error) { replace(said, notice(error.message)); }
  }
  const answer = (text) => text.trim() && asked ? send({ text }) : null;

  document.addEventListener("keydown", (event) => {
    if (event.target === words || !ways.includes(ARROWS[event.key]) || !asked) return;
    event.preventDefault();
    answer(ARROWS[event.key]);
  });

  async function look() {
    const now = await get("/api/play");
    if (now.version === version) return !now.ended;
    version = now.version;
    asked = now.awaits_input;
    if (ways.join() !== now.ways.join()) {
      ways = now.ways;
      words.placeholder = example(ways);
      replace(arrows, Object.keys(SIGNS).filter((name) => ways.includes(name)).map((name) =>
        h("button", { class: "button", "aria-label": name, onclick: () => answer(name) }, SIGNS[name])));
    }
    form.hidden = arrows.hidden = !now.human || Boolean(now.ended);
    instructions.textContent = now.instructions;
    draw(screen, now, answer);
    replace(said, now.input_error ? notice(now.input_error) : null,
      now.ended ? end(now.ended) : h("p", { class: "faint" }, !now.human ? "Watching." : asked ? hint(ways) : "Wait…"));
    replace(history, now.turns.map((turn) => h("li", {}, h("bdi", {}, turn.reply), " ",
      h("span", { class: turn.error ? "bad" : tone(turn.reward) }, turn.error ?? signed(turn.reward)))));
    history.scrollTop = history.scrollHeight; // scroll the list, not the page, or the next tap would miss
    return !now.ended;
  }
  const go = async () => {
    let pause = LOOK_MS;
    try { if (!await look()) return; } catch (error) { replace(said, notice(error.message)); pause = AGAIN_MS; }
    setTimeout(go, pause);
  };
  await go();
}

/** The inputs that the game accepts; `ways` are those besides typing. */
function hint(ways) {
  const arrows = Object.keys(SIGNS).filter((name) => ways.includes(name));
  const fingers = ["tap", "swipe"].filter((name) => ways.includes(name)).join(" or ");
  const others = [
    fingers && `${fingers} the screen`,
    arrows.length && `press ${arrows.length === 4 ? "an arrow" : arrows.map((name) => SIGNS[name]).join(" or ")}`,
  ].filter(Boolean);
  return `Your turn: ${others.length ? `${others.join(", ")}, or type` : "type your answer"}.`;
}

const example = (ways) => {
  const some = [ways.find((name) => SIGNS[name]), ways.includes("tap") ? "tap(0.2, 0.7)" : ways.includes("swipe") ? "swipe(0.5, 0.7, 0.5, 0.3)" : null].filter(Boolean);
  return some.length ? `an action, such as ${some.join(" or ")}` : "your answer";
};

function draw(screen, now, answer) {
  const touched = !now.ended && (now.ways.includes("tap") || now.ways.includes("swipe"));
  screen.classList.toggle("touched", touched);
  screen.classList.toggle("asked", now.awaits_input);
  if (screen.seen === now.seen) return; // a touch may be in progress
  const pictures = Array.from({ length: now.pictures }, (_, i) => {
    const image = h("img", { alt: "screen", draggable: "false" });
    image.src = `${base}/api/play/pictures/${i}?v=${now.seen}`;
    if (touched) listen(image, answer);
    return h("div", { class: "picture" }, image);
  });
  const next = [...pictures, now.words ? h("pre", { class: "shown", dir: "auto" }, now.words) : null];
  // The old images stay until the new ones are loaded, so that nothing flickers.
  screen.seen = now.seen;
  Promise.all(pictures.map((p) => p.firstChild.decode().catch(() => null))).then(() => { if (screen.seen === now.seen) replace(screen, next); });
}

function listen(image, answer) {
  let from = null;
  const at = (event) => {
    const box = image.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height].map((v) => Math.min(Math.max(v, 0), 1));
  };
  image.addEventListener("pointerdown", (event) => { from = at(event); image.setPointerCapture(event.pointerId); });
  image.addEventListener("pointerup", (event) => {
    if (!from) return;
    const to = at(event);
    const [x1, y1, x2, y2] = [...from, ...to].map((v) => v.toFixed(2));
    const moved = Math.hypot(to[0] - from[0], to[1] - from[1]) > STILL;
    from = null;
    answer(moved ? `swipe(${x1}, ${y1}, ${x2}, ${y2})` : `tap(${x1}, ${y1})`);
  });
}

function end(ended) {
  return [
    ended.error ? notice(ended.error) : null,
    ended.id ? h("dl", { class: "facts" }, fact("ended", ended.outcome), fact("reward", signed(ended.total), tone(ended.total)),
      Object.entries(ended.metrics).map(([name, value]) => fact(name, number(value)))) : null,
    ended.id ? h("p", {}, h("a", { href: `/episodes/${encodeURIComponent(ended.id)}` }, "Replay it turn by turn")) : null,
  ];
}
