// The theme that the reader chose last, else the page's own.
const root = document.documentElement;
if (root.dataset.theme === "auto") root.dataset.theme = matchMedia("(prefers-color-scheme: light)").matches ? "light" : "dark";
try { root.dataset.theme = localStorage.getItem("uvnote-theme") || root.dataset.theme; } catch {}
addEventListener("DOMContentLoaded", () => {
  const button = document.getElementById("theme");
  const contents = document.querySelector(".contents");
  const name = () => { button.textContent = root.dataset.theme === "dark" ? "light theme" : "dark theme"; };
  button.addEventListener("click", () => {
    root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("uvnote-theme", root.dataset.theme); } catch {}
    name();
  });
  name();
  button.hidden = false;
  const wide = matchMedia("(min-width: 1400px)");
  const open = () => { if (contents) contents.open = wide.matches; };
  wide.addEventListener("change", open);
  open();
  addEventListener("beforeprint", () => { for (const each of document.querySelectorAll("details.cell-source")) each.open = false; });
});
