// Before the first paint, so that nothing flashes: the colours that were chosen last, else the system's.
"use strict";
try {
  const chosen = localStorage.getItem("ephemeral-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* a browser that stores nothing shows the system's */ }
