// Runs before the page is drawn, so that it never flashes in the other theme.
const chosen = localStorage.getItem("ratchet-theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
