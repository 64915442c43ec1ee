// An episode that is played here: by taps, swipes, keys and words.
import { fact, get, h, notice, number, post, replace, signed, tone } from "../lib/dom.js";

const LOOK_MS = 150;
const ARROWS = { ArrowUp: "up", ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right" };
/** Of the picture's width: a finger that moves less has tapped. */
const STILL = 0.03;

export async function play(place) {
  const screen = h("div", { class: "stage" });
  const said = h("div");
  const words = h("input", { class: "answer", "aria-label": "answer", autocomplete: "off", placeholder: "an action, such as up or tap(0.2, 0.7)" });
  const form = h("form", { class: "filters", onsubmit: (event) => { event.preventDefault(); answer(words.value); words.value = ""; } },
    words, h("button", { class: "button strong" }, "Answer"), h("button", { class: "button", type: "button", onclick: () => send({}) }, "Stop"));
  const history = h("ol", { class: "turns" });
  const instructions = h("p", { class: "instructions" });
  replace(place, h("h1", {}, "Play"), h("div", { class: "player" },
    h("div", { class: "left" }, screen), h("div", { class: "panel tab" }, instructions, said, form, history)));
  let version = -1;
  let asked = false;

  async function send(parameters) {
    try { await post("/api/play/answer", parameters); await look(); } catch (error) { replace(said, notice(error.message)); }
  }
  const answer = (text) => text.trim() && asked ? send({ text }) : null;

  document.addEventListener("keydown", (event) => {
    if (event.target === words || !ARROWS[event.key] || !asked) return;
    event.preventDefault();
    answer(ARROWS[event.key]);
  });

  async function look() {
    const now = await get("/api/play");
    if (now.version === version) return !now.ended;
    version = now.version;
    asked = now.asked;
    form.hidden = !now.human || Boolean(now.ended);
    instructions.textContent = now.instructions;
    draw(screen, now, version, answer);
    replace(said, now.complaint ? notice(now.complaint) : null,
      now.ended ? end(now.ended) : h("p", { class: "faint" }, !now.human ? "Watching." : asked ? `Your turn: ${now.pictures ? "tap or swipe the picture, " : ""}press an arrow, or type.` : "Wait…"));
    replace(history, now.turns.map((turn) => h("li", {}, h("bdi", {}, turn.reply), " ",
      h("span", { class: turn.error ? "bad" : tone(turn.reward) }, turn.error ?? signed(turn.reward)))));
    history.lastElementChild?.scrollIntoView({ block: "nearest" });
    if (now.human && asked && document.activeElement === document.body) words.focus({ preventScroll: true });
    return !now.ended;
  }
  const go = async () => {
    let more = true;
    try { more = await look(); } catch (error) { replace(said, notice(error.message)); }
    if (more) setTimeout(go, LOOK_MS);
  };
  await go();
}

function draw(screen, now, version, answer) {
  const pictures = Array.from({ length: now.pictures }, (_, i) => {
    const image = h("img", { alt: "screen", draggable: "false", class: now.asked ? "free" : "" });
    image.src = `/api/play/pictures/${i}?v=${version}`;
    listen(image, answer);
    return h("div", { class: "picture" }, image);
  });
  const next = [...pictures, now.words ? h("pre", { class: "shown", dir: "auto" }, now.words) : null];
  // Kept until the new pictures are there: nothing flickers.
  screen.version = version;
  Promise.all(pictures.map((p) => p.firstChild.decode().catch(() => null))).then(() => { if (screen.version === version) replace(screen, next); });
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
    ended.id ? h("p", {}, h("a", { href: `/episodes/${encodeURIComponent(ended.id)}` }, "Look at it, turn by turn")) : null,
  ];
}
