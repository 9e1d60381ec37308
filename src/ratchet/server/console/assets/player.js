"use strict";

// Plays a transcript: one entry after the other, in the pace in which it was said. Without it the page is a plain list.
(() => {
  const player = document.querySelector("[data-player]");
  const entries = [...document.querySelectorAll(".entry")];
  if (!player || !entries.length) return;
  const play = player.querySelector("[data-play]");
  const speed = player.querySelector("[data-speed]");
  const place = player.querySelector("[data-place]");
  const longestWait = 3000;
  let at = -1;
  let timer = 0;

  function show(index, { move = true } = {}) {
    at = Math.max(0, Math.min(entries.length - 1, index));
    entries.forEach((entry, number) => {
      entry.classList.toggle("is-here", number === at);
      entry.toggleAttribute("aria-current", number === at);
    });
    place.textContent = `${at + 1} of ${entries.length}`;
    if (!move) return;
    entries[at].scrollIntoView({ block: "nearest" });
    history.replaceState(null, "", `#${entries[at].id}`);
  }

  function step(by) {
    const further = document.querySelector("[data-next]");
    if (by > 0 && at === entries.length - 1 && further) further.click();
    else show(at + by);
  }

  function stop() {
    clearTimeout(timer);
    timer = 0;
    play.textContent = "Play";
    play.setAttribute("aria-pressed", "false");
    document.body.classList.remove("is-playing");
    for (const entry of entries) entry.hidden = false;
  }

  function reveal() {
    entries.forEach((entry, number) => { entry.hidden = number > at; });
  }

  function next() {
    if (at >= entries.length - 1) return stop();
    const pause = Number(entries[at + 1].dataset.ms) - Number(entries[at].dataset.ms);
    timer = setTimeout(() => {
      show(at + 1);
      reveal();
      next();
    }, Math.min(longestWait, Math.max(60, pause / Number(speed.value))));
  }

  function start() {
    if (at < 0 || at === entries.length - 1) show(0);
    play.textContent = "Stop";
    play.setAttribute("aria-pressed", "true");
    document.body.classList.add("is-playing");
    reveal();
    next();
  }

  function jump() {
    const wanted = entries.findIndex((entry) => `#${entry.id}` === location.hash);
    if (wanted >= 0) show(wanted);
  }

  player.addEventListener("click", (event) => {
    const button = event.target.closest("[data-step]");
    if (button) step(Number(button.dataset.step));
  });
  play.addEventListener("click", () => (timer ? stop() : start()));
  document.addEventListener("keydown", (event) => {
    if (event.target.closest("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "n") step(1);
    else if (event.key === "p") step(-1);
  });
  addEventListener("hashchange", jump);
  player.hidden = false;
  show(0, { move: false });
  jump();
})();
