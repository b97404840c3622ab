"use strict";
// The theme that the reader chose last, else the page's own: what the system prefers for "auto", dark where none is named.
(() => {
  const root = document.documentElement;
  const other = () => (root.dataset.theme === "light" ? "dark" : "light");
  const kept = () => { try { return localStorage.getItem("uvnote-theme"); } catch { return null; } };
  const keep = theme => { try { localStorage.setItem("uvnote-theme", theme); } catch { /* this page alone */ } };
  const preferred = () => (matchMedia("(prefers-color-scheme: light)").matches ? "light" : "dark");
  root.dataset.theme = kept() || (root.dataset.theme === "auto" ? preferred() : root.dataset.theme) || "dark";
  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const name = () => { button.textContent = `${other()} theme`; };
    button.addEventListener("click", () => {
      root.dataset.theme = other();
      keep(root.dataset.theme);
      name();
    });
    name();
    button.hidden = false;
  });
})();
