// Buttons that copy the lines below them. Without this script they are not shown.
addEventListener("DOMContentLoaded", () => {
  const select = code => getSelection().selectAllChildren(code);
  const copy = async code => {
    try { await navigator.clipboard.writeText(code.textContent); return true; } catch { /* no permission, or no clipboard */ }
    select(code);
    return document.execCommand("copy");
  };
  for (const button of document.querySelectorAll("button.copy")) {
    const lines = button.closest(".lines"), said = lines.querySelector("[role=status]");
    button.addEventListener("click", async () => {
      const copied = await copy(lines.querySelector("code"));
      said.textContent = copied ? "Copied" : "Selected: copy with Ctrl+C or ⌘C";
      setTimeout(() => { said.textContent = ""; }, 4000);
    });
    button.hidden = false;
  }
});
