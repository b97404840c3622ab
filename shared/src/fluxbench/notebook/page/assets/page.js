// The table of contents is open where there is room for it beside the text; no code is printed.
addEventListener("DOMContentLoaded", () => {
  const contents = document.querySelector(".contents");
  const wide = matchMedia("(min-width: 1400px)");
  const open = () => { if (contents) contents.open = wide.matches; };
  wide.addEventListener("change", open);
  open();
  addEventListener("beforeprint", () => { for (const details of document.querySelectorAll("details.source")) details.open = false; });
});
