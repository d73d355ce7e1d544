#include "dashboard_page.h"

namespace tkv::cli {

const char* const kDashboardStyle = R"css(:root {
  color-scheme: light dark;
  --faint: color-mix(in srgb, currentColor 18%, transparent);
  --line: light-dark(#1763c6, #7db4ff);
}
* { box-sizing: border-box; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 0 auto; max-width: 70rem; padding: 0 .9rem 2rem; }
h1 { font-size: 1.25rem; margin: 1rem 0 .4rem; overflow-wrap: anywhere; }
h2 { font-size: 1rem; margin: 1.4rem 0 .3rem; }
#state, #silence { border-left: .3rem solid #2b8a3e; margin: .4rem 0; padding: .2rem .6rem; overflow-wrap: anywhere; }
#state.slow { border-color: #d98200; }
#state.wrong, #silence { border-color: #c92a2a; }
#state.ended { border-color: gray; }
#plots { display: grid; gap: .8rem; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)); }
figure { margin: 0; }
figcaption { display: flex; justify-content: space-between; gap: .5rem; }
svg { display: block; width: 100%; height: 5rem; border-bottom: 1px solid; border-top: 1px dotted var(--faint); }
td svg { width: 6rem; height: 1.2rem; border-top: 0; }
polyline { fill: none; stroke: var(--line); stroke-width: 2; vector-effect: non-scaling-stroke; }
small { opacity: .75; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; white-space: nowrap; }
th, td { padding: .15rem .8rem .15rem 0; text-align: right; border-bottom: 1px solid var(--faint); }
th:first-child, td:first-child { text-align: left; }
b, td { font-variant-numeric: tabular-nums; }
td.bad { color: light-dark(#c92a2a, #ff8787); font-weight: bold; }
)css";

const char* const kDashboardScript = R"js("use strict";
// Loads the page again each second and replaces the parts whose numbers may have changed.
const silence = document.getElementById("silence");

function show(page) {
  for (const part of document.querySelectorAll("[data-live]")) {
    const newer = page.getElementById(part.id);
    // A part in which the reader has selected text stays until the selection is gone.
    if (newer && !(getSelection().type === "Range" && getSelection().containsNode(part, true))) {
      part.replaceWith(document.adoptNode(newer));
    }
  }
  document.title = page.title;
}

async function refresh() {
  try {
    const answer = await fetch("/", {cache: "no-store"});
    if (!answer.ok) throw new Error(answer.status);
    show(new DOMParser().parseFromString(await answer.text(), "text/html"));
    silence.hidden = true;
  } catch {
    silence.textContent = "tkv dashboard does not answer: it ends with its job. The numbers are old.";
    silence.hidden = false;
  }
  if (!document.getElementById("state").hasAttribute("data-ended")) setTimeout(refresh, 1000);
}

setTimeout(refresh, 1000);
)js";

}  // namespace tkv::cli
