// The logs of a run's job, engines, workers and phones.
import { get, h, number, replace, placeholder } from "../lib/dom.js";

export async function logs(place, chosen) {
  const list = h("ul", { class: "files" });
  const text = h("pre", { class: "log", tabindex: "0" });
  const shown = h("section", { class: "card", hidden: true }, h("h2", {}, h("bdi", {}, chosen)), text);
  replace(place, h("h1", {}, "Logs"), h("section", { class: "card" }, list), shown);

  async function refresh() {
    const files = await get("/api/logs");
    replace(
      list,
      files.length
        ? files.map(({ name, bytes }) =>
            h(
              "li",
              {},
              h(
                "a",
                {
                  href: `/logs/${encodeURIComponent(name)}`,
                  "aria-current": name === chosen ? "page" : null,
                },
                h("bdi", {}, name),
              ),
              " ",
              h("span", { class: "faint" }, size(bytes)),
            ),
          )
        : h(
            "li",
            {},
            placeholder(
              "empty",
              "No logs",
              "The job writes a log. If it runs in Ray, engines, workers and phones write logs, too.",
            ),
          ),
    );
    if (!chosen) return;
    const found = await get(`/api/logs/${encodeURIComponent(chosen)}`);
    shown.hidden = false;
    const isAtEnd = text.scrollTop + text.clientHeight >= text.scrollHeight - 4;
    if (text.textContent !== found.text) text.textContent = found.text;
    if (isAtEnd) text.scrollTop = text.scrollHeight;
  }
  await refresh();
  text.scrollTop = text.scrollHeight;
  return refresh;
}

const size = (bytes) =>
  bytes < 1000 ? `${bytes} bytes` : bytes < 1e6 ? `${number(bytes / 1e3)} kB` : `${number(bytes / 1e6)} MB`;
