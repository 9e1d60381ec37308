"use strict";

// Times in the reader's own zone.
function localTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]:not([data-local])")) {
    const when = new Date(time.dateTime);
    if (Number.isNaN(when.getTime())) continue;
    time.title = time.textContent;
    const today = when.toDateString() === new Date().toDateString();
    time.textContent = today ? when.toLocaleTimeString() : when.toLocaleString();
    time.dataset.local = "";
  }
}

// A log shows its end, unless somebody reads further up.
function tails(root) {
  for (const log of root.querySelectorAll("[data-tail]")) {
    if (log.dataset.read === undefined) log.scrollTop = log.scrollHeight;
    log.onscroll = () => {
      if (log.scrollTop + log.clientHeight < log.scrollHeight - 8) log.dataset.read = "";
      else delete log.dataset.read;
    };
  }
}

function settle(root) {
  localTimes(root);
  tails(root);
}

// What a reader has opened, typed or scrolled to survives an update of the page.
function keepReadersState() {
  if (typeof Idiomorph === "undefined") return;
  Idiomorph.defaults.ignoreActiveValue = true;
  Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) =>
    !(name === "open" && node.tagName === "DETAILS") && name !== "data-read";
  Idiomorph.defaults.callbacks.beforeNodeMorphed = (old, fresh) => !isKept(old, fresh) && !isExchanged(old, fresh);
}

// A form that is to be kept stays as it was filled in, as long as there is one for the same thing.
function isKept(old, fresh) {
  return old.id && old.id === fresh.id && old.dataset?.keep !== undefined && fresh.dataset?.keep !== undefined;
}

// A drawing of many parts is exchanged as a whole: to compare it part by part would hold the reader up.
function isExchanged(old, fresh) {
  const whole = old.dataset?.whole !== undefined && fresh.dataset?.whole !== undefined;
  if (!whole || old.contains(document.activeElement)) return false;
  old.replaceChildren(...fresh.childNodes);
  return true;
}

function switchTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("ratchet-theme", root.dataset.theme);
}

function moveInList(step) {
  const rows = [...document.querySelectorAll("table.list tbody tr")];
  const links = rows.map((row) => row.querySelector("a, summary")).filter(Boolean);
  if (!links.length) return;
  const at = links.indexOf(document.activeElement);
  links[Math.min(links.length - 1, Math.max(0, at < 0 ? 0 : at + step))].focus();
}

let afterG = 0;
function onKey(event) {
  const writing = event.target.closest("input, textarea, select, [contenteditable]");
  if (writing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (Date.now() - afterG < 1500) {
    afterG = 0;
    const place = document.querySelector(`#places [data-key="${CSS.escape(event.key)}"]`);
    if (place) place.click();
    return;
  }
  if (event.key === "g") afterG = Date.now();
  else if (event.key === "j") moveInList(1);
  else if (event.key === "k") moveInList(-1);
  else if (event.key === "?") document.getElementById("keys")?.showModal();
  else if (event.key === "/") {
    const filter = document.querySelector("[data-filter]");
    if (!filter) return;
    event.preventDefault();
    filter.focus();
  }
}

function onClick(event) {
  if (event.target.closest("[data-theme-switch]")) switchTheme();
  if (event.target.closest("[data-keys]")) document.getElementById("keys").showModal();
  const menu = event.target.closest(".menu");
  if (menu) menu.setAttribute("aria-expanded", String(menu.getAttribute("aria-expanded") !== "true"));
}

// What cannot be undone is asked about first.
function onSubmit(event) {
  const ask = event.target.dataset.ask;
  if (ask && !confirm(ask)) event.preventDefault();
}

document.addEventListener("keydown", onKey);
document.addEventListener("click", onClick);
document.addEventListener("submit", onSubmit);
document.addEventListener("htmx:afterSwap", (event) => settle(event.target));
document.addEventListener("htmx:afterSettle", () => settle(document));
document.addEventListener("htmx:sseOpen", () => {
  document.body.classList.add("is-live");
  // What happened between the reading of the page and this moment was told to nobody.
  htmx.trigger("#live", "sse:changed");
});
document.addEventListener("htmx:sseError", () => document.body.classList.remove("is-live"));
document.addEventListener("htmx:sseClose", () => document.body.classList.remove("is-live"));
keepReadersState();
settle(document);
