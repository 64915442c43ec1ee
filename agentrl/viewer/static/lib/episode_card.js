// An episode's star, its note, and its card with the last screen.
import { failed, frame, get, h, icon, named, outcomeBadge, post, replace, signed, voidReason } from "./dom.js";

const address = (row) => `/episodes/${encodeURIComponent(row.id)}`;
/** Margin around the window within which screens are loaded. */
const AHEAD = "400px";
/** Number of screens per request. */
const MOST = 60;
const NOTE = 2000;

/** The star of an episode, which a click sets or removes; `follow` shows a change by another page. */
export function star(row) {
  const button = h(
    "button",
    {
      class: "star",
      type: "button",
      onclick: async () => {
        try {
          await post(`/api${address(row)}/star`, { starred: !row.starred });
          row.starred = !row.starred;
          draw();
        } catch (error) {
          failed(error);
        }
      },
    },
    icon("star"),
  );
  const draw = () => {
    button.setAttribute("aria-pressed", row.starred);
    button.setAttribute("aria-label", `Star ${row.id}`);
    button.title = row.starred ? "Remove the star" : "Star";
  };
  draw();
  button.follow = (starred) => {
    row.starred = starred;
    draw();
  };
  return button;
}

/** The note of an episode, which can be edited; `follow` shows a change by another page. */
export function note(row) {
  const place = h("div", { class: "note-of" });
  let saved = row.note;
  const show = () => {
    row.note = saved;
    replace(
      place,
      row.note ? h("p", { class: "note", dir: "auto" }, row.note) : null,
      h(
        "button",
        { class: "button quiet", type: "button", onclick: edit },
        row.note ? "Edit the note" : "Add a note",
      ),
    );
  };
  const edit = () => {
    const text = h("textarea", {
      class: "answer",
      "aria-label": "note",
      rows: "3",
      maxlength: NOTE,
      dir: "auto",
    });
    text.value = row.note;
    const save = async () => {
      try {
        await post(`/api${address(row)}/note`, { note: text.value.trim(), seen: row.note });
        saved = text.value.trim();
        show();
      } catch (error) {
        failed(error);
      }
    };
    replace(
      place,
      text,
      h(
        "div",
        { class: "choose" },
        h("button", { class: "button strong", type: "button", onclick: save }, "Save"),
        h("button", { class: "button", type: "button", onclick: show }, "Cancel"),
      ),
    );
    text.focus();
  };
  show();
  place.follow = (text) => {
    saved = text;
    // While someone is typing, keep the text. The server then refuses to save it, as the note changed.
    if (text !== row.note && !place.querySelector("textarea")) show();
  };
  return place;
}

/** The last screen of an episode, or its text. */
export const lastScreen = (one) =>
  one.frame
    ? h("img", {
        src: frame(encodeURIComponent(one.frame), 192),
        alt: "",
        loading: "lazy",
        onerror: (event) =>
          event.target.replaceWith(h("span", { class: "text-thumb large" }, "not recorded")),
      })
    : h(
        "span",
        { class: "text-thumb large", dir: "auto" },
        one.lost ?? (one.shown.replaceAll("<image>", "").trim() || "no screen"),
      );

/** Cards of episodes, whose screens are loaded as they come into view. */
export function gallery(rows) {
  const cards = new Map(rows.map((row) => [card(row), row]));
  const waiting = new Set();
  const observer = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        observer.unobserve(target);
        waiting.add(target);
      }
      load([...waiting]).catch(failed);
      waiting.clear();
    },
    { rootMargin: AHEAD },
  );
  async function load(some) {
    for (let first = 0; first < some.length; first += MOST) {
      const part = some.slice(first, first + MOST);
      const found = await get(
        `/api/screens?${new URLSearchParams(part.map((one) => ["id", cards.get(one).id]))}`,
      );
      for (const one of part) {
        const key = known(cards.get(one));
        seen.set(key, found[cards.get(one).id] ?? { lost: "gone" });
        replace(one.querySelector(".shot"), lastScreen(seen.get(key)));
      }
    }
  }
  for (const [one, row] of cards) {
    if (seen.has(known(row))) replace(one.querySelector(".shot"), lastScreen(seen.get(known(row))));
    else observer.observe(one);
  }
  return h("ul", { class: "cards" }, [...cards.keys()]);
}

/** Screens already loaded, which are reused when the gallery is redrawn, so that they don't flicker. */
const seen = new Map();
const known = (row) => `${row.time} ${row.id}`;

function card(row) {
  return h(
    "li",
    { class: "episode-card" },
    star(row),
    h(
      "a",
      { href: address(row), "aria-label": `${row.id}, ${row.void ? "void" : `reward ${signed(row.reward)}`}` },
      h("span", { class: "shot" }),
      h("span", { class: "line" }, h("b", {}, row.void ? "–" : signed(row.reward)), outcomeBadge(row)),
      voidReason(row),
      h("span", { class: "faint" }, `${named(row.label)}, step ${row.step}, seed ${row.seed}`),
      row.note ? h("span", { class: "note" }, h("bdi", {}, row.note)) : null,
    ),
  );
}
