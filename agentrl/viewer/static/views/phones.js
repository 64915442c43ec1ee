// The phones of a running job; free ones can be tapped.
import {
  base,
  fact,
  frame,
  get,
  h,
  notice,
  number,
  post,
  replace,
  seconds,
  share,
  placeholder,
} from "../lib/dom.js";

const LOOK_MS = 1000;

export async function phones(place) {
  const wall = h("div", { class: "wall" });
  const large = h("div");
  replace(place, h("h1", {}, "Phones"), large, wall);
  const state = { chosen: new URLSearchParams(location.search).get("phone"), drawn: new Map() };

  const choose = (name) => {
    state.chosen = name;
    history.replaceState(null, "", name ? `?phone=${encodeURIComponent(name)}` : location.pathname);
    show();
  };

  async function show() {
    const found = await get("/api/phones");
    if (!found.length) {
      const { job } = await get("/api/run/name");
      const ended =
        {
          finished: "The job has finished.",
          failed: "The job failed.",
          stopped: "The job stopped before finishing.",
        }[job] ?? "";
      replace(
        wall,
        placeholder(
          "empty",
          "No job is using phones now",
          `${ended} The phones of a running job appear here.`.trim(),
        ),
      );
      replace(large);
      return;
    }
    draw(wall, found, state, choose);
    const one = found.find((phone) => phone.name === state.chosen);
    if (one) enlarge(large, one, () => choose(null));
    else replace(large);
  }
  await show();
  setInterval(() => show().catch((error) => replace(large, notice(error.message))), LOOK_MS);
}

/** One card per phone, updated in place so that images do not flicker. */
function draw(wall, found, state, choose) {
  for (const phone of found) {
    let card = state.drawn.get(phone.name);
    if (!card) {
      card = h("button", { class: "phone", onclick: () => choose(phone.name) });
      card.picture = h("img", { alt: "" });
      card.blank = h("span", { class: "blank" }, "no screen yet");
      card.words = h("span", { class: "words" });
      card.append(card.picture, card.blank, card.words);
      state.drawn.set(phone.name, card);
    }
    card.picture.hidden = !phone.frame;
    card.blank.hidden = Boolean(phone.frame);
    if (phone.frame && card.shown !== phone.frame) {
      const next = new Image();
      next.onload = () => {
        card.picture.src = next.src;
        card.shown = phone.frame;
      };
      next.src = base + frame(phone.frame, 192);
    }
    card.setAttribute("aria-pressed", phone.name === state.chosen);
    replace(
      card.words,
      h("bdi", { class: "name" }, phone.name),
      badge(phone),
      h("span", { class: "faint" }, phone.episode ? `turn ${number((phone.turn ?? 0) + 1)}` : "idle"),
      phone.act_s === null ? null : h("span", { class: "faint" }, `${seconds(phone.act_s)} per action`),
    );
  }
  for (const [name, card] of state.drawn) {
    if (!found.some((phone) => phone.name === name)) {
      card.remove();
      state.drawn.delete(name);
    }
  }
  const cards = found.map((phone) => state.drawn.get(phone.name));
  if (cards.some((card, i) => wall.children[i] !== card) || wall.children.length !== cards.length)
    replace(wall, cards);
}

function badge(phone) {
  const kind =
    phone.state === "free"
      ? "success"
      : phone.state === "leased"
        ? "plain"
        : phone.state
          ? "failure"
          : "plain";
  return h("span", { class: `badge ${kind}` }, phone.state ?? "in use");
}

function enlarge(place, phone, close) {
  let view = place.firstChild?.phone === phone.name ? place.firstChild : null;
  if (!view) {
    view = h("section", { class: "card enlarged" });
    view.phone = phone.name;
    view.picture = h("img", { alt: "screen", draggable: "false" });
    view.said = h("div");
    view.facts = h("dl", { class: "facts" });
    view.picture.addEventListener("click", (event) => tap(view, event));
    view.append(
      h("div", {}, view.picture),
      h(
        "div",
        {},
        h("h2", {}, h("bdi", {}, phone.name)),
        view.facts,
        view.said,
        h("button", { class: "button", onclick: close }, "Close"),
      ),
    );
    replace(place, view);
  }
  view.free = phone.state === "free" && !phone.episode && !phone.host;
  view.cannot = phone.host
    ? `The phone is on ${phone.host} and cannot be reached from here.`
    : "The phone is in use. Wait until it is free.";
  view.picture.classList.toggle("free", view.free);
  const source = view.free
    ? `/api/phones/${encodeURIComponent(phone.name)}/screen?at=${Date.now()}`
    : phone.frame
      ? frame(phone.frame)
      : null;
  if (source && (view.free || view.shown !== phone.frame)) {
    const next = new Image();
    next.onload = () => {
      view.picture.src = next.src;
      view.shown = view.free ? null : phone.frame;
    };
    next.src = base + source;
  }
  replace(
    view.facts,
    phone.host ? fact("host", phone.host) : null,
    fact("state", phone.state ?? "in use"),
    fact(
      "episode",
      phone.episode
        ? h("a", { href: `/episodes/${encodeURIComponent(phone.episode)}` }, phone.episode)
        : "none",
    ),
    fact("turn", phone.episode ? number((phone.turn ?? 0) + 1) : "–"),
    fact("last action took", seconds(phone.act_s)),
    fact("busy", share(phone.busy_share)),
    fact("leases", number(phone.leases)),
    fact("failures", number(phone.failures)),
    fact("battery", phone.battery === null ? "–" : `${number(phone.battery)}%`),
  );
  if (!view.said.firstChild)
    replace(
      view.said,
      h("p", { class: "faint" }, phone.host ? view.cannot : "Click the screen of a free phone to tap it."),
    );
}

async function tap(view, event) {
  if (!view.free) {
    replace(view.said, notice(view.cannot, "plain"));
    return;
  }
  const box = view.picture.getBoundingClientRect();
  const x = (event.clientX - box.left) / box.width;
  const y = (event.clientY - box.top) / box.height;
  try {
    await post(`/api/phones/${encodeURIComponent(view.phone)}/tap`, { x: x.toFixed(4), y: y.toFixed(4) });
    replace(view.said, h("p", { class: "faint" }, `Tapped at ${x.toFixed(2)}, ${y.toFixed(2)}.`));
  } catch (error) {
    replace(view.said, notice(error.message));
  }
}
