"use strict";
// The theme, dark unless the reader chose the light one; kept under the same name as the notebooks' pages keep theirs.
(() => {
  const root = document.documentElement;
  const kept = () => { try { return localStorage.getItem("uvnote-theme"); } catch { return null; } };
  const keep = theme => { try { localStorage.setItem("uvnote-theme", theme); } catch { /* this page alone */ } };
  if (kept() === "light") root.dataset.theme = "light";
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const name = () => { button.textContent = root.dataset.theme === "light" ? "Dark theme" : "Light theme"; };
    button.addEventListener("click", () => {
      root.dataset.theme = root.dataset.theme === "light" ? "dark" : "light";
      keep(root.dataset.theme);
      name();
    });
    name();
  });
})();
