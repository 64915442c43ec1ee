// The episode player: film strip, timeline, screen, and panels for text, tokens, rewards and timings.
import {
  base,
  clock,
  counted,
  fact,
  frame,
  get,
  h,
  icon,
  named,
  notice,
  number,
  outcomeBadge,
  replace,
  seconds,
  signed,
  tone,
} from "../lib/dom.js";
import { note, star } from "../lib/episode_card.js";
import { picture, screenText, textScreen } from "../lib/picture.js";
import { drawCoordinates } from "./coordinates.js";
import { info } from "./info.js";
import { COLORINGS, tokensOf } from "./tokens.js";

const CUT_OFF = "This reply reached rollout.max_new_tokens.";
const TABS = ["Text", "Tokens", "Rewards", "Time", "Info"];
/** Number of lines above which the conversation collapses an observation. */
const FOLDED = 6;
const SPEEDS = [0.5, 1, 2, 4, 8];
const KEYS = [
  ["← →", "previous and next screen"],
  ["space", "play or pause"],
  ["↑ ↓", "faster and slower"],
  ["a", "switch between the screens before (with the touch) and after the action"],
  ["b", "screens before and after the action side by side"],
  ["c", "probabilities of other positions that the action could have touched"],
  ["z, or a click on the screen", "screen at full size"],
  ["p, n", "previous and next episode"],
  ["[ ]", "previous and next sibling (same seed)"],
  ["Home, End", "first and last screen"],
  ["1 to 5", TABS.join(", ").toLowerCase()],
  ["s, e", "start or end the range here; the range plays in a loop"],
  ["Shift + drag on the timeline", "select a range"],
  ["Esc", "all turns"],
  ["?", "show these keys"],
];

export async function episode(place, id) {
  const address = `/api/episodes/${encodeURIComponent(id)}`;
  const player = new Player(place, await get(address));
  player.start();
  return async () => player.follow(await get(`${address}/row`));
}

const NEIGHBORS = [
  ["previous", "‹ Previous", "p"],
  ["next", "Next ›", "n"],
  ["sibling_before", "‹ Sibling", "["],
  ["sibling_after", "Sibling ›", "]"],
];
/** Legend of the timeline's colors. */
const legend = ({ sampled }) =>
  h(
    "ul",
    { class: "legend" },
    [
      ["generate", sampled ? "the model generates" : "the player decides"],
      ["act", "the environment acts"],
    ].map(([name, does]) => h("li", {}, h("span", { class: `dot stage-${name}` }), does)),
  );

async function copy(button) {
  try {
    await navigator.clipboard.writeText(location.href);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not allowed by the browser";
  }
  setTimeout(() => {
    button.textContent = "Copy link";
  }, 2000);
}

class Player {
  constructor(place, record) {
    this.place = place;
    this.record = record;
    this.turns = record.played;
    this.hasScreens = this.turns.some((turn) => turn.frames.length);
    const query = new URLSearchParams(location.search);
    this.after = query.get("after") === "1";
    this.both = query.get("both") === "1";
    this.coordinates = query.get("coordinates") === "1";
    const [tab, color, range] = ["tab", "color", "range"].map((name) => query.get(name));
    const isTab = (name) => name.toLowerCase() === tab?.toLowerCase();
    this.tab = TABS.find(isTab) ?? TABS[0];
    this.color = Object.hasOwn(COLORINGS, color ?? "") ? color : Object.keys(COLORINGS)[0];
    const chosen = this.readRange(range);
    this.range = chosen ?? [0, Math.max(0, this.turns.length - 1)];
    this.turn = this.inside(Number(query.get("turn") ?? this.range[0] + 1) - 1);
    /** Invalid parts of the address: the kind, its value, and what is shown instead. */
    this.invalid = [
      ["turn", query.get("turn"), Number(query.get("turn")) === this.turn + 1, `turn ${this.turn + 1}`],
      ["range", range, chosen, "all turns"],
      ["tab", tab, TABS.some(isTab), this.tab],
      ["color", color, this.color === color, COLORINGS[this.color]],
    ].filter(([, asked, isValid]) => asked && !isValid);
    this.speed = 1;
    this.timer = null;
    this.byKeys = false;
    /** Last pointer position on the strip, and its position when the last screen was chosen. */
    this.pointer = null;
    this.rested = null;
  }

  readRange(text) {
    const found = /^(\d+)-(\d+)$/.exec(text ?? "");
    if (!found) return null;
    const [a, b] = [Number(found[1]) - 1, Number(found[2]) - 1];
    return a >= 0 && a <= b && b < this.turns.length ? [a, b] : null;
  }

  inside(turn) {
    return Number.isFinite(turn)
      ? Math.min(Math.max(Math.round(turn), 0), Math.max(0, this.turns.length - 1))
      : 0;
  }

  start() {
    const record = this.record;
    this.screen = h("div", { class: "stage" });
    this.panel = h("div", { class: "panel" });
    this.star = star(record);
    this.note = note(record);
    this.strip = h("div", { class: "strip", role: "listbox", "aria-label": "screens", tabindex: "0" });
    this.line = h("div", {
      class: "timeline",
      role: "slider",
      "aria-label": "timeline",
      "aria-valuemin": 1,
      "aria-valuemax": this.turns.length,
      tabindex: "0",
    });
    this.peek = h("div", { class: "peek", hidden: true });
    this.controls = h("div", { class: "controls" });
    this.position = h("span", { class: "where" });
    this.help = h(
      "details",
      { class: "keys" },
      h("summary", {}, "Keys"),
      h(
        "dl",
        {},
        KEYS.filter(([key]) => key !== "c" || this.hasScreens).map(([key, does]) => [
          h("dt", {}, h("kbd", {}, key)),
          h("dd", {}, does),
        ]),
      ),
    );
    replace(
      this.place,
      h(
        "div",
        { class: "episode-head" },
        this.star,
        h("h1", {}, h("bdi", {}, record.id)),
        outcomeBadge(record),
        h("span", { class: "big" }, record.void ? "" : signed(record.reward)),
        h(
          "span",
          { class: "leave" },
          NEIGHBORS.map(([kind, words, key]) =>
            record.neighbors[kind]
              ? h(
                  "a",
                  {
                    class: "button",
                    href: `/episodes/${encodeURIComponent(record.neighbors[kind])}`,
                    title: `${words} (${key})`,
                  },
                  words,
                )
              : null,
          ),
          h(
            "button",
            { class: "button", type: "button", onclick: (event) => copy(event.target) },
            "Copy link",
          ),
        ),
      ),
      h(
        "div",
        { class: "player" },
        h("div", { class: "left" }, this.screen),
        h(
          "div",
          { class: "right" },
          record.error ? notice(record.error) : null,
          !this.invalid.length || !this.turns.length
            ? null
            : notice(
                this.invalid
                  .map(([kind, asked, , shown]) => `No ${kind} ${asked.slice(0, 40)}: showing ${shown}.`)
                  .join(" "),
                "plain",
              ),
          this.turns.length
            ? [this.strip, this.line, this.peek, h("div", { class: "under" }, legend(record), this.position), this.controls]
            : notice("The episode ended before its first turn.", "plain"),
          this.panel,
          this.turns.length ? this.help : null,
          h(
            "dl",
            { class: "facts" },
            fact(
              "label",
              h(
                "a",
                { href: `/episodes?label=${encodeURIComponent(record.label)}&step=${record.step}` },
                named(record.label),
              ),
            ),
            fact("step", number(record.step)),
            fact("seed", String(record.seed)),
            fact("group", h("a", { href: `/groups/${encodeURIComponent(record.group)}` }, record.group)),
            fact("turns", number(record.turns)),
            fact("tokens", number(record.tokens)),
            fact("time", seconds(record.seconds)),
            record.truncated_by ? fact("limit reached", record.truncated_by) : null,
            record.problems.length ? fact("problems", record.problems.join("; ")) : null,
            record.device ? fact("phone", record.device) : null,
            fact("ended", clock(record.time)),
            Object.entries(record.metrics).map(([name, value]) => fact(name, number(value))),
          ),
          this.note,
        ),
      ),
    );
    if (!this.turns.length) {
      this.drawScreen();
      this.drawPanel();
      return;
    }
    this.drawStrip();
    this.drawLine();
    this.draw();
    document.addEventListener("keydown", (event) => {
      this.hidePeek();
      this.key(event);
    });
    document.addEventListener("pointerdown", () => {
      this.byKeys = false;
      this.hidePeek();
    });
  }

  /** Show the star and the note that another page has changed. */
  follow(row) {
    this.star.follow(row.starred);
    this.note.follow(row.note);
  }

  // --- position -----------------------------------------------------------------------------

  go(turn, after = false) {
    this.turn = this.inside(turn);
    this.after = after;
    this.draw();
  }

  /** One screen forward or back. Only the last turn has a separate screen after its action. */
  move(by) {
    if (by > 0 && this.turn === this.turns.length - 1) this.go(this.turn, true);
    else if (by < 0 && this.after) this.go(this.turn, false);
    else this.go(this.turn + by);
  }

  remember() {
    const query = new URLSearchParams();
    query.set("turn", String(this.turn + 1));
    if (this.after) query.set("after", "1");
    if (this.both) query.set("both", "1");
    if (this.coordinates) query.set("coordinates", "1");
    if (this.tab !== TABS[0]) query.set("tab", this.tab.toLowerCase());
    if (this.color !== Object.keys(COLORINGS)[0]) query.set("color", this.color);
    const [a, b] = this.range;
    if (!this.isWhole) query.set("range", `${a + 1}-${b + 1}`);
    history.replaceState(null, "", `?${query}`);
  }

  key(event) {
    if (document.querySelector("dialog[open]")) return;
    if (
      /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) ||
      event.ctrlKey ||
      event.metaKey ||
      event.altKey
    )
      return;
    // Space presses a button that was focused with Tab, but plays or pauses after a click.
    if (event.key === "Tab") this.byKeys = true;
    if (event.key === " " && this.byKeys && event.target.closest("button, summary")) return;
    const keys = {
      ArrowRight: () => this.move(1),
      ArrowLeft: () => this.move(-1),
      l: () => this.move(1),
      h: () => this.move(-1),
      Home: () => this.go(this.range[0]),
      End: () => this.go(this.range[1], true),
      " ": () => this.play(!this.timer),
      a: () => this.go(this.turn, !this.after),
      b: () => this.compare(),
      c: () => this.overlay(),
      z: () => this.zoom(this.screen.querySelector(".picture img")),
      p: () => this.leave("previous"),
      n: () => this.leave("next"),
      "[": () => this.leave("sibling_before"),
      "]": () => this.leave("sibling_after"),
      ArrowUp: () => this.faster(1),
      ArrowDown: () => this.faster(-1),
      s: () => this.startHere(),
      e: () => this.endHere(),
      Escape: () => this.allTurns(),
      1: () => this.show(0),
      2: () => this.show(1),
      3: () => this.show(2),
      4: () => this.show(3),
      5: () => this.show(4),
      "?": () => {
        this.help.open = !this.help.open;
        this.help.scrollIntoView({ block: "nearest" });
      },
    };
    if (keys[event.key]) {
      event.preventDefault();
      keys[event.key]();
    }
  }

  show(tab) {
    this.tab = TABS[tab];
    this.drawPanel();
    this.remember();
  }

  compare() {
    this.both = !this.both;
    this.draw();
  }

  /** Show or hide the probabilities of the touch's coordinates. */
  overlay() {
    this.coordinates = this.hasScreens && !this.coordinates;
    this.draw();
  }

  /** Open a neighbor: the previous or next episode, or sibling. */
  leave(kind) {
    const id = this.record.neighbors[kind];
    if (id) location.assign(`${base}/episodes/${encodeURIComponent(id)}`);
  }

  /** Show a screen at full size until a click or Escape. */
  zoom(image) {
    if (!image) return;
    const dialog = h(
      "dialog",
      {
        class: "zoomed",
        "aria-label": "screen at full size",
        onclick: () => dialog.close(),
        onclose: () => dialog.remove(),
      },
      h("img", { src: image.src, alt: "screen" }),
    );
    document.body.append(dialog);
    dialog.showModal();
  }

  where() {
    return `${this.after ? "after" : "before"} turn ${this.turn + 1} of ${this.turns.length}`;
  }

  faster(by) {
    this.speed = SPEEDS[Math.min(Math.max(SPEEDS.indexOf(this.speed) + by, 0), SPEEDS.length - 1)];
    this.drawControls();
  }

  play(on) {
    clearTimeout(this.timer);
    this.timer = null;
    if (on) {
      const next = () => {
        const [first, last] = this.range;
        if (this.turn >= last && this.after) this.go(first);
        else if (this.turn >= last) this.go(last, true);
        else this.go(this.turn + 1);
        this.timer = setTimeout(next, 700 / this.speed);
      };
      this.timer = setTimeout(next, 700 / this.speed);
    }
    this.drawControls();
  }

  setRange(first, last) {
    this.range = [this.inside(Math.min(first, last)), this.inside(Math.max(first, last))];
    if (this.turn < this.range[0] || this.turn > this.range[1]) this.turn = this.range[0];
    this.drawLine();
    this.draw();
  }

  /** A start after the end moves the end to the last turn; an end before the start moves the start to the first. */
  startHere() {
    this.setRange(this.turn, this.turn > this.range[1] ? this.turns.length - 1 : this.range[1]);
  }

  endHere() {
    this.setRange(this.turn < this.range[0] ? 0 : this.range[0], this.turn);
  }

  allTurns() {
    this.setRange(0, this.turns.length - 1);
  }

  get isWhole() {
    return this.range[0] === 0 && this.range[1] === this.turns.length - 1;
  }

  // --- drawing ------------------------------------------------------------------------------

  draw() {
    this.drawScreen();
    this.drawPanel();
    this.drawControls();
    for (const [i, cell] of this.cells.entries()) {
      const current =
        i === (this.after && this.turn === this.turns.length - 1 ? this.turns.length : this.turn);
      cell.setAttribute("aria-selected", current);
      const turn = Math.min(i, this.turns.length - 1); // the end goes with the last turn
      cell.classList.toggle("outside", turn < this.range[0] || turn > this.range[1]);
      if (current) {
        scrollIntoStrip(this.strip, cell);
        this.strip.setAttribute("aria-activedescendant", cell.id);
      }
    }
    this.line.setAttribute("aria-valuenow", this.turn + 1);
    this.line.setAttribute("aria-valuetext", this.where());
    this.cursor.style.left = `${(100 * (this.starts[this.turn] + (this.after ? this.lengths[this.turn] : 0))) / this.length}%`;
    this.remember();
  }

  drawStrip() {
    const cell = (frames, words, title, onclick, value) =>
      h(
        "button",
        {
          class: "cell",
          role: "option",
          id: `screen-${title}`,
          tabindex: "-1",
          "aria-label": title === "end" ? title : `turn ${title}`,
          onclick,
        },
        thumbnail(frames.at(-1), words),
        h("span", { class: `mark ${tone(value ?? 0)}` }),
        h("span", { class: "n" }, title),
      );
    this.cells = [
      ...this.turns.map((turn, i) =>
        cell(turn.frames, turn.shown, String(i + 1), () => this.go(i), turn.advantage ?? turn.reward),
      ),
      cell(
        this.record.final.frames,
        this.record.final.shown,
        "end",
        () => this.go(this.turns.length - 1, true),
        0,
      ),
    ];
    replace(this.strip, this.cells);
    this.cells.forEach((cell, i) => {
      cell.addEventListener("pointerenter", (event) => {
        this.pointer = [event.clientX, event.clientY];
        // Scrolling the strip moves a different cell under a pointer that has not moved.
        if (this.rested?.every((at, axis) => Math.abs(at - this.pointer[axis]) < 1)) return;
        this.rested = null;
        this.preview(i, cell);
      });
      cell.addEventListener("pointermove", (event) => {
        this.pointer = [event.clientX, event.clientY];
      });
      cell.addEventListener("pointerleave", () => {
        this.peek.hidden = true;
      });
    });
  }

  /** Hide the preview until the pointer moves to another cell. */
  hidePeek() {
    this.peek.hidden = true;
    this.rested = this.pointer;
  }

  preview(i, anchor) {
    const turn = this.turns[i];
    const frames = turn ? turn.frames : this.record.final.frames;
    if (!frames.length) return;
    replace(
      this.peek,
      h("img", { src: frame(frames.at(-1), 384), alt: "" }),
      h("p", {}, turn ? h("bdi", {}, turn.reply.slice(0, 160) || "(empty reply)") : "the end"),
    );
    const box = anchor.getBoundingClientRect();
    this.peek.hidden = false;
    const left = Math.min(
      Math.max(8, box.left + box.width / 2 - 110),
      document.documentElement.clientWidth - 228,
    );
    Object.assign(this.peek.style, { left: `${left + scrollX}px`, top: `${box.bottom + scrollY + 8}px` });
  }

  took(turn, i) {
    const parts = [
      ...Object.entries(stages(turn)),
      ...partsOfAct(turn).map(([name, value]) => [`${name} in act`, value]),
    ];
    return `turn ${i + 1}: ${seconds(this.lengths[i])}\n${parts.map(([name, value]) => `${name} ${seconds(value)}`).join("\n")}`;
  }

  drawLine() {
    const took = (turn) => Object.values(stages(turn)).reduce((a, b) => a + b, 0) || 0.001;
    this.lengths = this.turns.map(took);
    this.starts = [];
    let sum = 0;
    for (const length of this.lengths) {
      this.starts.push(sum);
      sum += length;
    }
    this.length = sum;
    const at = (value) => `${(100 * value) / sum}%`;
    this.cursor = h("span", { class: "cursor" });
    const [a, b] = this.range;
    replace(
      this.line,
      this.turns.map((turn, i) => {
        const parts = stages(turn);
        return h(
          "span",
          {
            class: "turn",
            style: { left: at(this.starts[i]), width: at(this.lengths[i]) },
            title: this.took(turn, i),
          },
          Object.entries(parts).map(([name, value]) =>
            h("span", { class: `stage-${name}`, style: { width: `${(100 * value) / this.lengths[i]}%` } }),
          ),
        );
      }),
      h("span", { class: "shade", style: { left: "0", width: at(this.starts[a]) } }),
      h("span", { class: "shade", style: { left: at(this.starts[b] + this.lengths[b]), right: "0" } }),
      this.cursor,
    );
    this.listenToLine();
  }

  listenToLine() {
    if (this.listening) return;
    this.listening = true;
    const turnAt = (event) => {
      const box = this.line.getBoundingClientRect();
      const value = this.length * Math.min(Math.max((event.clientX - box.left) / box.width, 0), 0.99999);
      return this.inside(this.starts.findLastIndex((start) => start <= value));
    };
    let from = null;
    this.line.addEventListener("pointerdown", (event) => {
      this.line.setPointerCapture(event.pointerId);
      from = { turn: turnAt(event), select: event.shiftKey };
      if (!from.select) this.go(from.turn);
    });
    this.line.addEventListener("pointermove", (event) => {
      if (from === null) return;
      const turn = turnAt(event);
      if (from.select) this.setRange(from.turn, turn);
      else if (turn !== this.turn) this.go(turn);
    });
    this.line.addEventListener("pointerup", () => {
      from = null;
    });
    this.line.addEventListener("dblclick", () => this.allTurns());
  }

  drawScreen() {
    const turn = this.turns[this.turn];
    const next = this.turns[this.turn + 1] ?? this.record.final;
    const between = turn ? turn.chunk.slice(0, -1) : [];
    const sides = !turn
      ? [["", this.record.final]]
      : this.both
        ? [
            ["before", turn],
            ...between.map((one, i) => [`after action ${i + 1}`, one]),
            ["after", next],
          ]
        : [["", this.after ? next : turn]];
    replace(
      this.screen,
      sides.map(([name, seen]) =>
        h("div", { class: "side" }, name ? h("p", { class: "faint" }, name) : null, this.side(seen, turn, between)),
      ),
    );
    this.screen.classList.toggle("both", this.both);
    this.screen.classList.toggle("mapped", this.coordinates);
    if (turn && this.coordinates && (this.both || !this.after)) {
      const pictures = this.screen.firstElementChild.querySelectorAll(".picture");
      if (pictures.length) drawCoordinates([...pictures].at(-1), this.record, this.turn);
    }
  }

  side(seen, turn, between) {
    const shown = screenText(seen.shown);
    const frames = seen.frames;
    const mark = seen === turn || between.includes(seen) ? seen.mark : null;
    return [
      frames.map((id, i) =>
        picture(id, i === frames.length - 1 ? mark : null, {
          onclick: (event) => this.zoom(event.target),
        }),
      ),
      shown ? textScreen(shown, !frames.length) : null,
      !frames.length && !shown ? h("p", { class: "missing" }, "Nothing was recorded here.") : null,
    ];
  }

  drawControls() {
    this.position.textContent = this.where();
    const button = (words, label, act, more = {}) =>
      h("button", { class: "button", "aria-label": label, title: label, onclick: act, ...more }, words);
    replace(
      this.controls,
      button(icon("first"), "First (Home)", () => this.go(this.range[0])),
      button(icon("back"), "Previous (←)", () => this.move(-1)),
      button(icon(this.timer ? "pause" : "play"), "Play or pause (space)", () => this.play(!this.timer), {
        class: "button strong",
      }),
      button(icon("on"), "Next (→)", () => this.move(1)),
      button(icon("last"), "Last (End)", () => this.go(this.range[1], true)),
      button(
        this.after ? "Before" : "After",
        "Before or after the action (a)",
        () => this.go(this.turn, !this.after),
        { disabled: this.both },
      ),
      button("Both", "Before and after side by side (b)", () => this.compare(), {
        "aria-pressed": this.both,
      }),
      this.hasScreens
        ? button("Coordinates", "Probabilities of the coordinates (c)", () => this.overlay(), {
            "aria-pressed": this.coordinates,
            disabled: this.after && !this.both,
          })
        : null,
      h(
        "select",
        {
          "aria-label": "Speed (↑ ↓)",
          title: "Speed (↑ ↓)",
          onchange: (event) => {
            this.speed = Number(event.target.value);
          },
        },
        SPEEDS.map((speed) => h("option", { value: speed, selected: speed === this.speed }, `${speed}×`)),
      ),
      h(
        "span",
        { class: "range" },
        button("Range from here", "Start the range here (s)", () => this.startHere()),
        button("Range to here", "End the range here (e)", () => this.endHere()),
        button("All turns", "All turns (Esc)", () => this.allTurns(), { disabled: this.isWhole }),
      ),
    );
  }

  drawPanel() {
    const tabs = h(
      "div",
      { class: "tabs", role: "tablist" },
      TABS.map((tab, i) =>
        h(
          "button",
          {
            role: "tab",
            "aria-selected": tab === this.tab,
            onclick: () => this.show(i),
            title: `(${i + 1})`,
          },
          tab,
        ),
      ),
    );
    const body = h("div", { class: "tab", role: "tabpanel" });
    replace(this.panel, tabs, body);
    scrollIntoStrip(tabs, tabs.querySelector("[aria-selected=true]"));
    const turn = this.turns[this.turn];
    if (!turn) {
      replace(
        body,
        this.record.instructions
          ? h("pre", { dir: "auto" }, this.record.instructions)
          : h("p", { class: "empty" }, "No turn was played."),
      );
      return;
    }
    if (this.tab === "Text") replace(body, this.conversation());
    if (this.tab === "Tokens") this.drawTokens(body);
    if (this.tab === "Rewards") replace(body, this.rewards(turn));
    if (this.tab === "Time") replace(body, this.times());
    if (this.tab === "Info") replace(body, info(this.record, this.turn));
  }

  drawTokens(body) {
    tokensOf(body, this.record, this.turn, this.color, (color) => {
      this.color = color;
      this.drawTokens(body);
      this.remember();
    });
  }

  /** All turns as a conversation, with the current one in view. */
  conversation() {
    const current = this.turn;
    const list = h(
      "ol",
      { class: "conversation", tabindex: "0", "aria-label": "conversation" },
      this.turns.map((turn, i) =>
        h(
          "li",
          {
            "aria-current": i === current ? "true" : null,
            onclick: () => {
              if (i !== this.turn && !String(getSelection())) this.go(i);
            },
          },
          h(
            "span",
            { class: "who" },
            turn.guide === null ? `turn ${i + 1}` : `turn ${i + 1}, by ${turn.guide} (env.start)`,
            turn.frames.length
              ? h("span", { class: "faint" }, `, ${counted(turn.frames.length, "screen")}`)
              : null,
            turn.reply_truncated
              ? [" ", h("span", { class: "badge void", title: CUT_OFF }, "reply cut off")]
              : null,
          ),
          screenText(turn.shown) ? observation(screenText(turn.shown)) : null,
          h("div", { class: "said model" }, h("pre", { dir: "auto" }, turn.reply || "(empty reply)")),
          turn.parse_error ? notice(`Not a valid action: ${turn.parse_error}`) : null,
          i === current
            ? h(
                "dl",
                { class: "facts" },
                turn.chunk.length
                  ? turn.chunk.map((one, k) =>
                      fact(`action ${k + 1}`, `${JSON.stringify(one.action)}, ${signed(one.reward)}`),
                    )
                  : fact("action", turn.action === null ? "none" : JSON.stringify(turn.action)),
                fact("reward", signed(turn.reward)),
                fact("advantage", signed(turn.advantage), tone(turn.advantage)),
                fact("log-probability", number(turn.logprob)),
                fact("tokens", `${number(turn.prompt_tokens)} + ${number(turn.tokens)}`),
              )
            : null,
        ),
      ),
    );
    requestAnimationFrame(() => {
      const shown = list.children[current];
      if (shown) list.scrollTop = shown.offsetTop - 60;
    });
    return [
      this.record.instructions
        ? h(
            "details",
            {},
            h("summary", {}, "Instructions"),
            h("pre", { dir: "auto" }, this.record.instructions),
          )
        : null,
      this.record.preceding
        ? h(
            "details",
            { open: "" },
            h("summary", {}, "Earlier messages"),
            h("pre", { dir: "auto" }, this.record.preceding),
          )
        : null,
      list,
    ];
  }

  rewards(turn) {
    const names = Object.keys(this.record.components);
    const columns = [
      "reward",
      ...(this.turns.some((t) => t.advantage !== null) ? ["advantage"] : []),
      ...names,
    ];
    const value = (t, column) =>
      column in t && !names.includes(column) ? t[column] : (t.components[column] ?? t[column]);
    const most = Object.fromEntries(
      columns.map((c) => [c, Math.max(1e-9, ...this.turns.map((t) => Math.abs(value(t, c) ?? 0)))]),
    );
    return h(
      "div",
      { class: "scroll" },
      h(
        "table",
        { class: "rewards" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", { class: "num" }, "turn"),
            columns.map((c) => h("th", { class: "num" }, h("bdi", {}, c))),
          ),
        ),
        h(
          "tbody",
          {},
          this.turns.map((t, i) =>
            h(
              "tr",
              { "aria-current": t === turn, onclick: () => this.go(i) },
              h("td", { class: "num" }, String(i + 1)),
              columns.map((c) => {
                const v = value(t, c);
                return h(
                  "td",
                  { class: `num ${c === "advantage" ? tone(v) : ""}` },
                  h("span", { class: "meter", style: { width: `${(40 * Math.abs(v ?? 0)) / most[c]}%` } }),
                  signed(v),
                );
              }),
            ),
          ),
        ),
        h(
          "tfoot",
          {},
          h(
            "tr",
            {},
            h("th", { class: "num" }, "sum"),
            columns.map((c) =>
              h("th", { class: "num" }, signed(this.turns.reduce((sum, t) => sum + (value(t, c) ?? 0), 0))),
            ),
          ),
        ),
      ),
    );
  }

  times() {
    const inner = [...new Set(this.turns.flatMap((t) => partsOfAct(t).map(([name]) => name)))];
    const longest = Math.max(...this.lengths);
    const wide = (value) => `${(100 * value) / longest}%`;
    return [
      h(
        "ul",
        { class: "legend" },
        ["generate", "act"].map((name) => h("li", {}, h("span", { class: `dot stage-${name}` }), name)),
        inner.map((name, i) =>
          h(
            "li",
            {},
            h("span", { class: `dot part-${i % 4}` }),
            h("bdi", {}, name),
            h("span", { class: "faint" }, " in act"),
          ),
        ),
      ),
      h(
        "ol",
        { class: "waterfall" },
        this.turns.map((t, i) =>
          h(
            "li",
            { "aria-current": i === this.turn, onclick: () => this.go(i) },
            h("span", { class: "n" }, String(i + 1)),
            h(
              "div",
              {},
              h(
                "span",
                { class: "track" },
                Object.entries(stages(t)).map(([name, value]) =>
                  h("span", {
                    class: `stage-${name}`,
                    style: { width: wide(value) },
                    title: `${name} ${seconds(value)}`,
                  }),
                ),
              ),
              partsOfAct(t).map(([name, value]) =>
                h("span", {
                  class: `part part-${inner.indexOf(name) % 4}`,
                  title: `${name}, in act: ${seconds(value)}`,
                  style: {
                    marginLeft: wide(stages(t).generate),
                    width: wide(Math.min(value, stages(t).act)),
                  },
                }),
              ),
            ),
            h("span", { class: "num" }, seconds(this.lengths[i])),
          ),
        ),
      ),
    ];
  }
}

/** The text of an observation, collapsed if long so that the reply stays in view; it is also shown next to the conversation. */
function observation(text) {
  const lines = text.split("\n");
  const words = h("pre", { dir: "auto" }, text);
  return h(
    "div",
    { class: "said user" },
    lines.length > FOLDED
      ? h("details", {}, h("summary", {}, `Observation, ${counted(lines.length, "line")}`), words)
      : words,
  );
}

/** Seconds by stage; the stages do not overlap. */
const stages = ({ timings }) => ({ generate: timings.generate ?? 0, act: timings.act ?? 0 });

/** The parts of `act` that the environment measured; they may overlap. */
const partsOfAct = ({ timings: { generate, act, ...inner } }) =>
  Object.entries(inner).filter(([, value]) => typeof value === "number" && value > 0);

function thumbnail(id, shown) {
  if (id) return h("img", { src: frame(id, 96), alt: "", loading: "lazy", onerror: missing });
  return h("span", { class: "text-thumb", dir: "auto" }, screenText(shown).slice(0, 80) || "–");
}

function missing(event) {
  event.target.replaceWith(h("span", { class: "text-thumb missing" }, "not recorded"));
}

function scrollIntoStrip(strip, cell) {
  const left = cell.offsetLeft - strip.offsetLeft;
  if (left < strip.scrollLeft || left + cell.offsetWidth > strip.scrollLeft + strip.clientWidth) {
    strip.scrollLeft = left - strip.clientWidth / 2 + cell.offsetWidth / 2;
  }
}
