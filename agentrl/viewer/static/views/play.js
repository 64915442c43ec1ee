// Play games in the browser with touches, keys and text.
import { base, fact, get, h, notice, number, placeholder, post, replace, signed } from "../lib/dom.js";
import { textScreen } from "../lib/picture.js";

const LOOK_MS = 150;
/** Delay after a failed request. */
const AGAIN_MS = 2000;
const HOLD_MS = 500;
const ARROWS = { ArrowLeft: "left", ArrowUp: "up", ArrowDown: "down", ArrowRight: "right" };
const SIGNS = { left: "←", up: "↑", down: "↓", right: "→" };
const SWIPES = {
  left: "swipe(0.70, 0.50, 0.30, 0.50)",
  up: "swipe(0.50, 0.70, 0.50, 0.30)",
  down: "swipe(0.50, 0.30, 0.50, 0.70)",
  right: "swipe(0.30, 0.50, 0.70, 0.50)",
};
const COMPASS = { left: "west", up: "north", down: "south", right: "east" };
const TOUCHES = ["tap", "swipe", "long_press"];
/** Fraction of the image's width below which a movement is a tap. */
const STILL = 0.03;
/** Touch screens, on which focusing the text field would open a keyboard over the image. */
const touch = matchMedia("(pointer: coarse), (max-width: 700px)");

export async function play(place, run) {
  if (!run.plays) {
    replace(
      place,
      h("h1", {}, "Play"),
      placeholder("empty", "No episode is being played", "Start one with agentrl play ENV --browser."),
    );
    return;
  }
  const page = build();
  replace(
    place,
    h("h1", {}, "Play"),
    h(
      "div",
      { class: "player play" },
      h("div", { class: "left" }, page.screen),
      h("div", { class: "panel tab" }, page.panel),
    ),
  );
  let now = { version: -1, inputs: {}, turns: [] };
  let keys = {};

  async function send(path, parameters) {
    try {
      await post(`/api/play/${path}`, parameters);
      await look();
    } catch (error) {
      replace(page.said, notice(error.message));
    }
  }
  const answer = (text) => (text.trim() && now.awaits_input ? send("answer", { text }) : null);
  const undo = () => (now.no_undo ? null : send("undo"));
  page.undo.addEventListener("click", undo);
  page.end.addEventListener("click", () => send("answer"));
  page.form.addEventListener("submit", (event) => {
    event.preventDefault();
    answer(page.words.value);
    page.words.value = "";
    if (!touch.matches) page.words.focus({ preventScroll: true });
  });
  page.another.addEventListener("submit", (event) => {
    event.preventDefault();
    send("game", { seed: page.seed.value });
    page.seed.blur();
  });

  const press = (event) => {
    if (!page.screen.isConnected) {
      document.removeEventListener("keydown", press);
      return;
    }
    if (event.target.closest("input, textarea, select") || event.altKey) return;
    const command = event.ctrlKey || event.metaKey;
    const act =
      event.key.toLowerCase() === (command ? "z" : "u")
        ? undo
        : !command && keys[event.key] && now.awaits_input
          ? () => answer(keys[event.key])
          : null;
    if (!act || !now.human) return;
    event.preventDefault();
    act();
  };
  document.addEventListener("keydown", press);

  async function look() {
    const next = await get("/api/play");
    if (next.version === now.version) return;
    if (JSON.stringify(next.inputs) !== JSON.stringify(now.inputs)) keys = offer(page, next.inputs, answer);
    if (next.seed !== now.seed && document.activeElement !== page.seed)
      page.seed.value = String(next.seed + 1);
    if (next.instructions !== now.instructions) replace(page.rules, rules(next.instructions));
    now = next;
    show(page, now, answer);
  }
  const go = async () => {
    if (!page.screen.isConnected) return;
    let pause = LOOK_MS;
    try {
      await look();
    } catch (error) {
      replace(page.said, notice(error.message));
      pause = AGAIN_MS;
    }
    if (!now.ended || now.awaits_game || now.awaits_input) setTimeout(go, pause);
    else setTimeout(go, AGAIN_MS);
  };
  await go();
}

/** Create the parts of the page, which are kept while their content changes. */
function build() {
  const words = h("input", { class: "answer", "aria-label": "answer", autocomplete: "off" });
  const seed = h("input", {
    type: "number",
    min: "0",
    max: "2147483647",
    required: true,
    "aria-label": "seed",
  });
  const parts = {
    screen: h("div", { class: "stage" }),
    said: h("div"),
    facts: h("dl", { class: "facts" }),
    result: h("div"),
    inputs: h("div", { class: "inputs" }),
    words,
    seed,
    rules: h("div", { class: "rules" }),
    keys: h("dl"),
    form: h("form", { class: "filters" }, words, h("button", { class: "button strong" }, "Answer")),
    undo: h("button", { class: "button", type: "button" }, "Undo ", h("kbd", {}, "U")),
    end: h("button", { class: "button", type: "button" }, "End game"),
    why: h("p", { class: "faint" }),
    held: h("p", { class: "faint" }),
    another: h(
      "form",
      { class: "filters" },
      h("button", { class: "button" }, "New game"),
      h("label", { class: "seed" }, h("span", {}, "seed"), seed),
    ),
    history: h("ol", { class: "turns", tabindex: "0", "aria-label": "turns" }),
  };
  parts.how = h("details", { open: !touch.matches }, h("summary", {}, "How to play"), parts.rules);
  parts.listed = h(
    "details",
    { class: "keys", open: !touch.matches },
    h("summary", {}, "Keys and touches"),
    parts.keys,
  );
  parts.human = h(
    "div",
    {},
    parts.inputs,
    parts.form,
    h("div", { class: "moves" }, parts.undo, parts.end, parts.another),
    parts.why,
    parts.held,
  );
  parts.panel = [parts.said, parts.facts, parts.result, parts.human, parts.how, parts.listed, parts.history];
  return parts;
}

/** Show the inputs of a game, and return the answer of each key. */
function offer(page, inputs, answer) {
  const keys = {};
  const rows = [];
  for (const [key, name] of Object.entries(ARROWS)) {
    const text = inputs[name] ?? inputs[COMPASS[name]];
    if (text) keys[key] = text;
    else if (inputs.swipe) keys[key] = SWIPES[name];
  }
  const buttons = named(inputs);
  buttons.slice(0, 9).forEach((name, i) => {
    keys[String(i + 1)] = inputs[name];
  });
  const arrows = Object.keys(SIGNS).filter((name) => inputs[name]);
  page.words.placeholder = example(inputs);
  replace(
    page.inputs,
    arrows.map((name) =>
      h(
        "button",
        { class: "button", type: "button", "aria-label": name, onclick: () => answer(name) },
        SIGNS[name],
      ),
    ),
    buttons.map((name, i) =>
      h(
        "button",
        { class: "button", type: "button", onclick: () => answer(inputs[name]) },
        h("bdi", {}, name),
        i < 9 && h("kbd", {}, i + 1),
      ),
    ),
  );
  const moves = Object.entries(ARROWS)
    .filter(([key]) => keys[key])
    .map(([, name]) => name);
  const texts = moves.map((name) => inputs[name] ?? inputs[COMPASS[name]]).filter(Boolean);
  if (moves.length)
    rows.push([
      moves.map((name) => SIGNS[name]).join(" "),
      texts.join(", ") || "swipe over the middle of the screen",
    ]);
  if (inputs.tap) rows.push(["click or tap", "tap there"]);
  if (inputs.long_press) rows.push(["hold", "long press there"]);
  if (inputs.swipe) rows.push(["drag", "swipe; Esc cancels"]);
  if (buttons.length)
    rows.push([
      buttons.length > 1 ? `1 to ${Math.min(9, buttons.length)}` : "1",
      "the buttons, in this order",
    ]);
  rows.push(["Enter", "send the text as answer"], ["U, Ctrl+Z", "undo the last turn"]);
  replace(
    page.keys,
    rows.map(([key, does]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, does)]),
  );
  return keys;
}

/** The inputs that have a button with their name. */
const named = (inputs) => Object.keys(inputs).filter((name) => !TOUCHES.includes(name) && !SIGNS[name]);

function show(page, now, answer) {
  const isOver = Boolean(now.ended);
  page.human.hidden = page.listed.hidden = !now.human && !now.awaits_game;
  page.inputs.hidden = page.form.hidden = isOver || !now.human;
  page.undo.hidden = !now.human;
  page.end.hidden = isOver || !now.human;
  page.undo.disabled = Boolean(now.no_undo);
  page.undo.title = now.no_undo || "Undo the last turn";
  page.end.disabled = !now.awaits_input;
  page.another.hidden = !(now.awaits_game || (now.human && now.awaits_input));
  const isPermanent = now.no_undo && !/^(there is no turn|the game is busy)/.test(now.no_undo);
  page.why.textContent = now.human && isPermanent ? `No undo: ${now.no_undo}.` : "";
  page.held.textContent =
    now.human && now.seed >= now.held_out_from
      ? `Seeds from ${now.held_out_from} on are held out for evaluation, so no model is trained on this game.`
      : "";
  page.how.hidden = !now.instructions;
  draw(page.screen, now, answer);
  replace(
    page.said,
    now.input_error ? notice(now.input_error) : null,
    isOver ? null : h("p", { class: "strong" }, status(now)),
  );
  replace(
    page.facts,
    fact("seed", number(now.seed)),
    fact("turn", `${number(now.turns.length)} of ${number(now.max_turns)}`),
    fact("return", signed(sum(now.turns))),
    Object.entries(now.metrics).map(([name, value]) => fact(name, number(value))),
  );
  page.facts.hidden = isOver;
  replace(page.result, isOver ? result(now) : null);
  replace(
    page.history,
    now.turns.map((turn) =>
      h(
        "li",
        {},
        h("bdi", {}, bare(turn.reply)),
        " ",
        h("span", { class: turn.error ? "bad" : "" }, turn.error ?? signed(turn.reward)),
      ),
    ),
  );
  page.history.scrollTop = page.history.scrollHeight; // scroll the list, not the page, or the next tap would miss
}

/** A reply without the tag around it. */
const bare = (reply) => /^<(action|answer)>([^<]*)<\/\1>$/.exec(reply)?.[2] ?? reply;
const sum = (turns) => turns.reduce((total, turn) => total + turn.reward, 0);
const status = (now) =>
  now.repeats
    ? `Undoing: replaying turn ${now.turns.length + 1}…`
    : !now.human
      ? "Watching."
      : now.awaits_input
        ? hint(now.inputs)
        : "Wait…";

/** Describe the inputs that the game accepts. */
function hint(inputs) {
  const arrows = Object.keys(SIGNS).filter((name) => inputs[name]);
  const fingers = [inputs.tap && "tap", inputs.long_press && "hold", inputs.swipe && "swipe"]
    .filter(Boolean)
    .join(" or ");
  const others = [
    fingers && `${fingers} the screen`,
    !arrows.length && named(inputs).length && "choose an action",
    arrows.length &&
      `press ${arrows.length === 4 ? "an arrow" : arrows.map((name) => SIGNS[name]).join(" or ")}`,
  ].filter(Boolean);
  return `Your turn: ${others.length ? `${others.join(", ")}, or type` : "type your answer"}.`;
}

function example(inputs) {
  const named =
    Object.keys(inputs).find((name) => SIGNS[name]) ??
    Object.keys(inputs).find((name) => inputs[name] === name);
  const some = [named, inputs.tap ? "tap(0.2, 0.7)" : inputs.swipe].filter(Boolean);
  return some.length ? `an action, such as ${some.join(" or ")}` : "your answer";
}

/** Render instructions, with lists as lists and answer formats as code. */
function rules(text) {
  const parts = [];
  let items = null;
  for (const line of text.split("\n")) {
    const item = /^\s*(?:[-*•]|\d+[.)])\s+(.*)$/.exec(line);
    if (item) {
      if (!items) parts.push((items = h("ul")));
      items.append(h("li", {}, marked(item[1])));
    } else if (line.trim()) {
      items = null;
      parts.push(h("p", {}, marked(line)));
    }
  }
  return parts;
}
const marked = (line) =>
  line
    .split(/(<(\w+)>.*?<\/\2>|`[^`]+`)/)
    .filter((_, i) => i % 3 !== 2)
    .map((part, i) => (i % 2 ? h("code", {}, part.replaceAll("`", "")) : part));

function draw(screen, now, answer) {
  const touched = !now.ended && TOUCHES.some((name) => now.inputs[name]);
  screen.classList.toggle("touched", touched);
  screen.classList.toggle("asked", Boolean(now.awaits_input));
  if (screen.seen === now.seen) return; // a touch may be in progress
  const pictures = Array.from({ length: now.pictures }, (_, i) => {
    const image = h("img", { alt: "screen", draggable: "false" });
    image.src = `${base}/api/play/pictures/${i}?v=${now.seen}`;
    const picture = h("div", { class: "picture" }, image);
    if (touched) listen(picture, image, now.inputs, answer);
    return picture;
  });
  const next = [...pictures, now.words ? textScreen(now.words, !pictures.length) : null];
  // Keep the old images until the new ones are loaded, so that nothing flickers.
  screen.seen = now.seen;
  Promise.all(pictures.map((p) => p.firstChild.decode().catch(() => null))).then(() => {
    if (screen.seen !== now.seen) return;
    for (const picture of pictures) {
      const image = picture.firstChild;
      image.style.setProperty("--ratio", String(image.naturalWidth / Math.max(1, image.naturalHeight)));
    }
    replace(screen, next);
  });
}

/** Turn pointer movements over an image into touches, with a preview. */
function listen(picture, image, inputs, answer) {
  const preview = h("svg", { "aria-hidden": "true" });
  const label = h("p", { class: "touch", role: "status" });
  let from = null;
  let to = null;
  let timer = null;
  let isHeld = false;
  const at = (event) => {
    const box = image.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height].map((v) =>
      Math.min(Math.max(v, 0), 1).toFixed(2),
    );
  };
  const gesture = () => {
    const isMoved = Math.hypot(to[0] - from[0], to[1] - from[1]) > STILL;
    const name = isMoved ? "swipe" : isHeld && inputs.long_press ? "long_press" : "tap";
    return {
      name,
      points: isMoved ? [from, to] : [from],
      text: `${name}(${(isMoved ? [...from, ...to] : from).join(", ")})`,
    };
  };
  const shown = () => {
    const { name, points, text } = gesture();
    const px = ([x, y]) => [x * image.clientWidth, y * image.clientHeight];
    const [[x1, y1], [x2, y2] = [x1, y1]] = points.map(px);
    replace(
      preview,
      h("line", { class: "trail", x1, y1, x2, y2 }),
      h("circle", { class: "tap", cx: x1, cy: y1, r: name === "long_press" ? 22 : 14 }),
      h("circle", { class: "tap-core", cx: x2, cy: y2, r: 5 }),
    );
    label.textContent = inputs[name] ? text : `${text} is not an action here`;
  };
  const stop = () => {
    from = null;
    clearTimeout(timer);
    preview.remove();
    label.remove();
    document.removeEventListener("keydown", escape);
  };
  const escape = (event) => {
    if (event.key === "Escape") stop();
  };
  image.addEventListener("pointerdown", (event) => {
    if (!event.isPrimary || event.button) return;
    from = to = at(event);
    isHeld = false;
    timer = setTimeout(() => {
      isHeld = true;
      if (from) shown();
    }, HOLD_MS);
    image.setPointerCapture(event.pointerId);
    document.addEventListener("keydown", escape);
    picture.append(preview, label);
    shown();
  });
  image.addEventListener("pointermove", (event) => {
    if (from) {
      to = at(event);
      shown();
    }
  });
  image.addEventListener("pointercancel", stop);
  image.addEventListener("contextmenu", (event) => event.preventDefault());
  image.addEventListener("pointerup", (event) => {
    if (!from) return;
    to = at(event);
    const { name, text } = gesture();
    stop();
    if (inputs[name]) answer(text);
  });
}

/** The result of a game next to the expert's, and a command that trains on it. */
function result(now) {
  const { ended, expert } = now;
  if (!ended.id)
    return ended.error ? notice(ended.error) : notice("No turn was played, so nothing was recorded.", "plain");
  const columns = [[now.human ? "you" : "player", ended], ...(expert?.id ? [["expert", expert]] : [])];
  const names = [...new Set(columns.flatMap(([, game]) => Object.keys(game.metrics)))];
  const row = (name, of) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, h("bdi", {}, name)),
      columns.map(([, game]) => h("td", { class: "num" }, of(game))),
    );
  const why = {
    turns: "no turns are left",
    environment: "its own limit was reached",
    context: "stopped early",
  }[ended.truncated_by];
  return [
    ended.error ? notice(ended.error) : null,
    h(
      "h2",
      {},
      ended.void ? "The game failed" : "Game over",
      ended.void || ended.outcome === "terminated" ? "" : `: ${why ?? ended.outcome}`,
    ),
    h(
      "table",
      { class: "scores" },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          h("td"),
          columns.map(([name, game]) =>
            h(
              "th",
              { class: "num", scope: "col" },
              h("a", { href: `/episodes/${encodeURIComponent(game.id)}` }, name),
            ),
          ),
        ),
      ),
      h(
        "tbody",
        {},
        row("reward", (game) => signed(game.reward)),
        row("turns", (game) => number(game.turns)),
        names.map((name) => row(name, (game) => number(game.metrics[name]))),
      ),
    ),
    expert && !expert.id ? h("p", { class: "faint" }, "The expert could not play this seed.") : null,
    h("p", {}, h("a", { href: `/episodes/${encodeURIComponent(ended.id)}` }, "Replay it turn by turn"), "."),
    now.command && !ended.void
      ? [
          h(
            "h3",
            {},
            `Train on ${now.num_recorded === 1 ? "this game" : `these ${number(now.num_recorded)} games`}`,
          ),
          h("div", { class: "command" }, h("pre", { tabindex: "0" }, now.command), copy(now.command)),
        ]
      : null,
  ];
}

const copy = (text) =>
  h(
    "button",
    {
      class: "button",
      type: "button",
      onclick: async (event) => {
        const button = event.currentTarget;
        try {
          await navigator.clipboard.writeText(text);
          button.textContent = "Copied";
        } catch {
          button.textContent = "Select and copy it";
        }
      },
    },
    "Copy",
  );
