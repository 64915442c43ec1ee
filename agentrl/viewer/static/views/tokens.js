// The sampled tokens of a turn, colored by log-probability, advantage or weight version.
import { capitalized, counted, get, h, notice, number, replace, share, signed } from "../lib/dom.js";

const cache = new Map();
/** The colorings by their name in the address; the first is the default. */
export const COLORINGS = { logprob: "log-probability", advantage: "advantage", version: "version" };

export const NOT_RECORDED =
  "The run did not record alternative tokens. Set rollout.top_logprobs=10 to record them.";

/** Load the prompt and reply of a turn, token by token. */
export async function turnTokens(record, turn) {
  const path = `/api/episodes/${encodeURIComponent(record.id)}/turns/${turn + 1}`;
  if (!cache.has(path)) cache.set(path, await get(path));
  return cache.get(path);
}

export async function tokensOf(place, record, turn, coloring, choose) {
  let found;
  try {
    const loading = setTimeout(() => replace(place, h("p", { class: "loading" }, "Loading…")), 50);
    found = await turnTokens(record, turn).finally(() => clearTimeout(loading));
  } catch (error) {
    replace(place, notice(error.message));
    return;
  }
  const shown = h("div", { class: "alternatives", role: "tooltip", id: "alternatives", popover: "manual" });
  replace(
    place,
    shown,
    h(
      "div",
      { class: "choose" },
      Object.entries(COLORINGS).map(([name, label]) =>
        h(
          "button",
          { class: "button quiet", "aria-pressed": name === coloring, onclick: () => choose(name) },
          capitalized(label),
        ),
      ),
    ),
    found.reply.length
      ? h(
          "p",
          { class: "tokens", dir: "ltr" },
          found.reply.map((token) => piece(token, record.played[turn], coloring, shown)),
        )
      : h("p", { class: "empty" }, "There are no tokens because a person or a script played."),
    found.note && found.reply.length ? h("p", { class: "faint" }, found.note) : null,
    found.reply.length && !found.has_top ? h("p", { class: "faint" }, NOT_RECORDED) : null,
    found.reply.length ? legend(found.reply, record.played[turn], coloring) : null,
    found.prompt.length
      ? h(
          "details",
          {},
          h(
            "summary",
            {},
            `Prompt, ${counted(
              found.prompt.reduce((n, t) => n + t.count, 0),
              "token",
            )}`,
          ),
          h(
            "p",
            { class: "tokens prompt", dir: "ltr" },
            found.prompt.map((t) =>
              h(
                "span",
                { class: "token", title: `id ${t.id}` },
                t.text,
                t.count > 1 ? h("sub", {}, `×${t.count}`) : null,
              ),
            ),
          ),
        )
      : null,
  );
}

/** A token's own advantage if recorded, otherwise its turn's. */
const advantageOf = (token, turn) => token.advantage ?? turn.advantage;

function level(token, turn, coloring) {
  const strength =
    coloring === "logprob"
      ? Math.min(4, Math.floor(-token.logprob))
      : coloring === "advantage"
        ? Math.min(4, Math.ceil(2 * Math.abs(advantageOf(token, turn) ?? 0)))
        : token.version % 5;
  const kind = coloring === "advantage" ? (advantageOf(token, turn) > 0 ? "up" : "down") : coloring;
  return `${kind}-${Math.max(0, strength)}`;
}

function piece(token, turn, coloring, shown) {
  const advantage = advantageOf(token, turn);
  const about = `id ${token.id}, log-probability ${number(token.logprob)}, version ${token.version}${advantage === null ? "" : `, advantage ${signed(advantage)}`}`;
  const piece = h(
    "span",
    { class: `token ${level(token, turn, coloring)}`, title: token.top.length ? null : about, tabindex: "0" },
    token.text,
  );
  if (!token.top.length) return piece;
  const show = () => {
    replace(shown, ...alternatives(token), h("p", { class: "faint" }, about));
    shown.showPopover();
    const box = piece.getClientRects()[0];
    const left = Math.min(box.left, document.documentElement.clientWidth - shown.offsetWidth - 8);
    const isBelow = box.bottom + shown.offsetHeight + 4 <= innerHeight || box.top < shown.offsetHeight + 4;
    const top = isBelow ? box.bottom + 4 : box.top - shown.offsetHeight - 4;
    Object.assign(shown.style, { left: `${Math.max(8, left) + scrollX}px`, top: `${top + scrollY}px` });
    piece.setAttribute("aria-describedby", shown.id);
  };
  const hide = () => {
    shown.hidePopover();
    piece.removeAttribute("aria-describedby");
  };
  for (const name of ["pointerenter", "focus"]) piece.addEventListener(name, show);
  for (const name of ["pointerleave", "blur"]) piece.addEventListener(name, hide);
  piece.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && shown.matches(":popover-open")) {
      event.stopPropagation();
      hide();
    }
  });
  return piece;
}

/** The most probable tokens, the sampled one, and the remaining probability of all others. */
function alternatives(token) {
  const isListed = token.top.some((other) => other.id === token.id);
  const listed = isListed ? token.top : [...token.top, token];
  const rest = Math.max(0, 1 - listed.reduce((sum, other) => sum + Math.exp(other.logprob), 0));
  const line = (name, probability, kind) =>
    h(
      "li",
      { class: kind },
      h("span", { class: "name", dir: "ltr" }, name),
      h(
        "span",
        { class: "track" },
        h("span", { class: "fill", style: { width: `${100 * Math.min(1, probability)}%` } }),
      ),
      h("span", { class: "num" }, chance(probability)),
    );
  return [
    h(
      "ol",
      {},
      listed.map((other) =>
        line(
          h("code", {}, visible(other.text)),
          Math.exp(other.logprob),
          other.id === token.id ? "sampled" : null,
        ),
      ),
      line("all others", rest, "faint"),
    ),
  ];
}

const chance = (probability) => (probability < 0.0001 ? "< 0.01%" : share(probability));
/** A token's text with its spaces and line breaks marked. */
const visible = (text) => text.replaceAll(" ", "␣").replaceAll("\n", "↵").replaceAll("\t", "⇥") || "(empty)";

const NATS = ["above -1", "-1 to -2", "-2 to -3", "-3 to -4", "below -4"];

function legend(reply, turn, coloring) {
  const sum = reply.reduce((total, token) => total + token.logprob, 0);
  const versions = [...new Set(reply.map((token) => token.version))];
  const key =
    coloring === "logprob"
      ? NATS.map((words, level) => [words, `logprob-${level}`])
      : coloring === "version"
        ? versions.map((version) => [`version ${version}`, `version-${version % 5}`])
        : [
            [
              `${reply[0].advantage === null ? "the whole turn" : "the turn's mean"}: ${signed(turn.advantage)}`,
              level({ advantage: turn.advantage }, turn, coloring),
            ],
          ];
  return [
    h(
      "ul",
      { class: "legend" },
      key.map(([words, kind]) => h("li", {}, h("span", { class: `dot ${kind}` }), words)),
    ),
    h(
      "p",
      { class: "faint" },
      `${counted(reply.length, "token")}, log-probability ${number(sum)} in total, sampled by weight version ${versions.join(", ")}`,
    ),
  ];
}
