// The sampled tokens of a turn, coloured by what is known of each.
import { get, h, notice, number, replace, signed } from "../lib/dom.js";

const kept = new Map();
/** By their name in the address; the first is that of one that names none. */
export const COLOURINGS = { logprob: "log-probability", advantage: "advantage", version: "version" };

export async function tokensOf(place, told, turn, colouring, choose) {
  const path = `/api/episodes/${encodeURIComponent(told.id)}/turns/${turn + 1}`;
  if (!kept.has(path)) {
    replace(place, h("p", { class: "loading" }, "Loading…"));
    try {
      kept.set(path, await get(path));
    } catch (error) {
      replace(place, notice(error.message));
      return;
    }
  }
  const found = kept.get(path);
  replace(place,
    h("div", { class: "choose" }, Object.entries(COLOURINGS).map(([name, label]) => h("button", {
      class: "button quiet", "aria-pressed": name === colouring, onclick: () => choose(name),
    }, label))),
    found.reply.length ? h("p", { class: "tokens", dir: "ltr" }, found.reply.map((token) => piece(token, told.played[turn], colouring))) :
      h("p", { class: "empty" }, "A person or a script answered: there are no tokens."),
    found.note && found.reply.length ? h("p", { class: "faint" }, found.note) : null,
    found.reply.length ? legend(found.reply, told.played[turn], colouring) : null,
    found.prompt.length ? h("details", {}, h("summary", {}, `Prompt, ${number(found.prompt.reduce((n, t) => n + t.count, 0))} tokens`),
      h("p", { class: "tokens prompt", dir: "ltr" }, found.prompt.map((t) => h("span", { class: "token", title: `id ${t.id}` }, t.text, t.count > 1 ? h("sub", {}, `×${t.count}`) : null)))) : null);
}

/** What a token deserved, where it is told; else what its turn did. */
const worth = (token, turn) => token.advantage ?? turn.advantage;

function level(token, turn, colouring) {
  const strength = colouring === "logprob" ? Math.min(4, Math.floor(-token.logprob))
    : colouring === "advantage" ? Math.min(4, Math.ceil(2 * Math.abs(worth(token, turn) ?? 0))) : token.version % 5;
  const kind = colouring === "advantage" ? (worth(token, turn) > 0 ? "up" : "down") : colouring;
  return `${kind}-${Math.max(0, strength)}`;
}

function piece(token, turn, colouring) {
  const title = `id ${token.id}, log-probability ${number(token.logprob)}, version ${token.version}, advantage ${signed(worth(token, turn))}`;
  return h("span", { class: `token ${level(token, turn, colouring)}`, title, tabindex: "0" }, token.text);
}

const NATS = ["above -1", "-1 to -2", "-2 to -3", "-3 to -4", "below -4"];

function legend(reply, turn, colouring) {
  const sum = reply.reduce((total, token) => total + token.logprob, 0);
  const versions = [...new Set(reply.map((token) => token.version))];
  const key = colouring === "logprob" ? NATS.map((words, level) => [words, `logprob-${level}`])
    : colouring === "version" ? versions.map((version) => [`version ${version}`, `version-${version % 5}`])
    : [[`${reply[0].advantage === null ? "the whole turn" : "the turn's mean"}: ${signed(turn.advantage)}`, level({ advantage: turn.advantage }, turn, colouring)]];
  return [
    h("ul", { class: "legend" }, key.map(([words, kind]) => h("li", {}, h("span", { class: `dot ${kind}` }), words))),
    h("p", { class: "faint" }, `${reply.length} tokens, together ${number(sum)} nats, sampled by version ${versions.join(", ")}`),
  ];
}
