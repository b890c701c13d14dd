// A button does nothing in the first second after it came before the player, nor in the half second after a press in
// that time: a game, or any page that opened this one, could put it under a finger that was about to press something
// else. So fast presses never get through, and slower ones do.
"use strict";

const { wait: waitWords } = document.currentScript.dataset;
const FIRST_SECOND = 1000; // milliseconds
const PAUSE = 500; // milliseconds without a press, after one that came too early

// Holds a button back, now and whenever it comes before the player anew; returns what does so.
function holdBack(button) {
  const status = statusBelow(button);
  let aliveFrom = 0; // by performance.now()
  let revival;
  let pressedTooEarly = false;
  const isDead = () => performance.now() < aliveFrom;

  function holdFor(milliseconds) {
    aliveFrom = Math.max(aliveFrom, performance.now() + milliseconds);
    button.ariaDisabled = "true";
    clearTimeout(revival);
    revival = setTimeout(() => (button.ariaDisabled = "false"), aliveFrom - performance.now());
  }

  function hold() {
    status.textContent = "";
    holdFor(FIRST_SECOND);
  }

  // Whatever puts it under a finger anew: a window that lay above it is gone.
  window.addEventListener("focus", hold);
  window.addEventListener("resize", hold);
  window.addEventListener("pageshow", ({ persisted }) => persisted && hold()); // by Back
  document.addEventListener("visibilitychange", hold);

  // Wherever it lands: whoever presses fast has not seen this page yet. Text may be typed.
  function press({ target }) {
    if (isDead() && !target.closest?.("input, textarea, select")) holdFor(PAUSE);
  }
  window.addEventListener("pointerdown", press, true);
  window.addEventListener("keydown", press, true);
  // A press counts where it began; one that is held on repeats itself.
  button.addEventListener("pointerdown", () => (pressedTooEarly = isDead()));
  button.addEventListener("keydown", (event) => {
    if (event.repeat) event.preventDefault();
    else pressedTooEarly = isDead();
  });
  button.addEventListener("click", (event) => {
    if (!pressedTooEarly && !isDead()) return hold(); // a second press would send a form twice
    pressedTooEarly = false;
    event.preventDefault();
    event.stopImmediatePropagation();
    // Not for the second click of a double click: the first counted, or said it.
    if (event.detail < 2) status.textContent = waitWords;
  });
  hold();
  return hold;
}

// Returns the live region below a button, which the buttons beside it share.
function statusBelow(button) {
  const row = button.closest(".choice, .row") ?? button;
  if (row.nextElementSibling?.matches(".wait")) return row.nextElementSibling;
  const status = document.createElement("p");
  status.className = "wait";
  status.setAttribute("role", "status");
  row.after(status);
  return status;
}

// -- the forms with a field marked data-hold --------------------------------------------------------

const held = new WeakSet();

function holdForms() {
  for (const field of document.querySelectorAll("[data-hold]")) {
    for (const button of field.form.querySelectorAll('button:not([type="button"])')) {
      if (!held.has(button)) holdBack(button);
      held.add(button);
    }
  }
}

// From when they are there: the consent page loads this before its body.
const comingIn = new MutationObserver(holdForms);
comingIn.observe(document, { childList: true, subtree: true });
document.addEventListener("DOMContentLoaded", () => {
  holdForms();
  comingIn.disconnect();
});
