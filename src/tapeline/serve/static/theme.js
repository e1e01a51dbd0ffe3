// Before the page is drawn: light or dark, as it was chosen here, else as the system says.
const chosen = localStorage.getItem("theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
