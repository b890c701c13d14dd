// A button ignores clicks and keys until it was before the player for a moment in which nothing was pressed: a
// game, or any page that opened this one, could put it under a finger that was about to press something else.
"use strict";

const DEAD_TIME = 1000; // milliseconds

// Holds a button back, now and whenever it comes before the player anew; returns what does so.
function holdBack(button) {
  let aliveFrom = 0; // by performance.now()
  let revival;
  let pressedTooEarly = false;
  const isDead = () => performance.now() < aliveFrom;

  function hold() {
    aliveFrom = performance.now() + DEAD_TIME;
    button.ariaDisabled = "true";
    clearTimeout(revival);
    revival = setTimeout(() => (button.ariaDisabled = "false"), DEAD_TIME);
  }

  // Whatever puts it under a finger anew: a window that lay above it is gone.
  window.addEventListener("focus", hold);
  window.addEventListener("resize", hold);
  window.addEventListener("pageshow", ({ persisted }) => persisted && hold()); // by Back
  document.addEventListener("visibilitychange", hold);

  // Fast presses, wherever they land, would get through at the end of the time: it starts anew. Text may be typed.
  function press({ target }) {
    if (isDead() && !target.closest?.("input, textarea, select")) hold();
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
    if (pressedTooEarly || isDead()) {
      event.preventDefault();
      event.stopImmediatePropagation();
    }
    pressedTooEarly = false;
    hold(); // also after a press that counts: the second click of a double click would send a form twice
  });
  hold();
  return hold;
}

// -- the forms with a field marked data-hold --------------------------------------------------------

const held = new WeakSet();

function holdForms() {
  for (const field of document.querySelectorAll("[data-hold]")) {
    for (const button of field.form.querySelectorAll("button")) {
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
