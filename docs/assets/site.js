// What Material leaves out for those who use a keyboard or a screen reader: what scrolls can be
// reached, and what has a role has a name. Material adds its parts late, so this looks again.
function mended(root) {
  for (const each of root.querySelectorAll("pre > code, .md-typeset__scrollwrap"))
    if (each.scrollWidth > each.clientWidth) each.tabIndex = 0;
  for (const each of root.querySelectorAll("nav.md-code__nav")) each.setAttribute("role", "presentation");
  for (const each of root.querySelectorAll(".md-search[role=dialog]")) each.setAttribute("aria-label", "Search");
}
let isDue = false;
function later() {
  if (!isDue) requestAnimationFrame(() => { isDue = false; mended(document); });
  isDue = true;
}
new MutationObserver(later).observe(document.body, { childList: true, subtree: true });
addEventListener("resize", later);
later();
