// The table of contents is open where there is room for it beside the text. What an address points to opens the folds
// around it. Parts are printed open, code is not printed.
addEventListener("DOMContentLoaded", () => {
  const contents = document.querySelector(".contents");
  const wide = matchMedia("(min-width: 1400px)");
  const open = () => { if (contents) contents.open = wide.matches; };
  wide.addEventListener("change", open);
  open();
  const unfold = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", unfold);
  unfold();
  addEventListener("beforeprint", () => { for (const part of document.querySelectorAll("details.part")) part.open = true; });
  addEventListener("beforeprint", () => { for (const details of document.querySelectorAll("details.source")) details.open = false; });
});
