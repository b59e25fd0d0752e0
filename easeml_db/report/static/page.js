// Draws the charts of the page from its JSON; a click on a trial, in a chart or in the leaderboard, dims all others.
(() => {
  const scheme = matchMedia("screen and (prefers-color-scheme: dark)");
  scheme.addEventListener("change", () => location.reload());

  const { charts: light, datasets, dark } = JSON.parse(document.getElementById("data").textContent);
  const names = new RegExp(Object.keys(dark).join("|"), "g");
  const coloured = (words) => (scheme.matches ? words.replace(names, (colour) => dark[colour]) : words);
  const charts = JSON.parse(coloured(JSON.stringify(light)));
  const views = [];
  let chosen = 0;

  const rows = (columns) => {
    const names = Object.keys(columns);
    return columns[names[0]].map((_, i) => Object.fromEntries(names.map((name) => [name, columns[name][i]])));
  };
  const specOf = (name) => {
    const { data_names, ...spec } = charts[name];
    return { ...spec, datasets: Object.fromEntries(data_names.map((each) => [each, rows(datasets[each])])) };
  };
  const choose = (trial) => {
    chosen = trial === chosen ? 0 : trial;
    for (const view of views) view.signal("chosen", chosen).runAsync();
    for (const row of document.querySelectorAll("tr[data-trial]")) {
      row.classList.toggle("chosen", Number(row.dataset.trial) === chosen);
    }
  };
  const draw = async (place) => {
    if (place.dataset.isDrawn) return;
    place.dataset.isDrawn = "yes";
    const renderer = datasets.units.trial.length > 2000 ? "canvas" : "svg";
    const actions = { export: true, source: false, compiled: false, editor: false };
    const { view } = await vegaEmbed(place, specOf(place.dataset.chart), { mode: "vega-lite", renderer, actions, tooltip: { theme: scheme.matches ? "dark" : "light" } });
    view.signal("chosen", chosen).runAsync();
    view.addEventListener("click", (_, item) => choose((item && item.datum && item.datum.trial) || 0));
    views.push(view);
  };

  for (const place of document.querySelectorAll("[data-chart]:not([hidden])")) draw(place);
  for (const row of document.querySelectorAll("tr[data-trial]")) {
    row.addEventListener("click", () => choose(Number(row.dataset.trial)));
  }
  const buttons = document.querySelectorAll("button[data-shows]");
  for (const button of buttons) {
    button.addEventListener("click", () => {
      for (const each of buttons) {
        const place = document.querySelector(`[data-chart="${each.dataset.shows}"]`);
        each.setAttribute("aria-pressed", String(each === button));
        place.hidden = each !== button;
        if (!place.hidden) draw(place);
      }
    });
  }
})();
