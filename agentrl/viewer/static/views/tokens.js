// The sampled tokens of a turn, colored by log-probability, advantage or weight version.
import { get, h, notice, number, replace, signed } from "../lib/dom.js";

const cache = new Map();
/** By name in the address; the first is the default. */
export const COLORINGS = { logprob: "log-probability", advantage: "advantage", version: "version" };

export async function tokensOf(place, record, turn, coloring, choose) {
  const path = `/api/episodes/${encodeURIComponent(record.id)}/turns/${turn + 1}`;
  if (!cache.has(path)) {
    replace(place, h("p", { class: "loading" }, "Loading…"));
    try {
      cache.set(path, await get(path));
    } catch (error) {
      replace(place, notice(error.message));
      return;
    }
  }
  const found = cache.get(path);
  replace(place,
    h("div", { class: "choose" }, Object.entries(COLORINGS).map(([name, label]) => h("button", {
      class: "button quiet", "aria-pressed": name === coloring, onclick: () => choose(name),
    }, label))),
    found.reply.length ? h("p", { class: "tokens", dir: "ltr" }, found.reply.map((token) => piece(token, record.played[turn], coloring))) :
      h("p", { class: "empty" }, "No tokens: a person or a script answered."),
    found.note && found.reply.length ? h("p", { class: "faint" }, found.note) : null,
    found.reply.length ? legend(found.reply, record.played[turn], coloring) : null,
    found.prompt.length ? h("details", {}, h("summary", {}, `Prompt, ${number(found.prompt.reduce((n, t) => n + t.count, 0))} tokens`),
      h("p", { class: "tokens prompt", dir: "ltr" }, found.prompt.map((t) => h("span", { class: "token", title: `id ${t.id}` }, t.text, t.count > 1 ? h("sub", {}, `×${t.count}`) : null)))) : null);
}

/** A token's own advantage if recorded, otherwise its turn's. */
const advantageOf = (token, turn) => token.advantage ?? turn.advantage;

function level(token, turn, coloring) {
  const strength = coloring === "logprob" ? Math.min(4, Math.floor(-token.logprob))
    : coloring === "advantage" ? Math.min(4, Math.ceil(2 * Math.abs(advantageOf(token, turn) ?? 0))) : token.version % 5;
  const kind = coloring === "advantage" ? (advantageOf(token, turn) > 0 ? "up" : "down") : coloring;
  return `${kind}-${Math.max(0, strength)}`;
}

function piece(token, turn, coloring) {
  const title = `id ${token.id}, log-probability ${number(token.logprob)}, version ${token.version}, advantage ${signed(advantageOf(token, turn))}`;
  return h("span", { class: `token ${level(token, turn, coloring)}`, title, tabindex: "0" }, token.text);
}

const NATS = ["above -1", "-1 to -2", "-2 to -3", "-3 to -4", "below -4"];

function legend(reply, turn, coloring) {
  const sum = reply.reduce((total, token) => total + token.logprob, 0);
  const versions = [...new Set(reply.map((token) => token.version))];
  const key = coloring === "logprob" ? NATS.map((words, level) => [words, `logprob-${level}`])
    : coloring === "version" ? versions.map((version) => [`version ${version}`, `version-${version % 5}`])
    : [[`${reply[0].advantage === null ? "the whole turn" : "the turn's mean"}: ${signed(turn.advantage)}`, level({ advantage: turn.advantage }, turn, coloring)]];
  return [
    h("ul", { class: "legend" }, key.map(([words, kind]) => h("li", {}, h("span", { class: `dot ${kind}` }), words))),
    h("p", { class: "faint" }, `${reply.length} tokens, log-probability ${number(sum)} in total, sampled by weight version ${versions.join(", ")}`),
  ];
}
