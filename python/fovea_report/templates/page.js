"use strict";
// Dark mode, tables that sort, tables that copy as Markdown. Without this script the page reads the same.
(() => {
  const root = document.documentElement;
  const stored = () => { try { return localStorage.getItem("fovea-theme"); } catch { return null; } };
  const show = (theme) => { root.dataset.theme = theme; };
  show(stored() || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
  document.getElementById("theme").addEventListener("click", () => {
    show(root.dataset.theme === "dark" ? "light" : "dark");
    try { localStorage.setItem("fovea-theme", root.dataset.theme); } catch { /* private window */ }
  });

  const valueOf = (row, column) => {
    const cell = row.cells[column];
    const said = cell.dataset.value ?? cell.textContent.trim();
    return !cell.classList.contains("t") && said !== "" && !isNaN(said) ? Number(said) : said;
  };
  // Figures before words in either direction.
  const compare = (a, b, sign) => {
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return sign * (typeof a === "number" ? a - b : a.localeCompare(b));
  };
  const sort = (head) => {
    const body = head.closest("table").tBodies[0];
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...body.rows];
    rows.sort((a, b) => compare(valueOf(a, head.cellIndex), valueOf(b, head.cellIndex), down ? -1 : 1));
    body.append(...rows);
  };
  for (const head of document.querySelectorAll("figure.table th")) {
    head.tabIndex = 0;
    head.addEventListener("click", () => sort(head));
    head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(head); });
  }

  // A link into a section that is folded opens it.
  const unfold = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    if (target) target.scrollIntoView();
  };
  addEventListener("hashchange", unfold);
  unfold();

  const words = (cell) => {
    const parts = [...cell.childNodes].map((node) => node.textContent.trim()).filter(Boolean);
    const text = parts.length > 1 ? `${parts[0]} (${parts.slice(1).join(" ")})` : parts.join("");
    const bold = cell.querySelector("b") ? text.replace(parts[0], `**${parts[0]}**`) : text;
    return bold.replaceAll("|", "\\|");
  };
  const markdown = (table) => {
    const lines = [...table.rows].map((row) => `| ${[...row.cells].map(words).join(" | ")} |`);
    const rule = [...table.rows[0].cells].map((cell) => (cell.className.startsWith("n") ? "---:" : "---"));
    lines.splice(1, 0, `| ${rule.join(" | ")} |`);
    return lines.join("\n") + "\n";
  };
  const copy = async (text) => {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  };
  for (const button of document.querySelectorAll("button.copy")) {
    button.addEventListener("click", async () => {
      const label = button.textContent;
      await copy(markdown(button.parentNode.querySelector("table")));
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = label; }, 1200);
    });
  }
})();
