// Routing, and the parts shared by all views: the page frame and live updates.
import { base, get, h, keepToken, loading, replace, placeholder } from "./lib/dom.js";
import { compare } from "./views/compare.js";
import { episode } from "./views/episode.js";
import { episodes } from "./views/episodes.js";
import { group } from "./views/group.js";
import { logs } from "./views/logs.js";
import { overview } from "./views/overview.js";
import { phones } from "./views/phones.js";
import { play } from "./views/play.js";
import { preferences } from "./views/preferences.js";

const view = document.getElementById("view");
const own = location.pathname.split("/").slice(base.split("/").length).join("/");
const path = `/${own}`.replace(/\/+$/, "") || "/";
const rest = (prefix) => {
  try {
    return decodeURIComponent(path.slice(prefix.length));
  } catch {
    return path.slice(prefix.length);
  }
};

const route =
  path === "/"
    ? { name: "overview", show: overview }
    : path === "/episodes"
      ? { name: "episodes", show: episodes }
      : path.startsWith("/episodes/")
        ? { name: "episodes", show: (place) => episode(place, rest("/episodes/")) }
        : path.startsWith("/groups/")
          ? { name: "episodes", show: (place) => group(place, rest("/groups/")) }
          : path === "/play"
            ? { name: "play", show: play }
            : path === "/phones"
              ? { name: "phones", show: phones }
              : path === "/preferences"
                ? { name: "preferences", show: preferences }
                : path === "/logs" || path.startsWith("/logs/")
                  ? { name: "logs", show: (place) => logs(place, rest("/logs/")) }
                  : path === "/compare"
                    ? { name: "compare", show: compare }
                    : { name: "", show: notFound };

const TITLES = {
  overview: "Overview",
  episodes: "Episodes",
  play: "Play",
  phones: "Phones",
  preferences: "Preferences",
  compare: "Compare",
  logs: "Logs",
};

const OVERVIEW = h("a", { class: "button", href: "/" }, "Go to the overview");

keepToken();

function notFound(place) {
  replace(
    place,
    h("h1", {}, "Page not found"),
    placeholder("filtered", "There is nothing at this address", `${path} does not exist.`, OVERVIEW),
  );
}

document.getElementById("all").hidden = !base;
for (const link of document.querySelectorAll("nav a, .brand")) {
  link.setAttribute("href", base + link.getAttribute("href"));
  if (link.dataset.view === route.name) link.setAttribute("aria-current", "page");
}

/** Minimum time between two refreshes. */
const PAUSE_MS = 1000;

/** Called after every change, one call at a time. */
let refresh = null;

/** The run's state before the view loaded its data, to detect changes. */
let known = null;

async function start() {
  replace(view, loading());
  try {
    const run = await get("/api/run/name");
    known = JSON.stringify(run.news);
    document.getElementById("run").textContent = run.name;
    const title =
      path.startsWith("/episodes/") || path.startsWith("/groups/") || path.startsWith("/logs/")
        ? rest(`/${path.split("/")[1]}/`)
        : (TITLES[route.name] ?? "Page not found");
    document.title = `${title} · ${run.name} · agentrl`;
    linkPages(run);
    refresh = (await route.show(view, run)) ?? null;
  } catch (error) {
    replace(view, h("h1", { class: "unseen" }, "Error"), whatFailed(error));
  }
  listen();
}

/** Link only the pages for which the run has content. */
function linkPages({ plays, phones, logs }) {
  const isShown = { play: plays, preferences: !plays, phones, logs }; // a single episode has no sibling to compare with
  for (const [name, shown] of Object.entries(isShown))
    document.querySelector(`nav [data-view=${name}]`).hidden = !shown;
}

const GONE = 410;

/** Explain why a view cannot be shown, with links to continue. */
function whatFailed(error) {
  const again = h(
    "button",
    { class: "button strong", type: "button", onclick: () => location.reload() },
    "Try again",
  );
  const runs = base ? h("a", { class: "button", href: `${location.origin}/` }, "All runs") : null;
  if (error.status === 0)
    return placeholder(
      "error",
      "The server has stopped",
      `${error.message} Start it again with agentrl view on the same port.`,
      again,
    );
  if (error.status === GONE)
    return placeholder("error", "The folder of this run no longer exists", error.message, runs ?? again);
  const what = path.startsWith("/episodes/") ? "This episode cannot be shown" : "This page cannot be shown";
  return placeholder(
    "error",
    what,
    error.message,
    OVERVIEW,
    path.startsWith("/episodes/") ? h("a", { class: "button", href: "/episodes" }, "All episodes") : again,
  );
}

function listen() {
  const badge = document.getElementById("live");
  const stream = new EventSource(`${base}/api/news`);
  const lost = document.getElementById("lost");
  const show = (words, gone) => {
    badge.hidden = false;
    badge.classList.toggle("gone", gone);
    if (badge.textContent !== words) badge.title = badge.textContent = words;
  };
  let busy = false;
  let isGone = false;
  let again = false;
  stream.onmessage = async (event) => {
    const { news, job } = JSON.parse(event.data);
    lost.hidden = true;
    const isNew = JSON.stringify(news) !== known;
    known = JSON.stringify(news);
    if (job === "running" || (!job && isNew)) show("live", false);
    else if (job) show(job, true);
    if (!isNew) return;
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    do {
      again = false;
      if (isGone) location.reload(); // another run has taken the folder
      try {
        await refresh?.();
        linkPages(await get("/api/run/name"));
      } catch (error) {
        // the next change tries again
        isGone = error.status === GONE;
        if (isGone) replace(view, whatFailed(error));
      }
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    } while (again);
    busy = false;
  };
  stream.onerror = () => {
    show("disconnected", true);
    known = null;
    lost.hidden = false;
  };
}

start();
