"use strict";
// Keeps a page up to date while somebody sees it. Without this script, a page is as of when it was loaded.
const SECONDS = 5;

async function refresh() {
  if (document.hidden) return;
  const url = new URL(location.href);
  url.searchParams.set("part", "true");
  const answer = await fetch(url, { cache: "no-store" });
  if (answer.status === 401) return location.reload();
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  const main = document.getElementById("main");
  const parts = [...main.querySelectorAll("[data-part]")];
  const names = (some) => some.map((one) => one.dataset.part).join();
  const news = [...fresh.querySelectorAll("[data-part]")];
  for (const one of main.querySelectorAll("details[open][id]")) fresh.getElementById(one.id)?.setAttribute("open", "");
  if (names(parts) !== names(news)) return main.replaceChildren(...fresh.body.childNodes);
  // What did not change stays, and so does what somebody reads or has in focus there.
  parts.forEach((part, place) => {
    if (part.contains(document.activeElement) && document.activeElement !== part) return;
    if (part.innerHTML !== news[place].innerHTML) {
      part.replaceChildren(...news[place].childNodes);
      part.className = news[place].className;
    }
  });
}

// Whether this tab asks for a page for the second time in a row; yes, where it may not remember that.
function isSecond(place) {
  try {
    const before = sessionStorage.getItem("asked");
    sessionStorage.setItem("asked", before === place ? "" : place);
    return before === place;
  } catch {
    return true;
  }
}

async function keep() {
  try {
    await refresh();
    document.body.classList.remove("lost");
  } catch {
    document.body.classList.add("lost"); // the server does not answer
  }
  setTimeout(keep, 1000 * SECONDS);
}

function start() {
  document.body.classList.add("kept");
  setTimeout(keep, 1000 * SECONDS);
  document.addEventListener("visibilitychange", () => refresh().catch(() => {}));
}

if ("signIn" in document.body.dataset) {
  // A link from another site brings no cookie; from here, the same page does. So it is asked for once more.
  const here = location.pathname + location.search;
  if (location.pathname !== "/sign-in" && !isSecond(here)) location.replace(here);
} else {
  isSecond("");
  if (!("still" in document.body.dataset)) start();
}
