// The reader's color scheme: system, light, or dark. Set before anything is drawn.
(() => {
  const CHOICES = { system: "light dark", light: "light", dark: "dark" };
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const ICONS = {
    system: "M8 2a6 6 0 1 0 0 12zM8 2a6 6 0 0 1 0 12v-1.2a4.8 4.8 0 0 0 0-9.6z",
    light: "M8 5a3 3 0 1 1 0 6 3 3 0 0 1 0-6zM8 1v2M8 13v2M1 8h2M13 8h2M3 3l1.4 1.4M11.6 11.6L13 13M13 3l-1.4 1.4M4.4 11.6L3 13",
    dark: "M13 10A6 6 0 0 1 6 3a5.5 5.5 0 1 0 7 7z",
  };

  function stored() {
    try {
      return localStorage.getItem("scheme");
    } catch {
      return null; // the browser stores nothing for this site
    }
  }
  let chosen = Object.hasOwn(CHOICES, stored()) ? stored() : "system";
  const apply = () => {
    document.documentElement.style.colorScheme = CHOICES[chosen];
  };
  apply();

  addEventListener("DOMContentLoaded", () => {
    const button = document.createElement("button");
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    const icon = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    icon.setAttribute("viewBox", "0 0 16 16");
    icon.setAttribute("aria-hidden", "true");
    icon.append(path);
    Object.assign(button, { className: "scheme", type: "button" });
    button.append(icon);
    const show = () => {
      path.setAttribute("d", ICONS[chosen]);
      button.title = `Colors: ${chosen}`;
      button.setAttribute("aria-label", button.title);
    };
    button.addEventListener("click", () => {
      // After `system`, switch to the scheme that the system does not use, so that something changes.
      const order = dark.matches ? ["system", "light", "dark"] : ["system", "dark", "light"];
      chosen = order[(order.indexOf(chosen) + 1) % order.length];
      try {
        localStorage.setItem("scheme", chosen);
      } catch {
        // not stored, so the choice lasts only until the page is closed
      }
      apply();
      show();
      document.dispatchEvent(new Event("scheme"));
    });
    show();
    document.querySelector(".top").append(button);
  });
  dark.addEventListener("change", () => document.dispatchEvent(new Event("scheme")));
})();
