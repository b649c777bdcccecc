// Under `holdfast watch` the page asks for new values now and then; a page in a file never does.

function follow() {
  showProgress();
  if (data.live) setTimeout(ask, 1000 * data.live.every);
}

function showProgress(ended = "") {
  byId("live").hidden = !data.live;
  if (data.live) byId("live").textContent = ended || data.live.progress;
}

async function ask() {
  let found = null;
  try {
    const answer = await fetch(`values.json?after=${data.live.version}`, { cache: "no-store" });
    if (answer.status === 200) found = await answer.json();
    else if (!answer.ok) throw new Error(answer.status);
  } catch {
    showProgress("holdfast watch has ended; this is how the run stood.");
    return;
  }
  if (found) {
    data = found;
    build();
    drawAll();
  }
  follow();
}
