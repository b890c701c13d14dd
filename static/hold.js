// Allow ignores clicks and keys for a moment after it came before the player: a game, or any page that
// opened this one, could put it under a finger that was about to press something else.
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
  });
  hold();
  return hold;
}
